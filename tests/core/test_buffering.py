"""The options of buffering: presets, bounds, and intervals of micro-batches."""

from __future__ import annotations

from datetime import timedelta

import pytest

import riot_ops as ro
from riot_ops.core.buffering import as_buffering, check_trigger, spark_interval
from riot_ops.core.errors import ConfigError


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"capacity": -1}, "Buffering: capacity = -1"),
        ({"capacity": 1.5}, "Buffering: capacity = 1.5"),
        ({"flush_after": timedelta(seconds=-1)}, "Buffering: flush_after must be >= 0"),
        ({"flush_after": 10}, "Buffering: flush_after = 10: must be a timedelta or a text such as"),
        ({"flush_after": timedelta(seconds=1.1e9)}, r"Buffering: flush_after must be >= 0 and at most 1e\+09 seconds"),
        ({"flush_after": "soon"}, "Buffering: flush_after: 'soon' is not a duration"),
        ({"high": 1.1}, "Buffering: high = 1.1"),
        ({"low": 0}, "Buffering: low = 0"),
        ({"high": 0.5, "low": 0.5}, "low must be below high, got 0.5 and 0.5"),
        ({"capacity": 100, "queue": 99}, r"queue must have room for a batch of 100 bytes \(capacity\), got 99"),
        ({"capacity": 0, "queue": 0}, "queue must have room"),
        ({"codec": "gzip"}, "Buffering: codec = 'gzip'"),
        ({"ratio": 0.0}, "Buffering: ratio = 0.0"),
        ({"ratio": 1.5}, "Buffering: ratio = 1.5"),
        ({"ratio": 0.5, "codec": None}, "ratio = 0.5 needs a codec"),
        ({"trigger": "soon"}, "trigger must be a timedelta or a text such as '1s', got 'soon'"),
        ({"trigger": "available now"}, "trigger must be"),
    ],
)
def test_invalid_options_are_refused(wrong, text):
    with pytest.raises(ConfigError, match=text):
        ro.Buffering(**wrong)


@pytest.mark.parametrize(
    "text", ["0 seconds", "1 second", "0.2 seconds", "INTERVAL 1 hour 30 minutes", " 500  milliseconds ", "2 days"]
)
def test_trigger_intervals(text):
    assert ro.Buffering(trigger=text).trigger == text


@pytest.mark.parametrize(
    ("trigger", "written"),
    [
        ("1 minute 30 seconds", "90000 milliseconds"),
        ("1min30s", "90000 milliseconds"),
        (timedelta(milliseconds=200), "200 milliseconds"),
    ],
)
def test_triggers_are_durations_too(trigger, written):
    assert spark_interval(trigger) == written


@pytest.mark.parametrize("text", ["", "second", "1", "-1 second", "1 month", "0.5 hours", "1second", "1 second soon"])
def test_invalid_intervals_are_refused(text):
    """By the rules of Spark's parser, which reports them only after the output of an earlier run is removed."""
    with pytest.raises(ConfigError, match="trigger must be a timedelta or a text such as '1s', got"):
        check_trigger(text)
    with pytest.raises(ConfigError, match="such as '1s' or 'available now', got"):
        check_trigger(text, "available now")
    check_trigger("available now", "available now")


def test_presets():
    found = {name: as_buffering(name) for name in ro.Buffering.PRESETS}
    assert {name: (one.capacity, one.flush_seconds, one.room, one.trigger) for name, one in found.items()} == {
        "throughput": (1 << 20, 0.01, 4 << 20, "1s"),
        "latency": (16 << 10, 0.001, 64 << 10, None),
        "immediate": (0, 0, 64 << 10, None),
    }
    assert ro.Buffering(queue=9 << 20).room == 9 << 20
    for wrong in ("fast", 7):
        with pytest.raises(ConfigError, match="buffering must be a Buffering or one of throughput, latency, immediate"):
            as_buffering(wrong)
