"""Pair delays, by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.neptune.operators import PairDelay

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def pushed(session, *rows):
    return [out["delay"] for role, value, ts in rows for out in session.push({"role": role, "value": value, "ts": ts})]


def test_effect_matches_the_oldest_cause_of_its_value():
    session = PairDelay(time="ts").session()
    rows = [
        ("cause", 1, 10),
        ("cause", 0, 20),
        ("cause", 1, 30),
        ("effect", 0, 45),
        ("effect", 1, 50),
        ("effect", 1, 51),
    ]
    assert pushed(session, *rows) == [25, 40, 21]
    assert pushed(session, ("effect", 1, 60)) == []
    assert [(e["reason"]) for e in session.errors] == ["unmatched_effect"]


def test_evicted_causes_are_missed():
    session = PairDelay(time="ts", max_pending=2, by="pair").session()
    for ts in (1, 2, 3):
        assert session.push({"seq": ts, "pair": "x", "role": "cause", "value": ts, "ts": ts}) == []
    session.push({"seq": 4, "pair": "y", "role": "cause", "value": 1, "ts": 4})
    assert session.push({"seq": 5, "pair": "x", "role": "effect", "value": 1, "ts": 9}) == []
    assert session.push({"seq": 6, "pair": "x", "role": "effect", "value": 3, "ts": 9})[0]["delay"] == 6
    assert [(e["reason"], e["seq"], e["raw"]) for e in session.errors[:1]] == [
        ("missed", 1, '{"seq": 1, "pair": "x", "ts": 1}')
    ]
    assert [e["reason"] for e in session.errors] == ["missed", "unmatched_effect"]


def test_times_and_other_fields():
    session = PairDelay(role="r", value="v", output="wait").session()
    session.push({"r": "cause", "v": True, "event_time": NOON})
    row = session.push({"r": "effect", "v": True, "event_time": NOON + timedelta(milliseconds=3)})[0]
    assert row["wait"] == 3000
    for change, reason in (
        ({"r": "none"}, "unknown_role"),
        ({"v": None}, "missing"),
        ({"event_time": None}, "missing"),
    ):
        assert session.push({"r": "effect", "v": True, "event_time": NOON, **change}) == []
        assert session.errors[-1]["reason"] == reason


def test_misuse_is_refused():
    for parameters, message in (
        ({"output": "value"}, "output must differ from"),
        ({"max_pending": 0}, "max_pending = 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            PairDelay(**parameters)
    with pytest.raises(ConfigError, match="cannot use"):
        PairDelay(time="ts").session().push({"role": "cause", "value": 1, "ts": 1.5})
