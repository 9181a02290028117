"""Several cores in one process: batches pass the steps of a dataflow one behind the other.

What depends on no other record is done for several batches at once: steps without state, and of keyed steps bringing
the records in order and hashing their keys. A keyed step itself, and one that must not run twice at once, takes the
batches one by one in the order in which they came. So each step sees what it sees on one core, its state is in one
place, and the results are the same to the last row.

Spreading the *keys* of a step over threads was measured and left: to part the records of STATS by key and to bring the
results in order again costs as much as two of its tasks.
"""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from riot_ops.core.operator import KeyedOperator, Operator
from riot_ops.graph.graph import Graph
from riot_ops.graph.lowering import BEATS, Route, Step, lower
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.ingest.step import Intake
from riot_ops.kernels.arrays.derived import Derived
from riot_ops.kernels.arrays.hashing import HashMemo
from riot_ops.kernels.arrays.selection import whole
from riot_ops.runtime.batches import merged_in_order, numbered
from riot_ops.runtime.engine import Batches, Engine

__all__ = ["ENOUGH", "Pipeline", "Wave", "available", "engine_for", "reentrant"]

#: Records of a batch from which on it is worth handing it from thread to thread; and of one that took all the source
#: had, so that the steps keep up: several at once would each wait for the others.
ENOUGH, KEEPING_UP = 4096, 32_768


def engine_for(
    flow: Graph, outputs: set[str], order: tuple[str, ...], cores: int | None
) -> tuple[Engine | Pipeline, int]:
    """What runs a dataflow, and from how many records on a batch should go to other threads."""
    steps = lower(flow)
    least = 0
    if cores is None:
        cores, least = available() if all(map(reentrant, steps)) else 1, ENOUGH
    if cores == 1:
        return Engine(steps, outputs, order=order), 0
    return Pipeline(steps, outputs, order, cores, f"riot_ops-{flow.name}"), least


def available() -> int:
    """Cores that this process may use.

    >>> available() >= 1
    True
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def reentrant(step: Step) -> bool:
    """Whether a step may run for several batches at once."""
    operator = step.operator
    if isinstance(operator, Route):
        return operator.distribution.kind != "custom"
    return not isinstance(operator, Operator) or operator.reentrant


class Wave:
    """A batch on its way through the steps."""

    def __init__(
        self, number: int, inputs: Mapping[str, list[pa.RecordBatch]], flush: bool, missing: list[int]
    ) -> None:
        self.number = number
        self.inputs = inputs
        self.flush = flush
        self.made: Batches = {}
        #: By station of that kind: what keyed steps read.
        self.gathered: dict[int, pa.RecordBatch | Derived] = {}
        #: Rejected records by station.
        self.errors: dict[int, list[pa.RecordBatch]] = {}
        #: Key hashes of the columns that steps hand on.
        self.memo = HashMemo()
        #: By station: how many of those before it have not finished.
        self.missing = missing
        self.left = len(missing)
        self.failures: dict[int, BaseException] = {}
        self.done = threading.Event()


class _Station(ABC):
    """A place that each wave passes once, after those whose output it reads."""

    #: Whether the waves pass one at a time and in order.
    ordered = False

    def __init__(self) -> None:
        self.index = 0
        self.needs = 0
        self.followers: list[_Station] = []
        self.turn = 0  # number of the wave that may pass next
        self.waiting: dict[int, Wave] = {}

    @abstractmethod
    def run(self, wave: Wave) -> None:
        """Let a wave pass."""


class _Gather(_Station):
    """What keyed steps with the same inputs share: the records in order, the hashes of their keys."""

    def __init__(self, step: Step, order: tuple[str, ...]) -> None:
        super().__init__()
        self._inputs = step.inputs
        self._numbered = step.numbered
        self._order = order
        self.keys: set[tuple[str, ...]] = set()

    def run(self, wave: Wave) -> None:
        batches = [b for stream in self._inputs for b in wave.made.get(stream, [])]
        if not batches:
            return
        if self._numbered:
            batches = [numbered(whole(b), self._numbered) for b in batches]
        if len(batches) == 1 and isinstance(batches[0], Derived):  # the step looks whether it can do with that
            wave.gathered[self.index] = batches[0]
            return
        batch = merged_in_order([whole(b) for b in batches], self._order)
        for key in self.keys:
            wave.memo.hash_columns([batch.column(name) for name in key], batch.num_rows)
        wave.gathered[self.index] = batch


class _Run(_Station):
    """A step, with an engine of its own for each batch that it handles at once."""

    def __init__(self, step: Step, order: tuple[str, ...], gather: _Gather | None) -> None:
        super().__init__()
        self.step = step
        self.ordered = step.keyed or not reentrant(step)
        self.engines: list[Engine] = []
        self._free: list[tuple[Engine, HashMemo]] = []
        self._order = order
        self._gather = gather
        if self.ordered:
            self._free.append(self._engine())

    def _engine(self) -> tuple[Engine, HashMemo]:
        memo = HashMemo()
        engine = Engine([self.step], {*_given_by(self.step)}, None, self._order, memo, whole=False)
        self.engines.append(engine)
        return engine, memo

    def run(self, wave: Wave) -> None:
        step = self.step
        if isinstance(step.operator, Intake):
            inputs = {step.id: wave.inputs.get(step.id, [])}
        elif self._gather is not None and self._gather.index in wave.gathered:
            inputs = {step.inputs[0]: [wave.gathered[self._gather.index]]}
        else:
            inputs = {stream: wave.made.get(stream, []) for stream in step.inputs}
        for stream in _marks(step):
            inputs[stream] = wave.made.get(stream, [])
        if not wave.flush and not any(inputs.values()):
            return
        try:
            engine, memo = self._free.pop()
        except IndexError:
            engine, memo = self._engine()
        memo.share(wave.memo)
        out = engine.process(inputs, flush=wave.flush)
        self._free.append((engine, memo))
        for stream in _given_by(step):
            wave.made[stream] = out.get(stream, [])
        wave.errors[self.index] = out.get(ERRORS_STREAM, [])


class Pipeline:
    """Runs all steps of a dataflow for several batches at once.

    Parameters
    ----------
    steps, outputs, order
        As for :class:`Engine`.
    cores : int
        Threads.
    name : str
        Of the threads.
    """

    def __init__(
        self, steps: Sequence[Step], outputs: set[str], order: tuple[str, ...], cores: int, name: str = "riot_ops"
    ) -> None:
        self.outputs = outputs
        #: Most waves under way: as many as there are cores may be in steps without state, and one waits.
        self.most = cores + 1
        self._told: Callable[[], None] = lambda: None
        self._stations = _stations(steps, order)
        self._runs = [s for s in self._stations if isinstance(s, _Run)]
        self._pool = ThreadPoolExecutor(cores, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._begun = 0
        self._came, self._given = 0, Counter[str]()  # records of the waves that are through, by stream
        self._last = math.inf  # number of the last wave that is to come to something

    def tell(self, through: Callable[[], None]) -> None:
        """Have a function called whenever a wave is through."""
        self._told = through

    def process(self, inputs: Mapping[str, list[pa.RecordBatch]], *, flush: bool = False) -> Batches:
        """Push batches through the steps in this thread, while no wave is under way."""
        wave = Wave(-1, inputs, flush, [])
        for station in self._runs:  # each brings the records in order by itself
            station.run(wave)
        return self._results(wave)

    def begin(self, inputs: Mapping[str, list[pa.RecordBatch]]) -> Wave:
        """Push batches through the steps in other threads, behind all waves that were begun before."""
        wave = Wave(self._begun, inputs, False, [s.needs for s in self._stations])
        self._pool.submit(self._begin, wave)
        self._begun += 1
        return wave

    def finish(self, wave: Wave) -> Batches:
        """What came out of a wave, once it is through; raises what a step raised."""
        wave.done.wait()
        if wave.failures:
            raise wave.failures[min(wave.failures)]
        return self._results(wave)

    def counts(self) -> dict[str, tuple[int, int]]:
        """As :meth:`Engine.counts`."""
        found: dict[str, tuple[int, int]] = {}
        for engine in self._engines():
            for step, (taken, rejected) in engine.counts().items():
                t, r = found.get(step, (0, 0))
                found[step] = t + taken, r + rejected
        return found

    def taken(self) -> tuple[int, int]:
        """As :meth:`Engine.taken`, by what steps gave, of the waves that are through."""
        return self._came, max([self._came, *self._given.values()])

    def snapshot(self) -> dict[str, bytes]:
        """As :meth:`Engine.snapshot`, while no wave is under way."""
        return {name: data for engine in self._engines() for name, data in engine.snapshot().items()}

    def restore(self, data: Mapping[str, bytes]) -> None:
        """As :meth:`Engine.restore`."""
        for engine in self._engines():
            engine.restore(data)

    def stop(self) -> None:
        """End the threads; what is under way comes to nothing."""
        self._last = -1
        self._pool.shutdown(cancel_futures=True)

    def _engines(self) -> list[Engine]:
        return [engine for run in self._runs for engine in run.engines]

    def _results(self, wave: Wave) -> Batches:
        self._came += sum(b.num_rows for batches in wave.inputs.values() for b in batches)
        self._given.update({name: sum(b.num_rows for b in batches) for name, batches in wave.made.items()})
        results = {name: [whole(b) for b in wave.made[name]] for name in self.outputs if wave.made.get(name)}
        errors = [batch for run in self._runs for batch in wave.errors.get(run.index, [])]
        return {**results, ERRORS_STREAM: errors} if errors else results

    # -- in the threads of the pool ------------------------------------------------------------------

    def _begin(self, wave: Wave) -> None:
        with self._lock:
            for station in self._stations:
                if not station.needs:
                    self._arrive(station, wave)

    def _arrive(self, station: _Station, wave: Wave) -> None:
        """Let a wave in, or wait for its turn; the lock is held."""
        if station.ordered and wave.number != station.turn:
            station.waiting[wave.number] = wave
        elif self._last >= 0:
            self._pool.submit(self._pass, station, wave)

    def _pass(self, station: _Station, wave: Wave) -> None:
        try:
            if wave.number <= self._last:
                station.run(wave)
        except BaseException as error:  # raised again where the run is
            wave.failures[station.index] = error
            self._last = min(self._last, wave.number)
        with self._lock:
            if station.ordered:
                station.turn += 1
                if (following := station.waiting.pop(station.turn, None)) is not None:
                    self._arrive(station, following)
            for follower in station.followers:
                wave.missing[follower.index] -= 1
                if not wave.missing[follower.index]:
                    self._arrive(follower, wave)
            wave.left -= 1
            done = not wave.left
        if done:
            wave.done.set()
            self._told()


def _given_by(step: Step) -> tuple[str, ...]:
    """The streams that a step puts out."""
    return (step.id, step.id + BEATS) if isinstance(step.operator, Intake) else (step.id,)


def _marks(step: Step) -> tuple[str, ...]:
    """The streams of marks that a step reads."""
    return () if step.clock is None else step.clock.streams


def _stations(steps: Sequence[Step], order: tuple[str, ...]) -> list[_Station]:
    """A station for each step, and one before keyed steps that read the same."""
    found: list[_Station] = []
    makers: dict[str, _Station] = {}
    gathers: dict[Any, _Gather] = {}

    def add(station: _Station, after: set[_Station]) -> None:
        station.index, station.needs = len(found), len(after)
        for one in after:
            one.followers.append(station)
        found.append(station)

    for step in steps:
        before = set() if isinstance(step.operator, Intake) else {makers[stream] for stream in step.inputs}
        gather: _Gather | None = None
        # where a pooled one has several inputs, it may look at these side by side
        if isinstance(step.operator, KeyedOperator) and not (step.operator.pooled and len(step.inputs) > 1):
            new = _Gather(step, order)
            gather = gathers.setdefault((step.inputs, step.numbered), new)
            if gather is new:
                add(gather, before)
            if step.key and not step.operator.pooled:  # a pooled one looks at the records that it holds as well
                gather.keys.add(step.key)
            before = {gather, *(makers[stream] for stream in _marks(step))}
        run = _Run(step, order, gather)
        makers |= dict.fromkeys(_given_by(step), run)
        add(run, before)
    return found
