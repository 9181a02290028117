"""Weighted averages, against exact sums over lists and the calendar of Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import WeightedAverage
from tests.reference.dspbench.bargain_index import averages

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
PERIODS = ["minute", "hour", "day", "week", "month"]

numbers = st.sampled_from([0.0, 0.1, 1.5, 3.0, 100.0, 1e6])
FIRST, NEW_YEAR = datetime(1970, 1, 1, tzinfo=UTC), datetime(2019, 1, 1, tzinfo=UTC)
hours = st.integers(-300, 900) | st.just(0)
times = st.builds(
    lambda begin, h, s: begin + timedelta(hours=h, seconds=s),
    st.sampled_from([FIRST, NEW_YEAR]),
    hours,
    st.integers(0, 90),
)
trades = st.lists(st.tuples(st.sampled_from("ab"), times, numbers, numbers), max_size=30)


def batch_of(rows):
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(rows)), pa.int64()),
            "event_time": pa.array([at for _, at, *_ in rows], pa.timestamp("us", "UTC")),
            "stock": pa.array([row[0] for row in rows], pa.string()),
            "price": pa.array([row[2] for row in rows], pa.float64()),
            "volume": pa.array([row[3] for row in rows], pa.float64()),
        }
    )


def close(rows, wanted):
    assert [row["seq"] for row in rows] == [seq for seq, _ in wanted]
    assert [row["vwap"] for row in rows] == pytest.approx([value for _, value in wanted], rel=1e-12)


@given(trades, st.one_of(st.integers(1, 9), st.sampled_from(PERIODS)), st.integers(1, 9))
def test_averages_equal_exact_sums(rows, window, size):
    last, period = (None, window) if isinstance(window, str) else (window, None)
    session = WeightedAverage(by="stock", window=last, calendar=period).session()
    batch = batch_of(rows)
    out = [row for i in range(0, len(rows), size) for row in session.push_batch(batch.slice(i, size)).to_pylist()]
    wanted = [(seq, value) for seq, value in enumerate(averages(rows, window)) if value is not None]
    close(out, wanted)
    for error in session.errors:
        assert error["reason"] == "late"


def test_long_window_neither_drifts_nor_forgets():
    rows = [("a", NOON, 1e12 if i < 500 else float(i % 7), float(1 + i % 3)) for i in range(4000)]
    out = WeightedAverage(window=1000).session().push_batch(batch_of(rows)).to_pylist()
    for i in (0, 499, 999, 1000, 1499, 1500, 2000, 3998, 3999):
        part = rows[max(0, i - 999) : i + 1]
        total = sum(Fraction(volume) for *_, volume in part)
        exact = float(sum(Fraction(price) * Fraction(volume) for *_, price, volume in part) / total)
        assert out[i]["vwap"] == pytest.approx(exact, rel=1e-13), i


def test_years_and_weeks_of_the_calendar():
    days = [NEW_YEAR + timedelta(days=d) for d in (-2, -1, 0, 5, 6)]
    rows = [("a", at, float(2**i), 1.0) for i, at in enumerate(days)]

    def found(period):
        session = WeightedAverage(calendar=period, start="start").session()
        return [(row["vwap"], row["start"].day) for row in session.push_batch(batch_of(rows)).to_pylist()]

    assert found("week") == [(1.0, 30), (2.0, 31), (3.0, 31), (14 / 3, 31), (16.0, 7)]
    assert found("year") == [(1.0, 30), (1.5, 30), (4.0, 1), (6.0, 1), (28 / 3, 1)]


def test_start_of_the_last_records():
    rows = [("a", NOON + timedelta(seconds=i), 1.0, 1.0) for i in range(8)]
    session = WeightedAverage(window=3, start="since", output="mean").session()
    out = session.push_batch(batch_of(rows)).to_pylist()
    assert [(row["since"] - NOON).seconds for row in out] == [0, 0, 0, 1, 2, 3, 4, 5]
    assert {row["mean"] for row in out} == {1.0}


def test_other_fields_and_records_without_effect():
    session = WeightedAverage(value="x", weight="w", window=2).session()
    given = [(1.0, 0.0), (1.0, 1.0), (None, 1.0), (3.0, None), (float("nan"), 1.0), (4.0, 3.0), (9.0, 0.0), (9.0, 0.0)]
    out = [[row["vwap"] for row in session.push({"x": x, "w": w})] for x, w in given]
    assert out == [[], [1.0], [], [], [], [3.25], [4.0], []]


def test_rejected_records():
    session = WeightedAverage(calendar="day").session()
    good = {"event_time": NOON, "price": 1.0, "volume": 1.0}
    for wrong in (
        {"price": float("inf")},
        {"volume": float("inf")},
        {"volume": -1.0},
        {"event_time": None},
        {},
        {"event_time": NOON - timedelta(days=1)},
        {"event_time": NOON - timedelta(hours=12)},
    ):
        session.push({**good, **wrong})
    reasons = [error["reason"] for error in session.errors]
    assert reasons == ["not_finite", "not_finite", "out_of_range", "no_event_time", "late"]


def test_misuse_is_refused():
    for wrong, text in (
        ({}, "give either window or calendar"),
        ({"window": 2, "calendar": "day"}, "calendar"),
        ({"window": 2, "start": "vwap"}, "start"),
    ):
        with pytest.raises(ConfigError, match=text):
            WeightedAverage(**wrong)
    with pytest.raises(ConfigError, match="event_time"):
        WeightedAverage(calendar="day").output_schema(pa.schema({"price": pa.float64(), "volume": pa.float64()}))
