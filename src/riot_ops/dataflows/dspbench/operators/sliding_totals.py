"""Sliding totals: counts and integer sums over the latest ticks of stream time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.clock import END, NEVER, Clock, Ticks, to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import TimerOutput
from riot_ops.core.order import with_timer_ordinals
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.timestamps import check_time_field
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, KeyedTask, ReadableState, Requirement, State, StateField, register
from riot_ops.tasks.window.integer_totals import INT64_MAX, check_summable, validate_totals

__all__ = ["SlidingTotals"]

LENGTH = "window_length"
#: Number of the tick at the end of the stream, beyond all others.
END_TICK = 1 << 62
#: In place of a sum beyond int64.
BEYOND = -INT64_MAX - 1
#: Capacity of the output buffer, besides the results of one tick.
ROOM = 1 << 14

Numbers = npt.NDArray[np.int64]


@kernel(inline=True)
def _add(a: Any, b: Any) -> Any:
    """Add numbers of int64; the sum is BEYOND where one of them is, or where it does not fit."""
    if ((a ^ (a >> 63)) | (b ^ (b >> 63))) >> 61 == 0:  # both are small
        return a + b
    if BEYOND in (a, b) or (b > 0 and a > INT64_MAX - b) or (b < 0 and a < -INT64_MAX - b):
        return BEYOND
    return a + b


@kernel(inline=True)
def _large_total(slots: Any) -> Any:
    """Add the slots by halves, whose sums fit in any order."""
    high, low = 0, 0
    for v in slots:
        if v == BEYOND:
            return BEYOND
        high += v >> 32
        low += v & 0xFFFFFFFF
    high += low >> 32
    return high * 2**32 + (low & 0xFFFFFFFF) if -(2**31) <= high < 2**31 else BEYOND


@kernel
def _emit(
    ring: Any, known: Any, keys: Any, size: Any, oldest: Any, slides: Any, totals: Any, found: Any, n: Any
) -> Any:  # fmt: skip
    """Append the totals of all known keys to the n results; return the new number of results.

    If the window slides, its oldest slot is cleared, and a key whose slots are all empty is forgotten.
    """
    for s in range(keys):
        if not known[s]:
            continue
        empty = True
        for c in range(totals.shape[0]):
            total, bits = 0, 0
            for j in range(size):
                v = ring[s, c * size + j]
                bits |= v ^ (v >> 63)
                if bits >> 50 == 0:  # at most 4,096 slots: the total fits
                    total += v
                empty = empty and v == 0
            totals[c, n] = total if bits >> 50 == 0 else _large_total(ring[s, c * size : (c + 1) * size])
            if slides:
                ring[s, c * size + oldest] = 0
        found[n] = s
        n += 1
        if slides and empty:
            known[s] = False
    return n


@kernel
def _advance(
    values: Any, slots: Any, moves: Any, numbers: Any, partial: Any, at: Any, size: Any, ring: Any, known: Any,
    totals: Any, found: Any, tick_of: Any,
) -> Any:  # fmt: skip
    """Add rows to the open slot of the window, ``ring[key, total size + slot]``, and write the results of each tick.

    Before row ``moves[m]``, ``numbers[m]`` ticks have passed. ``at`` has the row, the move and the number of ticks to
    resume at: the loop returns early when the output may not hold the results of all keys at one tick. Returns the
    number of results.
    """
    i, m, tick = at[0], at[1], at[2]
    n = 0
    while True:
        while m < numbers.size and (numbers[m] <= tick or (numbers[m] >= END_TICK and not partial)):
            m += 1
        stop = moves[m] if m < numbers.size else slots.size
        head = tick % size
        while i < stop:
            s = slots[i]
            known[s] = True
            for c in range(values.shape[0]):
                ring[s, c * size + head] = _add(ring[s, c * size + head], values[c, i])
            i += 1
        if m == numbers.size:
            break
        last = numbers[m] >= END_TICK  # the end of the stream
        until = tick + 1 if last else numbers[m]
        while tick < until:
            if n + known.size > found.size:
                at[0], at[1], at[2] = i, m, tick
                return n
            tick += 1
            before = n
            n = _emit(ring, known, known.size, size, tick % size, not last, totals, found, n)
            for k in range(before, n):
                tick_of[k] = tick
            if n == before:  # no key is known until the next record
                break
        tick = numbers[m]
        m += 1
    at[0], at[1], at[2] = i, m, tick
    return n


@register
@dataclass(frozen=True, kw_only=True)
class SlidingTotals(KeyedTask, ReadableState):
    """Count records, or sum integers, over the latest ticks of stream time, with one result per key and tick.

    The window has ``slots`` slots; records are added to the open slot. Ticks are at the first event time of the stream
    plus multiples of ``every``. At a tick, each known key emits its sums over all slots; then the oldest slot is
    cleared and becomes the open one. A key whose slots are all empty emits zeros once and is forgotten.

    Parameters
    ----------
    totals : dict of str to (str or None)
        The field to sum for each output field: integers, or booleans, whose sum is the number of true ones. None:
        count records.
    every : timedelta > 0 or text such as "2s"
        Time from tick to tick.
    slots : int from 2 to 4096, default 5
        Number of ticks that a window spans.
    partial : bool, default True
        Whether the end of a bounded stream counts as a tick.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; a ttl is refused, since empty keys are forgotten anyway.

    Shapes and rates
    ----------------
    record[n] -> record[m], N:M: a result per known key and tick. O(1) time per record, O(slots) per key and
    tick; ``8 slots`` bytes of state per key and total.

    A result has the key, the totals, and ``window_length``, the length of the window in whole seconds. Its
    ``event_time`` is the microsecond before the tick, its ``seq`` the message that advanced stream time, see
    :mod:`riot_ops.core.order`. A record with exactly a tick's time belongs to the next slot; a late record counts on
    arrival.

    Missing values
    --------------
    A null adds nothing. A record without event time counts on arrival.

    Errors
    ------
    A total that does not fit in int64 is null, and so is one with a slot whose own sum did not fit. A field that holds
    neither integers nor booleans is refused.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: the rolling counters of trending topics and ads.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> counts = SlidingTotals(by="tag", totals={"count": None}, every="1s", slots=3).session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> for second, tag in ((0, "a"), (0.5, "a"), (1, "a"), (2, "b"), (5, "b")):
    ...     for out in counts.push({"event_time": noon + timedelta(seconds=second), "tag": tag}):
    ...         print(out["tag"], out["count"], out["window_length"])
    a 2 1
    a 3 2
    a 3 3
    b 1 3
    a 1 3
    b 1 3
    a 0 3
    b 1 3
    """

    code: ClassVar[str] = "SLT"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:M"
    version: ClassVar[int] = 2

    totals: Any
    every: timedelta
    slots: Annotated[int, msgspec.Meta(ge=2, le=4096)] = 5
    partial: bool = True

    def validate(self) -> None:
        if self.every <= timedelta(0):
            raise ConfigError(f"every must be longer than 0, got {self.every!r}")
        if self.ttl is not None:
            raise ConfigError(f"ttl = {self.ttl!r} is not supported: a key is forgotten once its window is empty")
        object.__setattr__(self, "totals", validate_totals(self.totals, (*self.by, LENGTH)))

    def __hash__(self) -> int:
        return hash(repr(self))

    # -- contract ----------------------------------------------------------------------------------

    def clock(self) -> Clock:
        return Clock(self.every, from_first=True, whole_periods=True)

    @property
    def key_retention(self) -> timedelta:
        return self.every * (self.slots + 2)

    def requires(self) -> Mapping[str, Requirement]:
        summed: dict[str, Requirement] = {of: "any" for of in self.totals.values() if of is not None}
        return {**super().requires(), "event_time": "any", **summed}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        check_time_field(self.name(), schema)
        check_summable(self.name(), self.totals, schema)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        out = with_timer_ordinals(pa.schema([schema.field("seq")])) if "seq" in schema.names else pa.schema([])
        out = out.append(pa.field("event_time", TIMESTAMP))
        for name in self.by:
            if name not in out.names:
                out = out.append(schema.field(name))
        for name in (*self.totals, LENGTH):
            out = out.append(pa.field(name, pa.int64()))
        return out

    def writes(self) -> frozenset[str] | None:
        return frozenset({"event_time", LENGTH, *self.totals})

    def state_fields(self) -> Mapping[str, StateField]:
        return {"ring": StateField("int64", len(self.totals) * self.slots), "known": StateField("bool", initial=False)}

    def decode_state(self, table: pa.Table) -> pa.Table:
        """Return the slots of each total as a list."""
        ring = np.asarray(table.column("ring").combine_chunks().flatten()).reshape(-1, len(self.totals), self.slots)
        parts = {f"{name}_slots": pa.FixedSizeListArray.from_arrays(_nullable(ring[:, c].ravel()), self.slots)
                 for c, name in enumerate(self.totals)}  # fmt: skip
        for name, column in parts.items():
            table = table.append_column(name, column)
        return table.drop_columns(["ring", "known"])

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords) -> pa.RecordBatch:
        raise AssertionError("rows and ticks go through advance")

    def advance(
        self, batch: pa.RecordBatch | None, slots: Numbers, state: State, ticks: Ticks, errors: RejectedRecords
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        rows = 0 if batch is None else batch.num_rows
        values = np.empty((len(self.totals), rows), np.int64)
        for c, of in enumerate(self.totals.values()):
            values[c] = 1 if batch is None or of is None else _addends(batch.column(of))
        numbers = self._tick_numbers(ticks.times, ticks)
        at = np.array([0, 0, self._tick_numbers(np.array([ticks.start]), ticks)[0]])
        room = state["known"].size + ROOM
        parts: list[tuple[Numbers, Numbers, Numbers]] = []
        while at[0] < rows or at[1] < numbers.size:
            out = np.empty((len(self.totals), room), np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
            n = _advance(
                values, slots, ticks.rows, numbers, self.partial, at, self.slots, state["ring"], state["known"], *out
            )  # fmt: skip
            if n:
                parts.append((out[0][:, :n], out[1][:n], out[2][:n]))
        return None, self._timer_output(parts, ticks.origin)

    def _timer_output(self, parts: list[tuple[Numbers, Numbers, Numbers]], origin: int) -> TimerOutput | None:
        """Build the output of the ticks from parts of (totals, keys, ticks)."""
        if not parts:
            return None
        totals, keys, tick = (np.concatenate(one, axis=-1) for one in zip(*parts, strict=True))
        columns: dict[str, Any] = {name: _nullable(one) for name, one in zip(self.totals, totals, strict=True)}
        columns[LENGTH] = np.minimum(tick, self.slots) * to_microseconds(self.every) // 1_000_000
        return TimerOutput(keys, pa.RecordBatch.from_pydict(columns), origin + tick * to_microseconds(self.every))

    def _tick_numbers(self, times: Numbers, ticks: Ticks) -> Numbers:
        """Return the number of ticks up to each time, END_TICK at the end of the stream."""
        if ticks.origin == NEVER:
            return np.where(times >= END, END_TICK, 0)
        return np.where(
            times >= END, END_TICK, np.where(times == NEVER, 0, (times - ticks.origin) // to_microseconds(self.every))
        )

    @classmethod
    def cases(cls) -> Iterable[Case]:
        rows = 12
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(rows), pa.int64()),
                "event_time": pa.array([3, 1, 4, 4, None, 12, 5, 13, 31, 30, 33, 60], pa.timestamp("s", tz="UTC")),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", None, "", "a", "b"],
                "n": pa.array([1, 0, None, 5, -1, 2, 3, 4, 5, 6, 7, 8], pa.int64()),
            }
        )
        five = timedelta(seconds=5)
        yield Case(cls(by=("key",), totals={"count": None, "sum": "n"}, every=five, slots=3), batch)
        yield Case(cls(totals={"sum": "n"}, every=five, partial=False), batch, "one key")


def _nullable(sums: Numbers) -> pa.Array:
    beyond = sums == BEYOND
    return pa.array(sums, mask=beyond if beyond.any() else None)


def _addends(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return what each row adds to a total: the value of a field; a null adds 0."""
    beyond = None
    if pa.types.is_uint64(column.type):
        beyond = pc.greater(column, pa.scalar(INT64_MAX, pa.uint64()))
        column = pc.if_else(beyond, pa.scalar(0, pa.uint64()), column)
    column = column.cast(pa.int64())
    if beyond is not None:
        column = pc.if_else(beyond, pa.scalar(BEYOND, pa.int64()), column)
    values: npt.NDArray[np.int64] = (column.fill_null(0) if column.null_count else column).to_numpy()
    return values
