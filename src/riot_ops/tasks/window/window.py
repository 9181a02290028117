"""Window aggregation: tumbling, hopping, session and count windows."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import Clock, Ticks, to_microseconds
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import TimerOutput, both_requirements
from riot_ops.core.order import next_ordinal, ordinals, with_timer_ordinals
from riot_ops.core.parameters import Count
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.arrays.timestamps import check_time_field
from riot_ops.kernels.stats.panes import FUTURE, LATE, OUT_OF_RANGE, UNTIMED
from riot_ops.task import Case, KeyedTask, Lookback, Requirement, SketchTask, State, StateField, register
from riot_ops.tasks.window.windowing.accumulators import cell_state_fields, distinct_stats
from riot_ops.tasks.window.windowing.aggregates import BoundAggregate, bind_aggregate
from riot_ops.tasks.window.windowing.count_windows import CountWindows
from riot_ops.tasks.window.windowing.frame import WindowFrame
from riot_ops.tasks.window.windowing.session_windows import SessionWindows
from riot_ops.tasks.window.windowing.stats import Aggregate
from riot_ops.tasks.window.windowing.time_windows import TimeWindows

__all__ = ["Aggregate", "Window"]

#: Maximum number of panes or sessions of a key that may be open at once.
MAX_OPEN_WINDOWS = 100_000
ZERO = timedelta(0)


@register
@dataclass(frozen=True, kw_only=True)
class Window(SketchTask, KeyedTask):
    """Aggregate the records of each key over windows.

    Windows are tumbling (``size``), hopping (``size`` and ``every``), sessions (``gap``) or count windows (``count``).

    Parameters
    ----------
    size : timedelta > 0 or text such as "1min", optional
        Length of time windows: ``[k every + offset, k every + offset + size)``, from 1970 on in UTC.
    every : timedelta > 0, default size
        Hop: a window begins at each multiple of it. ``size`` must be a multiple of ``every``.
    offset : timedelta >= 0, default 0
        Where windows begin within ``every``, less than it: days from six to six have ``offset="6h"``.
    gap : timedelta > 0, optional
        Instead of size: a session is a run of records, each less than a gap of event time after the previous one.
        It ends a gap after its last record, and is closed at the next multiple of an eighth of the gap. A record
        between two open sessions makes them one; a record before the end of a closed one is late, so that sessions of
        a key never overlap.
    count : int >= 1, optional
        Instead of size: records per window, in order of arrival.
    allowed_lateness : timedelta >= 0, default 0
        How far a record may lag behind stream time: a window is closed when stream time less this duration reaches its
        end.
    max_ahead : timedelta > 0, optional
        A record further ahead of stream time goes to the errors stream and does not advance it, so that a wrong clock
        closes no windows, unless :data:`~riot_ops.core.clock.AGREEING` records in a row agree (or as many as stream
        time has had so far). Stream time is set back in the same way; all windows are closed first. None: no limit.
    aggregates : dict of str to tuple, default {"count": ("count", None)}
        By output field ``(function, field, option …)``, see below.
    emit : "final" or "update", default "final"
        Emit a result when a window is closed; or, for each record, the current result of every window that contains it.
    partial : bool, default False
        Whether the end of a bounded stream emits count windows that are not full. It always closes time windows.
    secret : Secret or None, default None
        With ``distinct`` or ``unique``: keys their hash, so that no sender can choose values that raise the estimate or
        do not count. State continues only with the same secret. None: the hash is fixed, the same in every system.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; a ttl is for count windows: a key without open time windows has no
        state.

    Aggregates
    ----------
    ====================================  ============================================================================
    ``("count", None)``                   records; with a field: non-missing values
    ``("sum", f)``                        of integers and booleans the exact integer, null where it does not fit
                                          (int64; uint64 for uint64); of other numbers a compensated sum in float64
    ``("mean", f)``                       in float64, from compensated sums
    ``("min", f)``, ``("max", f)``        the value itself, with the type of its field (float64 for floating types)
    ``("first", f)``, ``("last", f)``     the same for the smallest and the largest event time, among equal times the
                                          first and the last to arrive; in count windows by order of arrival
    ``("std", f, otherwise)``             sample standard deviation; below two values ``otherwise`` (null)
    ``("quantile", f, q)``                ``q`` in [0, 1]; exact and linearly interpolated as in NumPy and pandas, up to
                                          100,000 values per window; beyond, as with an accuracy of 0.01
    ``("quantile", f, q, accuracy)``      within ``accuracy`` (relative, from 0.001 to 0.5) of the value of rank
                                          ``floor(q (n - 1))``, from a sketch
    ``("distinct", f, precision)``        number of distinct values, HyperLogLog with ``2^precision`` registers (10),
                                          standard error ``1.04 / sqrt(2^precision)``
    ``("unique", f)``                     number of distinct values, exact: it keeps a 64-bit hash of each
    ``("matches", f, relation, x)``       number of values with ``== x`` (or ``!= < <= > >=``); with ``&``: that share
                                          a bit with ``x``; whole numbers are compared exactly
    ``("share", f, relation, x)``         share of the values that match
    ``("duration", f)``                   seconds from the first to the last event time of a value (``None``: a record)
    ``("mean_gap", f, otherwise)``        mean of the seconds between consecutive values (with ``None``: records);
                                          below two values ``otherwise`` (null)
    ``("std_gap", f, otherwise)``         sample standard deviation of those, below three values ``otherwise`` (null)
    ``("top", f, k)``                     the k most frequent values with their counts, exact; ties by value
    ``(Aggregate(…), f)``                 a custom aggregate, see :class:`Aggregate`
    ====================================  ============================================================================

    ``min``, ``max``, ``first`` and ``last`` take numbers, booleans and times; ``sum``, ``matches`` and ``share``
    take numbers and booleans. All refuse decimals, whose digits float64 would lose. ``mean``, ``std`` and
    ``quantile`` compute in float64, and take decimals as well.

    Shapes and rates
    ----------------
    record[n] -> record[m], N:M. O(1) time per record and O(size / every) per result; a record is added to one pane of
    length ``every``. State per key: the cells of the aggregates (a number or two each; for ``unique`` 8 bytes
    and for ``top`` an entry per distinct value, for ``quantile`` 8 bytes per value, or an entry per bin in use), times
    ``size / every + ceil(allowed_lateness / every)`` panes, or ``ceil(allowed_lateness / gap) + 3`` sessions.

    A result has the key, ``window_start``, ``window_end`` and the aggregates. Its ``event_time`` is the microsecond
    before the window's end (for a session: before the multiple at which it was closed), its ``seq`` the message that
    advanced stream time, see :mod:`riot_ops.core.order`. A count window has ``seq`` and event time of the record that
    filled it, and starts and ends at its first and last event time.

    The results are the same to the last bit however the stream is cut: the records of a key are added one by one in
    their order, and panes are merged from the earliest on.

    Missing values
    --------------
    The aggregates of a field skip its null and NaN values. The aggregate of no values is null; a window without records
    emits nothing.

    Errors
    ------
    In time windows, a record without event time goes to the errors stream as ``no_event_time``, a record whose windows
    are all closed as ``late``, a record beyond ``max_ahead`` as ``from_the_future``, and one of whose windows begins
    or ends beyond the years 1 to 9999 (or what nanoseconds hold) as ``out_of_range``; in all windows an infinite number
    as ``not_finite``.

    References
    ----------
    .. [1] T. Akidau et al., *The Dataflow Model*, VLDB 2015.
    .. [2] J. Li et al., *No Pane, No Gain*, SIGMOD Record 34, 2005.
    .. [3] C. Masson, J. Rim, H. Lee, *DDSketch*, VLDB 2019 (quantiles).

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> minutes = Window(by="device", size="1min", aggregates={"mean": ("mean", "value"), "n": ("count", None)})
    >>> session = minutes.session()
    >>> rows = [(0, "a", 1.0), (20, "b", 5.0), (50, "a", 2.0), (70, "b", 7.0)]
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> for s, device, value in rows:
    ...     event = {"event_time": noon + timedelta(seconds=s), "device": device, "value": value}
    ...     for out in session.push(event):
    ...         print(out["device"], f"{out['window_start']:%H:%M}", out["mean"], out["n"])
    a 12:00 1.5 2
    b 12:00 5.0 1
    """

    code: ClassVar[str] = "WIN"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:M"
    version: ClassVar[int] = 4

    size: timedelta | None = None
    every: timedelta | None = None
    offset: timedelta = ZERO
    gap: timedelta | None = None
    count: Count | None = None
    allowed_lateness: timedelta = ZERO
    max_ahead: timedelta | None = None
    aggregates: Any = field(default_factory=lambda: {"count": ("count", None)})
    emit: Literal["final", "update"] = "final"
    partial: bool = False

    def validate(self) -> None:
        chosen = [name for name in ("size", "gap", "count") if getattr(self, name) is not None]
        if len(chosen) != 1:
            raise ConfigError(f"Window needs exactly one of size, gap and count, got {' and '.join(chosen) or 'none'}")
        for name in ("size", "every", "gap", "max_ahead"):
            value = getattr(self, name)
            if value is not None and value <= ZERO:
                raise ConfigError(f"{name} must be longer than 0, got {value!r}")
        if self.allowed_lateness < ZERO:
            raise ConfigError(f"allowed_lateness must not be negative, got {self.allowed_lateness!r}")
        if self.every is not None and self.size is None:
            raise ConfigError(f"every = {self.every!r} needs size")
        if self.every is not None and self.size is not None and self.size % self.every:
            raise ConfigError(f"size must be a multiple of every, got {self.size!r} and {self.every!r}")
        if self.offset and (self.size is None or not ZERO <= self.offset < (self.every or self.size)):
            raise ConfigError(
                f"offset must be at least 0 and less than every, for windows with size, got {self.offset!r}"
            )
        if self.partial and self.count is None:
            raise ConfigError("partial is for count windows: the end of a stream closes time windows anyway")
        for name in ("allowed_lateness", "max_ahead"):
            if self.count is not None and getattr(self, name):
                raise ConfigError(f"{name} = {getattr(self, name)!r} is for time windows, not for count windows")
        if self.ttl is not None and self.count is None:
            raise ConfigError(f"ttl = {self.ttl!r} is for count windows; a closed time window leaves no state")
        if not isinstance(self.aggregates, Mapping) or not self.aggregates:
            raise ConfigError(f"aggregates must be a dict of field to (function, field), got {self.aggregates!r}")
        object.__setattr__(
            self,
            "aggregates",
            {name: tuple(one) if isinstance(one, list) else one for name, one in self.aggregates.items()},
        )
        reserved = {"seq", "event_time", "window_start", "window_end", *self.by}
        for name in self.aggregates:
            if not isinstance(name, str) or not name or name in reserved or ordinals([name]):
                raise ConfigError(
                    f"aggregates: {name!r} cannot be the name of a result; reserved are {', '.join(sorted(reserved))}"
                )
        timed = [name for name, one in self.bound_aggregates().items() if one.timed]
        if timed and self.count is not None:
            raise ConfigError(f"aggregates: {timed[0]!r} measures event times, which count windows do not support")
        if self.secret is not None and not any(stat.hashes for stat in self.frame.stats):
            raise ConfigError("Window: secret needs an aggregate that hashes values, 'distinct' or 'unique'")
        if self.frame.room > MAX_OPEN_WINDOWS:
            raise ConfigError(
                f"size, every, gap and allowed_lateness keep {self.frame.room:,} windows of a key open; the maximum is "
                f"{MAX_OPEN_WINDOWS:,}"
            )

    def bound_aggregates(self, schema: pa.Schema | None = None) -> dict[str, BoundAggregate]:
        """Return the aggregates by output field, bound to the types of ``schema``."""
        return {name: bind_aggregate(name, one, schema) for name, one in self.aggregates.items()}

    @functools.cached_property
    def frame(self) -> WindowFrame:
        """The frame that assigns records to windows."""
        stats = distinct_stats(self.bound_aggregates().values())
        update = self.emit == "update"
        if self.count is not None:
            return CountWindows(stats, update, self.count)
        if self.gap is not None:
            gap = to_microseconds(self.gap)
            return SessionWindows(stats, update, gap, max(gap // 8, 1), to_microseconds(self.allowed_lateness))
        assert self.size is not None
        every = to_microseconds(self.every or self.size)
        return TimeWindows(
            stats,
            update,
            every,
            to_microseconds(self.size) // every,
            to_microseconds(self.allowed_lateness),
            to_microseconds(self.offset),
        )

    def __hash__(self) -> int:
        return hash((self.size, self.every, self.offset, self.gap, self.count, self.by, repr(self.aggregates)))

    # -- contract ----------------------------------------------------------------------------------

    def clock(self) -> Clock | None:
        if self.count is not None:
            return None
        period = (
            timedelta(microseconds=max(to_microseconds(self.gap) // 8, 1))
            if self.gap is not None
            else self.every or self.size
        )
        assert period is not None
        if self.offset:  # stream time is rounded to what divides both
            period = timedelta(microseconds=math.gcd(to_microseconds(period), to_microseconds(self.offset)))
        return Clock(period, self.allowed_lateness, self.max_ahead)

    def with_lateness(self, lateness: timedelta) -> Self:
        return self if self.count is not None else self.replace(allowed_lateness=self.allowed_lateness + lateness)

    @property
    def key_retention(self) -> timedelta | None:
        if self.count is not None:
            return self.ttl
        length = self.size or 2 * (self.gap or ZERO)
        return length + self.allowed_lateness + (self.every or self.size or self.gap or ZERO)

    def requires(self) -> Mapping[str, Requirement]:
        needs: dict[str, Requirement] = {} if self.count is not None else {"event_time": "any"}
        for name, one in self.bound_aggregates().items():
            of = self.aggregates[name][1]
            if of is not None:
                needs[of] = both_requirements(needs.get(of), one.needs)
        return {**super().requires(), **needs}

    @functools.cached_property
    def float64_fields(self) -> tuple[str, ...]:
        bound = self.bound_aggregates()
        # the sum behind a mean is exact
        computed = [self.aggregates[name] for name, one in bound.items() if one.needs == "number"]
        return tuple(dict.fromkeys(of for function, of, *_ in computed if of is not None and function != "mean"))

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        timed = "event_time" in schema.names
        if timed:
            check_time_field(self.name(), schema)
        fields = [schema.field("seq")] if "seq" in schema.names else []
        out = pa.schema(fields)
        if fields:
            if self.emit == "final" and self.count is None:
                out = with_timer_ordinals(out)
            else:
                names = ordinals(schema.names)
                names += [next_ordinal(schema.names)] if self.emit == "update" else []
                for name in names:
                    out = out.append(pa.field(name, pa.int64()))
        dtype = self._time_type(schema)
        if timed:
            out = out.append(pa.field("event_time", dtype))
        for name in self.by:
            if name not in out.names:
                out = out.append(schema.field(name))
        if timed:
            out = out.append(pa.field("window_start", dtype)).append(pa.field("window_end", dtype))
        for name, one in self.bound_aggregates(schema).items():
            out = out.append(pa.field(name, one.dtype))
        return out

    def _time_type(self, schema: pa.Schema) -> pa.DataType:
        dtype = schema.field("event_time").type if "event_time" in schema.names else TIMESTAMP
        return dtype if pa.types.is_timestamp(dtype) else TIMESTAMP

    def expands(self) -> bool:
        return self.emit == "update"

    def writes(self) -> frozenset[str] | None:
        return frozenset({"event_time", "window_start", "window_end", *self.aggregates})

    def lookback(self) -> Lookback | None:
        if self.emit == "update" or self.gap is not None:
            return None  # updates of windows that are not full; sessions of unlimited length
        if self.size is None:  # where a window begins depends on the number of earlier records
            return Lookback() if self.count == 1 else None
        return Lookback(span=self.size + self.allowed_lateness)

    def state_fields(self) -> Mapping[str, StateField]:
        frame = self.frame
        return {**frame.state_fields(), **cell_state_fields(frame.stats, frame.room)}

    def decode_state(self, table: pa.Table) -> pa.Table:
        """Return the open windows (panes or sessions) as a list per key, with start and cells of each."""
        return self.frame.decode_state(table)

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        for name, needed in self.requires().items():
            if needed == "any" or not pa.types.is_floating(batch.schema.field(name).type):
                continue
            infinite = np.isinf(float_column(batch.column(name))[0])
            if infinite.any():
                dead.reject(batch, infinite, "not_finite", f"{name} is infinite")
                batch = batch.filter(pa.array(~infinite))
        return batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        assert isinstance(self.frame, CountWindows)
        return self.frame.run(self, batch, slots, state)

    def advance(
        self, batch: pa.RecordBatch | None, slots: npt.NDArray[np.int64], state: State, ticks: Ticks, dead: DeadLetters
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        assert isinstance(self.frame, (TimeWindows, SessionWindows))
        bad = np.zeros(0 if batch is None else batch.num_rows, np.uint8)
        batch_results, timer_results = self.frame.run(self, batch, slots, state, ticks, bad)
        if batch is not None:
            for code, (reason, text) in REJECTIONS.items():
                dead.reject(batch, bad == code, reason, text)
        return batch_results, timer_results

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        if not self.partial:
            return None
        assert isinstance(self.frame, CountWindows)
        return self.frame.flush_partial(self, keys, state)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        rows = 12
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(rows), pa.int64()),
                "event_time": pa.array([0, 1, 3, 4, None, 12, 5, 13, 31, 30, 32, 60], pa.timestamp("s", tz="UTC")),
                "key": ["a", "b", "a", "ü", "a", None, "b", "a", None, "", "a", "b"],
                "value": [10.0, -3.5, 12.0, None, 7.0, float("nan"), 4.0, 11.0, 1e308, 0.5, 2.0, 2.0],
                "text": ["x", "y", None, "ü", "x", "x", "y", "", "x", "x", "y", "y"],
            }
        )
        every: dict[str, Any] = {
            "n": ("count", None),
            "values": ("count", "value"),
            "texts": ("count", "text"),
            **{name: (name, "value") for name in ("sum", "mean", "min", "max", "first", "last", "std")},
            "median": ("quantile", "value", 0.5),
            "kinds": ("distinct", "text", 6),
            "best": ("top", "text", 2),
            "unique": ("unique", "text"),
            "above": ("matches", "value", ">", 3),
            "odd": ("share", "value", "&", 1),
        }
        timed = every | {
            "duration": ("duration", None),
            "mean_gap": ("mean_gap", "value", 0.0),
            "std_gap": ("std_gap", None),
        }
        five = timedelta(seconds=5)
        yield Case(cls(size=five, by=("key",), aggregates=timed), batch, "tumbling")
        yield Case(
            cls(size=3 * five, every=five, allowed_lateness=five, by=("key",), aggregates=timed), batch, "hopping"
        )
        yield Case(cls(gap=five, allowed_lateness=2 * five, by=("key",), aggregates=timed), batch, "sessions")
        yield Case(cls(gap=five, max_ahead=timedelta(seconds=25)), batch, "guarded")
        yield Case(cls(count=2, by=("key",), partial=True, aggregates=every), batch, "by count")
        yield Case(cls(size=2 * five, every=five, emit="update", by=("key",), aggregates=timed), batch, "updates")


REJECTIONS = {
    LATE: ("late", "all windows of its event time are closed"),
    UNTIMED: ("no_event_time", "a time window needs an event time"),
    OUT_OF_RANGE: ("out_of_range", "one of its windows would begin or end beyond the times that a field can hold"),
    FUTURE: ("from_the_future", "its event time is too far ahead of stream time"),
}
