"""Center distance: the distance of each record from the centre of its event time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Names, as_names
from riot_ops.dataflows.dspbench.operators.time_batch_task import Numbers, TimeBatchTask
from riot_ops.kernels.arrays.arrow import float_column, replace_column
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, State, register, with_field

__all__ = ["CenterDistance"]


@kernel
def _distances(x: Any, edges: Any, bias: Any, centre: Any, out: Any) -> None:
    """Compute ``bias + |x - mean|`` of each point (a column of x), by batch."""
    for b in range(edges.size - 1):
        n = edges[b + 1] - edges[b]
        for d in range(x.shape[0]):
            total = 0.0
            for i in range(edges[b], edges[b + 1]):
                total += x[d, i]
            centre[d] = total / n
        for i in range(edges[b], edges[b + 1]):
            square = 0.0
            for d in range(x.shape[0]):
                square += (x[d, i] - centre[d]) ** 2
            out[i] = bias + math.sqrt(square)


@register
@dataclass(frozen=True, kw_only=True)
class CenterDistance(TimeBatchTask):
    """Score each record by its distance from the centre of all records with its event time.

    With the n points ``x_i`` of a time and their centre ``c = Σ x_i / n``, the score is ``bias + |x_i - c|``. It is
    emitted when a later record arrives, or at the end: then the time is complete.

    Parameters
    ----------
    fields : tuple of str
        Numeric fields that make up a point.
    scales : tuple of float > 0, optional
        Divisor of each field; by default 1.
    bias : float, default 0.0
        Number added to the distance.
    output : str, default "score"
        Field for the score.
    time, partial
        A field for the time, and whether the end closes the last batch, see :class:`TimeBatchTask`.
    by : tuple of str, default ()
        Key: each key has its own centres.
    ttl
        Not supported.

    Shapes and rates
    ----------------
    float64[n, d] -> float64[n], 1:0/1 (1:1 with ``partial``), delayed; O(d) time. The state is the records
    of the latest time.

    Missing values
    --------------
    A record without event time, or with a null or NaN in one of the fields, is an error.

    Errors
    ------
    ``no_event_time``, ``missing``, ``not_finite``; ``late``: a record with a later time came earlier.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: machine outlier.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> rack = CenterDistance(fields=("cpu", "memory"), scales=(10, 10)).session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> rack.push_many({"event_time": noon, "cpu": c, "memory": m} for c, m in ((0, 0), (60, 80)))
    []
    >>> [row["score"] for row in rack.flush()]
    [5.0, 5.0]
    """

    code: ClassVar[str] = "CDT"
    category: ClassVar[str] = "Statistical"
    selectivity: ClassVar[str] = "1:0/1"

    fields: Names
    scales: tuple[float, ...] | None = None
    bias: float = 0.0
    output: str = "score"

    def validate(self) -> None:
        super().validate()
        if not self.fields or len(set(self.fields)) < len(self.fields):
            raise ConfigError(f"fields must name at least one field, and none twice; got {self.fields!r}")
        if self.scales is not None and (len(self.scales) != len(self.fields) or min(self.scales) <= 0):
            raise ConfigError(f"scales must be {len(self.fields)} numbers > 0, one per field; got {self.scales!r}")
        if self.output == self.time:
            raise ConfigError(f"output and time must be different fields, got {self.output!r} for both")

    def numeric_fields(self) -> tuple[str, ...]:
        return as_names(self.fields)

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output} if self.time is None else {self.output, self.time})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(self.with_time_field(schema), pa.field(self.output, pa.float64()))

    def results(self, batch: pa.RecordBatch, edges: Numbers, state: State) -> pa.RecordBatch:
        n = batch.num_rows
        x, scores = np.empty((len(self.fields), n)), np.empty(n)
        for i, name in enumerate(self.fields):
            np.divide(float_column(batch.column(name))[0], 1.0 if self.scales is None else self.scales[i], out=x[i])
        _distances(x, edges, self.bias, np.empty(len(self.fields)), scores)
        if self.time is not None:
            batch = replace_column(batch, self.time, batch.column("event_time"))
        return replace_column(batch, self.output, scores)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        yield Case(cls(fields=("cpu",), bias=1.0), example_batches())
        yield Case(
            cls(fields=("cpu", "memory"), scales=(100, 1), by=("rack",), time="at", output="far"), example_batches()
        )
        yield Case(cls(fields=("memory",), partial=False), example_batches())


def example_batches() -> pa.RecordBatch:
    """Build records of several times, with ties, late records and missing values."""
    times = pa.array([0, 0, 1, 1, 0, None, 1, 3, 3, 2, 4], pa.timestamp("s", tz="UTC"))
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(11), pa.int64()),
            "event_time": times.cast(pa.timestamp("us", tz="UTC")),
            "rack": ["a", "b", "a", "a", "b", "a", None, "ü", "a", "a", None],
            "cpu": [10.0, 30.0, 5.0, 5.0, 50.0, 1.0, None, 7.0, float("inf"), 9.0, 0.0],
            "memory": [1.0, 2.0, 3.5, -3.5, 1.0, 1.0, 2.0, float("nan"), 4.0, 4.0, 0.0],
        }
    )
