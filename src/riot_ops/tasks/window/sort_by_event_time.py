"""Sort by event time: hold records until no earlier one can arrive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import END, NEVER, Clock, Ticks, to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import TimerOutput
from riot_ops.core.order import carried_fields, ordinals, with_timer_ordinals
from riot_ops.core.parameters import Duration, as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import concat_batches, int_column
from riot_ops.kernels.arrays.index import distinct_slots
from riot_ops.kernels.arrays.ordering import places_in_runs, run_edges
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.stats.reorder import FUTURE, LATE, UNTIMED, advance_times, release_rows
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, next_ordinal, register, with_next_ordinal

__all__ = ["SortByEventTime"]

ZERO = timedelta(0)
MICROSECOND = timedelta(microseconds=1)
#: First ordinal of the records flushed at the end of the stream: after all other records of a message.
AFTER_LAST_ORDINAL = 1 << 62


@register
@dataclass(frozen=True, kw_only=True)
class SortByEventTime(KeyedTask):
    """Sort the records of a stream by event time.

    A record is held until time is more than ``allowed_lateness`` past its event time: any earlier record has arrived by
    then, or is late.

    Parameters
    ----------
    allowed_lateness : timedelta >= 0 or text such as "1s"
        How far a record may lag behind that time.
    scope : "stream" or "key", default "stream"
        Whose time releases records: stream time, which also advances for idle keys; or the largest event time of the
        key's records so far, which needs no watermark: event times may come from a stateful task.
    order_by : str, optional
        Integer field that orders records of one event time (a microsecond), such as nanoseconds; by default, and for
        equal values, the order of arrival counts.
    max_ahead : timedelta > 0, optional
        A record further ahead of that time goes to the errors stream and does not advance it, unless
        :data:`~riot_ops.core.clock.AGREEING` records in a row agree; where they are far earlier, time is set back to
        them, and the records held are released first. None: no limit.
    by : tuple of str, default ()
        Key; each key is sorted on its own. By default the whole stream is sorted.
    ttl
        Only with ``scope="key"``, see :class:`KeyedTask`; with stream time, a key without held records has no state.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1; O(log n) time per record. The state is the held records. An emitted record
    has the ``seq`` of the message that advanced time, see :mod:`riot_ops.core.order`.

    Missing values
    --------------
    A record without event time is an error.

    Errors
    ------
    ``late`` (more than ``allowed_lateness`` behind), ``no_event_time``, ``from_the_future``.

    References
    ----------
    .. [1] U. Srivastava, J. Widom, *Flexible time management in data stream systems*, PODS 2004.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> session = SortByEventTime(allowed_lateness="2s").session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> for s in (1, 0, 4, 3, 1):
    ...     for out in session.push({"event_time": noon + timedelta(seconds=s), "s": s}):
    ...         print(out["s"])
    0
    1
    >>> [out["s"] for out in session.flush()], session.errors[0]["reason"]
    ([3, 4], 'late')
    """

    code: ClassVar[str] = "RDR"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Transform"
    selectivity: ClassVar[str] = "N:M"
    version: ClassVar[int] = 2

    allowed_lateness: Duration
    scope: Literal["stream", "key"] = "stream"
    order_by: str | None = None
    max_ahead: Duration | None = None

    def validate(self) -> None:
        if as_timedelta(self.allowed_lateness) < ZERO:
            raise ConfigError(f"allowed_lateness must not be negative, got {self.allowed_lateness!r}")
        if self.max_ahead is not None and as_timedelta(self.max_ahead) <= ZERO:
            raise ConfigError(f"max_ahead must be longer than 0, got {self.max_ahead!r}")
        if self.ttl is not None and self.scope == "stream":
            raise ConfigError(f"sort_by_event_time supports ttl only with scope='key', got {self.ttl!r}")

    def clock(self) -> Clock | None:
        return (
            None
            if self.scope == "key"
            else Clock(MICROSECOND, as_timedelta(self.allowed_lateness), as_timedelta(self.max_ahead))
        )

    def with_lateness(self, lateness: timedelta) -> Self:
        return (
            self
            if self.scope == "key"
            else self.replace(allowed_lateness=as_timedelta(self.allowed_lateness) + lateness)
        )

    def expands(self) -> bool:
        return self.scope == "key"

    @property
    def key_retention(self) -> timedelta | None:
        if self.scope == "key":
            return super().key_retention
        return as_timedelta(self.allowed_lateness) + (as_timedelta(self.max_ahead) or ZERO) + MICROSECOND

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {} if self.order_by is None else {self.order_by: "exact number"}
        return {**super().requires(), "event_time": "any", **extra}

    def writes(self) -> frozenset[str]:
        return frozenset({"seq", "event_time"})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        out = pa.schema([])
        if self.scope == "key":
            fields = [schema.field(name) for name in carried_fields(schema.names) if name != "event_time"]
            out = with_next_ordinal(pa.schema(fields))
        elif "seq" in schema.names:
            out = with_timer_ordinals(pa.schema([schema.field("seq")]))
        dtype = schema.field("event_time").type
        out = out.append(pa.field("event_time", dtype if pa.types.is_timestamp(dtype) else TIMESTAMP))
        for name in dict.fromkeys([*self.by, *self._payload_fields(schema)]):
            out = out.append(schema.field(name))
        return out

    def _payload_fields(self, schema: pa.Schema) -> list[str]:
        """Return the names of the fields other than those of time and order."""
        other = {"seq", "event_time", *ordinals(schema.names)}
        return [name for name in schema.names if name not in other]

    def state_fields(self) -> Mapping[str, StateField]:
        held = {"held": StateField("rows", initial=None)}
        if self.scope == "stream":
            return {**held, "oldest": StateField("int64", initial=END)}
        return {
            **held,
            "newest": StateField("int64", initial=NEVER),
            "seq": StateField("int64"),
            "votes": StateField("int64", 3),
        }

    # -- by the event time of each key -------------------------------------------------------------------

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        times, present = microseconds(batch.column("event_time"))
        now, turn, status = (
            np.empty(slots.size, np.int64),
            np.empty(slots.size, np.int64),
            np.zeros(slots.size, np.int8),
        )
        ahead = -1 if self.max_ahead is None else to_microseconds(self.max_ahead)
        advance_times(
            times, present, slots, to_microseconds(self.allowed_lateness), ahead, state["newest"], state["votes"],
            np.zeros(state["newest"].size, np.int64), now, turn, status,
        )  # fmt: skip
        for code, (reason, text) in REJECTIONS.items():
            errors.reject(batch, status == code, reason, text)
        good = status == 0
        if not good.all():
            batch, slots, now, turn = batch.filter(pa.array(good)), slots[good], now[good], turn[good]
        touched = distinct_slots(slots, state["newest"].size)
        if "seq" in batch.schema.names:
            state["seq"][slots] = int_column(batch.column("seq"))
        new = [batch.select(["event_time", *self._payload_fields(batch.schema)])] if batch.num_rows else []
        pool, owner = self._pool(touched, new, slots, state)
        if pool is None:
            return pa.RecordBatch.from_pylist([], schema=schema)
        times, _ = microseconds(pool.column("event_time"))
        by_key = np.argsort(slots, kind="stable")
        edges = np.searchsorted(slots[by_key], np.append(touched, END))
        released_by, order = np.empty(pool.num_rows, np.int64), self._order(pool, times)
        born = np.concatenate([np.zeros(pool.num_rows - slots.size, np.int64), turn])
        order = order[np.argsort(born[order], kind="stable")]
        keys = np.zeros(owner.size, np.int64) if touched.size == 1 else np.searchsorted(touched, owner)
        release_rows(
            order, times, born, keys, to_microseconds(self.allowed_lateness), by_key, edges.copy(), edges, now, turn,
            released_by,
        )  # fmt: skip
        self._hold(pool, order[released_by[order] < 0], owner, touched, state)
        order = order[released_by[order] >= 0]
        order = order[np.argsort(released_by[order], kind="stable")]
        by, taken = released_by[order], pa.array(order)
        place = places_in_runs(run_edges(by))
        ordinal, pooled = next_ordinal(batch.schema.names), set(pool.schema.names)
        columns = [
            pa.array(place) if f.name == ordinal
            else pool.column(f.name).take(taken) if f.name in pooled
            else batch.column(f.name).take(pa.array(by))
            for f in schema
        ]  # fmt: skip
        # in a session, held rows may know the type of a column that is all null in this batch
        dtypes = [f.with_type(c.type) for f, c in zip(schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(dtypes))

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        held = [(s, rows) for s, rows in enumerate(state["held"]) if rows is not None]
        if self.scope == "stream" or not held:
            return None
        pool = concat_batches([rows for _, rows in held])
        owner = np.repeat([s for s, _ in held], [rows.num_rows for _, rows in held])
        times, _ = microseconds(pool.column("event_time"))
        order = self._order(pool, times)
        order = order[np.argsort(owner[order], kind="stable")]
        place = np.arange(order.size) - np.searchsorted(owner[order], owner[order])
        out = pool.take(pa.array(order)).append_column("seq", pa.array(state["seq"][owner[order]]))
        return out.append_column("ordinal", pa.array(AFTER_LAST_ORDINAL + place))

    # -- by stream time ----------------------------------------------------------------------------

    def advance(
        self,
        batch: pa.RecordBatch | None,
        slots: npt.NDArray[np.int64],
        state: State,
        ticks: Ticks,
        errors: RejectedRecords,
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        empty = None
        new: list[pa.RecordBatch] = []
        if batch is not None:
            empty = pa.RecordBatch.from_pylist([], schema=self.output_schema(batch.schema))
            good = self._in_time(batch, ticks, errors)
            if not good.all():
                batch, slots = batch.filter(pa.array(good)), slots[good]
            new = [batch.select(["event_time", *self._payload_fields(batch.schema)])] if batch.num_rows else []
        limit = NEVER if ticks.end == NEVER else ticks.end - to_microseconds(self.allowed_lateness)
        return empty, self._released(new, slots, state, limit)

    def _in_time(self, batch: pa.RecordBatch, ticks: Ticks, errors: RejectedRecords) -> npt.NDArray[np.bool_]:
        """Return which rows are neither late nor from the future, and reject the others."""
        times, present = microseconds(batch.column("event_time"))
        now = ticks.at_rows(batch.num_rows)
        late = present & (now != NEVER) & (times + to_microseconds(self.allowed_lateness) < now)
        status = np.where(present, np.where(late, LATE, 0), UNTIMED)
        if self.max_ahead is not None:
            ahead = (
                (status == 0)
                & (now != NEVER)
                & (times > np.where(now == NEVER, 0, now) + to_microseconds(self.max_ahead))
            )
            status[ahead] = FUTURE
        for code, (reason, text) in REJECTIONS.items():
            errors.reject(batch, status == code, reason, text)
        return np.asarray(status == 0)

    def _released(
        self, new: list[pa.RecordBatch], slots: npt.NDArray[np.int64], state: State, limit: int
    ) -> TimerOutput | None:
        """Release the rows before ``limit``, in order, and hold the others."""
        touched = np.flatnonzero(state["oldest"] < limit)
        if new:
            touched = np.union1d(touched, slots)
        pool, owner = self._pool(touched, new, slots, state)
        if pool is None:
            return None
        times, _ = microseconds(pool.column("event_time"))
        order = self._order(pool, times)
        out = times[order] < limit
        self._hold(pool, order[~out], owner, touched, state)
        for s in touched.tolist():
            rows = state["held"][s]
            state["oldest"][s] = END if rows is None else microseconds(rows.column("event_time").slice(0, 1))[0][0]
        taken = order[out]
        if not taken.size:
            return None
        others = [name for name in pool.schema.names if name not in ("event_time", *self.by)]
        found = pool.select(others).take(pa.array(taken)) if others else pa.RecordBatch.from_pylist([{}] * taken.size)
        return TimerOutput(owner[taken], found, times[taken] + 1)

    # -- shared ------------------------------------------------------------------------------------

    def _pool(
        self, touched: npt.NDArray[np.int64], new: list[pa.RecordBatch], slots: npt.NDArray[np.int64], state: State
    ) -> tuple[pa.RecordBatch | None, npt.NDArray[np.int64]]:
        """Combine the held rows of some keys with new rows; return them with the key of each row."""
        held = [(s, state["held"][s]) for s in touched.tolist() if state["held"][s] is not None]
        if not held and not new:
            return None, slots
        owner = np.array([s for s, _ in held], np.int64).repeat([rows.num_rows for _, rows in held])
        return concat_batches([*(rows for _, rows in held), *new]), np.concatenate([owner, slots]) if new else owner

    def _order(self, pool: pa.RecordBatch, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        keys = (times,) if self.order_by is None else (int_column(pool.column(self.order_by)), times)
        return np.lexsort(keys)

    def _hold(
        self,
        pool: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
        owner: npt.NDArray[np.int64],
        touched: npt.NDArray[np.int64],
        state: State,
    ) -> None:
        """Replace the held rows of the touched keys by the given rows, which are in order."""
        rows = rows[np.argsort(owner[rows], kind="stable")]
        sorted_rows = pool.take(pa.array(rows))
        edges = np.searchsorted(owner[rows], [touched, touched + 1])
        for s, a, b in zip(touched.tolist(), *edges.tolist(), strict=True):
            # a copy, so that held rows do not keep the whole batch alive
            state["held"][s] = sorted_rows.take(pa.array(np.arange(a, b))) if b > a else None

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "event_time": pa.array([5, 4, 4, None, 9, 3, 7, 8, 20], pa.timestamp("s", tz="UTC")),
                "key": ["a", "b", "a", "ü", "a", "b", None, "a", "b"],
                "value": [1.0, 2.0, None, 4.0, float("nan"), 6.0, 7.0, 8.0, 9.0],
                "n": pa.array([3, 2, 1, 0, 9, 8, 7, 6, 5], pa.int64()),
            }
        )
        yield Case(cls(allowed_lateness=timedelta(seconds=3)), batch)
        yield Case(cls(allowed_lateness=timedelta(seconds=2), by=("key",), order_by="n"), batch, "by key")
        yield Case(cls(allowed_lateness=ZERO, max_ahead=timedelta(seconds=6)), batch, "guarded")
        yield Case(
            cls(allowed_lateness=timedelta(seconds=2), by=("key",), scope="key", order_by="n"), batch, "time of keys"
        )
        yield Case(
            cls(allowed_lateness=timedelta(seconds=1), scope="key", max_ahead=timedelta(seconds=4)), batch, "of one key"
        )


REJECTIONS = {
    LATE: ("late", "records with a later event time have been released"),
    UNTIMED: ("no_event_time", "sorting needs an event time"),
    FUTURE: ("from_the_future", "its event time is too far ahead"),
}
