"""Weighted average, such as the volume-weighted average price, over the last records or a calendar period."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import NEVER
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Length
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.arrays.timestamps import check_time_field, from_microseconds, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, with_field

__all__ = ["WeightedAverage"]

Period = Literal["minute", "hour", "day", "week", "month", "year"]
_DAY = 86_400_000_000
#: Length of the periods of fixed length, in microseconds, and the offset of their origin from 1 January 1970.
_FIXED_PERIODS: dict[str, tuple[int, int]] = {
    "minute": (60_000_000, 0),
    "hour": (3_600_000_000, 0),
    "day": (_DAY, 0),
    "week": (7 * _DAY, -3 * _DAY),  # 1 January 1970 was a Thursday; weeks begin on Monday
}
#: Outcome of a record.
NO_RESULT, RESULT, LATE = 0, 1, 2


@kernel
def _average(total: Any, weight: Any, out: Any, i: Any) -> Any:
    """Write the average, if it exists, and return the outcome of the record."""
    mean = total / weight if weight > 0.0 else np.nan
    out[i] = mean
    return RESULT if np.isfinite(mean) else NO_RESULT


@kernel
def _average_last(
    values: Any, weights: Any, times: Any, slots: Any, sums: Any, heads: Any, started: Any, seen: Any, out: Any,
    start: Any, outcome: Any,
) -> None:  # fmt: skip
    """Average the last n records of each key, with n = ``sums.shape[1] // 2``.

    Records come in blocks of n. ``sums`` holds the suffix sums of the previous block; the records of the current block
    overwrite them one by one, and ``heads`` holds the running sum of the current block. So a window is one suffix sum
    plus one running sum, nothing is ever subtracted, and a record costs the same for any n.
    """
    n = sums.shape[1] // 2
    for i in range(values.size):
        if np.isnan(values[i]) or np.isnan(weights[i]):
            outcome[i] = NO_RESULT
            continue
        s = slots[i]
        k = seen[s] % n
        if k == 0 and seen[s] > 0:
            for j in range(n - 2, -1, -1):
                sums[s, 2 * j] += sums[s, 2 * j + 2]
                sums[s, 2 * j + 1] += sums[s, 2 * j + 3]
            heads[s, 0] = 0.0
            heads[s, 1] = 0.0
        sums[s, 2 * k] = values[i] * weights[i]
        sums[s, 2 * k + 1] = weights[i]
        heads[s, 0] += sums[s, 2 * k]
        heads[s, 1] += weights[i]
        total, weight = heads[s, 0], heads[s, 1]
        if seen[s] >= n and k + 1 < n:
            total += sums[s, 2 * k + 2]
            weight += sums[s, 2 * k + 3]
        if started.shape[1] > 0:
            started[s, k] = times[i]
            start[i] = started[s, k + 1 if seen[s] >= n and k + 1 < n else 0]
        seen[s] += 1
        outcome[i] = _average(total, weight, out, i)


@kernel
def _average_period(
    values: Any, weights: Any, times: Any, periods: Any, slots: Any, heads: Any, period: Any, started: Any, out: Any,
    start: Any, outcome: Any,
) -> None:  # fmt: skip
    """Average the records of each key so far in their period."""
    for i in range(values.size):
        s = slots[i]
        if periods[i] < period[s]:
            outcome[i] = LATE
            continue
        if np.isnan(values[i]) or np.isnan(weights[i]):
            outcome[i] = NO_RESULT
            continue
        if periods[i] > period[s]:
            period[s] = periods[i]
            started[s] = times[i]
            heads[s, 0] = 0.0
            heads[s, 1] = 0.0
        heads[s, 0] += values[i] * weights[i]
        heads[s, 1] += weights[i]
        start[i] = started[s]
        outcome[i] = _average(heads[s, 0], heads[s, 1], out, i)


@register
@dataclass(frozen=True, kw_only=True)
class WeightedAverage(KeyedTask):
    """Compute the weighted average of each key's readings, such as prices weighted by volume (VWAP).

    ``average = (w1 x1 + … + wn xn) / (w1 + … + wn)`` over the last records of the key, or over its records so far in
    the current calendar period.

    Parameters
    ----------
    value : str, default "price"
        Field with the reading.
    weight : str, default "volume"
        Field with its weight, >= 0.
    window : int, 1 to 1,048,576, optional
        Number of records in the average; fewer while the key has fewer.
    calendar : "minute", "hour", "day", "week", "month" or "year", optional
        Instead of ``window``: the period, in UTC, whose records are averaged; weeks begin on Monday (ISO 8601).
    output : str, default "vwap"
        Field for the average.
    start : str, optional
        Field for the event time of the first record in the average.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    float64[n], float64[n] -> float64[m], 1:0/1; O(1) time per record (amortised), for windows of any length. State per
    key: 16 bytes per record of ``window`` (24 with ``start``) and 24; with ``calendar`` 32. Nothing is subtracted, so
    the relative error for readings of one sign is at most n units in the last place.

    Missing values
    --------------
    A record with a null or NaN reading or weight does not count and is not emitted. Nothing is emitted while all
    weights are 0 either.

    Errors
    ------
    ``not_finite`` (an infinite reading or weight), ``out_of_range`` (a negative weight); with it also ``late``
    (the key is in a later period) and ``no_event_time``.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: bargain index.
    .. [2] M. van Herk, *A fast algorithm for local minimum and maximum filters*, Pattern Recognition Letters 13, 1992:
       windows from the sums of blocks.

    Examples
    --------
    >>> vwap = WeightedAverage(window=2).session()
    >>> trades = [(10.0, 100), (12.0, 300), (9.0, 300)]
    >>> [vwap.push({"price": price, "volume": volume})[0]["vwap"] for price, volume in trades]
    [10.0, 11.5, 10.5]
    """

    code: ClassVar[str] = "WAV"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "1:0/1"

    value: str = "price"
    weight: str = "volume"
    window: Length | None = None
    calendar: Period | None = None
    output: str = "vwap"
    start: str | None = None

    def validate(self) -> None:
        if (self.window is None) == (self.calendar is None):
            raise ConfigError(
                f"give either window or calendar, got window={self.window!r} and calendar={self.calendar!r}"
            )
        if self.start == self.output:
            raise ConfigError(f"start must not be {self.start!r}, the field for the average")

    def requires(self) -> Mapping[str, Requirement]:
        timed: dict[str, Requirement] = {"event_time": "any"} if self.calendar or self.start else {}
        return {**super().requires(), **timed, self.value: "number", self.weight: "number"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        out = with_field(schema, pa.field(self.output, pa.float64()))
        if self.calendar or self.start:
            check_time_field(self.name(), schema)
        return out if self.start is None else with_field(out, pa.field(self.start, schema.field("event_time").type))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output} if self.start is None else {self.output, self.start})

    def state_fields(self) -> Mapping[str, StateField]:
        if self.window is None:
            return {
                "heads": StateField("float64", 2),
                "period": StateField("int64", initial=NEVER),
                "started": StateField("int64"),
            }
        fields = {
            "sums": StateField("float64", 2 * self.window),
            "heads": StateField("float64", 2),
            "seen": StateField("int64"),
        }
        return fields if self.start is None else {**fields, "started": StateField("int64", self.window)}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        bad = np.zeros(batch.num_rows, np.bool_)

        def reject(rows: npt.NDArray[np.bool_], reason: str, text: str) -> None:
            errors.reject(batch, rows & ~bad, reason, text)
            np.logical_or(bad, rows, out=bad)

        for name in dict.fromkeys((self.value, self.weight)):
            reject(np.isinf(float_column(batch.column(name))[0]), "not_finite", f"{name} is infinite")
        reject(float_column(batch.column(self.weight))[0] < 0, "out_of_range", f"{self.weight} is negative")
        if self.calendar is not None or self.start is not None:
            _, present = microseconds(batch.column("event_time"))
            reject(~present, "no_event_time", "the event time is missing")
        return batch.filter(pa.array(~bad)) if bad.any() else batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        n = batch.num_rows
        values, weights = (float_column(batch.column(name))[0] for name in (self.value, self.weight))
        out, start, outcome = np.empty(n), np.zeros(n, np.int64), np.empty(n, np.int8)
        timed = self.calendar is not None or self.start is not None
        times = microseconds(batch.column("event_time"))[0] if timed else np.empty(0, np.int64)
        if self.calendar is None:
            started = state.get("started", np.empty((0, 0), np.int64))
            _average_last(
                values,
                weights,
                times,
                slots,
                state["sums"],
                state["heads"],
                started,
                state["seen"],
                out,
                start,
                outcome,
            )
        else:
            periods = _period_numbers(times, self.calendar)
            heads, period, started = state["heads"], state["period"], state["started"]
            _average_period(values, weights, times, periods, slots, heads, period, started, out, start, outcome)
            errors.reject(batch, outcome == LATE, "late", f"the key is in a later {self.calendar}")
        columns = {self.output: pa.array(out)}
        if self.start is not None:
            columns[self.start] = from_microseconds(start, batch.schema.field("event_time").type)
        schema = self.output_schema(batch.schema)
        arrays = [columns[f.name] if f.name in columns else batch.column(f.name) for f in schema]
        result = pa.RecordBatch.from_arrays(arrays, schema=schema)
        emitted = outcome == RESULT
        return result if emitted.all() else result.filter(pa.array(emitted))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(10), pa.int64()),
                "event_time": pa.array([0, 1, 50, 70, 130, 110, 131, 200, 4e5, 3e6], pa.float64())
                .cast(pa.int64())
                .cast(pa.timestamp("s", tz="UTC")),
                "stock": ["a", "b", "a", "ü", "a", "a", "b", "a", None, "a"],
                "price": [10.0, 3.5, 12.0, 4.0, float("nan"), 1e308, None, 11.0, 1.0, 0.5],
                "volume": [100.0, 0.0, 300.0, 1.0, 1.0, 1e3, 5.0, 200.0, 2.0, 7.0],
            }
        )
        yield Case(cls(window=2, by=("stock",)), batch)
        yield Case(cls(calendar="minute", by=("stock",), start="start"), batch, "minutes")
        yield Case(cls(window=3, start="start", output="price"), batch, "start")


def _period_numbers(times: npt.NDArray[np.int64], period: str) -> npt.NDArray[np.int64]:
    """Compute the number of the period that contains each time."""
    if period in _FIXED_PERIODS:
        length, first = _FIXED_PERIODS[period]
        return (times - first) // length
    unit = "datetime64[M]" if period == "month" else "datetime64[Y]"
    return times.view("datetime64[us]").astype(unit).astype(np.int64)
