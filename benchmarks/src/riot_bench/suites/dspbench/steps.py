"""What each operator of an application does to its records: how many, how large, how long, and what it keeps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from riot_bench.harness.data import Discard
from riot_bench.harness.measure import Measure
from riot_bench.suites.dspbench.lines import Lines
from riot_ops.graph.lowering import Route, Step
from riot_ops.graph.marks import Marks
from riot_ops.ingest.step import Intake
from riot_ops.kernels.arrays.selection import Rows, whole
from riot_ops.runtime.engine import Engine

__all__ = ["OperatorUse", "operator_measures", "operators"]

#: Records of the source that go through the operators at once.
BATCH = 4096


@dataclass
class OperatorUse:
    """What an operator took, made and needed.

    Attributes
    ----------
    taken, made : int
        Records.
    bytes_taken, bytes_made : int
        What these are as Arrow holds them, all fields.
    per_record : list of float
        Seconds per record taken, of each batch.
    state : int
        Bytes that it holds at the end.
    """

    taken: int = 0
    made: int = 0
    bytes_taken: int = 0
    bytes_made: int = 0
    per_record: list[float] = field(default_factory=list)
    state: int = 0

    def add(self, taken: Sequence[pa.RecordBatch], made: Sequence[pa.RecordBatch], seconds: float) -> None:
        """What happened in one call."""
        rows = sum(b.num_rows for b in taken)
        self.taken += rows
        self.made += sum(b.num_rows for b in made)
        self.bytes_taken += sum(b.nbytes for b in taken)
        self.bytes_made += sum(b.nbytes for b in made)
        if rows:
            self.per_record.append(seconds / rows)

    def figures(self) -> dict[str, tuple[float, str]]:
        """The figures by name, with their units."""
        p50, p95 = (float(v) for v in np.quantile(self.per_record or [math.nan], (0.5, 0.95)))
        return {
            "selectivity": (_share(self.made, self.taken), "records/record"),
            "time-p50": (1e9 * p50, "ns/record"),
            "time-p95": (1e9 * p95, "ns/record"),
            "bytes-in": (_share(self.bytes_taken, self.taken), "bytes/record"),
            "bytes-out": (_share(self.bytes_made, self.made), "bytes/record"),
            "state": (self.state, "bytes"),
        }


def _share(a: float, b: float) -> float:
    return a / b if b else math.nan


@contextmanager
def _watched() -> Iterator[dict[str, OperatorUse]]:
    """Watch every step that engines run."""
    found: dict[str, OperatorUse] = {}
    run, flushed = Engine._run, Engine._flushed  # noqa: SLF001 (they are looked at from outside)

    def use(step: Step) -> OperatorUse | None:
        known = not isinstance(step.operator, (Intake, Marks, Route))
        return found.setdefault(step.name, OperatorUse()) if known else None

    def timed_run(self: Engine, step: Step, batches: Sequence[Rows], marks: Any = ()) -> list[Any]:
        begun = time.perf_counter()
        made = [whole(b) for b in run(self, step, batches, marks)]  # rows that are copied later cost time, too
        spent = time.perf_counter() - begun
        one = use(step)
        if one is not None:
            one.add([whole(b) for b in batches], made, spent)
            if step.id in self.states:
                one.state = self.states[step.id].nbytes
        return made

    def timed_flush(self: Engine, step: Step) -> list[pa.RecordBatch]:
        made = flushed(self, step)
        one = use(step)
        if one is not None:
            one.add([], made, 0.0)
        return made

    Engine._run, Engine._flushed = timed_run, timed_flush  # type: ignore[method-assign] # noqa: SLF001
    try:
        yield found
    finally:
        Engine._run, Engine._flushed = run, flushed  # type: ignore[method-assign] # noqa: SLF001


def operators(data: Lines) -> dict[str, OperatorUse]:
    """The sources and operators of an application, in the order of its graph, over so many lines on one core."""
    flow = data.application.builder()
    flow.run(data.first(data.each).sources(), sinks=Discard(), cores=1)  # compiles
    found = {name: _reading(source) for name, source in data.sources().items()}
    with _watched() as steps:
        flow.run(data.sources(), sinks=Discard(), batch_size=BATCH, cores=1)
    order = [node.id for node in flow.order()]
    return found | {name: steps[name] for name in sorted(steps, key=lambda n: order.index(n) if n in order else -1)}


def _reading(source: Any) -> OperatorUse:
    """A source alone: lines in, records out."""
    use, at = OperatorUse(), source.initial()
    while (end := source.latest(at, BATCH)) != at:
        for split in source.splits(at, end, 1):
            begun = time.perf_counter()
            batches = list(source.read(split))
            use.add(batches, batches, time.perf_counter() - begun)
        at = end
    return use


def operator_measures(data: Lines) -> Iterator[Measure]:
    """A measure for each figure of each operator."""
    how = f"{data.total:,} lines in batches of {BATCH:,}, one core"
    for name, use in operators(data).items():
        for figure, (value, unit) in use.figures().items():
            yield Measure(f"dspbench/{data.application.code}/operator/{name}/{figure}", value, unit, how)
