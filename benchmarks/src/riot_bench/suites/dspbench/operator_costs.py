"""Cost of each operator of an application: selectivity, record sizes, time per record and state."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.input_lines import InputLines
from riot_bench.harness.measure import Measure
from riot_bench.harness.outcome import BOX_QUANTILES
from riot_ops.graph.lowering import Route, Step
from riot_ops.ingest.renumber import Renumber
from riot_ops.ingest.step import IngestStep
from riot_ops.ingest.watermarks import WatermarkGenerator
from riot_ops.measure.metrics import quantiles
from riot_ops.runtime.engine import Engine

__all__ = ["OperatorCost", "measure_operators", "operator_measures", "record_sizes"]

#: Source records of a batch, and output records of an operator whose sizes are kept.
BATCH, MAX_SIZES = 4096, 50_000


@dataclass
class OperatorCost:
    """Input, output, time and state of an operator.

    Attributes
    ----------
    rows_in, rows_out : int
        Input and output records.
    bytes_in, bytes_out : int
        Their size in Arrow's memory format, all fields.
    per_record : list of (float, int)
        Seconds per input record of each call, and its input records.
    sizes : list of array
        Bytes of the first output records, see :func:`record_sizes`.
    state : int
        Bytes of state at the end.
    """

    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    per_record: list[tuple[float, int]] = field(default_factory=list)
    sizes: list[npt.NDArray[np.float64]] = field(default_factory=list)
    state: int = 0

    def add(self, inputs: Sequence[pa.RecordBatch], outputs: Sequence[pa.RecordBatch], seconds: float) -> None:
        """Add a call."""
        rows = sum(b.num_rows for b in inputs)
        if sum(map(len, self.sizes)) < MAX_SIZES:
            self.sizes += [record_sizes(b) for b in outputs]
        self.rows_in += rows
        self.rows_out += sum(b.num_rows for b in outputs)
        self.bytes_in += sum(b.nbytes for b in inputs)
        self.bytes_out += sum(b.nbytes for b in outputs)
        if rows:
            self.per_record.append((seconds / rows, rows))

    def figures(self) -> dict[str, tuple[float, str]]:
        """Return the figures by name, with their units."""
        times, rows = np.array(self.per_record or [(math.nan, 1)]).T
        p50, p95 = quantiles(times, rows, (0.5, 0.95))  # over records: a small batch counts less than a large one
        return {
            "selectivity": (_ratio(self.rows_out, self.rows_in), "records/record"),
            "time-p50": (1e9 * p50, "ns/record"),
            "time-p95": (1e9 * p95, "ns/record"),
            "bytes-in": (_ratio(self.bytes_in, self.rows_in), "bytes/record"),
            "bytes-out": (_ratio(self.bytes_out, self.rows_out), "bytes/record"),
            "state": (self.state, "bytes"),
            **{f"bytes-out-{name}": (value, "bytes/record") for name, value in self._size_quantiles().items()},
        }

    def _size_quantiles(self) -> dict[str, float]:
        sizes = np.concatenate(self.sizes) if self.sizes else np.empty(0)
        values = np.quantile(sizes, BOX_QUANTILES) if sizes.size else [math.nan] * len(BOX_QUANTILES)
        return {f"p{100 * q:.0f}": float(value) for q, value in zip(BOX_QUANTILES, values, strict=True)}


def record_sizes(batch: pa.RecordBatch) -> npt.NDArray[np.float64]:
    """Return the size of each record in bytes: texts, bytes and lists by their length, other values by their width.

    >>> record_sizes(pa.RecordBatch.from_pydict({"a": [1, 2], "b": ["x", None], "c": [[1.0], [1.0, 2.0]]})).tolist()
    [25.0, 32.0]
    """
    sizes = np.zeros(batch.num_rows)
    for column in batch.columns:
        kind = column.type
        if pa.types.is_dictionary(kind):
            column, kind = column.dictionary_decode(), kind.value_type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            sizes += 4 + pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        elif pa.types.is_list(kind) and pa.types.is_primitive(kind.value_type):
            lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
            sizes += 4 + lengths * kind.value_type.bit_width / 8
        elif pa.types.is_primitive(kind):
            sizes += kind.bit_width / 8
        else:  # nested
            sizes += column.nbytes / max(1, batch.num_rows)
    return sizes


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.nan


@contextmanager
def _observed_engine() -> Iterator[dict[str, OperatorCost]]:
    """Record the cost of every step that engines run, but of those that the planner adds."""
    found: dict[str, OperatorCost] = {}

    def record(
        engine: Engine,
        step: Step,
        inputs: Sequence[pa.RecordBatch],
        outputs: Sequence[pa.RecordBatch],
        seconds: float,
    ) -> None:
        if isinstance(step.operator, (IngestStep, Renumber, WatermarkGenerator, Route)):
            return
        cost = found.setdefault(step.name, OperatorCost())
        cost.add(inputs, outputs, seconds)
        if inputs and step.id in engine.states:
            cost.state = engine.states[step.id].nbytes

    Engine.on_step = record
    try:
        yield found
    finally:
        Engine.on_step = None


def measure_operators(data: InputLines) -> dict[str, OperatorCost]:
    """Measure the sources and operators of an application on one core; return their costs in graph order."""
    flow = data.application.builder()
    flow.run(data.take(data.lines_per_file).sources(), sinks=DiscardSink(), cores=1)  # compiles
    found = {name: _source_cost(source) for name, source in data.sources().items()}
    with _observed_engine() as steps:
        flow.run(data.sources(), sinks=DiscardSink(), batch_size=BATCH, cores=1)
    order = [node.id for node in flow.topological_order()]
    return found | {name: steps[name] for name in sorted(steps, key=lambda n: order.index(n) if n in order else -1)}


def _source_cost(source: Any) -> OperatorCost:
    """Measure a source alone: lines in, records out."""
    use, at = OperatorCost(), source.initial()
    while (end := source.latest(at, BATCH)) != at:
        for split in source.splits(at, end, 1):
            begun = time.perf_counter()
            batches = list(source.read(split))
            use.add(batches, batches, time.perf_counter() - begun)
        at = end
    return use


def operator_measures(data: InputLines) -> Iterator[Measure]:
    """Yield a measure for each figure of each operator."""
    how = f"{data.total:,} lines in batches of {BATCH:,}, one core"
    for name, use in measure_operators(data).items():
        for figure, (value, unit) in use.figures().items():
            yield Measure(f"dspbench/{data.application.code}/operator/{name}/{figure}", value, unit, how)
