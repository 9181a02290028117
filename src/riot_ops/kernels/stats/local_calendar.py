"""Bounds of the hours, days, weeks, months, quarters and years of local time, in microseconds of UTC.

A unit begins at the first instant whose local time is not before its first moment: at midnight, the first of two where
clocks go back over it, or the end of the gap where it does not exist. An hour begins at each full hour of the clock,
twice where clocks repeat it. So units follow one another without gaps, and one that is skipped is empty.

Units have numbers that increase with time. Bounds are computed by year when they are first needed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.kernels.jit import kernel

__all__ = ["BEYOND", "UNITS", "LocalCalendar", "check_zone", "local_calendar"]

Numbers = npt.NDArray[np.int64]

UNITS = ("hour", "day", "week", "month", "quarter", "year")
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (also as local time)
EPOCH_DAY = EPOCH.toordinal()
MICROSECOND, HOUR, DAY = timedelta(microseconds=1), 3_600_000_000, 86_400_000_000
#: Number of a unit after all others; with a minus sign, before them.
BEYOND = 1 << 61
MIN_YEAR, MAX_YEAR = 1, 9999
#: Longest possible distance of local time from UTC.
ZONE_DAYS = 2
FIRST_US = (date.min.toordinal() - EPOCH_DAY) * DAY
LAST_US = (date.max.toordinal() + 1 - EPOCH_DAY) * DAY


@kernel
def number_times(times: Any, starts: Any, numbers: Any, out: Any) -> Any:
    """Write the number of the unit of each time; ``starts`` are sorted."""
    low = high = 0
    number = 0
    for i in range(times.size):
        t = times[i]
        if t < low or t >= high:
            at = np.searchsorted(starts, t, side="right")
            low = starts[at - 1] if at > 0 else t
            high = starts[at] if at < starts.size else t + 1
            number = numbers[at - 1] if at > 0 else numbers[0] - 1
        out[i] = number


class LocalCalendar:
    """The units of one kind in one time zone.

    >>> days = LocalCalendar("day", "Europe/Berlin")
    >>> begin, end = days.bounds(days.numbers(np.array([1_711_846_800_000_000])))  # 2024-03-31: clocks go forward
    >>> int(end[0] - begin[0]) // 3_600_000_000
    23
    """

    def __init__(self, unit: str, tz: str) -> None:
        from zoneinfo import ZoneInfo

        self.unit = unit
        self._zone = ZoneInfo(tz)
        self._years: dict[int, Numbers] = {}
        self._tables: dict[tuple[int, ...], tuple[Numbers, Numbers]] = {}

    def numbers(self, times: Numbers) -> Numbers:
        """Return the number of the unit of each time; :data:`BEYOND` (or its negative) beyond the years 1 to 9999."""
        if not times.size:
            return times
        low, high = FIRST_US - ZONE_DAYS * DAY, LAST_US + ZONE_DAYS * DAY
        within = (times >= low) & (times < high)
        if within.all():
            return self._within(times)
        out = np.where(times < low, -BEYOND, BEYOND)
        if within.any():
            out[within] = self._within(times[within])
        return out

    def bounds(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return the begin and the end of units."""
        if not numbers.size:
            return numbers, numbers
        starts, known = self._table(self._year(int(number)) for number in np.unique(numbers))
        at = np.searchsorted(known, numbers)
        return starts[at], starts[at + 1]

    def starts(self, times: Numbers) -> Numbers:
        """Return the begin of the unit of each time in the years 1 to 9999; where it is earlier, a time before them."""
        if not times.size:
            return times
        starts, _ = self._table(_years(times))
        at = np.searchsorted(starts, times, side="right") - 1
        return np.where(at < 0, FIRST_US - 1, starts[at])

    def range(self, low: int, high: int) -> tuple[int, int]:
        """Return the first unit that begins at ``low`` or later, and the last one that ends at ``high`` or earlier."""
        starts, numbers = self._table(_years(np.array([low, high])))
        first, last = np.searchsorted(starts, low), np.searchsorted(starts, high, side="right") - 2
        return int(numbers[first]), int(numbers[last])

    def _within(self, times: Numbers) -> Numbers:
        starts, numbers = self._table(_years(times))
        out = np.empty(times.size, np.int64)
        number_times(times, starts, numbers, out)
        return out

    def _year(self, number: int) -> int:
        """Return a year near a unit."""
        if self.unit in ("month", "quarter", "year"):
            return number // {"month": 12, "quarter": 4, "year": 1}[self.unit]
        days = {"hour": number // 48, "day": number - EPOCH_DAY, "week": 7 * number + 1 - EPOCH_DAY}[self.unit]
        return int(np.datetime64(days, "D").astype("datetime64[Y]").astype(int)) + 1970

    def _table(self, near: Iterable[int]) -> tuple[Numbers, Numbers]:
        """Return the starts and the numbers of the units of some years and their neighbours."""
        years = sorted({min(max(y + d, MIN_YEAR), MAX_YEAR) for y in near for d in (-1, 0, 1)})
        key = tuple(years)
        if key not in self._tables:
            if len(self._tables) >= MAX_TABLES:
                self._tables.clear()
            parts = [self._units(year) for year in years]
            if years[-1] == MAX_YEAR:
                parts.append(np.array([[LAST_US - self._offset(LAST_US - 1, 1)], [_number(self.unit, MAX_YEAR + 1)]]))
            starts, numbers = np.concatenate(parts, axis=1)
            order = np.lexsort((numbers, starts))
            starts, numbers = starts[order], numbers[order]
            last = np.append(starts[1:] != starts[:-1], True)  # a unit that local time skips is empty
            starts, numbers = starts[last], numbers[last]
            if self.unit == "hour":  # at most two begin within an hour of UTC
                hours = starts // HOUR
                numbers = 2 * hours + np.append(False, hours[1:] == hours[:-1])
            self._tables[key] = starts, numbers
        return self._tables[key]

    def _units(self, year: int) -> Numbers:
        """Return the starts and the numbers of the units that begin in a year of local time; of hours, no numbers."""
        found = self._years.get(year)
        if found is None:
            if self.unit == "hour":
                starts = self._hours(year)
                found = np.array([starts, [0] * len(starts)], np.int64)
            else:
                found = np.array([(self._start(at), number) for at, number in _moments(self.unit, year)], np.int64).T
            self._years[year] = found
        return found

    def _hours(self, year: int) -> list[int]:
        days = [at for at, _ in _moments("day", year)]
        days.append(days[-1] + DAY)
        edges = [self._start(at) for at in days]
        starts = []
        for midnight, begin, end in zip(days, edges, edges[1:], strict=False):
            if end - begin == DAY and begin == midnight - self._offset(midnight, 0):
                starts += [begin + i * HOUR for i in range(24)]
                continue
            for at in range(midnight, midnight + DAY, HOUR):
                starts.append(self._start(at))
                second = self._offset(at, 1)
                if second < self._offset(at, 0):  # the clock shows it twice
                    starts.append(at - second)
        return starts

    def _start(self, at: int) -> int:
        """Return the first instant whose local time is ``at`` or later."""
        before, after = self._offset(at, 0), self._offset(at, 1)
        if after <= before:
            return at - before
        low, high = at - after, at - before  # local time skips ``at``: the instant when the offset changes
        while high - low > 1:
            middle = (low + high) // 2
            utc = (EPOCH + timedelta(microseconds=middle)).replace(tzinfo=self._zone)
            if _microseconds(self._zone.fromutc(utc).utcoffset()) >= after:
                high = middle
            else:
                low = middle
        return high

    def _offset(self, at: int, fold: int) -> int:
        """Return local time less UTC where clocks show ``at``."""
        at = min(max(at, FIRST_US), LAST_US - 1)
        return _microseconds(self._zone.utcoffset((EPOCH + timedelta(microseconds=at)).replace(fold=fold)))


#: Tables that a calendar keeps.
MAX_TABLES = 64


@functools.lru_cache(maxsize=32)
def local_calendar(unit: str, tz: str) -> LocalCalendar:
    """Return the calendar of a unit and a zone, one for all tasks."""
    return LocalCalendar(unit, tz)


def check_zone(what: str, tz: str) -> None:
    """Raise :class:`ConfigError` unless ``tz`` is the name of a time zone."""
    from zoneinfo import ZoneInfo, available_timezones

    try:
        ZoneInfo(tz)
    except (KeyError, ValueError, OSError):  # unknown, not a name, or a folder
        raise ConfigError(
            f"{what} = {tz!r} is not a time zone of the IANA database, such as 'Europe/Berlin'"
            f"{did_you_mean(tz, available_timezones())}"
        ) from None


def _microseconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset // MICROSECOND


def _years(times: Numbers) -> Iterable[int]:
    """Return the years of times."""
    ends = np.array([times.min(), times.max()], "datetime64[us]").astype("datetime64[Y]").astype(int) + 1970
    if ends[1] - ends[0] < 4:
        return range(int(ends[0]), int(ends[1]) + 1)
    found: list[int] = (np.unique(times.view("datetime64[us]").astype("datetime64[Y]").astype(int)) + 1970).tolist()
    return found


def _moments(unit: str, year: int) -> list[tuple[int, int]]:
    """Return the local times at which the units of a year begin, in microseconds, and their numbers."""
    first = date(year, 1, 1).toordinal()
    if unit in ("month", "quarter", "year"):
        step = {"month": 1, "quarter": 3, "year": 12}[unit]
        begins = [date(year, month, 1).toordinal() for month in range(1, 13, step)]
        numbers = range(_number(unit, year), _number(unit, year) + len(begins))
        return [((day - EPOCH_DAY) * DAY, number) for day, number in zip(begins, numbers, strict=True)]
    after = first + 365 + (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    if unit == "week":  # the first day of the year 1 is a Monday
        return [((day - EPOCH_DAY) * DAY, (day - 1) // 7) for day in range(first + -(first - 1) % 7, after, 7)]
    return [((day - EPOCH_DAY) * DAY, day) for day in range(first, after)]


def _number(unit: str, year: int) -> int:
    """Return the number of the first unit of a year, or of the year 10,000."""
    if unit in ("month", "quarter", "year"):
        return year * {"month": 12, "quarter": 4, "year": 1}[unit]
    day = date.max.toordinal() + 1 if year > MAX_YEAR else date(year, 1, 1).toordinal()
    return (day - 1) // 7 + 1 if unit == "week" else day
