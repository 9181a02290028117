"""A sliding window of time, as the values that come into it and those that leave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.clock import in_us
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.timestamps import check_time_field, microseconds
from riot_ops.kernels.windows import NEVER
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, next_sub, register, with_field, with_next_sub
from riot_ops.tasks.statistical.time_batches import Numbers

__all__ = ["SlidingWindow"]


@kernel
def _slide(
    slots: Any, times: Any, held: Any, size: Any, newest: Any, head: Any, tail: Any, after: Any, gone: Any, late: Any,
    rows: Any, causes: Any, places: Any,
) -> Any:  # fmt: skip
    """The rows that leave the window (-1 - row) and come into it, and the row that is the cause; returns how many."""
    n = slots.size
    found = 0
    for i in range(n):
        s = slots[i]
        if times[i] < newest[s]:
            late[i] = True
            continue
        newest[s] = times[i]
        place = 0
        while i >= held and head[s] < n and times[head[s]] <= times[i] - size:
            rows[found] = -1 - head[s]
            causes[found] = i
            places[found] = place
            found += 1
            place += 1
            gone[head[s]] = True
            head[s] = after[head[s]]
        if head[s] >= n:
            head[s] = i
        else:
            after[tail[s]] = i
        tail[s] = i
        after[i] = n
        if i >= held:
            rows[found] = i
            causes[found] = i
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
    action : str, default "action"
        Field with what is done: 1 where a record comes in, -1 where it leaves.
    by : tuple of str, default ()
        Key: windows are of the records of a key. Records leave when one of their key comes.
    ttl
        Of no use here.

    Shapes and rates
    ----------------
    any[n] -> any[m], 1:N (about 2); O(1) time per record, and per batch O(window) to take the window up. The state is
    the records in the window.

    What leaves has number, places and event time of the record that is the cause, and its own values otherwise.

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
    >>> window = SlidingWindow(size="1h").session()
    >>> rows = [{"event_time": datetime(2024, 5, 1, 12 + h, tzinfo=UTC), "value": v} for h, v in ((0, 5.0), (1, 7.0))]
    >>> [(row["action"], row["value"]) for row in window.push_many(rows)]
    [(1, 5.0), (-1, 5.0), (1, 7.0)]
    """

    code: ClassVar[str] = "SLW"
    category: ClassVar[str] = "Statistical"
    selectivity: ClassVar[str] = "1:N"
    pooled: ClassVar[bool] = True

    size: timedelta
    action: str = "action"

    def validate(self) -> None:
        if self.size <= timedelta(0):
            raise ConfigError(f"size must be longer than 0, got {self.size!r}")
        if self.ttl is not None:
            raise ConfigError(f"sliding_window has no use for ttl, got {self.ttl!r}; nothing stays but the window")

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), "event_time": "any"}

    def derives(self) -> bool:
        return True

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.action, "event_time"})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        return with_next_sub(with_field(schema, pa.field(self.action, pa.int64())))

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None)}

    def admit(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        column = batch.column("event_time")
        if not column.null_count:
            return batch
        dead.reject(batch, np.asarray(column.is_null()), "no_event_time", "a window of time needs an event time")
        return batch.filter(column.is_valid())

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, dead: DeadLetters) -> pa.RecordBatch:
        n, held = batch.num_rows, 0 if state["held"][0] is None else state["held"][0].num_rows
        keys = int(slots.max()) + 1 if n else 0
        times, _ = microseconds(batch.column("event_time"))
        gone, late = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        rows, causes, places = (np.empty(2 * n, np.int64) for _ in range(3))
        found = _slide(
            slots, times, held, in_us(self.size), np.full(keys, NEVER), np.full(keys, n), np.full(keys, n),
            np.empty(n, np.int64), gone, late, rows, causes, places,
        )  # fmt: skip
        dead.reject(batch, late, "late", "a record with a later time came before")
        rows, causes, places = rows[:found], causes[:found], places[:found]
        left = rows < 0
        taken = batch.take(pa.array(np.where(left, -1 - rows, rows)))
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        for name in carried(batch.schema.names):
            columns[name] = batch.column(name).take(pa.array(causes))
        columns[self.action] = pa.array(np.where(left, -1, 1))
        columns[next_sub(batch.schema.names)] = pa.array(places)
        stay = np.flatnonzero(~gone & ~late)
        state["held"][0] = self._kept(batch, stay) if stay.size else None
        schema = self.output_schema(batch.schema)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _kept(self, batch: pa.RecordBatch, rows: Numbers) -> pa.RecordBatch:
        """Rows that stay, without the order that they came in: they leave in that of others."""
        taken = pa.array(rows)
        order = {*carried(batch.schema.names)} - {"event_time", *self.by}
        columns = [
            pa.nulls(rows.size, f.type) if f.name in order else batch.column(f.name).take(taken) for f in batch.schema
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

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
        yield Case(cls(size=timedelta(seconds=10)), batch)
        yield Case(cls(size=timedelta(seconds=5), by=("key",), action="value"), batch)
