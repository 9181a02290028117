"""Shared dataflows in this process: one engine that grows and shrinks between two batches.

What a step does for several dataflows is to the last bit what it does for one. The steps are those that
:func:`~riot_ops.graph.lowering.lower` makes of each dataflow, under the ids of the running steps; of these, the ones
that are not there yet are put behind the others. The state of a step that stays is not touched.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from riot_ops.core.errors import ConfigError
from riot_ops.graph.lowering import Step
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.backend import Coming
from riot_ops.reuse.outlets import Limits, Outlet, Outlets
from riot_ops.reuse.placing import placed_steps
from riot_ops.reuse.readings import Reading, opened, readings
from riot_ops.reuse.shared import Addition, Removal, Rest
from riot_ops.reuse.submission import Submission
from riot_ops.runtime.engine import Batches, Engine

__all__ = ["LocalBackend"]

#: For how long a thread waits where nothing has come; longer each time that nothing has, up to the second.
IDLE_SECONDS, LONGEST_IDLE = 0.0005, 0.008


class LocalBackend:
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

    reads = True

    def __init__(self, batch_size: int = 65_536, epoch_s: float = 10.0, limits: Limits | None = None) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be >= 1, got {batch_size}")
        if epoch_s < 0:
            raise ConfigError(f"epoch_s must be >= 0, got {epoch_s}")
        self.batch_size = batch_size
        self.epoch_s = epoch_s
        self._readings: dict[str, Reading] = {}
        self._outlets = Outlets(Limits() if limits is None else limits)
        #: By running step: the sources above it, and the routes and marks that it needs.
        self._origins: dict[str, frozenset[str]] = {}
        self._needs: dict[str, set[str]] = {}
        self._needed: Counter[str] = Counter()
        #: By stream, and by step of the engine: the dataflows that want it, and their names for it.
        self._ends: dict[str, list[tuple[Outlet, str]]] = {}
        self._engine = Engine([], self._ends.keys())
        self._engine.broken = {}
        self._labels: dict[str, list[tuple[Outlet, str]]] = {}
        self._taken: dict[str, int] = {}
        self._flushed: set[str] = set()
        self._messages = self._spared = 0
        self._committed = time.monotonic()
        self._lock = threading.RLock()
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._broken: BaseException | None = None

    # -- actions -----------------------------------------------------------------------------------

    def extend(self, coming: Sequence[Coming]) -> list[dict[str, int]]:
        begun: dict[str, Reading] = {}
        with self._between(), ExitStack() as undo:
            found = []
            for addition, submission in coming:
                steps = placed_steps(submission.flow, addition.placed)
                fresh = {step.id for step in addition.new}
                for name, _, members, merging in readings(submission).values():
                    if name not in self._readings and name not in begun:
                        begun[name] = opened(name, members, merging)
                added = {s.id: s for s, n, _ in steps if addition.placed[n] in fresh and not self._engine.has(s.id)}
                self._engine.extend(list(added.values()))
                undo.callback(self._engine.drop, added)
                found.append((addition, submission, steps, self._outlets.open(submission)))
                undo.callback(self._outlets.forget, submission.name)
            undo.pop_all()
            # from here on nothing fails
            self._readings |= begun
            return [self._known(*one) for one in found]

    def _known(
        self, addition: Addition, submission: Submission, steps: list[tuple[Step, str, str]], outlet: Outlet
    ) -> dict[str, int]:
        """Note what a dataflow needs, and what is for it."""
        fresh = {step.id for step in addition.new}
        self._engine.resting -= addition.woken
        for step, node, label in steps:
            needs = self._needs.setdefault(addition.placed[node], set())
            if addition.placed[node] in fresh and step.id not in needs:
                needs.add(step.id)
                self._needed[step.id] += 1
            if (outlet, label) not in self._labels.setdefault(step.id, []):
                self._labels[step.id].append((outlet, label))
                outlet.wanted.append((self._labels, step.id))
        for new in addition.new:
            above = (self._origins[one] for one in new.inputs)
            self._origins[new.id] = frozenset().union(*above) if new.inputs else frozenset({new.id})
        first = {}
        for node, (name, member, _, _) in readings(submission).items():
            self._readings[name].readers[member].add(addition.placed[node])
            first[node] = self._readings[name].next[member]
        for stream in submission.routes:
            if stream != ERRORS_STREAM:
                self._ends.setdefault(addition.placed[stream], []).append((outlet, stream))
                outlet.wanted.append((self._ends, addition.placed[stream]))
        return first

    def reduce(self, removal: Removal) -> None:
        with self._between():
            stopped = set(removal.stopped)
            outlet = self._outlets.close(removal.name)
            if outlet is not None:
                for where, key in outlet.wanted:
                    where[key] = [(one, label) for one, label in where.get(key, ()) if one is not outlet]
                    if not where[key]:
                        del where[key]
            for step in stopped:
                for need in self._needs.pop(step, ()):
                    self._needed[need] -= 1
                    if not self._needed[need]:
                        del self._needed[need]
                self._origins.pop(step, None)
                self._taken.pop(step, None)
            self._engine.drop({step.id for step in self._engine.steps} - self._needed.keys())
            self._engine.resting = (self._engine.resting - stopped) | removal.rested
            self._engine.broken = {s: e for s, e in (self._engine.broken or {}).items() if s in self._needed}
            self._flushed -= stopped
            for name, reading in list(self._readings.items()):
                for steps in reading.readers.values():
                    steps -= stopped
                if not reading.steps():
                    reading.source.close()
                    del self._readings[name]

    def rest(self, rest: Rest) -> None:
        with self._between():
            self._outlets.of[rest.name].paused = rest.paused
            resting = self._engine.resting
            self._engine.resting = resting | rest.steps if rest.paused else resting - rest.steps
            self._engine.resting |= set(self._engine.broken or ())
            if not rest.paused and any(reading.ended for reading in self._readings.values()):
                self._end()

    def defragment(self, groups: Iterable[frozenset[str]]) -> None:
        pass  # there is one engine

    def taking_up(self) -> AbstractContextManager[None]:
        return nullcontext()  # nothing is kept

    @contextmanager
    def _between(self) -> Iterator[None]:
        """Between two turns: a thread that turns lets others pass."""
        self._waiting += 1
        try:
            with self._lock:
                if self._broken is not None:
                    raise self._broken
                yield
        finally:
            self._waiting -= 1

    # -- looking -----------------------------------------------------------------------------------

    @property
    def error(self) -> BaseException | None:
        """Why nothing moves any more: a source could not be read."""
        return self._broken

    def fresh(self, step: str) -> bool:
        return not self._taken.get(step)

    def broken(self, step: str) -> bool:
        return any(need in (self._engine.broken or ()) for need in self._needs.get(step, ()))

    def running(self) -> set[str]:
        return set(self._origins)

    def stats(self) -> dict[str, Any]:
        """And ``messages`` read, ``records`` that each step took, and by dataflow how its sinks do.

        ``spared`` are records that steps would have taken besides, had each dataflow its own.

        ``rows`` are the records that they got; ``failed`` tells what went wrong; ``dropped`` counts by stream the
        records that some sink did not get, or had not committed when it failed; ``slow`` are the bytes that wait for
        sinks that do not keep up.
        """
        with self._lock:
            return {
                "fragments": min(1, len(self._origins)),
                "idle": 0,
                "readings": len(self._readings),
                "messages": self._messages,
                "spared": self._spared,
                "records": dict(self._taken),
                "state_bytes": self._engine.nbytes,
                **self._outlets.stats(),
            }

    # -- records -----------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Read each source once and process what there is; returns whether there was anything."""
        with self._lock:
            if self._broken is not None:
                raise self._broken
            try:
                moved = [self._read(reading) for reading in list(self._readings.values())]
                if time.monotonic() - self._committed >= self.epoch_s:
                    self._commit()
            except BaseException as error:
                self._broken = error
                raise
            return any(moved)

    def _read(self, reading: Reading) -> bool:
        if reading.ended or reading.steps() <= self._engine.resting:
            return False
        before, rows = reading.offset, reading.rows
        for inputs in reading.read(self.batch_size):
            self._deliver(self._engine.process(inputs))
        self._messages += reading.rows - rows
        if reading.ended:
            self._end()
        return reading.ended or reading.offset != before

    def _end(self) -> None:
        """Let those steps give what they hold whose sources have all ended."""
        ended = set().union(*(reading.steps() for reading in self._readings.values() if reading.ended))
        over = {s for s, above in self._origins.items() if above <= ended} - self._flushed - self._engine.resting
        self._flushed |= over
        self._deliver(self._engine.process({}, flush=over))
        self._commit()

    def _deliver(self, outputs: Batches) -> None:
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
            self._spared += taken * (len(self._labels.get(step, ())) - 1)
        self._outlets.settle()

    def _commit(self) -> None:
        self._outlets.commit()
        for reading in self._readings.values():
            reading.source.commit(reading.offset)
        self._committed = time.monotonic()

    # -- running -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn until all sources have ended, or rest."""
        while self.turn() or not self._idle():
            self._breathe()

    def _idle(self) -> bool:
        with self._lock:
            return all(r.ended or r.steps() <= self._engine.resting for r in self._readings.values())

    def start(self) -> None:
        """Turn in a thread of its own, until :meth:`close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_on, daemon=True, name="riot_ops-reuse")
            self._thread.start()

    def _go_on(self) -> None:
        idle = IDLE_SECONDS
        while not self._stop.is_set():
            try:
                moved = self.turn()
            except BaseException:
                return  # whoever acts next gets to know
            idle = IDLE_SECONDS if moved else min(2 * idle, LONGEST_IDLE)
            if not moved:
                self._stop.wait(idle)
            self._breathe()

    def _breathe(self) -> None:
        while self._waiting and not self._stop.is_set():
            time.sleep(IDLE_SECONDS)

    def close(self) -> None:
        """Commit what there is, and end all sinks and sources."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._outlets.end()
            while self._readings:
                self._readings.popitem()[1].source.close()
