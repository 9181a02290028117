"""Shared dataflows in this process: one engine that grows and shrinks between two batches.

What a step does for several dataflows is to the last bit what it does for one. The steps are those that
:func:`~riot_ops.graph.lowering.lower` makes of each dataflow, under the ids of the running steps; of these, the ones
that are not there yet are put behind the others. The state of a step that stays is not touched.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from riot_ops.core.checks import check_count, check_seconds
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.graph.lowering import Step
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.backend import Coming
from riot_ops.reuse.errors import FailedBeforeError, told
from riot_ops.reuse.keeping import FORMAT, Keeping, Moment
from riot_ops.reuse.limits import Limits
from riot_ops.reuse.missing import missing_steps
from riot_ops.reuse.needs import Needs
from riot_ops.reuse.opening import Opened, begun
from riot_ops.reuse.outlet import Outlet, Stood
from riot_ops.reuse.outlets import Outlets
from riot_ops.reuse.placing import placed_steps
from riot_ops.reuse.reading import Reading, Readings, Wanted
from riot_ops.reuse.shared import Addition, Removal, Rest
from riot_ops.reuse.submission import Reads
from riot_ops.reuse.turning import Turning, waited
from riot_ops.runtime.engine import Batches, Engine

__all__ = ["LocalBackend"]


class LocalBackend(Turning):
    """Runs shared dataflows in this process.

    Records move when :meth:`turn` or :meth:`run` is called, or in a thread of its own from :meth:`start` on. Actions
    happen between two turns; so a newcomer sees all records of a message or none.

    Parameters
    ----------
    batch_size : int, default 65536
        Most records that are read of a source in a turn.
    epoch_s : float, seconds, default 10
        How often output is committed. What a dataflow has got is committed as well when it, or its source, ends.
    limits : Limits, optional
        How far a dataflow whose sinks do not keep up may affect the others.
    folder : path, optional
        Where it keeps, with every commit and with every dataflow that comes, what another back end goes on from: a
        manager over the same ``log`` then goes on where this one was, with all state. Sinks that take back what was not
        kept, such as files, have each record once, others may have some twice. Sources must be ones that can be read
        again. :meth:`close` then leaves sinks as they are.

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
        epoch_s: float = 10.0,
        limits: Limits | None = None,
        folder: str | Path | None = None,
    ) -> None:
        check_count("batch_size", batch_size)
        check_seconds("epoch_s", epoch_s, zero=True)
        super().__init__()
        self.batch_size = batch_size
        self.epoch_s = epoch_s
        self._readings = Readings()
        self._outlets = Outlets(Limits() if limits is None else limits, durable=folder is not None)
        self._keeping = None if folder is None else Keeping(folder)
        self.reads: Reads = "once" if folder is None else "again"
        self._again: list[Coming] | None = None
        self._snapshots: dict[str, bytes] = {}  # of steps that have seen nothing since
        #: By step that cannot be made again, but lacks no record yet, the state that it had.
        self._absent: dict[str, bytes | None] = {}
        #: By running step: the sources above it.
        self._origins: dict[str, frozenset[str]] = {}
        self._needs = Needs()
        #: By stream, and by step of the engine: the dataflows that want it, and their names for it.
        self._ends: dict[str, list[tuple[Outlet, str]]] = {}
        self._engine = Engine([], self._ends.keys())
        self._engine.broken = {}
        self._labels: dict[str, list[tuple[Outlet, str]]] = {}
        self._taken: dict[str, int] = {}
        self._flushed: set[str] = set()
        self._messages = self._spared = 0
        self._committed = time.monotonic()
        self._moved = True

    # -- actions -----------------------------------------------------------------------------------

    def extend(self, coming: Sequence[Coming]) -> list[dict[str, int]]:
        if self._again is not None:
            self._again += coming
            return [dict.fromkeys(submission.sources, 0) for _, submission in coming]
        # before anybody waits: it may take long
        with begun(coming, self._readings, self._outlets) as opened, self.between():
            firsts = self._extend(coming, opened)
            try:
                if self._engine.broken:  # what they share may have failed while their sinks began
                    self._deliver(self._engine.process({}))
                if self._keeping is not None:
                    self._keeping.forget(one.name for one, _ in coming)
                    self._commit()
            except BaseException:
                for one, _ in reversed(coming):
                    self.reduce(Removal(one.name, tuple(step.id for step in one.new), rested=one.woken))
                raise
            return firsts

    def _extend(self, coming: Sequence[Coming], opened: Opened) -> list[dict[str, int]]:
        """Have dataflows with what has been opened for them."""
        fresh, wanted, outlets = opened
        with ExitStack() as undo:
            found = []
            for (addition, submission), needs, outlet in zip(coming, wanted, outlets, strict=True):
                steps = placed_steps(submission.flow, addition.placed)
                new = {step.id for step in addition.new}
                if known := new & self._origins.keys():
                    raise ConfigError(f"the step {min(known)} is another manager's; each needs a back end of its own")
                added = {s.id: s for s, n, _ in steps if addition.placed[n] in new and not self._engine.has(s.id)}
                self._engine.extend(list(added.values()))
                undo.callback(self._engine.drop, added)
                found.append((addition, steps, needs, outlet))
            undo.pop_all()
        self._moved = True
        # from here on nothing fails
        self._readings.of |= fresh
        for outlet in outlets:
            self._outlets.take(outlet)
        return [self._known(*one) for one in found]

    def _known(
        self, addition: Addition, steps: list[tuple[Step, str, str]], wanted: Wanted, outlet: Outlet
    ) -> dict[str, int]:
        """Note what a dataflow needs, and what is for it."""
        fresh = {step.id for step in addition.new}
        self._engine.resting -= addition.woken
        for step, node, label in steps:
            if addition.placed[node] in fresh:
                self._needs.add(addition.placed[node], step.id)
            outlet.want(self._labels, step.id, label)
        for new in addition.new:
            above = (self._origins[one] for one in new.inputs)
            self._origins[new.id] = frozenset().union(*above) if new.inputs else frozenset({new.id})
        for stream in outlet.submission.routes:
            if stream != ERRORS_STREAM:
                outlet.want(self._ends, addition.placed[stream], stream)
        return self._readings.take(addition.name, addition.placed, wanted)

    def reduce(self, removal: Removal) -> None:
        with self.between():
            stopped = set(removal.stopped)
            self._outlets.close(removal.name)
            for step in stopped:
                self._needs.drop(step)
                self._origins.pop(step, None)
                self._taken.pop(step, None)
            self._engine.drop({step.id for step in self._engine.steps if step.id not in self._needs})
            self._engine.resting = (self._engine.resting - stopped) | removal.rested
            self._engine.broken = {s: e for s, e in (self._engine.broken or {}).items() if s in self._needs}
            self._absent = {s: state for s, state in self._absent.items() if s in self._needs}
            self._flushed -= stopped
            self._readings.drop(removal.name, stopped)

    def settled(self, name: str) -> None:
        pass  # what takes long has a thread of its own

    def rest(self, rest: Rest) -> dict[str, int]:
        until = time.monotonic() + self._outlets.limits.patience_s
        border = waited(lambda: self._rest(rest), until, again_s=0.1)
        if border is None:
            raise ConnectorError("what has been done cannot be kept while sinks are so far behind: try again later")
        return border

    def _rest(self, rest: Rest) -> dict[str, int] | None:
        """The same; None where what has been done before is not kept, from which whoever goes on lets it rest."""
        with self.between():
            if self._moved and not self._commit(self._outlets.limits.grace_s):  # sinks get there while nothing moves
                return None
            outlet, resting = self._outlets.of[rest.name], self._engine.resting
            before = outlet.paused, resting
            outlet.paused = rest.paused
            self._engine.resting = resting | rest.steps if rest.paused else resting - rest.steps
            self._engine.resting |= set(self._engine.broken or ())
            try:
                if not rest.paused and any(reading.ended for reading in self._readings.of.values()):
                    self._end()
            except BaseException:
                outlet.paused, self._engine.resting = before
                raise
            return self._readings.next(rest.name)

    def defragment(self, groups: Iterable[frozenset[str]]) -> None:
        pass  # there is one engine

    @contextmanager
    def taking_up(self) -> Iterator[None]:
        with self.between():
            self._again = again = list[Coming]()
            try:
                yield
            finally:
                self._again = None
            try:
                self._take_up(again)
            except BaseException:
                self._outlets.halt()  # what is kept of them stays as it is
                raise

    def _take_up(self, again: list[Coming]) -> None:
        """Let all go on that was kept; what was not begins."""
        keeping, names = self._keeping, [submission.name for _, submission in again]
        places = {name: Stood(None) if keeping is None else keeping.dataflow(name) for name in names}
        kept = {} if keeping is None else keeping.readings()
        with begun(again, self._readings, self._outlets, places, kept) as opened:
            self._extend(again, opened)
        self._break({} if keeping is None else keeping.moment.broken, {} if keeping is None else keeping.state)
        if keeping is None:
            return
        moment = keeping.moment
        self._engine.restore(keeping.state)
        for reading in self._readings.of.values():
            keeping.place(reading)
        self._taken = {step: n for step, n in moment.taken.items() if step in self._origins}
        self._flushed = {*moment.flushed} & self._origins.keys()
        self._messages, self._spared = moment.messages, moment.spared
        self._commit()
        self._moved = False  # all is as it was kept

    def _break(self, before: Mapping[str, str], state: Mapping[str, bytes]) -> None:
        """Steps that failed before, or cannot be made again, give nothing, and whom it concerns is told."""
        missing = missing_steps(self._engine.steps)
        self._absent = {step: state.get(step) for step in missing.keys() - before.keys()}
        broken = {**missing, **before}
        self._engine.broken = {step: FailedBeforeError(broken[step]) for step in broken if self._engine.has(step)}
        self._engine.resting |= self._engine.broken.keys()
        self._deliver({})

    # -- looking -----------------------------------------------------------------------------------

    def fresh(self, step: str) -> bool:
        return not self._taken.get(step)

    def broken(self, step: str) -> bool:
        return any(need in (self._engine.broken or ()) for need in self._needs.of(step))

    def running(self) -> set[str]:
        return set(self._origins)

    def stats(self) -> dict[str, Any]:
        """And ``messages`` read, ``records`` that each step took, and by dataflow how its sinks do.

        ``spared`` are records that steps would have taken besides, had each dataflow that does not rest its own.
        ``rows`` are the records that they got; ``failed`` tells of each dataflow what went wrong with its sources,
        steps or sinks; ``dropped`` counts by stream the records that some sink did not get, or had not committed when
        it failed; ``slow`` are the bytes that wait for sinks that do not keep up.
        """
        with self.looking():
            return {
                "fragments": min(1, len(self._origins)),
                "idle": 0,
                "readings": len(self._readings.of),
                "messages": self._messages,
                "spared": self._spared,
                "records": dict(self._taken),
                "state_bytes": self._engine.nbytes,
                **self._outlets.stats(),
            }

    # -- records -----------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Read each source once and process what there is; returns whether there was anything."""
        with self.turning():
            if self._keeping is not None:
                self._keeping.settle()
            moved = [self._read(reading) for reading in list(self._readings.of.values())]
            if time.monotonic() - self._committed >= self.epoch_s:
                self._commit()
            return any(moved)

    def _read(self, reading: Reading) -> bool:
        if reading.ended or reading.steps() <= self._engine.resting:
            return False
        before, rows = reading.offset, reading.rows
        for inputs in reading.read(self.batch_size, whole=self._keeping is not None):
            self._deliver(self._engine.process(inputs))
        self._messages += reading.rows - rows
        if reading.rows > rows:
            lack = {step for step in self._absent if not self._origins[step].isdisjoint(reading.steps())}
            self._absent = {step: state for step, state in self._absent.items() if step not in lack}
        if reading.ended:
            self._end()
        if reading.failure is not None:
            self._lose(reading, reading.failure)
        return reading.ended or reading.offset != before

    def _lose(self, reading: Reading, error: Exception) -> None:
        """Nothing more comes of a source: to those who read it that is as if a step of theirs had raised."""
        steps = reading.steps()
        self._engine.broken = {**(self._engine.broken or {}), **dict.fromkeys(steps, error)}
        self._engine.resting |= steps
        self._deliver(self._engine.process({}))
        self._commit()

    def _end(self) -> None:
        """Let those steps give what they hold whose sources have all ended."""
        ended = self._readings.ended()
        over = {s for s, above in self._origins.items() if above <= ended} - self._flushed - self._engine.resting
        self._flushed |= over
        self._deliver(self._engine.process({}, flush=over))
        self._commit()

    def _deliver(self, outputs: Batches) -> None:
        self._moved = True
        self._snapshots.clear()
        for step, error in (self._engine.broken or {}).items():
            for outlet, _ in self._labels.get(step, ()):  # what it got of earlier batches stays
                outlet.stop(error)
        for stream, batches in outputs.items():
            if stream == ERRORS_STREAM:
                for batch in batches:
                    for outlet, label in self._labels.get(batch.column("task")[0].as_py(), ()):
                        outlet.reject(label, batch)
            else:
                for outlet, name in self._ends[stream]:
                    outlet.write(name, batches)
        for step, (taken, _) in self._engine.counts().items():
            self._taken[step] = self._taken.get(step, 0) + taken
            self._spared += taken * max(0, sum(not one.paused for one, _ in self._labels.get(step, ())) - 1)
        self._outlets.settle()

    def _commit(self, wait_s: float = 0.0) -> bool:
        """End an epoch; whether what has been done until now is kept in so many seconds, if there is a folder."""
        self._outlets.commit()
        self._committed = time.monotonic()
        stood = self._readings.stood(kept=self._keeping is not None)
        if self._keeping is None or not self._outlets.of:  # what is kept may be of those who are to be taken up
            self._readings.forget(stood)
            return True
        for step, known in self._engine.states.items():
            if step not in self._snapshots:
                self._snapshots[step] = known.snapshot("full")
        failed = self._readings.failed() | self._absent.keys()  # whose records can still come
        broken = {step: told(error) for step, error in (self._engine.broken or {}).items() if step not in failed}
        taken, flushed = dict(self._taken), sorted(self._flushed)
        moment = Moment(FORMAT, {}, {}, broken, taken, flushed, self._messages, self._spared)
        state = {step: self._snapshots[step] for step in self._engine.states}
        state |= {step: had for step, had in self._absent.items() if had is not None}
        marks = {name: outlet.mark() for name, outlet in self._outlets.of.items()}
        return self._keeping.take(moment, self._readings.of, state, marks, lambda: self._readings.forget(stood), wait_s)

    # -- running -----------------------------------------------------------------------------------

    def idle(self) -> bool:
        """Whether all sources have ended, or rest."""
        with self._lock:
            return all(r.ended or r.steps() <= self._engine.resting for r in self._readings.of.values())

    def close(self) -> None:
        """Commit what there is, and end all sinks and sources; with a folder keep it, and leave sinks as they are."""
        self.stop()
        with self._lock, ExitStack() as ending:
            ending.callback(self._readings.close)
            if self._keeping is None:
                self._outlets.end()
                return
            ending.callback(self._keeping.close)
            ending.callback(self._outlets.halt)
            if self._broken is None:
                self._commit(self._outlets.limits.patience_s)
