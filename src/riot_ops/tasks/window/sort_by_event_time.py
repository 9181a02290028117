"""Reorder: records in the order of their event times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import END, NEVER, Clock, Ticks, in_us
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import Due
from riot_ops.core.order import carried, ordinals, with_tick_places
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import int_column, joined
from riot_ops.kernels.arrays.index import distinct
from riot_ops.kernels.arrays.ordering import edges_of, places_within
from riot_ops.kernels.stats.reorder import FUTURE, LATE, UNTIMED, move, release
from riot_ops.kernels.text.timestamps import check_time_field, microseconds
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, next_ordinal, register, with_next_ordinal

__all__ = ["SortByEventTime"]

ZERO = timedelta(0)
MICROSECOND = timedelta(microseconds=1)
#: The place of what is left at the end: behind all that comes of a message.
LAST = 1 << 62


@register
@dataclass(frozen=True, kw_only=True)
class SortByEventTime(KeyedTask):
    """Put records into the order of their event times.

    A record is held until time is more than ``allowed_lateness`` beyond its event time: what could go before it has come by then,
    or is late.

    Parameters
    ----------
    allowed_lateness : timedelta >= 0 or text such as "1s"
        How far a record may lag behind.
    time : "stream" or "key", default "stream"
        What tells how far time is: stream time, which also passes for keys that are silent; or the largest event time
        of the key's records so far, which needs nothing but these: event times may come from a task with state.
    order : str, optional
        Whole-number field by which records of one event time (a microsecond) are in order, such as nanoseconds; else,
        and where it is equal, in the order in which they came.
    max_ahead : timedelta > 0, optional
        A record further ahead of that time goes to the errors stream and does not move it; None: any is believed.
    by : tuple of str, default ()
        Key; each is in order by itself. Without one the whole stream is.
    ttl
        Of a key nothing is left when its records are out; with ``time="key"`` see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1; O(log n) time per record. State is the records that are held. A record that comes out
    has the number of the message that moved time, see :mod:`riot_ops.core.order`.

    Missing values
    --------------
    A record without event time is an error.

    Errors
    ------
    ``late`` (more than the delay behind), ``no_event_time``, ``from_the_future``.

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

    allowed_lateness: timedelta
    time: Literal["stream", "key"] = "stream"
    order: str | None = None
    max_ahead: timedelta | None = None

    def validate(self) -> None:
        if self.allowed_lateness < ZERO:
            raise ConfigError(f"allowed_lateness must not be negative, got {self.allowed_lateness!r}")
        if self.max_ahead is not None and self.max_ahead <= ZERO:
            raise ConfigError(f"max_ahead must be longer than 0, got {self.max_ahead!r}")
        if self.ttl is not None and self.time == "stream":
            raise ConfigError(f"reorder has no use for ttl with time='stream', got {self.ttl!r}")

    def clock(self) -> Clock | None:
        return None if self.time == "key" else Clock(MICROSECOND, self.allowed_lateness, self.max_ahead)

    def with_lateness(self, by: timedelta) -> Self:
        return self if self.time == "key" else self.replace(allowed_lateness=self.allowed_lateness + by)

    def expands(self) -> bool:
        return self.time == "key"

    @property
    def keys_live(self) -> timedelta | None:
        if self.time == "key":
            return self.ttl
        return self.allowed_lateness + (self.max_ahead or ZERO) + MICROSECOND

    def requires(self) -> Mapping[str, Requirement]:
        extra: dict[str, Requirement] = {} if self.order is None else {self.order: "number"}
        return {**super().requires(), "event_time": "any", **extra}

    def writes(self) -> frozenset[str] | None:
        return None

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        check_time_field(self.name(), schema)
        out = pa.schema([])
        if self.time == "key":
            fields = [schema.field(name) for name in carried(schema.names) if name != "event_time"]
            out = with_next_ordinal(pa.schema(fields))
        elif "seq" in schema.names:
            out = with_tick_places(pa.schema([schema.field("seq")]))
        kind = schema.field("event_time").type
        out = out.append(pa.field("event_time", kind if pa.types.is_timestamp(kind) else TIMESTAMP))
        for name in dict.fromkeys([*self.by, *self._others(schema)]):
            out = out.append(schema.field(name))
        return out

    def _others(self, schema: pa.Schema) -> list[str]:
        """The fields besides those of time and order."""
        return [name for name in schema.names if name not in ("seq", "event_time", *ordinals(schema.names))]

    def state_fields(self) -> Mapping[str, StateField]:
        held = {"held": StateField("rows", initial=None)}
        if self.time == "stream":
            return {**held, "oldest": StateField("int64", initial=END)}
        return {**held, "newest": StateField("int64", initial=NEVER), "seq": StateField("int64")}

    # -- by the time of each key -------------------------------------------------------------------

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        times, present = microseconds(batch.column("event_time"))
        now, status = np.empty(slots.size, np.int64), np.zeros(slots.size, np.int8)
        ahead = -1 if self.max_ahead is None else in_us(self.max_ahead)
        move(times, present, slots, in_us(self.allowed_lateness), ahead, state["newest"], now, status)
        for code, (reason, text) in REASONS.items():
            dead.reject(batch, status == code, reason, text)
        good = status == 0
        if not good.all():
            batch, slots, now = batch.filter(pa.array(good)), slots[good], now[good]
        touched = distinct(slots, state["newest"].size)
        if "seq" in batch.schema.names:
            state["seq"][slots] = int_column(batch.column("seq"))
        new = [batch.select(["event_time", *self._others(batch.schema)])] if batch.num_rows else []
        pool, owner = self._pool(touched, new, slots, state)
        if pool is None:
            return pa.RecordBatch.from_pylist([], schema=schema)
        times, _ = microseconds(pool.column("event_time"))
        by_key = np.argsort(slots, kind="stable")
        edges = np.searchsorted(slots[by_key], np.append(touched, END))
        let_go, order = np.empty(pool.num_rows, np.int64), self._order(pool, times)
        keys = np.zeros(owner.size, np.int64) if touched.size == 1 else np.searchsorted(touched, owner)
        release(order, times, keys, in_us(self.allowed_lateness), by_key, edges.copy(), edges, now, let_go)
        self._hold(pool, order[let_go[order] < 0], owner, touched, state)
        order = order[let_go[order] >= 0]
        order = order[np.argsort(let_go[order], kind="stable")]
        by, taken = let_go[order], pa.array(order)
        place = places_within(edges_of(by))
        columns = [
            pa.array(place) if f.name == next_ordinal(batch.schema.names)
            else pool.column(f.name).take(taken) if f.name in pool.schema.names
            else batch.column(f.name).take(pa.array(by))
            for f in schema
        ]  # fmt: skip
        # in a session what was held may have types that a null does not tell
        kinds = [f.with_type(c.type) for f, c in zip(schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(kinds))

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        left = [(s, rows) for s, rows in enumerate(state["held"]) if rows is not None]
        if self.time == "stream" or not left:
            return None
        pool = joined([rows for _, rows in left])
        owner = np.repeat([s for s, _ in left], [rows.num_rows for _, rows in left])
        times, _ = microseconds(pool.column("event_time"))
        order = self._order(pool, times)
        order = order[np.argsort(owner[order], kind="stable")]
        place = np.arange(order.size) - np.searchsorted(owner[order], owner[order])
        out = pool.take(pa.array(order)).append_column("seq", pa.array(state["seq"][owner[order]]))
        return out.append_column("ordinal", pa.array(LAST + place))

    # -- by stream time ----------------------------------------------------------------------------

    def advance(
        self, batch: pa.RecordBatch | None, slots: npt.NDArray[np.int64], state: State, ticks: Ticks, dead: DeadLetters
    ) -> tuple[pa.RecordBatch | None, Due | None]:
        made = None
        new: list[pa.RecordBatch] = []
        if batch is not None:
            made = pa.RecordBatch.from_pylist([], schema=self.output_schema(batch.schema))
            good = self._in_time(batch, ticks, dead)
            if not good.all():
                batch, slots = batch.filter(pa.array(good)), slots[good]
            new = [batch.select(["event_time", *self._others(batch.schema)])] if batch.num_rows else []
        limit = NEVER if ticks.end == NEVER else ticks.end - in_us(self.allowed_lateness)
        return made, self._released(new, slots, state, limit)

    def _in_time(self, batch: pa.RecordBatch, ticks: Ticks, dead: DeadLetters) -> npt.NDArray[np.bool_]:
        """Which rows are neither late nor from the future."""
        times, present = microseconds(batch.column("event_time"))
        now = ticks.at_rows(batch.num_rows)
        late = present & (now != NEVER) & (times + in_us(self.allowed_lateness) < now)
        status = np.where(present, np.where(late, LATE, 0), UNTIMED)
        if self.max_ahead is not None:
            ahead = (status == 0) & (now != NEVER) & (times > np.where(now == NEVER, 0, now) + in_us(self.max_ahead))
            status[ahead] = FUTURE
        for code, (reason, text) in REASONS.items():
            dead.reject(batch, status == code, reason, text)
        return np.asarray(status == 0)

    def _released(
        self, new: list[pa.RecordBatch], slots: npt.NDArray[np.int64], state: State, limit: int
    ) -> Due | None:
        """The rows before a time, in order; the others are held."""
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
        return Due(owner[taken], found, times[taken] + 1)

    # -- what both have in common ------------------------------------------------------------------

    def _pool(
        self, touched: npt.NDArray[np.int64], new: list[pa.RecordBatch], slots: npt.NDArray[np.int64], state: State
    ) -> tuple[pa.RecordBatch | None, npt.NDArray[np.int64]]:
        """What is held of some keys, and new rows; and the key of each."""
        held = [(s, state["held"][s]) for s in touched.tolist() if state["held"][s] is not None]
        if not held and not new:
            return None, slots
        owner = np.array([s for s, _ in held], np.int64).repeat([rows.num_rows for _, rows in held])
        return joined([*(rows for _, rows in held), *new]), np.concatenate([owner, slots]) if new else owner

    def _order(self, pool: pa.RecordBatch, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        keys = (times,) if self.order is None else (int_column(pool.column(self.order)), times)
        return np.lexsort(keys)

    def _hold(
        self,
        pool: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
        owner: npt.NDArray[np.int64],
        touched: npt.NDArray[np.int64],
        state: State,
    ) -> None:
        """Hold rows, which are in order, in place of what was held of these keys."""
        rows = rows[np.argsort(owner[rows], kind="stable")]
        kept = pool.take(pa.array(rows))
        edges = np.searchsorted(owner[rows], [touched, touched + 1])
        for s, a, b in zip(touched.tolist(), *edges.tolist(), strict=True):
            # a copy, so that what is held for long keeps nothing else alive
            state["held"][s] = kept.take(pa.array(np.arange(a, b))) if b > a else None

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
        yield Case(cls(allowed_lateness=timedelta(seconds=2), by=("key",), order="n"), batch, "by key")
        yield Case(cls(allowed_lateness=ZERO, max_ahead=timedelta(seconds=6)), batch, "guarded")
        yield Case(
            cls(allowed_lateness=timedelta(seconds=2), by=("key",), time="key", order="n"), batch, "time of keys"
        )
        yield Case(
            cls(allowed_lateness=timedelta(seconds=1), time="key", max_ahead=timedelta(seconds=4)), batch, "of one key"
        )


REASONS = {
    LATE: ("late", "records behind its event time are out already"),
    UNTIMED: ("no_event_time", "what is put in order needs an event time"),
    FUTURE: ("from_the_future", "its event time is too far ahead"),
}
