"""Moving averages: the benchmark's example, the reference, and sums that would lose digits."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.tasks import MovingAverage
from tests.reference import moving_average as reference
from tests.reference.splits import KEYS, READINGS, run
from tests.search import depth

EVENTS = st.lists(st.tuples(KEYS, READINGS), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=3)


def batch_of(events: list[tuple[str | None, float | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(events)), pa.int64()),
            "key": pa.array([k for k, _ in events], pa.string()),
            "value": pa.array([v for _, v in events], pa.float64()),
        }
    )


def same(got: list[dict], expected: list[dict]) -> None:
    assert [{k: v for k, v in row.items() if k != "value"} for row in got] == [
        {k: v for k, v in row.items() if k != "value"} for row in expected
    ]
    # no huge negative readings, which would cancel in a huge mean
    assert [r["value"] for r in got] == pytest.approx([r["value"] for r in expected], rel=1e-9, abs=1e-7)


def test_example_of_the_benchmark():
    session = MovingAverage(window=3).session()
    assert [row["value"] for row in session.push_many({"value": v} for v in range(1, 8))] == [2.0, 5.0]
    assert session.flush() == []


def test_small_reading_survives_a_huge_one():
    """Plain and wrongly compensated sums give 0; the mean is (1 + 1) / 4."""
    for mode in ("tumbling", "sliding"):
        session = MovingAverage(window=4, mode=mode).session()
        assert session.push_many({"value": v} for v in (1.0, 1e100, 1.0, -1e100)) == [{"value": 0.5, "count": 4}]


def test_ninety_events_slide():
    values = np.random.default_rng(1).normal(20, 5, 1000)
    out = MovingAverage(window=90, mode="sliding").session().push_batch(pa.RecordBatch.from_pydict({"value": values}))
    expected = np.lib.stride_tricks.sliding_window_view(values, 90).mean(axis=1)
    np.testing.assert_allclose(np.asarray(out["value"]), expected, rtol=1e-14)


@pytest.mark.long
@given(EVENTS, CUTS, st.integers(1, 5), st.sampled_from(["tumbling", "sliding", "growing"]))
@settings(max_examples=depth(150), deadline=None)
def test_counts_agree_with_the_reference(events, cuts, window, mode):
    batch = batch_of(events)
    task = MovingAverage(window=window, mode=mode, by=("key",))
    got, errors = run(task, batch, cuts)
    assert not errors
    same(got, reference.by_count(batch.to_pylist(), window, mode))
    assert got == run(task, batch, restart=False)[0]


def test_sliding_sum_forgets_a_large_reading_completely():
    values = [1.0, 1e300, 7e290, *[0.1] * 6]
    out = MovingAverage(window=3, mode="sliding").session().push_many({"value": v} for v in values)
    assert [row["value"] for row in out[-4:]] == pytest.approx([0.1] * 4, rel=1e-15)


@pytest.mark.parametrize("mode", ["tumbling", "sliding", "growing"])
def test_means_are_correctly_rounded(mode):
    values = np.random.default_rng(7).normal(0, 1, 4000) * 10.0 ** np.arange(4000).__mod__(17)
    task = MovingAverage(window=1000, mode=mode)
    out = task.session().push_batch(pa.RecordBatch.from_pydict({"value": values}))["value"].to_pylist()
    step = 1000 if mode == "tumbling" else 1
    early = 999 if mode == "growing" else 0
    for i, mean in list(enumerate(out))[:: max(1, len(out) // 4)]:
        window = values[max(0, i * step - early) : i * step - early + 1000]
        exact = sum(map(Fraction, window.tolist())) / len(window)
        assert abs(Fraction(mean) - exact) <= Fraction(float(np.abs(window).mean())) * Fraction(2, 2**52)


def test_means_of_the_largest_numbers_are_finite():
    for mode in ("tumbling", "sliding"):
        out = MovingAverage(window=3, mode=mode).session().push_many({"value": 1.7e308} for _ in range(3))
        assert [row["value"] for row in out] == pytest.approx([1.7e308], rel=1e-15)


def test_partial_window_keeps_its_time_beside_a_key_without_time():
    session = MovingAverage(window=3, by=("key",), partial=True).session()
    time = datetime(2026, 1, 1, tzinfo=UTC)
    session.push_many({"key": key, "event_time": at, "value": 1.0} for key, at in (("a", time), ("b", None)))
    assert [(left["key"], left["event_time"]) for left in session.flush()] == [("a", time), ("b", None)]


def test_end_of_stream_emits_partial_windows():
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    events = [
        {"seq": i, "key": k, "value": v, "event_time": noon}
        for i, (k, v) in enumerate([("a", 1.0), ("b", 5.0), ("a", 3.0), ("b", None), ("a", 4.0)])
    ]
    session = MovingAverage(window=2, by=("key",), partial=True).session()
    assert [(o["key"], o["value"], o["seq"]) for o in session.push_many(events)] == [("a", 2.0, 2)]
    assert session.flush() == [
        {"key": "a", "event_time": noon, "seq": 4, "value": 4.0, "count": 1},
        {"key": "b", "event_time": noon, "seq": 1, "value": 5.0, "count": 1},
    ]
    sliding = MovingAverage(window=3, mode="sliding", partial=True).session()
    sliding.push_many({"value": v} for v in (1.0, 2.0))
    assert sliding.flush() == [{"value": 1.5, "count": 2}]
    sliding.push({"value": 3.0})
    assert sliding.flush() == []


def test_infinite_reading_leaves_the_window_unchanged():
    session = MovingAverage(window=2).session()
    out = session.push_many({"value": v} for v in (1.0, float("inf"), 3.0))
    assert out == [{"value": 2.0, "count": 2}]
    assert [e["reason"] for e in session.errors] == ["not_finite"]


def test_growing_windows_emit_every_record():
    session = MovingAverage(window=3, mode="growing", output="mean").session()
    rows = session.push_many({"value": v} for v in (1.0, None, 3.0, 8.0, 1.0))
    assert rows == [{"value": v, "mean": m, "count": n} for v, m, n in ((1, 1, 1), (3, 2, 2), (8, 4, 3), (1, 4, 3))]
    assert session.flush() == []
    with pytest.raises(ConfigError, match="partial must be False with mode='growing'"):
        MovingAverage(mode="growing", partial=True)


def test_wrong_window_is_refused():
    with pytest.raises(ConfigError, match="window = 0"):
        MovingAverage(window=0)


@pytest.mark.parametrize("fields", [{"output": "count"}, {"value": "count"}])
def test_mean_in_the_field_of_the_count_is_refused(fields):
    with pytest.raises(ConfigError, match="output must differ from 'count'"):
        MovingAverage(**fields)


def test_default_window_has_ten_readings():
    session = MovingAverage().session()
    assert session.push_many({"value": v} for v in range(20)) == [{"value": v, "count": 10} for v in (4.5, 14.5)]
