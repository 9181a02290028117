"""Sliding window: each record as it enters a time window, and again as it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.clock import to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.index import distinct_slots
from riot_ops.kernels.arrays.rows import take_rows
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import NEVER
from riot_ops.task import (
    Case,
    KeyedTask,
    Requirement,
    State,
    StateField,
    next_ordinal,
    register,
    with_field,
    with_next_ordinal,
)

__all__ = ["SlidingWindow"]

Numbers = npt.NDArray[np.int64]


#: Initial entries of a key's ring.
INITIAL_CAPACITY = 8


@kernel
def _slide(
    slots: Any, at: Any, words: Any, valid: Any, size: Any, newest: Any, head: Any, count: Any, room: Any, times: Any,
    ring: Any, present: Any, late: Any, rows: Any, places: Any, out: Any, out_valid: Any,
) -> Any:  # fmt: skip
    """Insert records into the rings of their keys and evict those that are too old; return the number of output rows.

    ``rows`` has the record that causes each output row, -1 - record for an eviction, whose words go to ``out``.
    """
    width = words.shape[1]
    found = 0
    for i in range(slots.size):
        s = slots[i]
        if at[i] < newest[s]:
            late[i] = True
            continue
        newest[s] = at[i]
        place = 0
        while count[s] > 0 and times[s, head[s]] <= at[i] - size:
            e = head[s]
            for f in range(width):
                out[found, f] = ring[s, e * width + f]
            out_valid[found] = present[s, e]
            rows[found] = -1 - i
            places[found] = place
            found += 1
            place += 1
            head[s] = e + 1 if e + 1 < room[s] else 0
            count[s] -= 1
        if count[s] == room[s]:  # double the ring: entries before the head move to its new half
            for e in range(head[s]):
                times[s, room[s] + e] = times[s, e]
                present[s, room[s] + e] = present[s, e]
                for f in range(width):
                    ring[s, (room[s] + e) * width + f] = ring[s, e * width + f]
            room[s] *= 2
        e = head[s] + count[s]
        if e >= room[s]:
            e -= room[s]
        times[s, e] = at[i]
        present[s, e] = valid[i]
        for f in range(width):
            ring[s, e * width + f] = words[i, f]
        count[s] += 1
        rows[found] = i
        places[found] = place
        found += 1
    return found


@register
@dataclass(frozen=True, kw_only=True)
class SlidingWindow(KeyedTask):
    """Emit each record when it enters a time window, and again when it leaves.

    A record of time t first evicts the records with times up to ``t - window``, the oldest first, then enters itself.
    So the window at t holds the records with ``t - window < time <= t``.

    Parameters
    ----------
    window : timedelta or text such as "1h", > 0
        Length of the window.
    fields : tuple of str
        Numeric fields, at most 63, that a leaving record keeps besides its key. All others are null.
    action : str, default "action"
        Field for the action: 1 where a record enters, -1 where it leaves.
    by, ttl
        Key and time to live, see :class:`KeyedTask`: each key has its own window. Records leave when a later record of
        their key arrives.

    Shapes and rates
    ----------------
    any[n] -> any[m], 1:N (about 2); O(1) time per record (amortised). The state of a key is 16 bytes and 8 per field
    for each record in the window, for the largest window that any key of the bucket has had (rounded up to a power of
    two).

    A leaving record has ``seq``, ordinals and event time of the record that evicts it.

    Missing values
    --------------
    A record without event time is an error.

    Errors
    ------
    ``no_event_time``; ``late``: a record of the key with a later time came earlier.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: smart grid.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> window = SlidingWindow(window="1h", fields="value").session()
    >>> rows = [{"event_time": datetime(2024, 5, 1, 12 + h, tzinfo=UTC), "value": v} for h, v in ((0, 5.0), (1, 7.0))]
    >>> [(row["action"], row["value"]) for row in window.push_many(rows)]
    [(1, 5.0), (-1, 5.0), (1, 7.0)]
    """

    code: ClassVar[str] = "SLW"
    category: ClassVar[str] = "Statistical"
    selectivity: ClassVar[str] = "1:N"

    window: timedelta
    fields: tuple[str, ...]
    action: str = "action"

    def validate(self) -> None:
        if self.window <= timedelta(0):
            raise ConfigError(f"window must be longer than 0, got {self.window!r}")
        if len(self.fields) > 63 or len({*self.fields, self.action, "event_time"}) < len(self.fields) + 2:
            raise ConfigError(
                f"fields must be up to 63 different fields other than action and event_time, got {self.fields!r}"
            )

    def requires(self) -> Mapping[str, Requirement]:
        return {**dict.fromkeys(self.fields, "exact number"), **super().requires(), "event_time": "any"}

    def expands(self) -> bool:
        return True

    def writes(self) -> None:
        return None  # a leaving record has nulls in each field that it does not keep

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        unchanged = {*carried_fields(schema.names), *self.by}
        schema = pa.schema([f if f.name in unchanged else f.with_nullable(True) for f in schema])
        return with_next_ordinal(with_field(schema, pa.field(self.action, pa.int64())))

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "newest": StateField("int64", initial=NEVER),
            "head": StateField("int64"),
            "size": StateField("int64"),
            "room": StateField("int64", initial=INITIAL_CAPACITY),
            "times": StateField("int64", INITIAL_CAPACITY, growable=True),
            "present": StateField("int64", INITIAL_CAPACITY, growable=True),
            "words": StateField("int64", INITIAL_CAPACITY * max(1, len(self.fields)), growable=True),
        }

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        column = batch.column("event_time")
        if not column.null_count:
            return batch
        errors.reject(batch, np.asarray(column.is_null()), "no_event_time", "a time window needs an event time")
        return batch.filter(column.is_valid())

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords) -> pa.RecordBatch:
        n, width = batch.num_rows, max(1, len(self.fields))
        at, _ = microseconds(batch.column("event_time"))
        words, valid = np.zeros((n, width), np.int64), np.zeros(n, np.int64)
        for i, name in enumerate(self.fields):
            column = batch.column(name)
            words[:, i] = _to_words(column)
            valid |= np.asarray(column.is_valid()).astype(np.int64) << i
        sizes = np.bincount(slots, minlength=state["size"].size) + state["size"]
        room = int(max(sizes.max(initial=0), state["room"].max(initial=INITIAL_CAPACITY)))
        for name, field in self.state_fields().items():
            if field.growable:
                state[name] = field.widen(state[name], room * (width if name == "words" else 1))
        late = np.zeros(n, np.bool_)
        capacity = n + int(sizes[distinct_slots(slots, sizes.size)].sum())  # untouched pages cost no memory
        rows, places, out_valid = (np.empty(capacity, np.int64) for _ in range(3))
        out = np.empty((capacity, width), np.int64)
        rings = (
            state["newest"],
            state["head"],
            state["size"],
            state["room"],
            state["times"],
            state["words"],
            state["present"],
        )
        found = _slide(
            slots, at, words, valid, to_microseconds(self.window), *rings, late, rows, places, out, out_valid
        )
        errors.reject(batch, late, "late", "a record with a later time came earlier")
        return self._output(batch, rows[:found], places[:found], out[:found], out_valid[:found])

    def _output(
        self, batch: pa.RecordBatch, rows: Numbers, places: Numbers, words: Numbers, valid: Numbers
    ) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        leaving = rows < 0
        taken = take_rows(batch, np.where(leaving, -1 - rows, rows))
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        mask, valid = pa.array(leaving), np.where(leaving, valid, 0)
        for name in {*columns} - {*carried_fields(columns), *self.by}:
            evicted = pa.scalar(None, columns[name].type)
            if name in self.fields:
                i = self.fields.index(name)
                evicted = _from_words(words[:, i], valid >> i & 1 == 1, columns[name].type)
            columns[name] = pc.if_else(mask, evicted, columns[name])
        columns[self.action] = pa.array(np.where(leaving, -1, 1))
        columns[next_ordinal(batch.schema.names)] = pa.array(places)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        times = pa.array([0, 0, 5, 6, 10, None, 9, 11, 30, 31], pa.timestamp("s", tz="UTC"))
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(10), pa.int64()),
                "event_time": times.cast(pa.timestamp("us", tz="UTC")),
                "key": ["a", "b", "a", "a", "b", "a", None, "a", "b", "a"],
                "value": [4.0, 1.0, None, 9.0, 5.0, 3.0, 4.0, 4.0, 1.0, 7.0],
            }
        )
        more = batch.append_column("n", pa.array([1, None, 3, 4, 5, 6, 7, 8, 9, 10], pa.int32()))
        yield Case(cls(window=timedelta(seconds=10), fields=("value",)), batch)
        yield Case(cls(window=timedelta(seconds=5), by=("key",), fields=("n", "value"), action="what"), more)
        yield Case(cls(window=timedelta(seconds=5), by=("key",), fields=()), batch)


def _to_words(column: pa.Array) -> Numbers:
    """Convert values to 64-bit words; nulls give arbitrary words."""
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64()).fill_null(0.0)
    elif pa.types.is_boolean(column.type) or pa.types.is_uint64(column.type):
        column = column.cast(pa.uint64()).fill_null(0)
    else:
        return int_column(column)
    words: Numbers = column.to_numpy(zero_copy_only=False).view(np.int64)
    return words


def _from_words(words: Numbers, valid: Any, dtype: pa.DataType) -> pa.Array:
    """Convert 64-bit words back to values of a type."""
    words = np.where(valid, words, 0)
    if pa.types.is_null(dtype):
        return pa.nulls(words.size)
    if pa.types.is_floating(dtype):
        return pa.array(words.view(np.float64), mask=~valid).cast(dtype)
    if pa.types.is_boolean(dtype) or pa.types.is_uint64(dtype):
        return pa.array(words.view(np.uint64), mask=~valid).cast(dtype)
    return pa.array(words, mask=~valid).cast(dtype)
