"""The base of window operators: a frame, aggregates and an emission."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import Clock, Ticks
from riot_ops.core.operator import TimerOutput, both_requirements
from riot_ops.core.order import next_ordinal, ordinals, with_timer_ordinals
from riot_ops.core.parameters import Duration, as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.arrays.hashing import NO_SECRET
from riot_ops.kernels.arrays.timestamps import check_time_field
from riot_ops.kernels.stats.panes import FUTURE, LATE, OUT_OF_RANGE, UNTIMED
from riot_ops.task import (
    KeyedTask,
    Lookback,
    ReadableState,
    Requirement,
    State,
    StateField,
    reject_infinite,
    with_field,
)
from riot_ops.tasks.window.windowing.accumulators import cell_state_fields, distinct_stats
from riot_ops.tasks.window.windowing.aggregates import BoundAggregate, bind_aggregate, field_of
from riot_ops.tasks.window.windowing.assigner import Assigner, TickingAssigner, TimeAssigner
from riot_ops.tasks.window.windowing.calendar_windows import CalendarWindows
from riot_ops.tasks.window.windowing.count_windows import CountWindows
from riot_ops.tasks.window.windowing.reading_windows import ReadingWindows
from riot_ops.tasks.window.windowing.ring_windows import RingWindows
from riot_ops.tasks.window.windowing.running_windows import CONDENSED, RunningWindows
from riot_ops.tasks.window.windowing.session_windows import SessionWindows
from riot_ops.tasks.window.windowing.sliding_windows import SlidingWindows
from riot_ops.tasks.window.windowing.stats import HashWords
from riot_ops.tasks.window.windowing.time_windows import TimeWindows
from riot_ops.windows import Calendar, Count, Hopping, Session, Sliding, Tumbling, Unbounded

__all__ = ["ZERO", "WindowTask"]

ZERO = timedelta(0)
REJECTIONS = {
    LATE: ("late", "all windows of its event time are closed"),
    UNTIMED: ("no_event_time", "a time window needs an event time"),
    OUT_OF_RANGE: ("out_of_range", "one of its windows would begin or end beyond the times that a field can hold"),
    FUTURE: ("from_the_future", "its event time is too far ahead of stream time"),
}


class WindowTask(KeyedTask, ReadableState):
    """A keyed task that aggregates the records of a window.

    A subclass defines :attr:`frame`, :attr:`aggregates` and :attr:`emit`, as parameters or from its own ones, see
    :class:`~riot_ops.tasks.Window`.
    """

    #: Which records of a key belong together.
    frame: Any = Unbounded()
    #: By output field ``(field, function, option …)``.
    aggregates: Any
    #: When a result is emitted.
    emit: Any = "each"
    #: The field of the readings that a window has a number of: a record without one belongs to none. None: records.
    reading: str | None = None
    #: Whether the end of a bounded stream emits windows of readings that are not full.
    partial: bool = False
    allowed_lateness: Duration = ZERO
    max_ahead: Duration | None = None

    @property
    def hash_words(self) -> HashWords:
        """The key of hashes."""
        return NO_SECRET

    def bound_aggregates(self, schema: pa.Schema | None = None) -> dict[str, BoundAggregate]:
        """Return the aggregates by output field, bound to the types of ``schema``."""
        if schema is None or self.reading is not None:  # readings are float64
            return self._bound
        last = self._last_bound[0]  # every batch asks for it
        if not (schema is last[0] or schema.equals(last[0])):
            last = schema, {name: bind_aggregate(name, one, schema) for name, one in self.aggregates.items()}
            self._last_bound[0] = last
        return last[1]

    @functools.cached_property
    def _bound(self) -> dict[str, BoundAggregate]:
        return {name: bind_aggregate(name, one) for name, one in self.aggregates.items()}

    @functools.cached_property
    def _last_bound(self) -> list[tuple[pa.Schema, dict[str, BoundAggregate]]]:
        """The schema and the result of the last call of :meth:`bound_aggregates` with a schema."""
        return [(pa.schema([]), self._bound)]

    @property
    def ticks(self) -> bool:
        """Whether results are emitted only at multiples of a duration."""
        return isinstance(self.emit, timedelta) and not isinstance(self.assigner, TimeAssigner)

    @functools.cached_property
    def timed(self) -> bool:
        """Whether event times say which records belong to a window."""
        assigner = self.assigner
        return isinstance(assigner, TimeAssigner) or (
            isinstance(assigner, (RingWindows, SlidingWindows)) and assigner.by_time
        )

    @functools.cached_property
    def assigner(self) -> Assigner:
        """What assigns records to the windows of the frame."""
        if self.reading is not None:
            return ReadingWindows(self.reading, self.aggregates, self.frame, self.partial)
        stats, each = distinct_stats(self.bound_aggregates().values()), self.emit == "each"
        if isinstance(self.frame, Unbounded):
            return RunningWindows(stats, self.emit)
        if isinstance(self.frame, Count):
            return CountWindows(stats, each, self.frame)
        if isinstance(self.frame, Sliding):
            rings = all(stat.slides for stat in stats)
            return (RingWindows if rings else SlidingWindows)(stats, self.frame, self.emit)
        if isinstance(self.frame, Session):
            return SessionWindows(stats, each, self.frame, as_timedelta(self.allowed_lateness))
        if isinstance(self.frame, Calendar):
            return CalendarWindows(stats, self.emit, self.frame, as_timedelta(self.allowed_lateness))
        assert isinstance(self.frame, (Tumbling, Hopping))
        return TimeWindows(stats, self.emit, self.frame, as_timedelta(self.allowed_lateness))

    def clock(self) -> Clock | None:
        if self.ticks:
            return Clock(self.emit)
        if not isinstance(self.assigner, TimeAssigner):
            return None
        period = timedelta(microseconds=math.gcd(self.assigner.period, self.assigner.tick))
        lateness, ahead = as_timedelta(self.allowed_lateness), as_timedelta(self.max_ahead)
        return Clock(period, lateness, ahead, from_first=self.assigner.from_first)

    def with_lateness(self, lateness: timedelta) -> Self:
        timed = isinstance(self.assigner, TimeAssigner)
        return self.replace(allowed_lateness=as_timedelta(self.allowed_lateness) + lateness) if timed else self

    @property
    def key_retention(self) -> timedelta | None:
        if not isinstance(self.assigner, TimeAssigner):
            return super().key_retention
        return timedelta(microseconds=self.assigner.retention) + as_timedelta(self.allowed_lateness)

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), **self._inputs}

    @functools.cached_property
    def _inputs(self) -> dict[str, Requirement]:
        """The fields that are aggregated, and event time where the frame needs it."""
        needs: dict[str, Requirement] = {"event_time": "any"} if self.timed or self.ticks else {}
        for name, one in self.bound_aggregates().items():
            of = field_of(self.aggregates[name])
            fields = ([] if of is None else [(of, one.needs)]) + ([] if one.weight is None else [one.weight])
            for field, needed in fields:
                needs[field] = both_requirements(needs.get(field), needed)
        return needs if self.reading is None else {**needs, self.reading: "number"}

    @functools.cached_property
    def _checked(self) -> tuple[str, ...]:
        """The fields in which infinite numbers are refused."""
        return tuple(name for name, needed in self._inputs.items() if needed != "any")

    @functools.cached_property
    def float64_fields(self) -> tuple[str, ...]:
        if self.reading is not None:
            return (self.reading,)
        bound = self.bound_aggregates()
        # the sum behind a mean is exact
        computed = [self.aggregates[name] for name, one in bound.items() if one.needs == "number"]
        fields = [of for of, function, *_ in computed if of is not None and function != "mean"]
        fields += [one.weight[0] for one in bound.values() if one.weight is not None and one.weight[1] == "number"]
        return tuple(dict.fromkeys(fields))

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        if self.assigner.keeps_records:
            for name, one in self.bound_aggregates(schema).items():
                schema = with_field(schema, pa.field(name, one.dtype))
            return schema
        timed = "event_time" in schema.names
        if timed:
            check_time_field(self.name(), schema)
        fields = [schema.field("seq")] if "seq" in schema.names else []
        out = pa.schema(fields)
        if fields:
            if self.ticks or (self.emit != "each" and isinstance(self.assigner, TimeAssigner)):
                out = with_timer_ordinals(out)
            else:
                names = ordinals(schema.names)
                names += [next_ordinal(schema.names)] if self.emit == "each" else []
                for name in names:
                    out = out.append(pa.field(name, pa.int64()))
        dtype = self._time_type(schema)
        if timed:
            out = out.append(pa.field("event_time", dtype))
        for name in self.by:
            if name not in out.names:
                out = out.append(schema.field(name))
        if timed and not self.ticks:
            out = out.append(pa.field("window_start", dtype)).append(pa.field("window_end", dtype))
        for name, one in self.bound_aggregates(schema).items():
            out = out.append(pa.field(name, one.dtype))
        return out

    def _time_type(self, schema: pa.Schema) -> pa.DataType:
        dtype = schema.field("event_time").type if "event_time" in schema.names else TIMESTAMP
        return dtype if pa.types.is_timestamp(dtype) else TIMESTAMP

    def expands(self) -> bool:
        return self.emit == "each" and not self.assigner.keeps_records

    def writes(self) -> frozenset[str] | None:
        if self.assigner.keeps_records:
            return frozenset(self.aggregates)
        spans = () if self.ticks else ("window_start", "window_end")
        return frozenset({"event_time", *spans, *self.aggregates})

    def lookback(self) -> Lookback | None:
        if isinstance(self.frame, Sliding) and self.emit == "each":
            return self.assigner.lookback() if self.ttl is None else None
        if self.emit == "each" or isinstance(self.emit, timedelta):  # windows that are not full have results, too
            return None
        return self.assigner.lookback()

    def state_fields(self) -> Mapping[str, StateField]:
        assigner = self.assigner
        growable = isinstance(assigner, SlidingWindows) and assigner.by_time
        return {**assigner.state_fields(), **cell_state_fields(assigner.stats, assigner.room, growable)}

    def decode_state(self, table: pa.Table) -> pa.Table:
        """Return the open windows (panes or sessions) as a list per key, with start and cells of each."""
        return self.assigner.decode_state(table)

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        if self.timed and not isinstance(self.assigner, TimeAssigner) and batch.column("event_time").null_count:
            untimed = np.asarray(batch.column("event_time").is_null())
            errors.reject(batch, untimed, *REJECTIONS[UNTIMED])
            batch = batch.filter(pa.array(~untimed))
        if self.emit == "update" and CONDENSED in batch.schema.names:
            kept = ~self._infinite(batch)
            if not kept.all():
                self._reject_infinite(batch.drop_columns([CONDENSED]), errors)
                batch = batch.filter(pa.array(kept))
            return batch
        return self._reject_infinite(batch, errors)

    def _reject_infinite(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        for name in self._checked:
            if pa.types.is_floating(batch.schema.field(name).type):
                batch = reject_infinite(batch, name, errors)
        return batch

    def _infinite(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which records will be rejected because of an infinite number."""
        found = np.zeros(batch.num_rows, np.bool_)
        for name in self._checked:
            if pa.types.is_floating(batch.schema.field(name).type):
                found |= np.isinf(float_column(batch.column(name))[0])
        return found

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        assigner = cast("CountWindows | RingWindows | ReadingWindows | RunningWindows | SlidingWindows", self.assigner)
        return assigner.run(self, batch, slots, state, errors)

    def precombine(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], keys: int) -> pa.RecordBatch | None:
        if self.emit != "update" or self.ttl is not None:  # a ttl runs from each record
            return None
        rejected = np.flatnonzero(self._infinite(batch))
        return cast(RunningWindows, self.assigner).condensed(self, batch, slots, keys, rejected)

    def merge_states(self, state: State, other: State) -> State | None:
        return self.assigner.merged(state, other) if isinstance(self.assigner, RunningWindows) else None

    def advance(
        self,
        batch: pa.RecordBatch | None,
        slots: npt.NDArray[np.int64],
        state: State,
        ticks: Ticks,
        errors: RejectedRecords,
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        if isinstance(self.assigner, TickingAssigner):
            return None, self.assigner.advance(self, batch, slots, state, ticks, errors)
        assert isinstance(self.assigner, TimeAssigner)
        bad = np.zeros(0 if batch is None else batch.num_rows, np.uint8)
        batch_results, timer_results = self.assigner.run(self, batch, slots, state, ticks, bad)
        if batch is not None:
            for code, (reason, text) in REJECTIONS.items():
                errors.reject(batch, bad == code, reason, text)
        return batch_results, timer_results

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        assigner = self.assigner
        if isinstance(assigner, (CountWindows, ReadingWindows)):
            return assigner.flush_partial(self, keys, state)
        return None
