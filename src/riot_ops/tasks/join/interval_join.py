"""Interval join: pairs of records of two streams with one key and nearly one time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import NEVER, Clock, Ticks, to_microseconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import TimerOutput
from riot_ops.core.order import is_ordinal, ordinals
from riot_ops.core.parameters import Count, Duration, Names, as_names, as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import valid_mask
from riot_ops.kernels.arrays.ordering import places_in_runs, run_edges
from riot_ops.kernels.arrays.rows import take
from riot_ops.kernels.arrays.timestamps import check_time_field, from_microseconds, microseconds
from riot_ops.kernels.stats.interval_join import FULL, LOOSE, RIGHT
from riot_ops.kernels.stats.reorder import FUTURE, LATE, UNTIMED
from riot_ops.task import (
    Case,
    KeyedTask,
    Requirement,
    State,
    StateField,
    next_ordinal,
    register,
    with_next_ordinal,
    with_timer_ordinals,
)
from riot_ops.tasks.join.held_rows import SIDES, HeldRows
from riot_ops.tasks.join.join_side import JoinSide

__all__ = ["IntervalJoin"]

ZERO = timedelta(0)
MICROSECOND = timedelta(microseconds=1)
#: Status of a record of neither side, or of both.
NO_SIDE = 16
#: Which sides emit records without a partner, as bits.
OUTER = {"inner": 0, "left": 1, "full": 3}


@register
@dataclass(frozen=True, kw_only=True)
class IntervalJoin(KeyedTask):
    """Join two streams by key and event time, such as orders with the payments of the next hour.

    A left record l and a right record r of one key are a pair if ``-before <= r.event_time - l.event_time <= after``.
    ``flow.add(IntervalJoin(…), left, right)`` joins two streams of any schemas: before the join, a
    :class:`JoinSide` brings the records of each stream into a common form.

    Parameters
    ----------
    by : tuple of str
        Fields of the key, in the left stream and in the output.
    within : timedelta or text such as "5s", or pair of these
        How far the times of a pair may be apart; as a pair ``(before, after)``, how far the right record may be before
        and after the left one.
    how : "inner", "left" or "full", default "inner"
        Whether left records, or those of both sides, that find no partner are emitted, with nulls for the other side.
    right_on : tuple of str or None, default None
        Fields of the key in the right stream, if they have other names; they get the names in ``by``.
    suffix : str, default "_right"
        Ending for fields of the right stream whose names the left stream has as well.
    allowed_lateness : timedelta >= 0 or text such as "1s", default 0
        How far a record may lag behind stream time. Stream time is that of the foremost of the two streams, so this
        must also cover how far one lags behind the other.
    max_ahead : timedelta > 0, optional
        A record further ahead of stream time goes to the errors stream, see :class:`SortByEventTime`. None: no limit.
    max_held : int >= 1, default 1000000
        How many records of each side a key may hold.
    left : tuple of str, default ()
        Fields of left records in the common form; all others except the key are those of right ones. ``flow.add`` sets
        it.
    ttl
        Not used: records are held as long as a partner may come.

    Shapes and rates
    ----------------
    N:M; O(log n + matches) time per record where its key holds n. The state is the records whose partners may still
    come.

    A pair is emitted with the later record to arrive: the pairs of a record in the order of the times of the others,
    then of their arrival. It has the later event time, the key, the fields of both sides, and their event times in
    ``left_time`` and ``right_time``. A record without a partner is emitted once stream time is more than
    ``allowed_lateness`` after the last time of a partner, which is its ``event_time``. The output is the same for any
    cut of the stream; streams of several sources have a defined order only if they are merged by number or in sequence.

    Missing values
    --------------
    A null in the key matches nothing, as in SQL: the record counts as one without a partner. Nulls in other fields are
    kept.

    Errors
    ------
    ``late`` (more than ``allowed_lateness`` behind stream time), ``no_event_time``, ``from_the_future``, ``full`` (its
    key already holds ``max_held`` records of its side), ``no_side`` (in the common form, not exactly one of
    ``left_time`` and ``right_time``).

    References
    ----------
    .. [1] Apache Flink, *Interval join* of the DataStream API.
    .. [2] R. Seidel, C. Aragon, *Randomized search trees*, Algorithmica 16, 1996: the index of a key.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("shop", merging="number")
    >>> time = "timestamp[us, tz=UTC]"
    >>> orders = flow.source("orders", schema={"id": "int64", "event_time": time, "item": "string"})
    >>> payments = flow.source("payments", schema={"id": "int64", "event_time": time, "euro": "int64"})
    >>> join = IntervalJoin(by="id", within="5s", how="left", allowed_lateness="1s")
    >>> joined = flow.add(join, orders, payments, id="paid")
    >>> order = [{"id": 1, "event_time": 0, "item": "tea"}, {"id": 2, "event_time": 0, "item": "cup"}]
    >>> paid = flow.sink("out", joined).run({"orders": order, "payments": [{"id": 1, "event_time": 10, "euro": 3}]})
    >>> [(row["id"], row["item"], row["euro"]) for row in paid["paid"].to_pylist()]
    [(1, 'tea', 3), (2, 'cup', None)]
    """

    code: ClassVar[str] = "IVJ"
    category: ClassVar[str] = "Merge"
    pattern: ClassVar[str] = "Join"
    selectivity: ClassVar[str] = "N:M"

    within: tuple[timedelta, timedelta]
    how: Literal["inner", "left", "full"] = "inner"
    right_on: Names | None = None
    suffix: str = "_right"
    allowed_lateness: Duration = ZERO
    max_ahead: Duration | None = None
    max_held: Count = 1_000_000
    left: Names = ()

    def validate(self) -> None:
        if not self.by:
            raise ConfigError("by must name the fields of the key, got ()")
        if min(self.within) < ZERO:
            raise ConfigError(f"within must not be negative, got {self.within!r}")
        if self.right_on is not None and len(self.right_on) != len(self.by):
            raise ConfigError(f"right_on must name as many fields as by, {len(self.by)}, got {self.right_on!r}")
        if not self.suffix:
            raise ConfigError("suffix must not be empty")
        if as_timedelta(self.allowed_lateness) < ZERO:
            raise ConfigError(f"allowed_lateness must not be negative, got {self.allowed_lateness!r}")
        if self.max_ahead is not None and as_timedelta(self.max_ahead) <= ZERO:
            raise ConfigError(f"max_ahead must be longer than 0, got {self.max_ahead!r}")
        if self.ttl is not None:
            raise ConfigError(f"interval_join does not use ttl, got {self.ttl!r}; within bounds its state")
        if wrong := {*self.left} & {*self.by, *SIDES, "seq", "event_time"}:
            raise ConfigError(f"left must not name {min(wrong)!r}, which is not a field of one side")

    def align_inputs(self, schemas: Sequence[pa.Schema]) -> tuple[Self, list[JoinSide]]:
        if len(schemas) != 2:
            raise ConfigError(f"interval_join joins two streams, got {len(schemas)}; merge those of one side before")
        left, right = schemas
        ours = _payload(left, self.by)
        theirs = _payload(right, self.right_on or self.by)
        taken = {*self.by, *ours}
        renamed = {name: name + self.suffix if name in taken else name for name in theirs}
        for names in (list(ours), list(renamed.values())):
            for name in names:
                if name in SIDES or (name in taken and name not in ours) or names.count(name) > 1:
                    raise ConfigError(f"interval_join: both streams have the field {name!r}; give another suffix")
        if both := {*ours} & {*renamed.values()}:
            raise ConfigError(f"interval_join: both streams have the field {min(both)!r}; give another suffix")
        added = {renamed[name]: dtype for name, dtype in theirs.items()}
        keys = zip(self.right_on or self.by, self.by, strict=True)
        changed = [(a, b) for a, b in [*keys, *renamed.items()] if a != b]
        sides = [
            JoinSide(side="left", by=as_names(self.by), nulls=added),
            JoinSide(side="right", by=as_names(self.by), rename=tuple(changed), nulls=ours),
        ]
        return self.replace(left=tuple(ours)), sides

    # -- time --------------------------------------------------------------------------------------

    def clock(self) -> Clock:
        return Clock(MICROSECOND, as_timedelta(self.allowed_lateness), as_timedelta(self.max_ahead))

    def with_lateness(self, lateness: timedelta) -> Self:
        return self.replace(allowed_lateness=as_timedelta(self.allowed_lateness) + lateness)

    @property
    def key_retention(self) -> timedelta:
        return (
            max(self.within)
            + as_timedelta(self.allowed_lateness)
            + (as_timedelta(self.max_ahead) or ZERO)
            + MICROSECOND
        )

    # -- schema ------------------------------------------------------------------------------------

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), "event_time": "any", **dict.fromkeys([*SIDES, *self.left], "any")}

    def expands(self) -> bool:
        return True

    def writes(self) -> frozenset[str]:
        return frozenset({"seq", "event_time"})  # each other field is that of one of the two records

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in ("event_time", *SIDES):
            check_time_field(self.name(), schema, name)
        first = [name for name in ("seq", *ordinals(schema.names)) if name in schema.names]
        out = pa.schema([schema.field(name) for name in first])
        if "seq" in schema.names:
            out = with_next_ordinal(out)
            out = out if self.how == "inner" else with_timer_ordinals(out)
        for name in ("event_time", *self.by):
            out = out.append(schema.field(name))
        for name in self._payload(schema.names):
            out = out.append(schema.field(name).with_nullable(True))
        return out

    def _payload(self, names: Sequence[str]) -> list[str]:
        """Return the fields of either side."""
        other = {"seq", "event_time", *self.by}
        return [name for name in names if name not in other and not is_ordinal(name)]

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": HeldRows(*map(to_microseconds, self.within)).state_field()}

    # -- rows --------------------------------------------------------------------------------------

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        raise NotImplementedError  # the engine calls advance

    def advance(
        self,
        batch: pa.RecordBatch | None,
        slots: npt.NDArray[np.int64],
        state: State,
        ticks: Ticks,
        errors: RejectedRecords,
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        held = state["held"]
        none = None if batch is None else pa.RecordBatch.from_pylist([], schema=self.output_schema(batch.schema))
        if not len(held):
            return none, None
        store: HeldRows = held[0].store
        store.follow(held, self.left)
        times, flags, now = np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.int64)
        if batch is not None:
            now = ticks.at_rows(batch.num_rows)
            good, times, flags = self._checked(batch, now, errors)
            if not good.all():
                batch, slots = batch.filter(pa.array(good)), slots[good]
                times, flags, now = times[good], flags[good], now[good]
        limits = np.append(now, ticks.end)
        limits = np.where(limits == NEVER, NEVER, limits - to_microseconds(self.allowed_lateness))
        payload = None if batch is None else batch.select(self._payload(batch.schema.names))
        status, pairs, expired = store.join(
            payload, slots, times, flags, limits, self.max_held, OUTER[self.how], self.left
        )
        if batch is not None and (full := status == FULL).any():
            errors.reject(batch, full, "full", f"its key holds {self.max_held} records of its side")
        made = none if batch is None or not pairs.size else self._pairs(batch, pairs, store)
        due = None
        if expired.size:
            slots, sides, rows, last = expired
            due = TimerOutput(slots.copy(), store.take(sides, rows), last + 1)
        store.compact()
        return made, due

    def _checked(
        self, batch: pa.RecordBatch, now: npt.NDArray[np.int64], errors: RejectedRecords
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """Return which records can be joined, their times and the flags of their nodes; reject the others."""
        times, present = microseconds(batch.column("event_time"))
        of_left, of_right = (np.asarray(batch.column(name).is_valid()) for name in SIDES)
        started = now != NEVER
        late = started & (times + to_microseconds(self.allowed_lateness) < now)
        status = np.where(present, np.where(of_left == of_right, NO_SIDE, np.where(late, LATE, 0)), UNTIMED)
        if self.max_ahead is not None:
            limit = np.where(started, now, 0) + to_microseconds(self.max_ahead)
            status[(status == 0) & started & (times > limit)] = FUTURE
        for code, (reason, text) in REJECTIONS.items():
            errors.reject(batch, status == code, reason, text)
        flags = np.where(of_right, RIGHT, 0).astype(np.uint8)
        for name in self.by:
            if (column := batch.column(name)).null_count:
                flags[~valid_mask(column)] |= LOOSE
        return np.asarray(status == 0), times, flags

    def _pairs(self, batch: pa.RecordBatch, pairs: npt.NDArray[np.int64], store: HeldRows) -> pa.RecordBatch:
        by, left, right, times = pairs
        found = {
            name: column
            for side, rows in enumerate((left, right))
            for name, column in zip(*_columns(store.take_side(side, rows)), strict=True)
        }
        schema = self.output_schema(batch.schema)
        found["event_time"] = from_microseconds(times.copy(), batch.schema.field("event_time").type)
        given = {*batch.schema.names}
        for name in schema.names:
            if name == next_ordinal(batch.schema.names):
                found[name] = pa.array(places_in_runs(run_edges(by)))
            elif name not in found:
                found[name] = take(batch.column(name), by) if name in given else pa.array(np.zeros(by.size, np.int64))
        columns = [found[name] for name in schema.names]
        # in a session, a field that is null in this batch may have a type in held rows
        dtypes = [f.with_type(c.type) for f, c in zip(schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(dtypes))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        times = [0, 1, 2, None, 3, 2, 9, 3, 20, 21, 21, 40]
        right = [0, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]
        given: dict[str, list[Any]] = {
            name: [t if one == side else None for t, one in zip(times, right, strict=True)]
            for side, name in enumerate(SIDES)
        }
        seconds = pa.timestamp("s", tz="UTC")
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(12), pa.int64()),
                "event_time": pa.array(times, seconds),
                "key": ["a", "a", "a", "a", "ü", "a", None, "a", "", "", None, "a"],
                "x": [1.0, None, -0.0, None, None, None, 2.0, 3.0, 4.0, None, None, None],
                "list": pa.array(
                    [None, [1], None, [], [None], None, None, None, None, [2], [3], None], pa.list_(pa.int64())
                ),
                **{name: pa.array(column, seconds) for name, column in given.items()},
            }
        )
        task = cls(by=("key",), within=(timedelta(seconds=2), timedelta(seconds=3)), left=("x",))
        yield Case(task, batch)
        late = timedelta(seconds=5)
        yield Case(task.replace(how="left", allowed_lateness=late), batch, "left")
        yield Case(task.replace(how="full", allowed_lateness=late, max_held=2), batch, "full, few")
        yield Case(task.replace(how="full", max_ahead=timedelta(seconds=15)), batch, "full, guarded")


REJECTIONS = {
    LATE: ("late", "its partners may have been removed"),
    UNTIMED: ("no_event_time", "joining needs an event time"),
    FUTURE: ("from_the_future", "its event time is too far ahead"),
    NO_SIDE: ("no_side", "exactly one of left_time and right_time must be given"),
}


def _payload(schema: pa.Schema, by: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the fields of a stream other than those of key, order and time."""
    return {f.name: f.type for f in schema if f.name not in {"seq", "event_time", *by} and not is_ordinal(f.name)}


def _columns(batch: pa.RecordBatch) -> tuple[list[str], list[pa.Array]]:
    return batch.schema.names, batch.columns
