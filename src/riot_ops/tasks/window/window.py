"""Window aggregation: aggregates of the records of each key, over the windows of a frame."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, cast

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import ordinals
from riot_ops.core.parameters import MAX_DURATION, OWN_CHECK, Duration, as_timedelta, duration, plain_value
from riot_ops.task import Case, SketchTask, register
from riot_ops.tasks.window.windowing.assigner import TimeAssigner
from riot_ops.tasks.window.windowing.custom_stat import Aggregate
from riot_ops.tasks.window.windowing.stats import HashWords
from riot_ops.tasks.window.windowing.window_task import ZERO, WindowTask
from riot_ops.windows import Calendar, Count, Frame, Hopping, Session, Sliding, Tumbling, Unbounded, frame_from

__all__ = ["Aggregate", "Window"]

#: Maximum number of panes or sessions of a key that may be open at once.
MAX_OPEN_WINDOWS = 100_000
EMISSIONS = ("final", "each", "update")


@register
@dataclass(frozen=True, kw_only=True)
class Window(WindowTask, SketchTask):
    """Aggregate the records of each key over the windows of a frame.

    Parameters
    ----------
    frame : duration, int, frame of :mod:`riot_ops.windows` or None, default None
        Which records of a key belong together: :class:`~riot_ops.windows.Tumbling` windows (also as a duration such as
        "1min"), :class:`~riot_ops.windows.Hopping` ones, units of a local :class:`~riot_ops.windows.Calendar`, a
        :class:`~riot_ops.windows.Session`, a :class:`~riot_ops.windows.Count` of records (also as an int), the last
        ones at each record, :class:`~riot_ops.windows.Sliding`, or all records,
        :class:`~riot_ops.windows.Unbounded` (also as None).
    allowed_lateness : timedelta >= 0, default 0
        How far a record may lag behind stream time: a window is closed when stream time less this duration reaches its
        end.
    max_ahead : timedelta > 0, optional
        A record further ahead of stream time goes to the errors stream and does not advance it, so that a wrong clock
        closes no windows, unless :data:`~riot_ops.core.clock.AGREEING` records in a row agree (or as many as stream
        time has had so far). Stream time is set back in the same way; all windows are closed first. None: no limit.
    aggregates : dict of str to tuple or text, default {"count": "count"}
        By output field ``(field, function, option …)``, or the function alone for one of records, see below.
    emit : "final", "each", "update", duration or None, default None
        "final": emit a result when a window is closed; "each": at each record, the current result of every window that
        contains it; "update", for unbounded windows: only at the last record of each key in a (micro-)batch. A duration
        such as "10s": at its multiples of stream time (less ``allowed_lateness``, and counted from the origin of the
        frame). For tumbling, hopping and calendar windows these are the current results of open windows with records
        since the last multiple, besides the final ones; for sliding and unbounded windows the only ones, of each key
        with records since the last multiple (the window at the last one), as key, ``event_time`` and aggregates, and at
        the end of the stream. None: "each" for sliding and unbounded windows, which are never closed, "final" for
        others.
    secret : Secret or None, default None
        With ``distinct`` or ``unique``: keys their hash, so that no sender can choose values that raise the estimate or
        do not count. State continues only with the same secret. None: the hash is fixed, the same in every system.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; a ttl is for count windows: a key without open time windows has no
        state.

    Aggregates
    ----------
    ====================================  ============================================================================
    ``"count"``, ``(f, "count")``         records; with a field: non-missing values
    ``(f, "sum", empty)``                 of integers and booleans the exact integer, null where it does not fit
                                          (int64; uint64 for uint64); of other numbers a compensated sum in float64;
                                          of no values ``empty``: null, or 0
    ``(f, "mean")``                       in float64, from compensated sums
    ``(f, "fsum", empty)``                sum in float64 that is rounded once, like ``math.fsum``, whatever the order of
                                          the values; null where float64 cannot hold it; of no values like ``sum``
    ``(f, "fmean")``                      that sum divided by the number of values
    ``(f, "min")``, ``(f, "max")``        the value itself, with the type of its field (float64 for floating types);
                                          -0.0 counts as 0.0
    ``(f, "first")``, ``(f, "last")``     the same for the smallest and the largest event time, among equal times the
                                          first and the last to arrive; in count windows by order of arrival
    ``(f, "std", otherwise)``             sample standard deviation; below two values ``otherwise`` (null)
    ``(f, "var", ddof)``                  variance, the squares divided by ``n - ddof`` (1); null up to ``ddof`` values
    ``(f, "median")``                     the quantile 0.5
    ``(f, "quantile", q)``                ``q`` in [0, 1]; exact and linearly interpolated as in NumPy and pandas, up to
                                          100,000 values per window; beyond, as with an accuracy of 0.01
    ``(f, "quantile", q, accuracy)``      within ``accuracy`` (relative, from 0.001 to 0.5) of the value of rank
                                          ``floor(q (n - 1))``, from a sketch
    ``(f, "distinct", precision)``        number of distinct values, HyperLogLog with ``2^precision`` registers (10),
                                          standard error ``1.04 / sqrt(2^precision)``
    ``(f, "unique")``                     number of distinct values, exact: it keeps a 64-bit hash of each
    ``(f, "matches", relation, x)``       number of values with ``== x`` (or ``!= < <= > >=``); with ``&``: that share
                                          a bit with ``x``; whole numbers are compared exactly
    ``(f, "share", relation, x)``         share of the values that match
    ``(f, "duration")``                   seconds from the first to the last event time of a value
    ``(f, "mean_gap", otherwise)``        mean of the seconds from each value to the next one to arrive, negative where
                                          that is earlier; below two values ``otherwise`` (null)
    ``(f, "std_gap", otherwise)``         sample standard deviation of those, below three values ``otherwise`` (null)
    ``(f, "slope")``                      change per second of the least-squares line over event time
    ``(f, "intercept")``                  that line at the earliest event time; null like the slope where all are equal
    ``(f, "top", k, w)``                  the k most frequent values with their counts, exact; ties by value. With a
                                          field ``w``, those with the largest sums of it, called ``weight``
    ``(f, "weighted_mean", w)``           mean weighted by the field ``w``, in float64 from compensated sums, of the
                                          records that have both; null if the weights sum to 0, or a product overflows
    ``(f, "collect")``                    the values as a list, in their order of arrival (of panes where windows
                                          overlap, of sessions that merge); with the type of their field
    ``(f, "ewm", span, warmup)``          exponentially weighted mean, ``mean + 2 / (span + 1) (x - mean)``, after a
                                          number of values (0) with the plain mean; null at a missing value. Like the
                                          next two, only at each record of unbounded windows
    ``(f, "clipped_mean", n, s, whole)``  mean of the latest ``n`` values (30) without those more than ``s`` (2.0)
                                          standard deviations away, see :class:`ClippedAverage`
    ``(f, "clipped_count", n, s, …)``     their number
    ``(f, Aggregate(…))``                 a custom aggregate, see :class:`Aggregate`
    ====================================  ============================================================================

    ``"duration"``, ``"mean_gap"`` and ``"std_gap"`` alone measure records; with an option they have None in place of
    the field: ``(None, "mean_gap", 0.0)``.

    ``min``, ``max``, ``first`` and ``last`` take numbers, booleans and times; ``sum``, ``matches`` and ``share``
    take numbers and booleans. All refuse decimals, whose digits float64 would lose. ``mean``, ``std`` and
    ``quantile`` compute in float64, and take decimals as well.

    Shapes and rates
    ----------------
    record[n] -> record[m], N:M. O(1) time per record and O(size / every) per result of a hopping window, as a record is
    added to one pane of length ``every``. State per key: the cells of the aggregates (a number or two each; for
    ``unique`` 8 bytes and for ``top`` an entry per distinct value, for ``quantile`` 8 bytes per value, or an entry per
    bin in use), times
    ``size / every + ceil(allowed_lateness / every)`` panes, or ``ceil(allowed_lateness / gap) + 3`` sessions.

    Sliding and unbounded windows give each record with its own fields and the aggregates, and have one state per key,
    which stays until its ``ttl``. A sliding window keeps the cells of each of its records; a record is merged a few
    times, whatever the size. Counts, sums, means, extremes, first and last values, variances, weighted means, matches
    and shares are in rings that stay where they are; with another aggregate beside them, the cells of a window are read
    once per key and (micro-)batch.

    Elsewhere a result has the key, ``window_start``, ``window_end`` and the aggregates. Its ``event_time`` is the
    microsecond before the window's end (for a session: before the multiple at which it was closed; for a current
    result: before the multiple of the duration), its ``seq`` the
    message that advanced stream time, see :mod:`riot_ops.core.order`. A count window has ``seq`` and event time of the
    record that filled it, and starts and ends at its first and last event time.

    The results are the same to the last bit however the stream is cut: the records of a key are added one by one in
    their order, and panes are merged from the earliest on.

    Missing values
    --------------
    The aggregates of a field skip its null and NaN values. Of no values, a number of values is 0, a list is empty, and
    every other aggregate is null; a window without records emits nothing.

    Errors
    ------
    In windows of time, a record without event time goes to the errors stream as ``no_event_time``, a record whose
    windows are all closed as ``late``, a record beyond ``max_ahead`` as ``from_the_future``, and one of whose windows
    begins or ends beyond the years 1 to 9999 (or what nanoseconds hold) as ``out_of_range``; in all windows an infinite
    number as ``not_finite``. Sliding windows of time take the records of a key in order: one before an earlier one is
    ``late``. Where ``std`` or ``var`` is emitted at each record of unbounded windows, a value whose squared distance
    from the mean overflows is an error, ``overflow``; elsewhere they are infinite then.

    References
    ----------
    .. [1] T. Akidau et al., *The Dataflow Model*, VLDB 2015.
    .. [2] J. Li et al., *No Pane, No Gain*, SIGMOD Record 34, 2005.
    .. [3] C. Masson, J. Rim, H. Lee, *DDSketch*, VLDB 2019 (quantiles).

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> minutes = Window(by="device", frame="1min", aggregates={"mean": ("value", "mean"), "n": "count"})
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
    version: ClassVar[int] = 9

    frame: Annotated[Frame | Duration | int | Mapping[str, Any] | None, OWN_CHECK] = None
    allowed_lateness: Duration = ZERO
    max_ahead: Duration | None = None
    aggregates: Annotated[Mapping[str, str | Sequence[Any]], OWN_CHECK] = field(
        default_factory=lambda: {"count": "count"}
    )
    emit: Annotated[Literal["each", "final", "update"] | Duration | None, OWN_CHECK] = None

    def validate(self) -> None:
        object.__setattr__(self, "frame", frame_from(self.frame))
        self._check_emit()
        if self.max_ahead is not None and as_timedelta(self.max_ahead) <= ZERO:
            raise ConfigError(f"max_ahead must be longer than 0, got {self.max_ahead!r}")
        if as_timedelta(self.allowed_lateness) < ZERO:
            raise ConfigError(f"allowed_lateness must not be negative, got {self.allowed_lateness!r}")
        self._check_aggregates()
        timed = isinstance(self.assigner, TimeAssigner)
        for name in ("ttl",) if timed else ("allowed_lateness", "max_ahead"):
            if getattr(self, name):
                kind = "windows of time, which leave no state when they are closed" if timed else "windows by arrival"
                raise ConfigError(f"{name} = {getattr(self, name)!r} is not for {kind}")
        unplaced = [name for name, one in self.bound_aggregates().items() if one.timed]
        if unplaced and not self.timed:
            raise ConfigError(f"aggregates: {unplaced[0]!r} measures event times, not for windows by arrival")
        if isinstance(self.frame, Unbounded) and self.emit == "each":
            self._check_running()
        else:
            ordered = [name for name, one in self.bound_aggregates().items() if one.ordered]
            if ordered:
                raise ConfigError(
                    f"aggregates: {ordered[0]!r} = {self.aggregates[ordered[0]]!r} needs frame = None and emit = 'each'"
                )
        if self.secret is not None and not any(stat.hashes for stat in self.assigner.stats):
            raise ConfigError("Window: secret needs an aggregate that hashes values, 'distinct' or 'unique'")
        if timed and self.assigner.room > MAX_OPEN_WINDOWS:
            raise ConfigError(
                f"frame = {self.frame!r} and allowed_lateness = {self.allowed_lateness!r} keep {self.assigner.room:,} "
                f"windows of a key open; the maximum is {MAX_OPEN_WINDOWS:,}"
            )

    def _check_emit(self) -> None:
        running, sliding = isinstance(self.frame, Unbounded), isinstance(self.frame, Sliding)
        emit = ("each" if running or sliding else "final") if self.emit is None else self.emit
        words = ("each", "update") if running else ("each",) if sliding else ("final", "each")
        at_multiples = running or sliding or isinstance(self.frame, (Tumbling, Hopping, Calendar))
        if at_multiples and isinstance(emit, str) and emit not in EMISSIONS:
            with contextlib.suppress(ConfigError):  # refused below, with what is allowed
                emit = duration(emit)
        object.__setattr__(self, "emit", emit)
        if isinstance(emit, timedelta) and emit > MAX_DURATION:
            raise ConfigError(f"emit must be at most {MAX_DURATION.days:,} days (10,000 years), got {emit!r}")
        if emit not in words and not (at_multiples and isinstance(emit, timedelta) and emit > ZERO):
            raise ConfigError(
                f"emit = {self.emit!r} is not for frame = {self.frame!r}; "
                f"it has {' or '.join(map(repr, words))}{' or a duration longer than 0' if at_multiples else ''}"
            )

    def _check_running(self) -> None:
        for name, one in self.bound_aggregates().items():
            if not all(stat.runs for stat in one.stats):
                raise ConfigError(
                    f"aggregates: {name!r} = {self.aggregates[name]!r} cannot be emitted at each record; with "
                    "emit = 'update' it is, at the last record of each key in a batch"
                )

    def _check_aggregates(self) -> None:
        if not isinstance(self.aggregates, Mapping) or not self.aggregates:
            raise ConfigError(f"aggregates must be a dict of field to (field, function), got {self.aggregates!r}")
        object.__setattr__(
            self,
            "aggregates",
            {
                name: tuple(map(plain_value, one)) if isinstance(one, list | tuple) else one
                for name, one in self.aggregates.items()
            },
        )
        own: dict[Any, Aggregate] = {}
        for spec in self.aggregates.values():
            if isinstance(spec, tuple) and len(spec) > 1 and isinstance(spec[1], Aggregate):
                named = spec[1]
                if own.setdefault((spec[0], named.name), named) != named:
                    raise ConfigError(f"aggregates: {spec[0]!r} has two Aggregates named {named.name!r} that differ")
        edges = {"window_start", "window_end"}
        if not isinstance(self.frame, (Sliding, Unbounded)) and (twice := edges & {*self.by}):
            raise ConfigError(
                f"by must not name {min(twice)!r}, which results of frame = {self.frame!r} have of their own; rename "
                "that field before"
            )
        reserved = {"seq", "event_time", *edges, *self.by}
        for name in self.aggregates:
            if not isinstance(name, str) or not name or name in reserved or ordinals([name]):
                raise ConfigError(
                    f"aggregates: {name!r} cannot be the name of a result; reserved are {', '.join(sorted(reserved))}"
                )

    def __hash__(self) -> int:
        return hash((self.frame, self.by, repr(self.aggregates)))

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"frame": cast("Frame", self.frame).to_dict()}

    @property
    def hash_words(self) -> HashWords:
        return self.hash_key.words

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
            "n": "count",
            "values": ("value", "count"),
            "texts": ("text", "count"),
            **{name: ("value", name) for name in ("sum", "mean", "min", "max", "first", "last", "std", "var")},
            "median": ("value", "quantile", 0.5),
            "kinds": ("text", "distinct", 6),
            "best": ("text", "top", 2),
            "heavy": ("text", "top", 2, "value"),
            "weighted": ("value", "weighted_mean", "value"),
            "all": ("text", "collect"),
            "unique": ("text", "unique"),
            "above": ("value", "matches", ">", 3),
            "odd": ("value", "share", "&", 1),
        }
        timed = every | {
            "duration": "duration",
            "mean_gap": ("value", "mean_gap", 0.0),
            "slope": ("value", "slope"),
            "intercept": ("value", "intercept"),
            "std_gap": "std_gap",
        }
        five = timedelta(seconds=5)
        yield Case(cls(frame=five, by=("key",), aggregates=timed), batch, "tumbling")
        yield Case(
            cls(frame=Hopping(3 * five, five), allowed_lateness=five, by=("key",), aggregates=timed), batch, "hopping"
        )
        yield Case(
            cls(frame=Session(five), allowed_lateness=2 * five, by=("key",), aggregates=timed), batch, "sessions"
        )
        sums = {"n": "count", "sum": ("value", "sum"), "exact": ("value", "fmean")}
        yield Case(cls(frame=Calendar("day", "Pacific/Apia"), by=("key",), aggregates=sums), batch, "local days")
        running = {name: every[name] for name in RUNNING} | {"whole": ("seq", "sum"), "exact": ("seq", "fsum")}
        yield Case(cls(by=("key",), aggregates=running), batch, "running")
        yield Case(cls(by=("key",), aggregates=sums, emit="10s"), batch, "every ten seconds")
        latest = {name: every[name] for name in (*RUNNING, "weighted")}
        yield Case(cls(frame=Sliding(2, full=True), by=("key",), aggregates=latest), batch, "the last two")
        yield Case(cls(frame=Sliding(2 * five), by=("key",), aggregates=timed), batch, "the last ten seconds")
        yield Case(cls(frame=Sliding(13 * five), aggregates=latest, emit="10s"), batch, "the last minute")
        yield Case(cls(frame=Session(five), max_ahead=timedelta(seconds=25)), batch, "guarded")
        yield Case(cls(frame=Count(2, partial=True), by=("key",), aggregates=every), batch, "by count")
        yield Case(cls(frame=Hopping(2 * five, five), emit="each", by=("key",), aggregates=timed), batch, "updates")


RUNNING = ("n", "values", "texts", "sum", "mean", "min", "max", "first", "last", "std", "var", "above", "odd")
