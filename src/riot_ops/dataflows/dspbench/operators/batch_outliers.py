"""Batch outliers: the records of one event time whose scores stand out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count
from riot_ops.dataflows.dspbench.operators.center_distance import example_batches
from riot_ops.dataflows.dspbench.operators.time_batch_task import Numbers, TimeBatchTask
from riot_ops.kernels.arrays.arrow import float_column, replace_column
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, State, register, with_field

__all__ = ["BatchOutliers"]


@kernel
def _select(values: Any, first: Any, last: Any, k: Any) -> Any:
    """Return the value at k of the sorted ``values[first:last + 1]``; reorders them (Hoare's selection)."""
    while first < last:
        a, b, c = values[first], values[(first + last) >> 1], values[last]
        pivot = max(min(a, b), min(max(a, b), c))
        i = first
        j = last
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            last = j
        elif k >= i:
            first = i
        else:
            break
    return values[k]


@kernel
def _by_median(scores: Any, latest: Any, edges: Any, spread: Any, margin: Any, room: Any, out: Any) -> None:
    """Mark scores far above the median of their batch whose latest reading exceeds the batch's minimum."""
    for b in range(edges.size - 1):
        start, stop = edges[b], edges[b + 1]
        low = np.inf
        minimum = np.inf
        for i in range(start, stop):
            room[i] = scores[i]
            low = min(low, scores[i])
            minimum = min(minimum, latest[i])
        median = _select(room, start, stop - 1, start + (stop - start) // 2)
        for i in range(start, stop):
            far = scores[i] > 2 * median - low and scores[i] > low + spread
            out[i] = far and latest[i] > minimum + margin


@kernel
def _largest(scores: Any, edges: Any, top: Any, room: Any, out: Any) -> None:
    """Mark the largest scores of each batch; among ties the first."""
    for b in range(edges.size - 1):
        start, stop = edges[b], edges[b + 1]
        for i in range(start, stop):
            room[i] = scores[i]
        minimum = -np.inf if stop - start <= top else _select(room, start, stop - 1, stop - top)
        remaining = top
        for i in range(start, stop):
            if scores[i] > minimum:
                remaining -= 1
        for i in range(start, stop):
            out[i] = scores[i] > minimum
            if scores[i] == minimum and remaining > 0:
                out[i] = True
                remaining -= 1


@register
@dataclass(frozen=True, kw_only=True)
class BatchOutliers(TimeBatchTask):
    """Find the records whose scores stand out among all records with their event time.

    With the scores S of a time, their median m (rank ⌊n/2⌋ of n, from 0), the minimum score ``lo`` and the minimum
    latest reading d, ``median`` marks a record as an outlier if ``S > 2m - lo``, ``S > lo + spread`` and its latest
    reading exceeds ``d + margin``; ``k`` marks the ``k`` largest scores. Records are emitted when a later record
    arrives, or at the end.

    Parameters
    ----------
    value : str, default "score"
        Numeric field with the score.
    latest : str or None, default None
        Numeric field with the latest reading, which must also stand out; None: the score itself.
    method : "median" or "top", default "median"
        How to detect outliers.
    spread : float, default 2√2
        See above; the default suits sums of distances in the unit square, whose diagonal is √2.
    margin : float, default 0.1
        See above.
    k : int >= 1, default 3
        Number of outliers with ``k``; among equal scores the earlier records.
    emit_all : bool, default False
        Whether to emit all records, not outliers only.
    output : str, default "is_outlier"
        Field for whether the record is an outlier.
    time, partial
        A field for the time, and whether the end closes the last batch, see :class:`TimeBatchTask`.
    by : tuple of str, default ()
        Key: each key has its own medians.
    ttl
        Not supported.

    Shapes and rates
    ----------------
    float64[n] -> bool[m], 1:0/1, delayed; O(1) time per record (a selection, no sorting). The state is the records of
    the latest time.

    Missing values
    --------------
    A record without event time, or with a null or NaN in a field that is read, is an error.

    Errors
    ------
    ``no_event_time``, ``missing``, ``not_finite``; ``out_of_range``: float64 cannot hold the score; ``late``: a record
    with a later time came earlier.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: machine outlier.
    .. [2] C. A. R. Hoare, *Algorithm 65: Find*, Communications of the ACM 4, 1961.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> scores = [{"event_time": noon, "machine": m, "score": s} for m, s in enumerate((10.0, 10.5, 14.0, 10.2))]
    >>> outliers = BatchOutliers().session()
    >>> [row["machine"] for row in outliers.push_many(scores) + outliers.flush()]
    [2]
    """

    code: ClassVar[str] = "BOL"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    value: str = "score"
    latest: str | None = None
    method: Literal["median", "top"] = "median"
    spread: float = 2 * math.sqrt(2)
    margin: float = 0.1
    k: Count = 3
    emit_all: bool = False
    output: str = "is_outlier"

    def validate(self) -> None:
        super().validate()
        if self.output == self.time:
            raise ConfigError(f"output and time must be different fields, got {self.output!r} for both")

    def numeric_fields(self) -> tuple[str, ...]:
        return (self.value,) if self.latest is None else (self.value, self.latest)

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output} if self.time is None else {self.output, self.time})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(self.with_time_field(schema), pa.field(self.output, pa.bool_()))

    def results(self, batch: pa.RecordBatch, edges: Numbers, state: State) -> pa.RecordBatch:
        scores, _ = float_column(batch.column(self.value))
        room, out = np.empty(scores.size), np.empty(scores.size, np.bool_)
        if self.method == "median":
            latest, _ = float_column(batch.column(self.latest or self.value))
            _by_median(scores, latest, edges, self.spread, self.margin, room, out)
        else:
            _largest(scores, edges, self.k, room, out)
        if not self.emit_all:
            batch = batch.filter(pa.array(out))
            out = out[out]
        if self.time is not None:
            batch = replace_column(batch, self.time, batch.column("event_time"))
        return replace_column(batch, self.output, pa.array(out))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = example_batches()
        yield Case(cls(value="cpu", spread=1.0), batch)
        yield Case(cls(value="memory", latest="cpu", spread=-10.0, by=("rack",), emit_all=True, time="at"), batch)
        yield Case(cls(value="cpu", method="top", k=1, output="best", partial=False), batch)
