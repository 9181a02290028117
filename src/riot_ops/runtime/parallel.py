"""Several cores in one process: batches pass the steps of a dataflow as in a pipeline.

Work that depends on no other record is done for several batches at once: stateless steps, and for keyed steps sorting
the records and hashing their keys. A keyed step itself, or one that is not reentrant, takes the batches one by one in
the order of their arrival. So each step has the same input as on one core, its state is in one place, and the results
are equal to the last row.

Spreading the *keys* of a step over threads was measured and rejected: for STATS, splitting the records by key and
restoring the order of the results costs as much as two of its tasks.
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

from riot_ops.core.operator import Operator
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.special_operators import PooledOperator
from riot_ops.graph.graph import Graph
from riot_ops.graph.lowering import HEARTBEAT_SUFFIX, Route, Step, lower
from riot_ops.ingest.step import IngestStep
from riot_ops.kernels.arrays.hashing import hash_rows
from riot_ops.kernels.arrays.lazy_rows import Rows, materialize
from riot_ops.runtime.batches import in_order, with_ordinals
from riot_ops.runtime.engine import Batches, Engine
from riot_ops.runtime.state import KeyedState

__all__ = ["MIN_THREADED_ROWS", "InFlightBatch", "Pipeline", "available_cores", "create_engine", "is_reentrant"]

#: Minimum records of a batch that is handed from thread to thread; and of one that holds all the source had, which
#: means that the steps keep up and several batches at once would only wait for each other.
MIN_THREADED_ROWS, MIN_THREADED_ROWS_IDLE = 4096, 32_768

States = Mapping[str, KeyedState]


def create_engine(
    flow: Graph, outputs: set[str], order: tuple[str, ...], cores: int | None
) -> tuple[Engine, Pipeline | None]:
    """Return the engine of a dataflow, and what processes large batches in other threads, given several cores."""
    steps = lower(flow)
    min_rows = 0
    if cores is None:
        cores, min_rows = available_cores() if all(map(is_reentrant, steps)) else 1, MIN_THREADED_ROWS
    engine = Engine(steps, outputs, order=order)
    return engine, None if cores == 1 else Pipeline(engine, order, cores, f"riot_ops-{flow.name}", min_rows)


def available_cores() -> int:
    """Return the number of cores that this process may use.

    >>> available_cores() >= 1
    True
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def is_reentrant(step: Step) -> bool:
    """Whether a step may run for several batches at once."""
    operator = step.operator
    if isinstance(operator, Route):
        return operator.distribution.kind != "custom"
    return not isinstance(operator, Operator) or operator.reentrant


class InFlightBatch:
    """A batch that passes the steps."""

    def __init__(self, number: int, inputs: Mapping[str, list[pa.RecordBatch]], missing: list[int]) -> None:
        self.number = number
        self.inputs = inputs
        self.made: Batches = {}
        #: By stage: the sorted input of keyed steps.
        self.gathered: dict[int, Rows] = {}
        #: Rejected records by stage.
        self.errors: dict[int, list[pa.RecordBatch]] = {}
        #: By stage: how many of its predecessors have not finished.
        self.missing = missing
        self.unfinished = len(missing)
        self.failures: dict[int, BaseException] = {}
        self.done = threading.Event()


class PipelineStage(ABC):
    """A stage that each batch passes once, after the stages whose output it reads."""

    #: Whether batches pass one at a time and in order.
    ordered = False

    def __init__(self) -> None:
        self.index = 0
        self.needs = 0
        self.followers: list[PipelineStage] = []
        self.turn = 0  # number of the batch that may pass next
        self.waiting: dict[int, InFlightBatch] = {}

    @abstractmethod
    def run(self, in_flight: InFlightBatch) -> None:
        """Process a batch."""


class GatherStage(PipelineStage):
    """What keyed steps with the same inputs share: the records in order, and the hashes of their keys."""

    def __init__(self, step: Step, order: tuple[str, ...]) -> None:
        super().__init__()
        self._inputs = step.inputs
        self._numbered = step.numbered
        self._order = order
        self.keys: set[tuple[str, ...]] = set()

    def run(self, in_flight: InFlightBatch) -> None:
        batches = [b for stream in self._inputs for b in in_flight.made.get(stream, [])]
        if not batches:
            return
        if self._numbered:
            batches = [with_ordinals(materialize(b), self._numbered) for b in batches]
        rows = in_order([Rows(b) if isinstance(b, pa.RecordBatch) else b for b in batches], self._order)
        for key in self.keys:
            hash_rows(rows, key)
        in_flight.gathered[self.index] = rows


class StepStage(PipelineStage):
    """A step, with an engine for each batch that it processes at the same time."""

    def __init__(self, step: Step, order: tuple[str, ...], gather: GatherStage | None, states: States) -> None:
        super().__init__()
        self.step = step
        self.ordered = step.keyed or not is_reentrant(step)
        self.engines: list[Engine] = []
        self._free: list[Engine] = []
        self._order = order
        self._gather = gather
        self._states = states
        if self.ordered:
            self._free.append(self._engine())

    def _engine(self) -> Engine:
        outputs = {*_output_streams(self.step)}
        self.engines.append(Engine([self.step], outputs, None, self._order, self._states, lazy=True))
        return self.engines[-1]

    def run(self, in_flight: InFlightBatch) -> None:
        step = self.step
        if isinstance(step.operator, IngestStep):
            inputs: dict[str, list[Any]] = {step.id: in_flight.inputs.get(step.id, [])}
        elif self._gather is not None and self._gather.index in in_flight.gathered:
            inputs = {step.inputs[0]: [in_flight.gathered[self._gather.index]]}
        else:
            inputs = {stream: in_flight.made.get(stream, []) for stream in step.inputs}
        for stream in _watermark_streams(step):
            inputs[stream] = in_flight.made.get(stream, [])
        if not any(inputs.values()):
            return
        try:
            engine = self._free.pop()
        except IndexError:
            engine = self._engine()
        out = engine.process(inputs)
        self._free.append(engine)
        for stream in _output_streams(step):
            in_flight.made[stream] = out.get(stream, [])
        in_flight.errors[self.index] = out.get(ERRORS_STREAM, [])


class Pipeline:
    """Runs all steps of an engine, over its states, for several batches at once.

    Parameters
    ----------
    engine : Engine
        Runs all steps of small batches, in the caller's thread, while no batch is in flight.
    order : tuple of str
        That of the engine.
    cores : int
        Number of threads.
    name : str
        Prefix of the names of the threads.
    min_rows : int, default 0
        Records from which on a batch should be processed in the threads.
    """

    def __init__(
        self, engine: Engine, order: tuple[str, ...], cores: int, name: str = "riot_ops", min_rows: int = 0
    ) -> None:
        self.min_rows = min_rows
        #: Maximum batches in flight: one per core in stateless steps, and one that waits.
        self.max_in_flight = cores + 1
        #: Called whenever a batch has passed all steps.
        self.on_complete: Callable[[], None] = lambda: None
        self._engine = engine
        self._stages = _build_stages(engine.steps, order, engine.states)
        self._runs = [s for s in self._stages if isinstance(s, StepStage)]
        self._pool = ThreadPoolExecutor(cores, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._begun = 0
        self._rows_in, self._rows_out = 0, Counter[str]()  # records of finished batches, by stream
        self._last = math.inf  # number of the last batch that still counts

    def begin(self, inputs: Mapping[str, list[pa.RecordBatch]]) -> InFlightBatch:
        """Push batches through the steps in other threads, after all batches that were begun before."""
        in_flight = InFlightBatch(self._begun, inputs, [s.needs for s in self._stages])
        self._pool.submit(self._begin, in_flight)
        self._begun += 1
        return in_flight

    def finish(self, in_flight: InFlightBatch) -> Batches:
        """Wait for a batch and return its output; raise the error of a step."""
        in_flight.done.wait()
        if in_flight.failures:
            raise in_flight.failures[min(in_flight.failures)]
        return self._results(in_flight)

    def counts(self, *, reset: bool = True) -> dict[str, tuple[int, int]]:
        """Return the same as :meth:`Engine.counts`, with the batches that the engine has processed."""
        found: dict[str, tuple[int, int]] = {}
        for engine in self._engines():
            for step, (taken, rejected) in engine.counts(reset=reset).items():
                t, r = found.get(step, (0, 0))
                found[step] = t + taken, r + rejected
        return found

    def time_steps(self) -> None:
        """Measure from now on how long each step takes, in all threads together."""
        for engine in self._engines():
            engine.time_steps()

    def step_seconds(self) -> dict[str, float]:
        """Return the same as :meth:`Engine.step_seconds`."""
        found = dict[str, float]()
        for engine in self._engines():
            for step, seconds in engine.step_seconds().items():
                found[step] = found.get(step, 0.0) + seconds
        return found

    def _engines(self) -> list[Engine]:
        return [self._engine, *(engine for run in self._runs for engine in run.engines)]

    def row_counts(self) -> tuple[int, int]:
        """Return the same as :meth:`Engine.row_counts`, of batches in flight by the output of those finished."""
        rows_in, max_rows = self._engine.row_counts()
        return self._rows_in + rows_in, max([self._rows_in, *self._rows_out.values()]) + max_rows

    def stop(self) -> None:
        """End the threads and drop the batches in flight."""
        self._last = -1
        self._pool.shutdown(cancel_futures=True)

    def _results(self, in_flight: InFlightBatch) -> Batches:
        self._rows_in += sum(b.num_rows for batches in in_flight.inputs.values() for b in batches)
        self._rows_out.update({name: sum(b.num_rows for b in batches) for name, batches in in_flight.made.items()})
        results = {
            name: [materialize(b) for b in in_flight.made[name]]
            for name in self._engine.outputs
            if in_flight.made.get(name)
        }
        errors = [batch for run in self._runs for batch in in_flight.errors.get(run.index, [])]
        return {**results, ERRORS_STREAM: errors} if errors else results

    # -- in the threads of the pool ------------------------------------------------------------------

    def _begin(self, in_flight: InFlightBatch) -> None:
        with self._lock:
            for stage in self._stages:
                if not stage.needs:
                    self._enter(stage, in_flight)

    def _enter(self, stage: PipelineStage, in_flight: InFlightBatch) -> None:
        """Let a batch in, or make it wait for its turn; the lock is held."""
        if stage.ordered and in_flight.number != stage.turn:
            stage.waiting[in_flight.number] = in_flight
        elif self._last >= 0:
            self._pool.submit(self._run_stage, stage, in_flight)

    def _run_stage(self, stage: PipelineStage, in_flight: InFlightBatch) -> None:
        try:
            if in_flight.number <= self._last:
                stage.run(in_flight)
        except BaseException as error:  # raised again by finish()
            in_flight.failures[stage.index] = error
            self._last = min(self._last, in_flight.number)
        with self._lock:
            if stage.ordered:
                stage.turn += 1
                if (following := stage.waiting.pop(stage.turn, None)) is not None:
                    self._enter(stage, following)
            for follower in stage.followers:
                in_flight.missing[follower.index] -= 1
                if not in_flight.missing[follower.index]:
                    self._enter(follower, in_flight)
            in_flight.unfinished -= 1
            done = not in_flight.unfinished
        if done:
            in_flight.done.set()
            self.on_complete()


def _output_streams(step: Step) -> tuple[str, ...]:
    """Return the streams that a step emits."""
    return (step.id, step.id + HEARTBEAT_SUFFIX) if isinstance(step.operator, IngestStep) else (step.id,)


def _watermark_streams(step: Step) -> tuple[str, ...]:
    """Return the watermark streams that a step reads."""
    return () if step.clock is None else step.clock.streams


def _build_stages(steps: Sequence[Step], order: tuple[str, ...], states: States) -> list[PipelineStage]:
    """Return a stage for each step, and one before keyed steps with the same inputs."""
    found: list[PipelineStage] = []
    makers: dict[str, PipelineStage] = {}
    gathers: dict[Any, GatherStage] = {}

    def add(stage: PipelineStage, after: set[PipelineStage]) -> None:
        stage.index, stage.needs = len(found), len(after)
        for one in after:
            one.followers.append(stage)
        found.append(stage)

    for step in steps:
        before = set() if isinstance(step.operator, IngestStep) else {makers[stream] for stream in step.inputs}
        gather: GatherStage | None = None
        # a pooled step with several inputs may align them instead of sorting
        pooled = isinstance(step.operator, PooledOperator)
        if step.keyed and not (pooled and len(step.inputs) > 1):
            new = GatherStage(step, order)
            gather = gathers.setdefault((step.inputs, step.numbered), new)
            if gather is new:
                add(gather, before)
            if step.key and not pooled:  # a pooled step also hashes the records that it holds
                gather.keys.add(step.key)
            before = {gather, *(makers[stream] for stream in _watermark_streams(step))}
        run = StepStage(step, order, gather, states)
        makers |= dict.fromkeys(_output_streams(step), run)
        add(run, before)
    return found
