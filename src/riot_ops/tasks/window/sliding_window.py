"""A sliding window of time, as the values that come into it and those that leave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.clock import in_us
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried
from riot_ops.dataflows.dspbench.operators.time_batches import Numbers
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.index import distinct
from riot_ops.kernels.arrays.rows import taken_rows
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import NEVER
from riot_ops.kernels.text.timestamps import check_time_field, microseconds
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


#: Entries of a key's ring at first.
FEW = 8


@kernel
def _slide(
    slots: Any, at: Any, words: Any, valid: Any, size: Any, newest: Any, head: Any, count: Any, room: Any, times: Any,
    ring: Any, present: Any, late: Any, rows: Any, places: Any, out: Any, out_valid: Any,
) -> Any:  # fmt: skip
    """Put records into the rings of their keys, and what is too old out of these; returns how many rows there are.

    ``rows`` has for each the record that is the cause: -1 - it, where something leaves, whose words ``out`` gets.
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
        if count[s] == room[s]:  # what stands before the head moves behind the end
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
    """Put out each record as it comes into a window of time, and again as it leaves the window.

    At a record of time t the records with times up to ``t - size`` leave, the oldest first, and then it comes in
    itself. So the window at t holds the records with ``t - size < time <= t``.

    Parameters
    ----------
    size : timedelta or text such as "1h", > 0
        Length of the window.
    fields : tuple of str
        Numeric fields, at most 63, that a record still has when it leaves, besides its key. All others are null then.
    action : str, default "action"
        Field with what is done: 1 where a record comes in, -1 where it leaves.
    by, ttl
        Key and time to live, see :class:`KeyedTask`: windows are of the records of a key. Records leave when one of
        their key comes.

    Shapes and rates
    ----------------
    any[n] -> any[m], 1:N (about 2); O(1) time per record (amortised). The state of a key is 16 bytes and 8 per field
    for each record in the window, for as many as any key of the bucket has had at most (rounded up to a power of two).

    What leaves has number, places and event time of the record that is the cause.

    Missing values
    --------------
    A record without event time is an error.

    Errors
    ------
    ``no_event_time``; ``late``: a record of the key with a later time came before.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: smart grid.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> window = SlidingWindow(size="1h", fields="value").session()
    >>> rows = [{"event_time": datetime(2024, 5, 1, 12 + h, tzinfo=UTC), "value": v} for h, v in ((0, 5.0), (1, 7.0))]
    >>> [(row["action"], row["value"]) for row in window.push_many(rows)]
    [(1, 5.0), (-1, 5.0), (1, 7.0)]
    """

    code: ClassVar[str] = "SLW"
    category: ClassVar[str] = "Statistical"
    selectivity: ClassVar[str] = "1:N"

    size: timedelta
    fields: tuple[str, ...]
    action: str = "action"

    def validate(self) -> None:
        if self.size <= timedelta(0):
            raise ConfigError(f"size must be longer than 0, got {self.size!r}")
        if len(self.fields) > 63 or len({*self.fields, self.action, "event_time"}) < len(self.fields) + 2:
            raise ConfigError(
                f"fields must be up to 63 others than action and event_time, none twice; got {self.fields!r}"
            )

    def requires(self) -> Mapping[str, Requirement]:
        return {**dict.fromkeys(self.fields, "number"), **super().requires(), "event_time": "any"}

    def expands(self) -> bool:
        return True

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.action, "event_time"})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        kept = {*carried(schema.names), *self.by}
        schema = pa.schema([f if f.name in kept else f.with_nullable(True) for f in schema])
        return with_next_ordinal(with_field(schema, pa.field(self.action, pa.int64())))

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "newest": StateField("int64", initial=NEVER),
            "head": StateField("int64"),
            "size": StateField("int64"),
            "room": StateField("int64", initial=FEW),
            "times": StateField("int64", FEW, grows=True),
            "present": StateField("int64", FEW, grows=True),
            "words": StateField("int64", FEW * max(1, len(self.fields)), grows=True),
        }

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        column = batch.column("event_time")
        if not column.null_count:
            return batch
        dead.reject(batch, np.asarray(column.is_null()), "no_event_time", "a window of time needs an event time")
        return batch.filter(column.is_valid())

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, dead: DeadLetters) -> pa.RecordBatch:
        n, width = batch.num_rows, max(1, len(self.fields))
        at, _ = microseconds(batch.column("event_time"))
        words, valid = np.zeros((n, width), np.int64), np.zeros(n, np.int64)
        for i, name in enumerate(self.fields):
            column = batch.column(name)
            words[:, i] = _words(column)
            valid |= np.asarray(column.is_valid()).astype(np.int64) << i
        sizes = np.bincount(slots, minlength=state["size"].size) + state["size"]
        least = int(max(sizes.max(initial=0), state["room"].max(initial=FEW)))
        for name, field in self.state_fields().items():
            if field.grows:
                state[name] = field.widened(state[name], least * (width if name == "words" else 1))
        late = np.zeros(n, np.bool_)
        most = n + int(sizes[distinct(slots, sizes.size)].sum())  # memory that is not written to costs nothing
        rows, places, out_valid = (np.empty(most, np.int64) for _ in range(3))
        out = np.empty((most, width), np.int64)
        rings = (
            state["newest"],
            state["head"],
            state["size"],
            state["room"],
            state["times"],
            state["words"],
            state["present"],
        )
        found = _slide(slots, at, words, valid, in_us(self.size), *rings, late, rows, places, out, out_valid)
        dead.reject(batch, late, "late", "a record with a later time came before")
        return self._output(batch, rows[:found], places[:found], out[:found], out_valid[:found])

    def _output(
        self, batch: pa.RecordBatch, rows: Numbers, places: Numbers, words: Numbers, valid: Numbers
    ) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        left = rows < 0
        taken = taken_rows(batch, np.where(left, -1 - rows, rows))
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        leaves, valid = pa.array(left), np.where(left, valid, 0)
        for name in {*columns} - {*carried(columns), *self.by}:
            gone = pa.scalar(None, columns[name].type)
            if name in self.fields:
                i = self.fields.index(name)
                gone = _from_words(words[:, i], valid >> i & 1 == 1, columns[name].type)
            columns[name] = pc.if_else(leaves, gone, columns[name])
        columns[self.action] = pa.array(np.where(left, -1, 1))
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
        yield Case(cls(size=timedelta(seconds=10), fields=("value",)), batch)
        yield Case(cls(size=timedelta(seconds=5), by=("key",), fields=("n", "value"), action="what"), more)
        yield Case(cls(size=timedelta(seconds=5), by=("key",), fields=()), batch)


def _words(column: pa.Array) -> Numbers:
    """Values as 64 bits, anything where null."""
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64()).fill_null(0.0)
    elif pa.types.is_boolean(column.type) or pa.types.is_uint64(column.type):
        column = column.cast(pa.uint64()).fill_null(0)
    else:
        return int_column(column)
    words: Numbers = column.to_numpy(zero_copy_only=False).view(np.int64)
    return words


def _from_words(words: Numbers, valid: Any, kind: pa.DataType) -> pa.Array:
    """The values of a type again."""
    words = np.where(valid, words, 0)
    if pa.types.is_null(kind):
        return pa.nulls(words.size)
    if pa.types.is_floating(kind):
        return pa.array(words.view(np.float64), mask=~valid).cast(kind)
    if pa.types.is_boolean(kind) or pa.types.is_uint64(kind):
        return pa.array(words.view(np.uint64), mask=~valid).cast(kind)
    return pa.array(words, mask=~valid).cast(kind)
