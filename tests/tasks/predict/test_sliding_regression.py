"""Sliding regression: the benchmark's example, exact fractions, NumPy and SciPy as oracles."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from scipy import stats

from riot_ops.core.errors import ConfigError
from riot_ops.tasks.predict.sliding_regression import SlidingRegression
from tests.reference import sliding_regression as reference
from tests.reference.splits import KEYS, run
from tests.search import depth

READINGS = st.one_of(st.none(), st.just(float("nan")), st.floats(-1e6, 1e6))


def test_example_of_the_benchmark():
    session = SlidingRegression(window=10, horizon=10, strict_java=True).session()
    out = [session.push({"value": 2.0 * i + 1}) for i in range(1, 12)]
    assert out[:10] == [[]] * 10
    assert out[10] == [{"value": 34.0, "predictions": [25.0 + 2 * h for h in range(10)]}]


@pytest.mark.long
@given(
    st.lists(st.tuples(KEYS, READINGS), max_size=40),
    st.lists(st.integers(0, 40), max_size=3),
    st.integers(2, 6),
    st.integers(1, 4),
    st.booleans(),
)
@settings(max_examples=depth(150), deadline=None)
def test_agrees_with_the_reference(events, cuts, window, horizon, strict):
    batch = pa.RecordBatch.from_pydict(
        {"key": pa.array([k for k, _ in events], pa.string()), "value": pa.array([v for _, v in events], pa.float64())}
    )
    task = SlidingRegression(window=window, horizon=horizon, strict_java=strict, by=("key",))
    got, errors = run(task, batch, cuts)
    expected = reference.regress(batch.to_pylist(), window, horizon, window + strict)
    assert not errors
    assert [r["key"] for r in got] == [r["key"] for r in expected]
    for g, e in zip(got, expected, strict=True):
        # readings up to 1e6, with a few roundings of 1e-16
        assert g["predictions"] == pytest.approx(e["predictions"], rel=1e-12, abs=1e-8)
        assert g["value"] == pytest.approx(e["value"], rel=1e-12, abs=1e-8)
    assert run(task, batch, restart=False)[0] == got


@pytest.mark.parametrize("window", [2, 3, 10, 101])
def test_agrees_with_polyfit_and_linregress(window):
    values = np.random.default_rng(3).normal(20, 5, 300).cumsum()
    out = (
        SlidingRegression(window=window, horizon=4).session().push_batch(pa.RecordBatch.from_pydict({"value": values}))
    )
    assert out.num_rows == 301 - window
    x, ahead = np.arange(window), np.arange(window, window + 4)
    for i, got in list(enumerate(out["predictions"].to_pylist()))[::17]:
        y = values[i : i + window]
        np.testing.assert_allclose(got, np.polyval(np.polyfit(x, y, 1), ahead), rtol=1e-9)
        line = stats.linregress(x, y)
        np.testing.assert_allclose(got, line.intercept + line.slope * ahead, rtol=1e-9)


def test_no_drift_on_a_large_offset_and_long_stream():
    noise = np.random.default_rng(4).normal(0, 1, 200_000)
    task = SlidingRegression(window=10, horizon=1)
    values = 1e9 + noise
    values[100_000] = 1e300  # leaves the window after ten readings
    out = task.session().push_batch(pa.RecordBatch.from_pydict({"value": values}))
    fresh = task.session().push_batch(pa.RecordBatch.from_pydict({"value": values[-10:]}))
    assert out.slice(out.num_rows - 1).to_pylist() == fresh.to_pylist()


def test_predictions_beyond_float64_are_null():
    out = SlidingRegression(window=2, horizon=2).session().push_many({"value": v} for v in (0.0, 1e308))
    assert out == [{"value": None, "predictions": [None, None]}]
    out = SlidingRegression(window=2, horizon=2).session().push_many({"value": v} for v in (5e307, 1e308))
    assert out == [{"value": 1.75e308, "predictions": [1.5e308, None]}]


@pytest.mark.parametrize("parameters", [{"window": 1}, {"horizon": 0}, {"window": "x"}])
def test_wrong_parameters_are_refused(parameters):
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        SlidingRegression(**parameters)
