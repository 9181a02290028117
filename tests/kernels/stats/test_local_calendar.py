"""Units of local time against zoneinfo, pandas and figures by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from riot_ops.kernels.stats.local_calendar import BEYOND, UNITS, LocalCalendar, local_calendar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000
ZONES = sorted(available_timezones())
#: Zones that change at midnight, by half an hour, by days, twice a year with Ramadan, before midnight of the day before.
STRANGE = [
    *("America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"),
    *("America/St_Johns", "Antarctica/Troll", "America/Juneau", "Europe/Berlin", "UTC", "Africa/Monrovia"),
]


def us(time):
    return (time - EPOCH) // timedelta(microseconds=1)


def unit_of(unit, tz, *time):
    """Return the unit of a local time: when it begins on the clock, and its hours."""
    calendar = local_calendar(unit, tz)
    at = us(datetime(*time, tzinfo=ZoneInfo(tz)))
    begin, end = (int(one[0]) for one in calendar.bounds(calendar.numbers(np.array([at]))))
    assert begin <= at < end
    clock = (EPOCH + timedelta(microseconds=begin)).astimezone(ZoneInfo(tz))
    return clock.isoformat(" ", "minutes")[:16], (end - begin) / HOUR


@pytest.mark.parametrize(
    ("unit", "tz", "time", "wanted"),
    [
        ("day", "Europe/Berlin", (2024, 3, 31, 12), ("2024-03-31 00:00", 23)),
        ("day", "Europe/Berlin", (2024, 10, 27, 12), ("2024-10-27 00:00", 25)),
        ("day", "America/Sao_Paulo", (2018, 11, 4, 12), ("2018-11-04 01:00", 23)),  # no midnight
        ("day", "Asia/Beirut", (2022, 3, 27, 1), ("2022-03-27 01:00", 23)),  # no midnight
        ("day", "Australia/Lord_Howe", (2024, 4, 7, 12), ("2024-04-07 00:00", 24.5)),
        ("day", "Pacific/Apia", (2011, 12, 29, 12), ("2011-12-29 00:00", 24)),
        ("day", "Pacific/Apia", (2011, 12, 31, 12), ("2011-12-31 00:00", 24)),  # the 30th did not exist
        ("week", "Pacific/Apia", (2011, 12, 29, 12), ("2011-12-26 00:00", 6 * 24)),
        ("day", "America/St_Johns", (2006, 10, 29, 12), ("2006-10-29 00:00", 25)),  # from 0:01 back to 23:01
        ("day", "America/Juneau", (1867, 10, 19, 12), ("1867-10-19 00:00", 48)),
        ("hour", "Europe/Berlin", (2024, 10, 27, 2, 30), ("2024-10-27 02:00", 1)),
        ("hour", "Australia/Lord_Howe", (2024, 4, 7, 1, 30), ("2024-04-07 01:00", 1.5)),
        ("hour", "Asia/Kathmandu", (2024, 4, 7, 1, 30), ("2024-04-07 01:00", 1)),
        ("week", "Europe/Berlin", (2024, 10, 27, 23), ("2024-10-21 00:00", 7 * 24 + 1)),
        ("month", "Europe/Berlin", (2024, 2, 29, 23), ("2024-02-01 00:00", 29 * 24)),
        ("quarter", "Europe/Berlin", (2024, 3, 1), ("2024-01-01 00:00", 91 * 24 - 1)),
        ("year", "Europe/Berlin", (2038, 7, 1), ("2038-01-01 00:00", 365 * 24)),
        ("month", "America/New_York", (9999, 11, 30), ("9999-11-01 00:00", 30 * 24 + 1)),
        ("year", "America/New_York", (9999, 12, 31, 23), ("9999-01-01 00:00", 365 * 24)),
        ("year", "Europe/Berlin", (2, 1, 1), ("0002-01-01 00:00", 365 * 24)),
    ],
)
def test_unit_by_hand(unit, tz, time, wanted):
    assert unit_of(unit, tz, *time) == wanted


FREQUENCIES = {"day": "D", "week": "W-MON", "month": "MS", "quarter": "QS", "year": "YS"}


@pytest.mark.long
@given(st.sampled_from([*STRANGE, *ZONES]), st.sampled_from(list(FREQUENCIES)), st.integers(-900, 9_000), st.data())
def test_units_equal_those_of_pandas(tz, unit, week, data):
    assume(tz != "Africa/Monrovia")  # pandas cuts the seconds of its offset
    calendar = local_calendar(unit, tz)
    first = pd.Timestamp(1970, 1, 1) + pd.Timedelta(weeks=week)
    local = pd.date_range(first - pd.Timedelta(days=400), first + pd.Timedelta(days=800), freq=FREQUENCIES[unit])
    starts = local.tz_localize(tz, ambiguous=np.ones(len(local), bool), nonexistent="shift_forward")
    starts = np.unique(starts.tz_convert("UTC").tz_localize(None).astype("datetime64[us]").astype("int64").to_numpy())
    times = np.array(data.draw(st.lists(st.integers(0, 60 * 24 * HOUR), min_size=1, max_size=5))) + us(
        first.to_pydatetime().replace(tzinfo=UTC)
    )
    begins, ends = calendar.bounds(calendar.numbers(times))
    at = np.searchsorted(starts, times, side="right")
    assert begins.tolist() == starts[at - 1].tolist()
    assert ends.tolist() == starts[at].tolist()


@given(
    st.sampled_from([*STRANGE, *ZONES]), st.sampled_from(UNITS), st.lists(st.integers(3, 9_997), min_size=2, max_size=4)
)
def test_units_follow_one_another_in_any_year(tz, unit, years):
    calendar = LocalCalendar(unit, tz)
    times = np.array([us(datetime(year, 5, 5, 5, 5, tzinfo=UTC)) for year in years])
    numbers = calendar.numbers(times)
    begins, ends = calendar.bounds(numbers)
    assert ((begins <= times) & (times < ends)).all()
    assert calendar.numbers(begins).tolist() == calendar.numbers(ends - 1).tolist() == numbers.tolist()
    assert (calendar.numbers(ends) > numbers).all() and (calendar.numbers(begins - 1) < numbers).all()
    zone = ZoneInfo(tz)
    for begin in begins.tolist():
        time = EPOCH + timedelta(microseconds=begin)
        clock, before = (one.astimezone(zone).replace(tzinfo=None) for one in (time, time - timedelta(microseconds=1)))
        assert clock.minute == clock.second == 0 or clock - before > timedelta(microseconds=1)


@pytest.mark.parametrize("tz", ["Asia/Tokyo", "UTC", "America/New_York"])
@pytest.mark.parametrize("unit", UNITS)
def test_times_beyond_the_years_have_numbers_beyond_all(unit, tz):
    calendar = local_calendar(unit, tz)
    limits = us(datetime.min.replace(tzinfo=UTC)), us(datetime.max.replace(tzinfo=UTC))
    first, last = calendar.range(*limits)
    begins, ends = calendar.bounds(np.array([first, last]))
    assert begins[0] >= limits[0] and ends[1] <= limits[1]
    year = 366 * 24 * HOUR
    assert calendar.numbers(np.array([limits[0] - year, limits[1] + year])).tolist() == [-BEYOND, BEYOND]
    assert calendar.numbers(np.array([limits[0] - HOUR])) < first < last < calendar.numbers(np.array([limits[1] + 1]))
