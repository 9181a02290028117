"""Forecasts from the median of past values, against lists."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import HistoryMedian

STEPS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.sampled_from([True, False, False, None]), st.sampled_from([None, 1.0, 2.0, 2.0, 9.0])
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 5))
def test_forecasts_equal_lists(steps, window):
    rows = (
        HistoryMedian(by=("key",), now="is_now", value="x", output="to_come", window=window)
        .session()
        .push_many({"key": key, "is_now": now, "x": x} for key, now, x in steps)
    )
    kept, wanted = {}, []
    for key, now, x in steps:
        past = kept.setdefault(key, [])
        if x is None or now is None:
            continue
        if now:
            latest = past[-window:]
            wanted.append((key, x, (x + statistics.median(latest)) / 2 if latest else x))
        else:
            past.append(x)
    assert [(row["key"], row["x"], row["to_come"]) for row in rows] == wanted


@pytest.mark.parametrize("past", [[5.0, 0.0], [-1.0, 0.0, -1.0], [0.0] * 9, [3.0, 0.0, 0.0, 0.0, 0.0, -2.0, 0.0]])
@pytest.mark.parametrize("window", [4, 31])
def test_restart_keeps_zeros(past, window):
    """A snapshot leaves out the places in which no key has another value than 0."""
    task = HistoryMedian(now="is_now", value="x", window=window)
    session, kept = task.session(), []
    for x in past * 3:
        session.push({"is_now": False, "x": x})
        data, session = session.snapshot(), task.session()
        session.restore(data)
        kept.append(x)
        forecast = (1.0 + statistics.median(kept[-window:])) / 2
        assert session.push({"is_now": True, "x": 1.0}) == [{"is_now": True, "x": forecast}]


def test_default_history_is_a_month():
    session = HistoryMedian().session()
    session.push_many({"open": False, "value": 100.0 if day < 17 else 0.0} for day in range(33))
    assert session.push({"open": True, "value": 0.0}) == [{"open": True, "value": 0.0}]  # 15 of the 31 values are 100
    with pytest.raises(ConfigError, match="window"):
        HistoryMedian(window=0)
