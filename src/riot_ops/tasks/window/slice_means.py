"""Means over slices of time, and that of the slice that is going on, as time passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from riot_ops.core.clock import END, Ticks, in_us
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.dataflows.dspbench.operators.time_batches import Numbers
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import NEVER, add
from riot_ops.kernels.text.timestamps import check_time_field, microseconds
from riot_ops.task import Case, Clock, Due, Requirement, State, StateField, ValueTask, register, with_tick_places

__all__ = ["SliceMeans"]

#: A tick is past when time has gone on: it sees what comes at its own time.
MOMENT = timedelta(microseconds=1)
ROOM = 1 << 16


@kernel
def _slices(
    values: Any, times: Any, slots: Any, keys: Any, tick_rows: Any, ticks: Any, origin: Any, length: Any, at: Any,
    slice_: Any, total: Any, rest: Any, n: Any, done: Any, done_mean: Any, late: Any, out_slot: Any, out_tick: Any,
    out_slice: Any, out_open: Any, out_mean: Any,
) -> Any:  # fmt: skip
    """Add rows to slices, and put out what there is at each tick; returns how much.

    ``slice_`` is the latest slice of a key, of which all is told where n is 0; ``done`` one before, yet to be told.
    Ticks are moments, before the row of the same place in ``tick_rows``. ``at`` has the row and the tick to go on with:
    where there is no room for what all keys may give at one tick, this returns and is to be called again.
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
            late[i] = k < slice_[s] or (k == slice_[s] and n[s] == 0)
            if k > slice_[s]:
                if n[s] > 0:
                    done[s] = slice_[s]
                    done_mean[s] = (total[s] + rest[s]) / n[s]
                slice_[s] = k
                total[s] = 0.0
                rest[s] = 0.0
                n[s] = 0
            if not late[i]:
                total[s], rest[s] = add(total[s], rest[s], values[i])
                n[s] += 1
        i += 1
    at[0], at[1] = i, j
    return found


@register
@dataclass(frozen=True, kw_only=True)
class SliceMeans(ValueTask):
    """Average the readings of each key over slices of time, and tell at every tick how far the slice has come.

    Slice i holds the readings with ``t0 + i length <= time < t0 + (i + 1) length``, where t0 is the first event time of
    the stream. At every tick, ``t0 + k every`` with k = 1, 2 …, each key that has readings in the slice of the tick
    (those at the very time of it are seen) gives their mean so far, ``open``; and a slice that has ended gives its own
    once. So that they may be compared, a record has the place of a slice in the ``period``, in ``slot``: of an ended
    slice its own, of an open one that of the slice ``ahead`` later, whose begin is in ``timestamp``.

    Parameters
    ----------
    length : timedelta or text such as "1min", > 0, default 1 minute
        Length of a slice.
    every : timedelta or text such as "30s", > 0, default 30 seconds
        Time between two ticks, no more than a slice.
    period : timedelta or text such as "1d", > 0, default 1 day
        A whole number of slices.
    ahead : int >= 0, default 2
        See above.
    partial : bool, default True
        Whether the end of a bounded stream lets the tick at its last time pass.
    by, value, output, ttl
        Key, input field, output field and time to live, see :class:`ValueTask`.

    Shapes and rates
    ----------------
    float64[n] -> float64[ticks * keys], N:M; O(1) time per reading and O(keys) per tick. State per key: 48 bytes.

    Missing values
    --------------
    A null or NaN reading is skipped, and so is one without event time.

    Errors
    ------
    An infinite reading goes to the errors stream as ``not_finite``; as ``late`` one whose slice has ended, or whose key
    is in a later one.

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
            raise ConfigError(f"period must be a whole number of lengths, got {self.period!r} and {self.length!r}")

    def clock(self) -> Clock | None:
        return Clock(self.every, allowed_lateness=MOMENT, from_first=True)

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), "event_time": "any"}

    def writes(self) -> frozenset[str] | None:
        return frozenset({"event_time", "open", "slot", "timestamp", self.target})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        out = pa.schema([schema.field("seq")] if "seq" in schema.names else [])
        out = with_tick_places(out) if out.names else out
        made = [
            ("event_time", TIMESTAMP), *((name, schema.field(name).type) for name in self.by), ("open", pa.bool_()),
            ("slot", pa.int64()), ("timestamp", TIMESTAMP), (self.target, pa.float64()),
        ]  # fmt: skip
        return pa.schema([*out, *(pa.field(name, kind) for name, kind in made)])

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "slice": StateField("int64", initial=NEVER),
            "total": StateField("float64"),
            "rest": StateField("float64"),
            "n": StateField("int64"),
            "done": StateField("int64", initial=NEVER),
            "done_mean": StateField("float64"),
        }

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, dead: DeadLetters) -> pa.RecordBatch:
        raise NotImplementedError("it goes by stream time")

    def advance(
        self, batch: pa.RecordBatch | None, slots: Numbers, state: State, ticks: Ticks, dead: DeadLetters
    ) -> tuple[pa.RecordBatch | None, Due | None]:
        made, values, times = None, np.empty(0), np.empty(0, np.int64)
        if batch is not None:
            made = pa.RecordBatch.from_pylist([], self.output_schema(batch.schema))
            values, _ = float_column(batch.column(self.value))
            times, timed = microseconds(batch.column("event_time"))
            if not timed.all():
                values = np.where(timed, values, np.nan)
        rows, moments = self._ticks(ticks)
        if not values.size and not moments.size:
            return made, None
        keys = state["n"].size
        origin, at = ticks.origin, np.zeros(2, np.int64)
        parts: list[tuple[Any, ...]] = []
        room, late = 2 * keys + ROOM, np.zeros(values.size, np.bool_)
        while at[0] < values.size or at[1] < moments.size:
            out = (*(np.empty(room, np.int64) for _ in range(3)), np.empty(room, np.bool_), np.empty(room))
            found = _slices(
                values, times, slots, keys, rows, moments, origin, in_us(self.length), at, state["slice"],
                state["total"], state["rest"], state["n"], state["done"], state["done_mean"], late, *out,
            )  # fmt: skip
            parts.append(tuple(one[:found] for one in out))
        if batch is not None:
            dead.reject(batch, late, "late", "its slice is over")
        slot, tick, number, is_open, means = (np.concatenate(one) for one in zip(*parts, strict=True))
        place = number + np.where(is_open, self.ahead, 0)
        columns = {
            "open": pa.array(is_open),
            "slot": pa.array(place % (self.period // self.length)),
            "timestamp": pa.array(origin + place * in_us(self.length)).cast(TIMESTAMP),
            self.target: pa.array(means, mask=~np.isfinite(means)),
        }
        return made, Due(slot, pa.RecordBatch.from_pydict(columns), tick)

    def _ticks(self, ticks: Ticks) -> tuple[Numbers, Numbers]:
        """Rows and moments of the ticks that pass: of many at once those that find something."""
        if ticks.origin == NEVER or not ticks.times.size:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        every, length = in_us(self.every), in_us(self.length)
        ends = ticks.times - ticks.origin - 1
        if ticks.times[-1] == END:
            ends = np.array([ticks.start - ticks.origin if self.partial else -1])
        passed = np.maximum(ends // every, 0)
        start = 0 if ticks.start == NEVER else max((ticks.start - ticks.origin - 1) // every, 0)
        before = np.concatenate([[start], passed[:-1]])
        # what is there has come at the time before: ticks behind the end of its slice find nothing, but for the first
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
