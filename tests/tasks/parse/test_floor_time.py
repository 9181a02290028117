"""Times rounded down, against Python's datetime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)), st.integers(1, 100_000))  # noqa: DTZ001
def test_time_is_within_its_interval(time, seconds):
    every = timedelta(seconds=seconds)
    floor = t.FloorTime(every=every, output="begin", time="at").session().push({"at": time})[0]["begin"]
    assert floor <= time < floor + every
    assert not (floor - EPOCH) % every


def test_nulls_stay_and_wrong_parameters_are_refused():
    assert t.FloorTime(every="1h", output="event_time").session().push({"event_time": None}) == [{"event_time": None}]
    with pytest.raises(ConfigError, match="every"):
        t.FloorTime(every="0s", output="minute")
    with pytest.raises(ConfigError, match="timestamp"):
        t.FloorTime(every="1h", output="hour", time="at").session().push({"at": 7})
