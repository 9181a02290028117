"""Frames: which records of a key belong to one window of :class:`~riot_ops.tasks.Window`.

>>> from riot_ops import windows as w
>>> w.Sliding("1min")
Sliding(size=datetime.timedelta(seconds=60), full=False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.parameters import (
    Duration,
    Length,
    as_timedelta,
    check_parameters,
    parameters_from_json,
    parameters_to_json,
    plain_value,
    snake_case,
)
from riot_ops.kernels.stats.local_calendar import check_zone

__all__ = ["Calendar", "Count", "Frame", "Hopping", "Session", "Sliding", "Tumbling", "Unbounded", "frame_from"]

ZERO = timedelta(0)
#: A number of records, at least one.
Records = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
#: From where windows are counted.
Origin = Literal["epoch", "first"]


@dataclass(frozen=True)
class Frame:
    """Base of frames: frozen parameters, checked at construction.

    Examples
    --------
    >>> from riot_ops import windows as w
    >>> isinstance(w.Tumbling("1min"), w.Frame)
    True
    >>> w.frame_from({"kind": "count", "size": 10})
    Count(size=10, partial=False)
    >>> w.Tumbling("1min").to_dict()
    {'kind': 'tumbling', 'size': 'PT60S'}
    """

    def __post_init__(self) -> None:
        check_parameters(self)
        self.validate()

    def validate(self) -> None:
        """Raise :class:`ConfigError` if a parameter is out of its range."""

    def to_dict(self) -> dict[str, Any]:
        """Describe the frame as JSON-able data: its kind, and the parameters that are not the default.

        >>> Tumbling("1d", offset="6h").to_dict()
        {'kind': 'tumbling', 'size': 'P1D', 'offset': 'PT21600S'}
        """
        kind = snake_case(type(self).__name__)
        usual = {f.name: f.default for f in fields(self)}
        data = parameters_to_json(self, kind)
        return {"kind": kind} | {name: one for name, one in data.items() if getattr(self, name) != usual[name]}

    def _check_positive(self, name: str) -> None:
        if getattr(self, name) <= ZERO:
            raise ConfigError(f"{type(self).__name__}: {name} must be longer than 0, got {getattr(self, name)!r}")

    def _check_offset(self, offset: timedelta, name: str, step: timedelta, origin: Origin) -> None:
        if origin == "first" and offset:
            raise ConfigError(f"{type(self).__name__}: offset = {offset!r} is not for origin = 'first'")
        if not ZERO <= offset < step:
            raise ConfigError(
                f"{type(self).__name__}: offset must be at least 0 and less than {name} = {step!r}, got {offset!r}"
            )


@dataclass(frozen=True)
class Tumbling(Frame):
    """Windows of one length, one after the other: ``[k size + offset, (k + 1) size + offset)`` from the origin on.

    Parameters
    ----------
    size : timedelta > 0 or text such as "1min"
        Length of a window.
    offset : timedelta >= 0, default 0
        Where windows begin, less than ``size``: days from six to six have ``Tumbling("1d", offset="6h")``.
    origin : "epoch" or "first", default "epoch"
        From where windows are counted: the begin of 1970 in UTC, or the first event time of the stream, which all keys
        share and which has no ``offset``. Earlier records belong to windows before it.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from riot_ops import tasks as t
    >>> from riot_ops import windows as w
    >>> live = t.Window(frame=w.Tumbling("10min"), aggregates={"n": "count"}).session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> found = live.push_many({"event_time": noon + timedelta(minutes=m)} for m in (0, 3, 9, 10, 25))
    >>> [(f"{row['window_start']:%H:%M}", row["n"]) for row in [*found, *live.flush()]]
    [('12:00', 3), ('12:10', 1), ('12:20', 1)]
    """

    size: Duration
    offset: Duration = ZERO
    origin: Origin = "epoch"

    def validate(self) -> None:
        self._check_positive("size")
        self._check_offset(as_timedelta(self.offset), "size", as_timedelta(self.size), self.origin)


@dataclass(frozen=True)
class Hopping(Frame):
    """Windows that overlap: ``[k every + offset, k every + offset + size)`` from the origin on.

    Parameters
    ----------
    size : timedelta > 0 or text such as "1min"
        Length of a window, a multiple of ``every``.
    every : timedelta > 0
        Step from the begin of a window to the begin of the next one.
    offset : timedelta >= 0, default 0
        Where windows begin, less than ``every``.
    origin : "epoch" or "first", default "epoch"
        From where windows are counted, see :class:`Tumbling`.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from riot_ops import tasks as t
    >>> from riot_ops import windows as w
    >>> live = t.Window(frame=w.Hopping("10min", every="5min"), aggregates={"n": "count"}).session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> found = live.push_many({"event_time": noon + timedelta(minutes=m)} for m in (0, 3, 7, 16))
    >>> [(f"{row['window_start']:%H:%M}", row["n"]) for row in [*found, *live.flush()]]
    [('11:55', 2), ('12:00', 3), ('12:05', 1), ('12:10', 1), ('12:15', 1)]
    """

    size: Duration
    every: Duration
    offset: Duration = ZERO
    origin: Origin = "epoch"

    def validate(self) -> None:
        self._check_positive("size")
        self._check_positive("every")
        if as_timedelta(self.size) % as_timedelta(self.every):
            raise ConfigError(f"Hopping: size must be a multiple of every, got {self.size!r} and {self.every!r}")
        self._check_offset(as_timedelta(self.offset), "every", as_timedelta(self.every), self.origin)


@dataclass(frozen=True)
class Calendar(Frame):
    """Hours, days, weeks, months, quarters or years of local time.

    A day has 23, 24 or 25 hours. It begins at midnight: the first one where clocks go back over it, the end of the gap
    where clocks skip it; a day that a zone has skipped has no window. Weeks begin on Monday. An hour that clocks repeat
    is two windows. Before zones agreed on whole quarters of an hour from UTC, a window closes at the next quarter.

    Parameters
    ----------
    unit : "hour", "day", "week", "month", "quarter" or "year"
        One unit is one window.
    tz : str, default "UTC"
        Name of the time zone in the IANA database, such as "Europe/Berlin".

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from riot_ops import tasks as t
    >>> from riot_ops import windows as w
    >>> live = t.Window(frame=w.Calendar("day", tz="Europe/Berlin"), aggregates={"n": "count"}).session()
    >>> begin = datetime(2024, 3, 30, tzinfo=UTC)
    >>> found = live.push_many({"event_time": begin + timedelta(hours=h)} for h in range(72))
    >>> [row["n"] for row in [*found, *live.flush()]]
    [23, 23, 24, 2]
    """

    unit: Literal["hour", "day", "week", "month", "quarter", "year"]
    tz: str = "UTC"

    def validate(self) -> None:
        check_zone("Calendar: tz", self.tz)


@dataclass(frozen=True)
class Session(Frame):
    """Runs of records, each less than a gap of event time after the previous one.

    A session ends a gap after its last record, and is closed at the next multiple of an eighth of the gap. A record
    between two open sessions makes them one; a record before the end of a closed one is late, so that sessions of a
    key never overlap.

    Parameters
    ----------
    gap : timedelta > 0 or text such as "30s"
        Distance at which a new session begins.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from riot_ops import tasks as t
    >>> from riot_ops import windows as w
    >>> live = t.Window(frame=w.Session("5min"), aggregates={"n": "count"}).session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> found = live.push_many({"event_time": noon + timedelta(minutes=m)} for m in (0, 3, 20, 21, 40))
    >>> [row["n"] for row in [*found, *live.flush()]]
    [2, 2, 1]
    """

    gap: Duration

    def validate(self) -> None:
        self._check_positive("gap")


@dataclass(frozen=True)
class Count(Frame):
    """Windows of a fixed number of records, one after the other, in order of arrival.

    Parameters
    ----------
    size : int >= 1
        Records per window.
    partial : bool, default False
        Whether the end of a bounded stream emits windows that are not full.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from riot_ops import tasks as t
    >>> from riot_ops import windows as w
    >>> live = t.Window(frame=w.Count(2, partial=True), aggregates={"n": "count"}).session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> found = live.push_many({"event_time": noon + timedelta(minutes=m)} for m in (0, 3, 20, 21, 40))
    >>> [row["n"] for row in [*found, *live.flush()]]
    [2, 2, 1]
    """

    size: Records
    partial: bool = False


@dataclass(frozen=True)
class Sliding(Frame):
    """At each record a window that ends with it: the last records of the key, or those less than a duration before.

    Parameters
    ----------
    size : int >= 1 or timedelta > 0
        Number of records, at most 1,048,576; or length in event time (also as a text such as "1h"): a record of time
        t is in the windows that end before ``t + size``.
    full : bool, default False
        Whether only full windows have results: of that many records, or a duration after the key's first record.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from riot_ops import tasks as t
    >>> from riot_ops import windows as w
    >>> live = t.Window(frame=w.Sliding("10min"), aggregates={"n": "count"}).session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> found = live.push_many({"event_time": noon + timedelta(minutes=m)} for m in (0, 3, 9, 10, 25))
    >>> [row["n"] for row in [*found, *live.flush()]]
    [1, 2, 3, 3, 1]
    """

    size: Length | Duration
    full: bool = False

    def validate(self) -> None:
        if not isinstance(self.size, int):
            self._check_positive("size")


@dataclass(frozen=True)
class Unbounded(Frame):
    """All records of a key so far; the frame None stands for it.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from riot_ops import tasks as t
    >>> from riot_ops import windows as w
    >>> live = t.Window(frame=w.Unbounded(), aggregates={"n": "count"}).session()
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> found = live.push_many({"event_time": noon + timedelta(minutes=m)} for m in (0, 3, 20))
    >>> [row["n"] for row in [*found, *live.flush()]]
    [1, 2, 3]
    """


_FRAMES: tuple[type[Frame], ...] = (Tumbling, Hopping, Calendar, Session, Count, Sliding, Unbounded)
_KINDS = {snake_case(kind.__name__): kind for kind in _FRAMES}


def frame_from(value: Any) -> Frame:
    """Return the frame that a value stands for.

    A duration stands for :class:`Tumbling`, a number of records for :class:`Count`, None for :class:`Unbounded`; what
    :meth:`Frame.to_dict` has written is read.

    >>> frame_from("1min") == Tumbling("1min"), frame_from(10)
    (True, Count(size=10, partial=False))
    """
    value = plain_value(value)
    if isinstance(value, Frame):
        return value
    if value is None:
        return Unbounded()
    if isinstance(value, (str, timedelta)):
        return Tumbling(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Count(value)
    if isinstance(value, Mapping) and "kind" in value:
        data = dict(value)
        name = data.pop("kind")
        if name not in _KINDS:
            raise ConfigError(f"unknown frame {name!r}; frames are {', '.join(_KINDS)}{did_you_mean(name, _KINDS)}")
        try:
            return _KINDS[name](**parameters_from_json(_KINDS[name], name, data))
        except TypeError as error:  # a parameter is missing
            raise ConfigError(f"frame {name}: {error}") from None
    raise ConfigError(
        f"frame must be a duration such as '1min', a number of records, or one of "
        f"{', '.join(f'windows.{kind.__name__}' for kind in _KINDS.values())}, got {value!r}"
    )
