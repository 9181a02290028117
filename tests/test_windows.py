"""Frames: what they refuse, and their description as data."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.errors import ConfigError

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: w.Tumbling("0s"), "Tumbling: size must be longer than 0"),
        (lambda: w.Tumbling("a minute"), "Tumbling: size: .* is not a duration"),
        (lambda: w.Tumbling("10s", offset="10s"), "offset must be at least 0 and less than size = "),
        (lambda: w.Tumbling("10s", offset=timedelta(-1)), "offset must be at least 0"),
        (lambda: w.Tumbling("10s", "1s", "first"), "Tumbling: offset = .* is not for origin = 'first'"),
        (lambda: w.Tumbling("10s", origin="last"), "Tumbling: origin = 'last': must be 'epoch' or 'first'"),
        (lambda: w.Hopping("10s", "5s", "1s", "first"), "Hopping: offset = .* is not for origin = 'first'"),
        (lambda: w.Hopping("10s", "3s"), "Hopping: size must be a multiple of every"),
        (lambda: w.Hopping("10s", "20s"), "Hopping: size must be a multiple of every"),
        (lambda: w.Hopping("10s", "0s"), "Hopping: every must be longer than 0"),
        (lambda: w.Hopping("-10s", "5s"), "Hopping: size"),
        (lambda: w.Hopping("10s", "5s", "5s"), "offset must be at least 0 and less than every = "),
        (lambda: w.Calendar("fortnight"), "Calendar: unit = 'fortnight': must be 'hour' or 'day'"),
        (lambda: w.Calendar("day", "Europe/Berlyn"), "tz = 'Europe/Berlyn' is not .*did you mean \"Europe/Berlin\""),
        (lambda: w.Calendar("day", "Europe"), "tz = 'Europe' is not a time zone"),
        (lambda: w.Calendar("day", "../Berlin"), "tz = '../Berlin' is not a time zone"),
        (lambda: w.Calendar("day", ""), "tz = '' is not a time zone"),
        (lambda: w.Calendar("day", None), "Calendar: tz = None"),
        (lambda: w.Session(timedelta(0)), "Session: gap must be longer than 0"),
        (lambda: w.Session(3), "Session: gap = 3"),
        (lambda: w.Count(0), "Count: size = 0"),
        (lambda: w.Count(True), "Count: size = True"),
        (lambda: w.Count(2, partial="yes"), "Count: partial = 'yes'"),
        (lambda: w.Sliding(0), "Sliding: size = 0"),
        (lambda: w.Sliding(2**20 + 1), "Sliding: size = 1048577"),
        (lambda: w.Sliding("0s"), "Sliding: size must be longer than 0"),
        (lambda: w.Sliding("an hour"), "Sliding: size"),
        (lambda: w.Sliding(3, full=1), "Sliding: full = 1"),
    ],
)
def test_wrong_frame_is_refused_by_parameter_and_value(make, text):
    with pytest.raises(ConfigError, match=text):
        make()


@pytest.mark.parametrize(
    "frame",
    [
        w.Tumbling("1min"),
        w.Tumbling("1d", offset="6h"),
        w.Tumbling("1min", origin="first"),
        w.Hopping("1min", "10s"),
        w.Hopping("1min", "10s", origin="first"),
        w.Hopping("1min", every="10s", offset="4s"),
        w.Calendar("day"),
        w.Calendar("month", "Europe/Berlin"),
        w.Session("30s"),
        w.Count(10),
        w.Count(10, partial=True),
        w.Sliding(10),
        w.Sliding("1h", full=True),
        w.Unbounded(),
    ],
    ids=str,
)
def test_frame_survives_its_description_as_json(frame):
    described = json.loads(json.dumps(frame.to_dict()))
    assert w.frame_from(described) == frame
    task = t.Window(by="device", frame=frame)
    assert t.Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
    assert t.Window(by="device", frame=described) == task


def test_duration_and_number_stand_for_frames():
    assert t.Window(frame="1min").frame == t.Window(frame=MINUTE).frame == w.Tumbling(MINUTE)
    assert t.Window(frame=10).frame == w.Count(10)
    assert t.Window(frame=None).frame == t.Window().frame == w.Unbounded()
    assert ro.windows is w


def test_parameters_of_frames_before_are_refused():
    for parameters in ({"size": "1min"}, {"gap": "1min"}, {"count": 3}):
        with pytest.raises(ConfigError, match=f"no parameter '{next(iter(parameters))}'; parameters are .*frame"):
            t.Task.from_dict({"task": "window", **parameters})
