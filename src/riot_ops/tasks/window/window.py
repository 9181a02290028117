"""Aggregates over windows of stream time, of sessions, or of a number of records."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import Clock, Ticks, in_us
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import Due
from riot_ops.core.order import next_ordinal, ordinals, with_tick_places
from riot_ops.core.parameters import Count
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.stats.panes import FUTURE, LATE, UNTIMED
from riot_ops.kernels.text.timestamps import check_time_field
from riot_ops.task import Case, KeyedTask, Lookback, Requirement, State, StateField, register
from riot_ops.tasks.window.windowing.aggregates import Reading, reading
from riot_ops.tasks.window.windowing.count_windows import CountWindows
from riot_ops.tasks.window.windowing.groups import cell_fields, stats_of
from riot_ops.tasks.window.windowing.session_windows import SessionWindows
from riot_ops.tasks.window.windowing.stats import Aggregate
from riot_ops.tasks.window.windowing.time_windows import TimeWindows
from riot_ops.tasks.window.windowing.windows import Windows

__all__ = ["Aggregate", "Window"]

#: Most panes or sessions of a key that may be open at once.
MOST_OPEN = 100_000
ZERO = timedelta(0)


@register
@dataclass(frozen=True, kw_only=True)
class Window(KeyedTask):
    """Aggregate the records of each key over windows.

    Windows are tumbling (``size``), hopping (``size`` and ``every``), sessions (``gap``) or by count (``count``).

    Parameters
    ----------
    size : timedelta > 0 or text such as "1min", optional
        Length of windows of time: ``[k every, k every + size)``, aligned to the epoch.
    every : timedelta > 0, default size
        A window begins at each multiple of it; ``size`` must be a multiple.
    gap : timedelta > 0, optional
        In place of size: a session is a run of records each less than a gap after the one before, in event time.
        It ends a gap behind its last record, and is closed at the next multiple of an eighth of the gap.
    count : int >= 1, optional
        In place of size: records per window, in the order in which they come.
    allowed_lateness : timedelta >= 0, default 0
        How far a record may lag behind stream time: a window is closed when stream time less the delay reaches its end.
    max_ahead : timedelta > 0, optional
        A record further ahead of stream time goes to the errors stream and does not move it: a clock that is wrong
        then closes no windows. It must be longer than any gap of the whole stream. None: any time is believed.
    aggregates : dict of str to tuple, default {"count": ("count", None)}
        By output field ``(function, field, option …)``, see below.
    emit : "final" or "update", default "final"
        A result when a window is closed, or for each record one of every window that it falls into, as it then stands.
    partial : bool, default False
        Whether the end of a bounded stream gives windows by count that are not full. Windows of time it always closes.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; a ttl is for windows by count: of time nothing is left of a key
        when its windows are closed.

    Aggregates
    ----------
    ====================================  ============================================================================
    ``("count", None)``                   records; with a field: values that are there
    ``("sum", f)``, ``("mean", f)``       compensated sums
    ``("min", f)``, ``("max", f)``
    ``("first", f)``, ``("last", f)``     the value of the smallest and the largest event time, of equal ones the first
                                          and the last that came; by count in order of arrival
    ``("std", f, otherwise)``             sample standard deviation; below two values ``otherwise`` (null)
    ``("quantile", f, q, accuracy)``      ``q`` in [0, 1]; within ``accuracy`` (relative, default 0.01) of the value of
                                          rank ``floor(q (n - 1))``, for sizes from 1e-6 to 1e9 (smaller ones are 0)
    ``("distinct", f, precision)``        number of distinct values, HyperLogLog with ``2^precision`` registers (10),
                                          standard error ``1.04 / sqrt(2^precision)``
    ``("unique", f)``                     number of distinct values, exact: it keeps a hash of 64 bits of each
    ``("matches", f, relation, x)``       number of values to which ``== x`` applies (or ``!= < <= > >=``); with ``&``
                                          those that have bits of ``x``
    ``("share", f, relation, x)``         the same as a share of the values
    ``("duration", f)``                   seconds from the first to the last event time of a value (``None``: a record)
    ``("mean_gap", f, otherwise)``        mean of the seconds between a value and the one that came before it (or, with
                                          ``None``, records); below two values ``otherwise`` (null)
    ``("std_gap", f, otherwise)``         sample standard deviation of these, below three values ``otherwise`` (null)
    ``("top", f, k)``                     the k most frequent values with their numbers, exact; equal ones by value
    ``(Aggregate(…), f)``                 one of your own, see :class:`Aggregate`
    ====================================  ============================================================================

    Shapes and rates
    ----------------
    record[n] -> record[m], N:M. O(1) time per record and O(size / every) per result; a record is added to one pane of
    length ``every``. State per key: what the aggregates need, times ``size / every + ceil(delay / every)`` panes, or
    ``ceil(delay / gap) + 3`` sessions.

    A result has the key, ``window_start``, ``window_end`` and the aggregates. Its ``event_time`` is the microsecond
    before the window's end (of a session: of the multiple at which it was closed), its ``seq`` the message that
    moved stream time there, see :mod:`riot_ops.core.order`. By count it has the number and time of the record that
    filled it, and starts and ends at the first and the last event time in it.

    The results are the same however the stream is cut, to the last bit: the records of a key are added one by one in
    their order, and panes merged from the earliest on.

    Missing values
    --------------
    A null or NaN value is skipped by the aggregates of its field. A window without any value gives null; one without
    records gives nothing.

    Errors
    ------
    In windows of time a record without event time goes to the errors stream as ``no_event_time``, one of which all
    windows are closed as ``late``, one beyond ``max_ahead`` as ``from_the_future``; an infinite number as
    ``not_finite``.

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

    size: timedelta | None = None
    every: timedelta | None = None
    gap: timedelta | None = None
    count: Count | None = None
    allowed_lateness: timedelta = ZERO
    max_ahead: timedelta | None = None
    aggregates: Any = field(default_factory=lambda: {"count": ("count", None)})
    emit: Literal["final", "update"] = "final"
    partial: bool = False

    def validate(self) -> None:
        given = [name for name in ("size", "gap", "count") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfigError(f"Window takes one of size, gap and count, got {' and '.join(given) or 'none of them'}")
        for name in ("size", "every", "gap", "max_ahead"):
            value = getattr(self, name)
            if value is not None and value <= ZERO:
                raise ConfigError(f"{name} must be longer than 0, got {value!r}")
        if self.allowed_lateness < ZERO:
            raise ConfigError(f"allowed_lateness must not be negative, got {self.allowed_lateness!r}")
        if self.every is not None and self.size is None:
            raise ConfigError(f"every = {self.every!r} is for windows of a size")
        if self.every is not None and self.size is not None and self.size % self.every:
            raise ConfigError(f"size must be a multiple of every, got {self.size!r} and {self.every!r}")
        if self.partial and self.count is None:
            raise ConfigError("partial is for windows by count: windows of time are closed at the end of a stream")
        for name in ("allowed_lateness", "max_ahead"):
            if self.count is not None and getattr(self, name):
                raise ConfigError(f"{name} = {getattr(self, name)!r} is for windows of time, not by count")
        if self.ttl is not None and self.count is None:
            raise ConfigError(f"ttl = {self.ttl!r} is for windows by count; of time nothing is left of a closed window")
        if not isinstance(self.aggregates, Mapping) or not self.aggregates:
            raise ConfigError(f"aggregates must be a dict of field to (function, field), got {self.aggregates!r}")
        object.__setattr__(
            self,
            "aggregates",
            {name: tuple(one) if isinstance(one, list) else one for name, one in self.aggregates.items()},
        )
        taken = {"seq", "event_time", "window_start", "window_end", *self.by}
        for name in self.aggregates:
            if not isinstance(name, str) or not name or name in taken or ordinals([name]):
                raise ConfigError(
                    f"aggregates: {name!r} cannot be the name of a result: {', '.join(sorted(taken))} are there"
                )
        timed = [name for name, one in self.readings().items() if one.timed]
        if timed and self.count is not None:
            raise ConfigError(f"aggregates: {timed[0]!r} is about times of records, for windows of time, not by count")
        if self.windows.room > MOST_OPEN:
            raise ConfigError(
                f"size, every, gap and delay keep {self.windows.room:,} windows of a key open; at most {MOST_OPEN:,} "
                "are allowed"
            )

    def readings(self, schema: pa.Schema | None = None) -> dict[str, Reading]:
        """The aggregates, by output field."""
        return {name: reading(name, one, schema) for name, one in self.aggregates.items()}

    @functools.cached_property
    def windows(self) -> Windows:
        """How records fall into windows."""
        stats = stats_of(self.readings().values())
        update = self.emit == "update"
        if self.count is not None:
            return CountWindows(stats, update, self.count)
        if self.gap is not None:
            gap = in_us(self.gap)
            return SessionWindows(stats, update, gap, max(gap // 8, 1), in_us(self.allowed_lateness))
        assert self.size is not None
        every = in_us(self.every or self.size)
        return TimeWindows(stats, update, every, in_us(self.size) // every, in_us(self.allowed_lateness))

    def __hash__(self) -> int:
        return hash((self.size, self.every, self.gap, self.count, self.by, repr(self.aggregates)))

    # -- contract ----------------------------------------------------------------------------------

    def clock(self) -> Clock | None:
        if self.count is not None:
            return None
        period = (
            timedelta(microseconds=max(in_us(self.gap) // 8, 1)) if self.gap is not None else self.every or self.size
        )
        assert period is not None
        return Clock(period, self.allowed_lateness, self.max_ahead)

    def with_lateness(self, by: timedelta) -> Self:
        return self if self.count is not None else self.replace(allowed_lateness=self.allowed_lateness + by)

    @property
    def keys_live(self) -> timedelta | None:
        if self.count is not None:
            return self.ttl
        length = self.size or 2 * (self.gap or ZERO)
        return length + self.allowed_lateness + (self.every or self.size or self.gap or ZERO)

    def requires(self) -> Mapping[str, Requirement]:
        needs: dict[str, Requirement] = {} if self.count is not None else {"event_time": "any"}
        for name, one in self.readings().items():
            of = self.aggregates[name][1]
            if of is not None and needs.get(of) != "number":
                needs[of] = one.needs
        return {**super().requires(), **needs}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        timed = "event_time" in schema.names
        if timed:
            check_time_field(self.name(), schema)
        fields = [schema.field("seq")] if "seq" in schema.names else []
        out = pa.schema(fields)
        if fields:
            if self.emit == "final" and self.count is None:
                out = with_tick_places(out)
            else:
                names = ordinals(schema.names)
                names += [next_ordinal(schema.names)] if self.emit == "update" else []
                for name in names:
                    out = out.append(pa.field(name, pa.int64()))
        kind = self._time_type(schema)
        if timed:
            out = out.append(pa.field("event_time", kind))
        for name in self.by:
            if name not in out.names:
                out = out.append(schema.field(name))
        if timed:
            out = out.append(pa.field("window_start", kind)).append(pa.field("window_end", kind))
        for name, one in self.readings(schema).items():
            out = out.append(pa.field(name, one.kind))
        return out

    def _time_type(self, schema: pa.Schema) -> pa.DataType:
        kind = schema.field("event_time").type if "event_time" in schema.names else TIMESTAMP
        return kind if pa.types.is_timestamp(kind) else TIMESTAMP

    def expands(self) -> bool:
        return self.emit == "update"

    def writes(self) -> frozenset[str] | None:
        return frozenset({"event_time", "window_start", "window_end", *self.aggregates})

    def lookback(self) -> Lookback | None:
        if self.emit == "update" or self.gap is not None:
            return None  # a window that is not full, or one that may go on for ever
        if self.size is None:  # where a window begins depends on how many records came before
            return Lookback() if self.count == 1 else None
        return Lookback(span=self.size + self.allowed_lateness)

    def state_fields(self) -> Mapping[str, StateField]:
        windows = self.windows
        return {**windows.fields(), **cell_fields(windows.stats, windows.room)}

    def decode_state(self, table: pa.Table) -> pa.Table:
        """The windows (of time: panes; sessions) that are open, a list per key: where each begins, and its cells."""
        return self.windows.decoded(table)

    def validate_rows(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        for name, needed in self.requires().items():
            if needed != "number" or not pa.types.is_floating(batch.schema.field(name).type):
                continue
            infinite = np.isinf(float_column(batch.column(name))[0])
            if infinite.any():
                dead.reject(batch, infinite, "not_finite", f"{name} is infinite")
                batch = batch.filter(pa.array(~infinite))
        return batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, dead: DeadLetters
    ) -> pa.RecordBatch:
        assert isinstance(self.windows, CountWindows)
        return self.windows.run(self, batch, slots, state)

    def advance(
        self, batch: pa.RecordBatch | None, slots: npt.NDArray[np.int64], state: State, ticks: Ticks, dead: DeadLetters
    ) -> tuple[pa.RecordBatch | None, Due | None]:
        assert isinstance(self.windows, (TimeWindows, SessionWindows))
        bad = np.zeros(0 if batch is None else batch.num_rows, np.uint8)
        made, due = self.windows.run(self, batch, slots, state, ticks, bad)
        if batch is not None:
            for code, (reason, text) in _REASONS.items():
                dead.reject(batch, bad == code, reason, text)
        return made, due

    def flush(self, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        if not self.partial:
            return None
        assert isinstance(self.windows, CountWindows)
        return self.windows.left(self, keys, state)

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


_REASONS = {
    LATE: ("late", "all windows of its event time are closed"),
    UNTIMED: ("no_event_time", "a window of time needs an event time"),
    FUTURE: ("from_the_future", "its event time is too far ahead of stream time"),
}
