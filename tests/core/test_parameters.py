"""Short forms of parameters: a duration as text, one name instead of a tuple."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import MAX_DURATION, duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10min", timedelta(minutes=10)),
        ("10m", timedelta(minutes=10)),
        ("1h30m", timedelta(minutes=90)),
        ("1h 30min", timedelta(minutes=90)),
        ("500ms", timedelta(milliseconds=500)),
        ("1.5 s", timedelta(milliseconds=1500)),
        ("0.000001s", timedelta(microseconds=1)),
        ("7us", timedelta(microseconds=7)),
        ("2d1us", timedelta(2, 0, 1)),
        ("0s", timedelta(0)),
        ("PT1H30M", timedelta(minutes=90)),
        ("P1DT2H", timedelta(hours=26)),
    ],
)
def test_duration_text_is_parsed(text, expected):
    assert duration(text) == expected
    assert t.Window(frame="1d", allowed_lateness=text).allowed_lateness == expected


@pytest.mark.parametrize(
    "text",
    ["", "10", "min", "1 day", "1s1h", "1h1h", "1m1min", "-1s", "1,5s", "0.0000001s", "P", "PTX"],
)
def test_other_text_is_not_a_duration(text):
    with pytest.raises(ConfigError, match=r"ttl: .*is not a duration"):
        t.KalmanFilter(ttl=text)


@pytest.mark.parametrize("text", ["3652426d", "9999999999999d", "P3652426D", "87658201h"])
def test_duration_beyond_any_event_time_is_refused_by_name(text):
    for parameters in (
        {"frame": text},
        {"frame": "1s", "allowed_lateness": text},
        {"frame": {"kind": "session", "gap": text}},
    ):
        with pytest.raises(ConfigError, match=r"(size|gap|allowed_lateness).*3,652,425 days"):
            t.Window(**parameters)
    assert w.Tumbling("3652425d").size == MAX_DURATION


@pytest.mark.parametrize("length", [timedelta.max, timedelta.min, MAX_DURATION + timedelta.resolution], ids=str)
def test_timedelta_beyond_any_event_time_is_refused_by_name(length):
    with pytest.raises(ConfigError, match=r"KalmanFilter: ttl = .*3,652,425 days"):
        t.KalmanFilter(ttl=length)
    with pytest.raises(ConfigError, match=r"ttl.*3,652,425 days"):
        t.Task.from_dict({"task": "kalman_filter", "ttl": "P999999999D"})


def test_task_accepts_durations_as_text():
    assert t.KalmanFilter(ttl="1h").ttl == timedelta(hours=1)
    assert t.AssembleMessage(schema="city", timeout="1.5s").timeout == timedelta(seconds=1.5)
    assert t.KalmanFilter().replace(ttl="1h").ttl == timedelta(hours=1)
    with pytest.raises(ConfigError, match="longer than 0"):
        t.KalmanFilter(ttl="0s")
    described = {"task": "window", "frame": "10min", "by": "device"}
    task = t.Window(frame=timedelta(minutes=10), by=("device",))
    assert t.Task.from_dict(described) == task
    assert t.Task.from_dict(task.to_dict()) == task


def test_scalars_of_numpy_and_pandas_are_those_of_python():
    minute = pd.Timedelta("1min")
    given = (
        t.MovingAverage(window=np.int64(10), value=np.str_("x")),
        t.KalmanFilter(process_noise=np.float64(0.1), ttl=np.timedelta64(60, "s")),
        t.Window(frame=minute, allowed_lateness=minute, aggregates={"q": ("x", "quantile", np.float64(0.5))}),
        t.Window(frame=w.Sliding(np.int64(3), full=np.True_)),
        t.Window(frame=np.int32(3)),
        t.Window(emit=minute),
        t.IntervalJoin(by="id", within=(minute, np.timedelta64(1, "ms"))),
    )
    wanted = (
        t.MovingAverage(window=10, value="x"),
        t.KalmanFilter(process_noise=0.1, ttl="1min"),
        t.Window(frame="1min", allowed_lateness="1min", aggregates={"q": ("x", "quantile", 0.5)}),
        t.Window(frame=w.Sliding(3, full=True)),
        t.Window(frame=3),
        t.Window(emit="1min"),
        t.IntervalJoin(by="id", within=("1min", "1ms")),
    )
    assert given == wanted
    assert [repr(task) for task in given] == [repr(task) for task in wanted]
    assert [task.to_dict() for task in given] == [task.to_dict() for task in wanted]


@pytest.mark.parametrize(
    "length", [pd.Timedelta(1, "ns"), np.timedelta64(1, "ns"), np.timedelta64(1, "M"), np.timedelta64("NaT"), pd.NaT]
)
def test_length_of_no_whole_microseconds_is_refused(length):
    for given in (lambda: w.Tumbling(length), lambda: t.KalmanFilter(ttl=length)):
        with pytest.raises(ConfigError, match="must be a timedelta or a text such as"):
            given()


def test_set_is_refused_as_it_has_no_order():
    with pytest.raises(ConfigError, match=r"Window: by = .*: a set has no order; pass a list or a tuple"):
        t.Window(by={"a", "b"})


def test_duration_beyond_the_calendar_is_refused():
    longest = timedelta(days=3_652_425)
    for given in (t.Window(frame=longest), t.Deduplicate(by="id", ttl=longest)):
        rows = [{"event_time": datetime(2024, 5, 1, tzinfo=UTC), "id": 1}] * 2
        session = given.session()
        assert len(session.push_many(rows)) + len(session.flush()) + len(session.errors) <= 2
    for wrong in (longest + timedelta(microseconds=1), timedelta.max):
        with pytest.raises(ConfigError, match=r"Deduplicate: ttl = .*: must be at most 3,652,425 days"):
            t.Deduplicate(by="id", ttl=wrong)


def test_single_name_becomes_a_tuple():
    assert t.KalmanFilter(by="device").by == ("device",)
    assert t.Project(fields="value").fields == ("value",)
    assert t.Lookup(table={"a": "b"}, on="id", columns="x", keep="id").keep == ("id",)  # also if None is allowed
    assert t.Collect(groups="device").groups == ("device",)
    assert ro.keyed(lambda state, row: (state, row), by="device").by == ("device",)
    assert ro.Distribution("hash", "device").fields == ("device",)
    assert t.SlidingRegression(value="device").value == "device"  # a parameter of type str stays a text
    with pytest.raises(ConfigError, match="by = 3"):
        t.KalmanFilter(by=3)
