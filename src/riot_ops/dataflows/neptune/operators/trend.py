"""Trend: statistics and a least-squares line over a sliding time window, with an alarm when a value grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import NonNegative
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import concat_batches, float_column, int_column
from riot_ops.kernels.arrays.exact import NO_RESTS, exact_numbers, exact_result, exact_type
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, replace_column, with_field

__all__ = ["Trend"]

STATISTICS = ("mean", "min", "max", "slope", "intercept")
BASELINES = ("min", "first", "mean")
#: Up to this many values in a window, every eviction recomputes the sums.
RECOMPUTE_BELOW = 32
#: An evicted value further from the origin than this multiple of the remaining range has cost the sums digits:
#: recompute.
OUTLIER_RATIO = 1000
#: Columns of ``sums``: the value that y is relative to, then the sums of x, y, x^2 and xy, and the evictions since the
#: sums were last computed. x is relative to the time in ``origin``, in hours.
SUMS = 6


@kernel
def _recompute_sums(times: Any, values: Any, first: Any, end: Any, hour: Any, origin: Any, sums: Any, s: Any) -> None:
    """Recompute the sums relative to the oldest value of the window."""
    origin[s] = times[first]
    sums[s, 0] = values[first]
    for j in range(1, SUMS):
        sums[s, j] = 0.0
    for k in range(first, end):
        x = (times[k] - origin[s]) / hour
        y = values[k] - sums[s, 0]
        sums[s, 1] += x
        sums[s, 2] += y
        sums[s, 3] += x * x
        sums[s, 4] += x * y


@kernel
def _reaches(values: Any, rests: Any, i: Any, k: Any) -> Any:
    """Whether value i is at least value k; both are pairs, see :mod:`riot_ops.kernels.arrays.exact`."""
    return values[i] > values[k] or (values[i] == values[k] and (rests.size == 0 or rests[i] >= rests[k]))


@kernel
def _trend(
    new_times: Any, new_values: Any, new_rests: Any, rows: Any, edges: Any, held: Any, touched: Any, size: Any,
    hour: Any, growth: Any, baseline: Any, times: Any, values: Any, rests: Any, low: Any, high: Any, origin: Any,
    sums: Any, first: Any, last: Any, counts: Any, found: Any, alarms: Any, late: Any,
) -> None:  # fmt: skip
    """Advance the windows of the touched keys by their new rows.

    The window of key ``touched[t]`` stands in ``times`` and ``values`` from ``edges[t]`` on and is ``held[t]`` long;
    its new values fill the space up to ``edges[t + 1]``, and its new rows are the next ones in ``rows``. ``first`` and
    ``last`` receive its bounds after the batch. ``low`` and ``high`` are scratch space for monotonic queues: positions
    of values that can still become the minimum or the maximum.
    """
    r = 0
    for t in range(touched.size):
        s = touched[t]
        a = edges[t]
        end = a + held[t]
        new = edges[t + 1] - end
        # positions of values that no later value undercuts (low) or exceeds (high), the extreme first
        low_a = a
        low_z = a
        high_a = a
        high_z = a
        for k in range(a, end):
            while low_z > low_a and _reaches(values, rests, low[low_z - 1], k):
                low_z -= 1
            low[low_z] = k
            low_z += 1
            while high_z > high_a and _reaches(values, rests, k, high[high_z - 1]):
                high_z -= 1
            high[high_z] = k
            high_z += 1
        for _ in range(new):
            i = rows[r]
            r += 1
            now = new_times[i]
            v = new_values[i]
            late[i] = end > a and now < times[end - 1]
            if late[i]:
                continue
            while a < end and times[a] <= now - size:
                x = (times[a] - origin[s]) / hour
                y = values[a] - sums[s, 0]
                sums[s, 1] -= x
                sums[s, 2] -= y
                sums[s, 3] -= x * x
                sums[s, 4] -= x * y
                sums[s, 5] += 1
                if low[low_a] == a:
                    low_a += 1
                if high[high_a] == a:
                    high_a += 1
                a += 1
                if a < end:
                    far = OUTLIER_RATIO * (values[high[high_a]] - values[low[low_a]])
                    lost = abs(y) > far or abs(values[a] - sums[s, 0]) > far
                    if lost or end - a <= RECOMPUTE_BELOW or sums[s, 5] >= end - a:
                        _recompute_sums(times, values, a, end, hour, origin, sums, s)
            n = end - a
            alarms[i] = False
            if n > 0:
                base = values[a]
                if baseline == 0:
                    base = values[low[low_a]]
                elif baseline == 2:
                    base = sums[s, 0] + sums[s, 2] / n
                alarms[i] = v > (1.0 + growth) * base
            times[end] = now
            values[end] = v
            if rests.size > 0:
                rests[end] = new_rests[i] if new_rests.size > 0 else 0.0
            if n == 0:
                _recompute_sums(times, values, end, end, hour, origin, sums, s)
                low_a = low_z = high_a = high_z = end
            x = (now - origin[s]) / hour
            y = v - sums[s, 0]
            sums[s, 1] += x
            sums[s, 2] += y
            sums[s, 3] += x * x
            sums[s, 4] += x * y
            while low_z > low_a and _reaches(values, rests, low[low_z - 1], end):
                low_z -= 1
            low[low_z] = end
            low_z += 1
            while high_z > high_a and _reaches(values, rests, end, high[high_z - 1]):
                high_z -= 1
            high[high_z] = end
            high_z += 1
            end += 1
            n += 1
            counts[i] = n
            mean = sums[s, 2] / n
            found[0, i] = sums[s, 0] + mean
            found[1, i] = values[low[low_a]]
            found[2, i] = values[high[high_a]]
            found[3, i] = np.nan
            found[4, i] = np.nan
            found[5, i] = rests[low[low_a]] if rests.size > 0 else 0.0
            found[6, i] = rests[high[high_a]] if rests.size > 0 else 0.0
            if times[a] < now:
                slope = (n * sums[s, 4] - sums[s, 1] * sums[s, 2]) / (n * sums[s, 3] - sums[s, 1] * sums[s, 1])
                start = (times[a] - origin[s]) / hour
                found[3, i] = slope
                found[4, i] = sums[s, 0] + mean + slope * (start - sums[s, 1] / n)
        first[t] = a
        last[t] = end


@register
@dataclass(frozen=True, kw_only=True)
class Trend(KeyedTask):
    """Monitor a value of each key over a sliding time window: statistics, least-squares line, alarm when it grows.

    At time t the window holds the values of ``(t - window, t]``. The line is the least-squares fit over the time in
    hours; ``slope = (n Σxy - Σx Σy) / (n Σx² - (Σx)²)``. A value raises an alarm if it exceeds ``(1 + growth)`` times
    the baseline of the values that were in the window before it.

    Parameters
    ----------
    window : timedelta > 0 or text such as "1d", default 1 day
        Length of the window.
    growth : float >= 0, default 0.01
        Share by which a value may exceed the baseline without an alarm.
    baseline : "min", "first" or "mean", default "min"
        Minimum, oldest or mean value of the window before the record.
    value : str, default "value"
        Numeric input field. ``min`` and ``max`` have its type (float64 for floating types) and all digits, the others
        are computed in float64; decimals are refused.
    time : str, default "event_time"
        Field with the time: a timestamp, or a whole number of nanoseconds since 1970.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    float64[n] -> record[n], 1:1, with ``count`` (int64), ``mean``, ``min``, ``max``, ``slope`` (per hour),
    ``intercept`` (the line at the oldest value of the window) and ``alarm``. O(1) time per record, and O(W) for each
    key and batch; 16 W + 56 bytes of state per key. The sums are recomputed once every value of the window has been
    replaced, so that rounding errors do not accumulate, and whenever an outlier leaves the window.

    Missing values
    --------------
    A record without value or time is an error. Slope and intercept are null where all values have one time.

    Errors
    ------
    ``missing``; ``not_finite`` (an infinite value); ``late`` (an earlier time than another record of its key, see
    :class:`SortByEventTime`).

    References
    ----------
    .. [1] Z. Jerzak et al., *The DEBS 2012 Grand Challenge*, DEBS 2012, query 1.
    .. [2] T. Buddhika, *Real-time stream processing in sensing environments*, thesis, 2015: equipment monitoring.

    Examples
    --------
    >>> trend = Trend(time="ts").session()
    >>> hour = 3_600_000_000_000
    >>> for h, v in enumerate((200.0, 201.0, 205.0)):
    ...     out = trend.push({"ts": h * hour, "value": v})[0]
    >>> out["count"], out["mean"], out["slope"], out["alarm"]
    (3, 202.0, 2.5, True)
    """

    code: ClassVar[str] = "TRD"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    version: ClassVar[int] = 2

    window: timedelta = timedelta(days=1)
    growth: NonNegative = 0.01
    baseline: Literal["min", "first", "mean"] = "min"
    value: str = "value"
    time: str = "event_time"

    def validate(self) -> None:
        if self.window <= timedelta(0):
            raise ConfigError(f"window must be longer than 0, got {self.window!r}")
        if self.value == self.time:
            raise ConfigError(f"value and time must be different fields, got {self.value!r} for both")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.value: "exact number", self.time: "any"}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        dtype = schema.field(self.time).type
        fits = pa.types.is_timestamp(dtype) or pa.types.is_integer(dtype) or pa.types.is_null(dtype)
        if not fits or dtype == pa.uint64():
            raise ConfigError(
                f"{self.name()} needs timestamps or integers (but uint64) in {self.time!r}, its input has {dtype}"
            )
        schema = with_field(schema, pa.field("count", pa.int64()))
        extreme = exact_type(schema.field(self.value).type)
        for name in STATISTICS:
            schema = with_field(schema, pa.field(name, extreme if name in ("min", "max") else pa.float64()))
        return with_field(schema, pa.field("alarm", pa.bool_()))

    def writes(self) -> frozenset[str] | None:
        return frozenset({"count", *STATISTICS, "alarm"})

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "window": StateField("rows", initial=None),
            "origin": StateField("int64"),
            "sums": StateField("float64", SUMS),
        }

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        values = float_column(batch.column(self.value))[0]
        absent = np.isnan(values) | np.asarray(batch.column(self.time).is_null())
        infinite = np.isinf(values) & ~absent
        errors.reject(batch, absent, "missing", f"{self.value} or {self.time} is missing")
        errors.reject(batch, infinite, "not_finite", f"{self.value} is infinite")
        good = ~(absent | infinite)
        return batch if good.all() else batch.filter(pa.array(good))

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        n = batch.num_rows
        column = batch.column(self.time)
        micros = pa.types.is_timestamp(column.type)
        if micros:
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        times = int_column(column.cast(pa.int64()))
        dtype = batch.schema.field(self.value).type
        values, rests = exact_numbers(batch.column(self.value))
        rows = np.argsort(slots, kind="stable")
        touched, new = np.unique(slots, return_counts=True)
        windows = [state["window"][s] for s in touched.tolist()]
        held = np.array([0 if w is None else w.num_rows for w in windows], np.int64)
        edges = np.concatenate([[0], np.cumsum(held + new)])
        all_times, all_values, all_rests = np.empty(edges[-1], np.int64), np.empty(edges[-1]), NO_RESTS.copy()
        if rests.size or any(w is not None and w.num_columns > 2 for w in windows):
            all_rests = np.zeros(edges[-1])
        if held.any():
            known = [w for w in windows if w is not None]
            pool = concat_batches([w.select(["time", "value"]) for w in known] if all_rests.size else known)
            to = np.repeat(edges[:-1] - np.concatenate([[0], np.cumsum(held)[:-1]]), held) + np.arange(held.sum())
            all_times[to], all_values[to] = (pool.column(i).to_numpy() for i in (0, 1))
            for a, w in zip(edges[:-1].tolist(), windows if all_rests.size else [], strict=False):
                if w is not None and w.num_columns > 2:
                    all_rests[a : a + w.num_rows] = w.column("rest").to_numpy()
        low, high = np.empty_like(all_times), np.empty_like(all_times)
        first, last = np.empty(touched.size, np.int64), np.empty(touched.size, np.int64)
        counts, found = np.empty(n, np.int64), np.empty((len(STATISTICS) + 2, n))
        alarms, late = np.empty(n, np.bool_), np.empty(n, np.bool_)
        unit = 1 if micros else 1000  # of a microsecond
        parameters = (to_microseconds(self.window) * unit, 3.6e9 * unit, self.growth, BASELINES.index(self.baseline))
        inputs: tuple[Any, ...] = (times, values, rests, rows, edges, held, touched, *parameters)
        buffers, outputs = (all_times, all_values, all_rests, low, high), (first, last, counts, found, alarms, late)
        _trend(*(*inputs, *buffers, state["origin"], state["sums"], *outputs))
        for s, a, b in zip(touched.tolist(), first.tolist(), last.tolist(), strict=True):
            # copies, so that a key's window does not keep the arrays of the whole batch alive
            window, names = [pa.array(all_times[a:b].copy()), pa.array(all_values[a:b].copy())], ["time", "value"]
            if all_rests.size and all_rests[a:b].any():
                window, names = [*window, pa.array(all_rests[a:b].copy())], [*names, "rest"]
            state["window"][s] = pa.RecordBatch.from_arrays(window, names=names)
        if late.any():
            errors.reject(batch, late, "late", "another record of its key has a later time")
            good = ~late
            batch, counts, found, alarms = batch.filter(pa.array(good)), counts[good], found[:, good], alarms[good]
        batch = replace_column(batch, "count", pa.array(counts))
        none = np.zeros(batch.num_rows, np.bool_)
        for place, name in enumerate(STATISTICS):
            numbers: Any = found[place]
            if name in ("min", "max"):
                numbers = exact_result(numbers, found[place + 4], none, dtype)
            batch = replace_column(batch, name, numbers)
        return replace_column(batch, "alarm", pa.array(alarms))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "event_time": pa.array([0, 0, 2, 3, None, 5, 6, 4, 30], pa.timestamp("s", tz="UTC")),
                "key": ["a", "b", "a", "ü", "a", "b", None, "b", "a"],
                "value": [1.0, 2.0, None, 4.0, 5.0, float("nan"), 7.0, 8.0, 9.0],
            }
        )
        yield Case(cls(by=("key",), window=timedelta(seconds=10)), batch)
        yield Case(cls(window=timedelta(seconds=2), baseline="mean", growth=0.5), batch, "of one key")
