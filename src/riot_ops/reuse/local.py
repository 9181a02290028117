"""The back end that runs shared dataflows in this process, in one engine that grows and shrinks between batches.

The engine runs the steps that :func:`~riot_ops.graph.lowering.lower` makes of each dataflow, under the ids of the
running steps. A new dataflow appends the steps that do not run yet; the state of the other steps is not touched. A
shared step has, bit for bit, the output that it would have for one dataflow alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from riot_ops.core.checks import check_count, duration_seconds
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.parameters import Duration
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.graph.lowering import Step
from riot_ops.reuse.checkpoint import FORMAT, LocalCheckpoint, Snapshot
from riot_ops.reuse.driver import Driver, poll_until
from riot_ops.reuse.errors import FailedBeforeError, describe_error
from riot_ops.reuse.ledger import Addition, PauseChange, Removal
from riot_ops.reuse.limits import Limits
from riot_ops.reuse.saved_state import placeholder_reasons
from riot_ops.reuse.shared_source import SharedSource, SourceBindings, SourcePool
from riot_ops.reuse.sink_pool import SinkPool
from riot_ops.reuse.sink_queue import SinkPosition, SinkQueue
from riot_ops.reuse.submission import Deployment, ReadMode, StepReferences, check_sink_folders, lower_placed
from riot_ops.runtime.engine import Batches, Engine

__all__ = ["LocalBackend", "OpenEndpoints", "open_endpoints"]


class LocalBackend(Driver):
    """Runs shared dataflows in this process.

    :meth:`turn` and :meth:`run` move the records; after :meth:`start` a thread of the back end does. Actions happen
    between two turns, so a new dataflow sees all records of a message or none.

    Parameters
    ----------
    batch_size : int, default 65536
        Maximum number of records read from a source per turn.
    epoch : timedelta or text, default "10s"
        Interval between commits of the output. A dataflow's output is also committed when the dataflow or its source
        ends.
    limits : Limits, optional
        How far a dataflow with slow sinks may delay the others.
    folder : path, optional
        Folder for checkpoints, one with every commit and every new dataflow. A manager over the same ``log`` and a new
        back end over the same folder continue from there, with all state. Sinks that discard uncommitted output, such
        as files, then hold each record once; other sinks may hold some records twice. Sources must be replayable. With
        a folder, :meth:`close` does not end the sinks.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops.reuse import LocalBackend, ReuseManager
    >>> backend = LocalBackend()
    >>> manager = ReuseManager(backend)
    >>> readings = ro.MemorySource([{"value": 10.0}, {"value": 12.0}])
    >>> sinks = {"raw": ro.MemorySink(), "smooth": ro.MemorySink()}
    >>> for name, sink in sinks.items():
    ...     flow = ro.Dataflow(name)
    ...     stream = flow.source("readings", schema={"value": "double"})
    ...     stream = stream if name == "raw" else stream.to(ro.tasks.KalmanFilter(), id="kalman")
    ...     _ = manager.submit(flow.sink("out", stream), readings, sink)
    >>> backend.run()
    >>> sinks["raw"].table("readings").num_rows, sinks["smooth"].table("kalman").num_rows
    (2, 2)
    >>> backend.stats()["messages"]
    2
    """

    def __init__(
        self,
        batch_size: int = 65_536,
        epoch: timedelta | str = "10s",
        limits: Limits | None = None,
        folder: str | Path | None = None,
    ) -> None:
        check_count(batch_size=batch_size)
        epoch_s = duration_seconds("epoch", epoch, zero=True)
        super().__init__()
        self.batch_size = batch_size
        self.epoch_s = epoch_s
        self.sources = SourcePool()
        self.sinks = SinkPool(Limits() if limits is None else limits, durable=folder is not None)
        self.checkpoint = None if folder is None else LocalCheckpoint(folder)
        self.reads: ReadMode = "once" if folder is None else "again"
        self._recovered: list[Deployment] | None = None
        self._snapshots: dict[str, bytes] = {}  # of the steps that have seen no record since
        #: Kept state of each placeholder step that has not missed a record yet.
        self._placeholder_state: dict[str, bytes | None] = {}
        #: The source steps upstream of each running step.
        self._origins: dict[str, frozenset[str]] = {}
        self.references = StepReferences()
        #: By stream, and by step of the engine: the queues that subscribe to it, each with its dataflow's name for it.
        self.stream_queues: dict[str, list[tuple[SinkQueue, str]]] = {}
        self.engine = Engine([], self.stream_queues.keys())
        self.engine.failures = {}
        self.step_queues: dict[str, list[tuple[SinkQueue, str]]] = {}
        self._records: dict[str, int] = {}
        self._flushed: set[str] = set()
        self._messages = self._spared = 0
        self._committed = time.monotonic()
        self._changed = True

    # -- actions -----------------------------------------------------------------------------------

    def extend(self, deployments: Sequence[Deployment]) -> list[dict[str, int]]:
        if self._recovered is not None:
            self._recovered += deployments
            return [dict.fromkeys(submission.sources, 0) for _, submission in deployments]
        # before the lock is taken: sources and sinks may take long to open
        with open_endpoints(deployments, self.sources, self.sinks) as opened, self.exclusive():
            firsts = self._extend(deployments, opened)
            try:
                if self.engine.failures:  # a shared step may have failed while the sinks opened
                    self._deliver(self.engine.process({}))
                if self.checkpoint is not None:
                    self.checkpoint.forget(one.name for one, _ in deployments)
                    self.commit()
            except BaseException:
                for one, _ in reversed(deployments):
                    self.reduce(Removal(one.name, tuple(step.id for step in one.new), paused_steps=one.resumed_steps))
                raise
            return firsts

    def _extend(self, deployments: Sequence[Deployment], opened: OpenEndpoints) -> list[dict[str, int]]:
        """Add the steps of dataflows whose sources and sinks are open."""
        fresh, bindings, queues = opened
        with ExitStack() as undo:
            found = []
            for (addition, submission), needs, queue in zip(deployments, bindings, queues, strict=True):
                steps = lower_placed(submission.flow, addition.placed)
                new = {step.id for step in addition.new}
                if known := new & self._origins.keys():
                    raise ConfigError(f"the step {min(known)} is another manager's; each needs a back end of its own")
                added = {s.id: s for s, n, _ in steps if addition.placed[n] in new and not self.engine.has(s.id)}
                self.engine.extend(list(added.values()))
                undo.callback(self.engine.drop, added)
                found.append((addition, steps, needs, queue))
            undo.pop_all()
        self._changed = True
        # nothing below may raise
        self.sources.open_sources |= fresh
        for queue in queues:
            self.sinks.add(queue)
        return [self._register(*one) for one in found]

    def _register(
        self, addition: Addition, steps: list[tuple[Step, str, str]], bindings: SourceBindings, queue: SinkQueue
    ) -> dict[str, int]:
        """Note which engine steps a dataflow needs, and which streams its queue gets."""
        fresh = {step.id for step in addition.new}
        self.engine.disabled -= addition.resumed_steps
        for step, node, label in steps:
            if addition.placed[node] in fresh:
                self.references.add(addition.placed[node], step.id)
            queue.subscribe(self.step_queues, step.id, label)
        for new in addition.new:
            above = (self._origins[one] for one in new.inputs)
            self._origins[new.id] = frozenset().union(*above) if new.inputs else frozenset({new.id})
        for stream in queue.submission.routes:
            if stream != ERRORS_STREAM:
                queue.subscribe(self.stream_queues, addition.placed[stream], stream)
        return self.sources.attach(addition.name, addition.placed, bindings)

    def reduce(self, removal: Removal) -> None:
        with self.exclusive():
            stopped = set(removal.stopped)
            self.sinks.close(removal.name)
            for step in stopped:
                self.references.drop(step)
                self._origins.pop(step, None)
                self._records.pop(step, None)
            self.engine.drop({step.id for step in self.engine.steps if step.id not in self.references})
            self.engine.disabled = (self.engine.disabled - stopped) | removal.paused_steps
            self.engine.failures = {s: e for s, e in (self.engine.failures or {}).items() if s in self.references}
            self._placeholder_state = {s: state for s, state in self._placeholder_state.items() if s in self.references}
            self._flushed -= stopped
            self.sources.detach(removal.name, stopped)

    def wait_for_sinks(self, name: str) -> None:
        pass  # slow sinks have threads of their own

    def apply_pause(self, change: PauseChange) -> dict[str, int]:
        until = time.monotonic() + self.sinks.limits.patience_seconds
        border = poll_until(lambda: self._try_pause(change), until, interval_s=0.1)
        if border is None:
            raise ConnectorError("no checkpoint can be written while sinks lag this far: try again later")
        return border

    def _try_pause(self, change: PauseChange) -> dict[str, int] | None:
        """Pause or resume a dataflow if the records before that are in a checkpoint; None if they are not."""
        with self.exclusive():
            if self._changed and not self.commit(self.sinks.limits.grace):  # the sinks catch up in the meantime
                return None
            queue, disabled = self.sinks.queues[change.name], self.engine.disabled
            before = queue.paused, disabled
            queue.paused = change.paused
            self.engine.disabled = disabled | change.steps if change.paused else disabled - change.steps
            self.engine.disabled |= set(self.engine.failures or ())
            try:
                if not change.paused and any(source.ended for source in self.sources.open_sources.values()):
                    self._flush_ended()
            except BaseException:
                queue.paused, self.engine.disabled = before
                raise
            return self.sources.next_messages(change.name)

    def defragment(self, groups: Iterable[frozenset[str]]) -> None:
        pass  # there is one engine

    @contextmanager
    def recovering(self) -> Iterator[None]:
        with self.exclusive():
            self._recovered = recovered = list[Deployment]()
            try:
                yield
            finally:
                self._recovered = None
            try:
                self._recover(recovered)
            except BaseException:
                self.sinks.halt()  # the checkpoint stays unchanged
                raise

    def _recover(self, recovered: list[Deployment]) -> None:
        """Continue from the checkpoint; dataflows that are not in it begin."""
        checkpoint, names = self.checkpoint, [submission.name for _, submission in recovered]
        positions = {
            name: SinkPosition(None) if checkpoint is None else checkpoint.sink_position(name) for name in names
        }
        source_names = {} if checkpoint is None else checkpoint.source_names()
        with open_endpoints(recovered, self.sources, self.sinks, positions, source_names) as opened:
            self._extend(recovered, opened)
        self._restore_failures(
            {} if checkpoint is None else checkpoint.snapshot.broken, {} if checkpoint is None else checkpoint.state
        )
        if checkpoint is None:
            return
        snapshot = checkpoint.snapshot
        self.engine.restore(checkpoint.state)
        for source in self.sources.open_sources.values():
            checkpoint.restore(source)
        self._records = {step: n for step, n in snapshot.taken.items() if step in self._origins}
        self._flushed = {*snapshot.flushed} & self._origins.keys()
        self._messages, self._spared = snapshot.messages, snapshot.spared
        self.commit()
        self._changed = False  # everything is as in the checkpoint

    def _restore_failures(self, before: Mapping[str, str], state: Mapping[str, bytes]) -> None:
        """Disable steps that failed before or that are placeholders, and fail the sinks that depend on them."""
        missing = placeholder_reasons(self.engine.steps)
        self._placeholder_state = {step: state.get(step) for step in missing.keys() - before.keys()}
        broken = {**missing, **before}
        self.engine.failures = {step: FailedBeforeError(broken[step]) for step in broken if self.engine.has(step)}
        self.engine.disabled |= self.engine.failures.keys()
        self._deliver({})

    # -- reports -----------------------------------------------------------------------------------

    def is_fresh(self, step: str) -> bool:
        return not self._records.get(step)

    def has_failed(self, step: str) -> bool:
        return any(need in (self.engine.failures or ()) for need in self.references.of(step))

    def running_steps(self) -> set[str]:
        return set(self._origins)

    def retained_dataflows(self) -> Set[str]:
        return frozenset() if self.checkpoint is None else self.checkpoint.snapshot.dataflows.keys()

    def check_sinks(self, deployments: Sequence[Deployment]) -> None:
        if self.checkpoint is not None:
            check_sink_folders(deployments, self.checkpoint.folder)

    def record_counts(self) -> dict[str, int]:
        with self.locked():
            return dict(self._records)

    def stats(self) -> dict[str, Any]:
        """Also ``messages`` read, ``records`` taken by each step, and the sinks' figures by dataflow.

        ``spared`` counts the records that steps would also have taken if no dataflow shared a step. ``rows`` are the
        records that each dataflow got. ``failed`` has the errors of a dataflow's sources, steps and sinks.
        ``dropped`` counts, by stream, the records that some sink did not get, or had not committed when it failed.
        ``slow`` are the bytes that wait for slow sinks.
        """
        with self.locked():
            return {
                "fragments": min(1, len(self._origins)),
                "idle": 0,
                "readings": len(self.sources.open_sources),
                "messages": self._messages,
                "spared": self._spared,
                "records": self.record_counts(),
                "state_bytes": self.engine.nbytes,
                **self.sinks.stats(),
            }

    # -- records -----------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Read each source once and process its records; return whether anything was done."""
        with self.guarded_turn():
            if self.checkpoint is not None:
                self.checkpoint.flush()
            moved = [self._read(source) for source in list(self.sources.open_sources.values())]
            if time.monotonic() - self._committed >= self.epoch_s:
                self.commit()
            return any(moved)

    def wait_time(self, wake: Callable[[], None]) -> float | None:
        times = [
            source.wait_time(wake)
            for source in self.sources.open_sources.values()
            if not source.steps() <= self.engine.disabled
        ]
        known = [seconds for seconds in times if seconds is not None]
        left = self._committed + self.epoch_s - time.monotonic()
        return min([left, *known]) if len(known) == len(times) else None

    def _read(self, source: SharedSource) -> bool:
        if source.ended or source.steps() <= self.engine.disabled:
            return False
        before, rows = source.offset, source.rows
        for inputs in source.read(self.batch_size, all_or_nothing=self.checkpoint is not None):
            self._deliver(self.engine.process(inputs))
        self._messages += source.rows - rows
        if source.rows > rows:
            lack = {step for step in self._placeholder_state if not self._origins[step].isdisjoint(source.steps())}
            self._placeholder_state = {
                step: state for step, state in self._placeholder_state.items() if step not in lack
            }
        if source.ended:
            self._flush_ended()
        if source.failure is not None:
            self._fail_source(source, source.failure)
        return source.ended or source.offset != before

    def _fail_source(self, source: SharedSource, error: Exception) -> None:
        """Treat a failed source like a step that raised, for all dataflows that read it."""
        steps = source.steps()
        self.engine.failures = {**(self.engine.failures or {}), **dict.fromkeys(steps, error)}
        self.engine.disabled |= steps
        self._deliver(self.engine.process({}))
        self.commit()

    def _flush_ended(self) -> None:
        """Flush the steps whose sources have all ended."""
        ended = self.sources.ended_steps()
        over = {s for s, above in self._origins.items() if above <= ended} - self._flushed - self.engine.disabled
        self._flushed |= over
        self._deliver(self.engine.process({}, flush=over))
        self.commit()

    def _deliver(self, outputs: Batches) -> None:
        self._changed = True
        self._snapshots.clear()
        for step, error in (self.engine.failures or {}).items():
            for queue, _ in self.step_queues.get(step, ()):  # the output of earlier batches stays
                queue.fail(error)
        for stream, batches in outputs.items():
            if stream == ERRORS_STREAM:
                for batch in batches:
                    for queue, label in self.step_queues.get(batch.column("task")[0].as_py(), ()):
                        queue.reject(label, batch)
            else:
                for queue, name in self.stream_queues[stream]:
                    queue.write(name, batches)
        for step, (taken, _) in self.engine.counts().items():
            self._records[step] = self._records.get(step, 0) + taken
            self._spared += taken * max(0, sum(not one.paused for one, _ in self.step_queues.get(step, ())) - 1)
        self.sinks.flush()

    def commit(self, timeout: Duration = timedelta(0)) -> bool:
        """End an epoch; return whether its checkpoint, if there is a folder, was written within ``timeout``."""
        wait_s = duration_seconds("timeout", timeout, zero=True)
        self.sinks.commit()
        self._committed = time.monotonic()
        offsets = self.sources.committable(checkpointed=self.checkpoint is not None)
        if self.checkpoint is None or not self.sinks.queues:  # the checkpoint may be of dataflows still to be recovered
            self.sources.commit(offsets)
            return True
        for step, known in self.engine.states.items():
            if step not in self._snapshots:
                self._snapshots[step] = known.snapshot("full")
        failed = self.sources.failed_steps() | self._placeholder_state.keys()  # their records can still come
        broken = {
            step: describe_error(error) for step, error in (self.engine.failures or {}).items() if step not in failed
        }
        taken, flushed = dict(self._records), sorted(self._flushed)
        snapshot = Snapshot(FORMAT, {}, {}, broken, taken, flushed, self._messages, self._spared)
        state = {step: self._snapshots[step] for step in self.engine.states}
        state |= {step: had for step, had in self._placeholder_state.items() if had is not None}
        barriers = {name: queue.barrier() for name, queue in self.sinks.queues.items()}
        return self.checkpoint.save(
            snapshot,
            self.sources.open_sources,
            state,
            barriers,
            lambda: self.sources.commit(offsets),
            wait_s,
        )

    # -- running -----------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Whether every source has ended or is paused."""
        with self._lock:
            return all(r.ended or r.steps() <= self.engine.disabled for r in self.sources.open_sources.values())

    def close(self) -> None:
        """Commit; end all sinks and sources. With a folder, write a checkpoint and leave the sinks open to continue."""
        self.stop()
        with self._lock, ExitStack() as ending:
            ending.callback(self.sources.close)
            if self.checkpoint is None:
                self.sinks.end()
                return
            ending.callback(self.checkpoint.close)
            ending.callback(self.sinks.halt)
            if self.error is None:
                self.commit(self.sinks.limits.patience)


#: Opened for new dataflows: shared sources by key and, by dataflow, its source bindings and its sink queue.
OpenEndpoints = tuple[dict[str, SharedSource], list[SourceBindings], list[SinkQueue]]


@contextmanager
def open_endpoints(
    deployments: Sequence[Deployment],
    sources: SourcePool,
    sinks: SinkPool,
    positions: Mapping[str, SinkPosition] | None = None,
    source_names: Mapping[str, str] | None = None,
) -> Iterator[OpenEndpoints]:
    """Open the sources and sinks that new dataflows need beside the open ones; close them if the block raises.

    After a restart, ``positions`` says where the sinks of each dataflow stand, and ``source_names`` which shared source
    each step read.
    """
    made: list[SinkQueue] = []
    fresh: dict[str, SharedSource] = {}
    try:
        fresh, bindings = sources.open(deployments, (one.submission for one in sinks.queues.values()), source_names)
        for addition, submission in deployments:
            position = None if positions is None else positions[submission.name]
            made.append(sinks.open(submission, position, addition.placed))
        yield fresh, bindings, made
    except BaseException:
        for queue in made:
            if sinks.queues.get(queue.submission.name) is not queue:
                queue.writer.halt()
        for key, source in fresh.items():
            if sources.open_sources.get(key) is not source:
                source.close()
        raise
