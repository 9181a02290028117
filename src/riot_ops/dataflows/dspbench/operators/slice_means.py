"""Slice means: the mean of each time slice, and of the open slice at every tick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import END, Ticks, to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import LATEST, TIMESTAMP
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import NEVER, neumaier_add
from riot_ops.task import (
    Case,
    Clock,
    Requirement,
    State,
    StateField,
    TimerOutput,
    ValueTask,
    register,
    with_timer_ordinals,
)

__all__ = ["SliceMeans"]

Numbers = npt.NDArray[np.int64]

#: A tick fires once stream time has passed it, so that it sees the records of its own time.
MICROSECOND = timedelta(microseconds=1)
ROOM = 1 << 16


@kernel
def _slices(
    values: Any, times: Any, slots: Any, keys: Any, tick_rows: Any, ticks: Any, origin: Any, length: Any, at: Any,
    slice_: Any, total: Any, rest: Any, n: Any, done: Any, done_mean: Any, late: Any, out_slot: Any, out_tick: Any,
    out_slice: Any, out_open: Any, out_mean: Any,
) -> Any:  # fmt: skip
    """Add rows to slices, and write the results of each tick; return their number.

    ``slice_`` is the latest slice of a key, completely emitted where n is 0; ``done`` is an earlier slice that is still
    to be emitted. The tick at ``ticks[j]`` fires before the row ``tick_rows[j]``. ``at`` has the row and the tick to
    resume at: the loop returns early when the output may not hold the results of all keys at one tick.
    """
    found = 0
    i, j = at[0], at[1]
    while i < values.size or j < ticks.size:
        if j < ticks.size and tick_rows[j] <= i:
            if found + 2 * keys > out_slot.size:
                break
            now = (ticks[j] - origin) // length
            for s in range(keys):
                if n[s] > 0 and slice_[s] < now:
                    done[s] = slice_[s]
                    done_mean[s] = (total[s] + rest[s]) / n[s]
                    n[s] = 0
                if done[s] != NEVER:
                    out_slot[found], out_tick[found], out_slice[found] = s, ticks[j], done[s]
                    out_open[found], out_mean[found] = False, done_mean[s]
                    found += 1
                    done[s] = NEVER
                if n[s] > 0:
                    out_slot[found], out_tick[found], out_slice[found] = s, ticks[j], slice_[s]
                    out_open[found], out_mean[found] = True, (total[s] + rest[s]) / n[s]
                    found += 1
            j += 1
            continue
        if not np.isnan(values[i]):
            s = slots[i]
            k = (times[i] - origin) // length
            late[i] = k < 0 or k < slice_[s] or (k == slice_[s] and n[s] == 0)
            if k > slice_[s] and not late[i]:
                if n[s] > 0:
                    done[s] = slice_[s]
                    done_mean[s] = (total[s] + rest[s]) / n[s]
                slice_[s] = k
                total[s] = 0.0
                rest[s] = 0.0
                n[s] = 0
            if not late[i]:
                total[s], rest[s] = neumaier_add(total[s], rest[s], values[i])
                n[s] += 1
        i += 1
    at[0], at[1] = i, j
    return found


@register
@dataclass(frozen=True, kw_only=True)
class SliceMeans(ValueTask):
    """Average the readings of each key over time slices, and emit the mean of the open slice at every tick.

    Slice i holds the readings with ``t0 + i length <= time < t0 + (i + 1) length``, where t0 is the first event time of
    the stream. At every tick, ``t0 + k every`` with k = 1, 2 …, each key with readings in the slice of the tick
    (including those at the tick's own time) emits their mean so far, with ``open`` true; a slice that has ended emits
    its mean once. For comparison, ``slot`` holds the position of a slice in the ``period`` and ``timestamp`` its start:
    of the ended slice itself, or of the slice ``ahead`` slices after the open one.

    Parameters
    ----------
    length : timedelta or text such as "1min", > 0, default 1 minute
        Length of a slice.
    every : timedelta or text such as "30s", > 0, default 30 seconds
        Time between two ticks, at most the length of a slice.
    period : timedelta or text such as "1d", > 0, default 1 day
        Length of the period, a multiple of ``length``.
    ahead : int >= 0, default 2
        Number of slices by which ``slot`` and ``timestamp`` of an open slice lie ahead.
    partial : bool, default True
        Whether the end of a bounded stream fires the tick at its last time.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[ticks * keys], N:M; O(1) time per reading and O(keys) per tick. State per key: 48 bytes.

    Missing values
    --------------
    A null or NaN reading is skipped, and so is a reading without event time.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``; a reading whose slice has ended or begins before
    t0, or whose key has moved on to a later slice, as ``late``; a reading for whose slice ``ahead`` there is no time as
    ``out_of_range``.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: smart grid.
    .. [2] H. Ziekow, Z. Jerzak, *The DEBS 2014 Grand Challenge*, DEBS 2014.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> load = SliceMeans(length="1min", every="30s").session()
    >>> rows = load.push_many({"event_time": noon + timedelta(seconds=s), "value": float(s)} for s in (0, 20, 50, 61))
    >>> [(row["open"], row["slot"], f"{row['timestamp']:%H:%M}", row["value"]) for row in rows]
    [(True, 2, '12:02', 10.0), (False, 0, '12:00', 23.333333333333332)]
    """

    code: ClassVar[str] = "SLM"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:M"

    length: timedelta = timedelta(minutes=1)
    every: timedelta = timedelta(seconds=30)
    period: timedelta = timedelta(days=1)
    ahead: Annotated[int, msgspec.Meta(ge=0)] = 2
    partial: bool = True

    def validate(self) -> None:
        if not timedelta(0) < self.every <= self.length:
            raise ConfigError(f"every must be longer than 0 and no longer than length, got {self.every!r}")
        if self.period <= timedelta(0) or self.period % self.length:
            raise ConfigError(f"period must be a multiple of length, got {self.period!r} and {self.length!r}")

    def clock(self) -> Clock | None:
        return Clock(self.every, allowed_lateness=MICROSECOND, from_first=True)

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), "event_time": "any"}

    def writes(self) -> frozenset[str] | None:
        return frozenset({"event_time", "open", "slot", "timestamp", self.target})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        out = pa.schema([schema.field("seq")] if "seq" in schema.names else [])
        out = with_timer_ordinals(out) if out.names else out
        added = [
            ("event_time", TIMESTAMP), *((name, schema.field(name).type) for name in self.by), ("open", pa.bool_()),
            ("slot", pa.int64()), ("timestamp", TIMESTAMP), (self.target, pa.float64()),
        ]  # fmt: skip
        return pa.schema([*out, *(pa.field(name, dtype) for name, dtype in added)])

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "slice": StateField("int64", initial=NEVER),
            "total": StateField("float64"),
            "rest": StateField("float64"),
            "n": StateField("int64"),
            "done": StateField("int64", initial=NEVER),
            "done_mean": StateField("float64"),
        }

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords) -> pa.RecordBatch:
        raise NotImplementedError("rows and ticks go through advance")

    def advance(
        self, batch: pa.RecordBatch | None, slots: Numbers, state: State, ticks: Ticks, errors: RejectedRecords
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        empty, values, times = None, np.empty(0), np.empty(0, np.int64)
        if batch is not None:
            empty = pa.RecordBatch.from_pylist([], self.output_schema(batch.schema))
            values, _ = float_column(batch.column(self.value))
            times, timed = microseconds(batch.column("event_time"))
            beyond = self._is_beyond(times, ticks.origin) & timed & ~np.isnan(values)
            if beyond.any():
                errors.reject(batch, beyond, "out_of_range", "the slice ahead of its own lies after the year 9999")
            if beyond.any() or not timed.all():
                values = np.where(timed & ~beyond, values, np.nan)
        rows, moments = self._ticks(ticks)
        if not values.size and not moments.size:
            return empty, None
        keys = state["n"].size
        origin, at = ticks.origin, np.zeros(2, np.int64)
        parts: list[tuple[Any, ...]] = []
        room, late = 2 * keys + ROOM, np.zeros(values.size, np.bool_)
        while at[0] < values.size or at[1] < moments.size:
            out = (*(np.empty(room, np.int64) for _ in range(3)), np.empty(room, np.bool_), np.empty(room))
            found = _slices(
                values, times, slots, keys, rows, moments, origin, to_microseconds(self.length), at, state["slice"],
                state["total"], state["rest"], state["n"], state["done"], state["done_mean"], late, *out,
            )  # fmt: skip
            parts.append(tuple(one[:found] for one in out))
        if batch is not None:
            errors.reject(batch, late, "late", "its slice has ended")
        slot, tick, number, is_open, means = (np.concatenate(one) for one in zip(*parts, strict=True))
        place = number + np.where(is_open, self.ahead, 0)
        columns = {
            "open": pa.array(is_open),
            "slot": pa.array(place % (self.period // self.length)),
            "timestamp": pa.array(origin + place * to_microseconds(self.length)).cast(TIMESTAMP),
            self.target: pa.array(means, mask=~np.isfinite(means)),
        }
        return empty, TimerOutput(slot, pa.RecordBatch.from_pydict(columns), tick)

    def _is_beyond(self, times: Numbers, origin: int) -> npt.NDArray[np.bool_]:
        """Whether the slice ``ahead`` of that of each time begins after the year 9999."""
        if origin == NEVER:
            return np.zeros(times.size, np.bool_)
        length = to_microseconds(self.length)
        return (times - origin) // length + self.ahead > (LATEST - origin) // length

    def _ticks(self, ticks: Ticks) -> tuple[Numbers, Numbers]:
        """Return rows and times of the ticks that fire; of a long run of ticks only those that can emit a result."""
        if ticks.origin == NEVER or not ticks.times.size:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        every, length = to_microseconds(self.every), to_microseconds(self.length)
        ends = ticks.times - ticks.origin - 1
        if ticks.times[-1] == END:
            ends = np.array([ticks.start - ticks.origin if self.partial else -1])
        passed = np.maximum(ends // every, 0)
        start = 0 if ticks.start == NEVER else max((ticks.start - ticks.origin - 1) // every, 0)
        before = np.concatenate([[start], passed[:-1]])
        # all held readings are from before the previous time: only the first tick after the end of their slice emits
        # them
        known = ticks.start if ticks.start != NEVER else ticks.origin
        came = np.concatenate([[known], ticks.times[:-1]]) - ticks.origin
        last = np.minimum(passed, ((came // length + 1) * length + every - 1) // every)
        counts = np.maximum(last - before, 0)
        rows = np.repeat(ticks.rows, counts)
        within = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, (np.repeat(before, counts) + 1 + within) * every + ticks.origin

    @classmethod
    def cases(cls) -> Iterable[Case]:
        times = pa.array([0, 0, 7, 20, None, 30, 31, 59, 60, 200, 201, 330], pa.timestamp("s", tz="UTC"))
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(12), pa.int64()),
                "event_time": times.cast(TIMESTAMP),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", "a", "b", "b", "a"],
                "value": [10.0, -3.5, 12.0, None, 7.0, float("nan"), 4.0, 11.0, 1e307, 0.5, 2.0, 2.0],
            }
        )
        yield Case(cls(by=("key",)), batch)
        yield Case(cls(length=timedelta(seconds=10), every=timedelta(seconds=7), output="mean", ahead=1), batch)
        yield Case(cls(by=("key",), period=timedelta(minutes=2), partial=False), batch)
