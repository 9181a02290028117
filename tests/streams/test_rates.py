"""Rate curves."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.streams import rates


@given(
    st.lists(st.floats(0, 1000), min_size=1, max_size=20).filter(lambda r: sum(r) > 1),
    st.floats(0.1, 10),
    st.floats(0, 100),
)
def test_cumulative_is_the_integral_and_time_of_its_inverse(values, step, t):
    curve = rates.Curve(values, step)
    rounds, rest = divmod(t, curve.duration)
    expected = rounds * sum(values) * step
    for i, rate in enumerate(values):
        expected += rate * min(max(rest - i * step, 0), step)
    n = curve.cumulative(t)
    assert n == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert curve.cumulative(curve.time_of(n)) == pytest.approx(n, rel=1e-9, abs=1e-6)
    assert curve.rate(t) in values


def test_city_is_a_narrow_normal_distribution():
    curve = rates.city()
    assert curve.mean == pytest.approx(6400, abs=30)  # cut unevenly: 4.5 sigma below, 3 above
    assert curve.rates.std() == pytest.approx(200, rel=0.05)
    assert curve.rates.min() >= 5500
    assert curve.rates.max() <= 7000
    x = curve.rates - curve.mean
    lag = (x[1:] * x[:-1]).mean() / x.var()
    assert 0.75 < lag < 0.97  # 605 values: a standard error of 0.02 and a bias
    assert curve.cumulative(604.8) == pytest.approx(3.87e6, rel=0.01)


def test_taxi_has_two_modes():
    curve = rates.taxi()
    assert curve.duration == pytest.approx(604.8)
    assert curve.mean == pytest.approx(2620, rel=0.02)
    assert curve.total == pytest.approx(1.6e6, rel=0.02)
    share, edges = rates.histogram(curve, bins=[0, 200, 450, 2000, 2700, 4000.01])
    # 01-06 h without half of its two ramps, which are slow at their ends
    assert share[1] == pytest.approx(4 / 24, abs=0.02)
    assert share[4] > 0.7
    assert share[0] == 0
    assert share.sum() == pytest.approx(1)
    assert curve.rates.max() == pytest.approx(4000)
    assert len(edges) == 6


def test_curves_are_seeded_and_scale():
    assert np.array_equal(rates.city(seed=3).rates, rates.city(seed=3).rates)
    assert not np.array_equal(rates.city(seed=3).rates, rates.city(seed=4).rates)
    native = rates.taxi(speedup=1, seed=2)
    np.testing.assert_allclose(native.rates * 1000, rates.taxi(seed=2).rates)
    assert native.duration == pytest.approx(1000 * rates.taxi(seed=2).duration)


def test_shapes():
    saw = rates.saw_tooth(100, 200, period=10)
    assert saw.rate(0.01) < 101
    assert saw.rate(9.99) > 199
    assert saw.rate(10.01) < 101
    burst = rates.burst(10, 110, period=10, duration=1)
    assert burst.mean == pytest.approx(20)
    assert [burst.rate(t) for t in (0.5, 5, 10.5)] == [110, 10, 110]
    assert rates.constant(5).time_of(10) == 2


def test_observed_counts_windows():
    times = pa.array([0, 10, 999_999, 1_000_000, 3_500_000], TIMESTAMP)
    assert rates.observed(times).tolist() == [3, 1, 0, 1]
    assert rates.observed(times.slice(0, 0)).tolist() == []
    assert rates.observed(np.array([5, 500_005]), window=0.5).tolist() == [2, 2]


@pytest.mark.parametrize("values", [[], [0], [-1], [float("nan")], [float("inf")]])
def test_bad_rates_are_refused(values):
    with pytest.raises(ConfigError, match="rates"):
        rates.Curve(values)


def test_bad_shapes_are_refused():
    with pytest.raises(ConfigError, match="step"):
        rates.Curve([1], 0)
    with pytest.raises(ConfigError, match="duration"):
        rates.burst(1, 2, period=5, duration=5)


def test_normal_is_cut_and_correlated():
    curve = rates.normal(50, 10, 30, 70, duration=20_000, correlation=0.5, seed=3)
    assert curve.mean == pytest.approx(50, abs=0.3)
    assert curve.rates.std() == pytest.approx(10 * 0.96, rel=0.03)  # cut at two deviations
    assert curve.rates.min() == 30
    assert curve.rates.max() == 70
    x = curve.rates - curve.mean
    assert (x[1:] * x[:-1]).mean() / x.var() == pytest.approx(0.5, abs=0.03)
    assert np.array_equal(curve.rates, rates.normal(50, 10, 30, 70, duration=20_000, correlation=0.5, seed=3).rates)
    assert rates.normal(50, 0, duration=5).rates.tolist() == [50] * 5


def test_bimodal_has_two_modes():
    curve = rates.bimodal(10, 100, period=100, share=0.3, ramp=0, noise=0.02, periods=50, steps=100)
    share, _ = rates.histogram(curve, bins=[0, 12, 90, 111])
    assert share.tolist() == pytest.approx([0.3, 0, 0.7])
    assert curve.mean == pytest.approx(0.3 * 10 + 0.7 * 100, rel=0.01)
    assert curve.duration == pytest.approx(5000)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9).filter(lambda r: sum(r) > 1), st.floats(0.01, 1000))
def test_scaled_time_keeps_the_messages(values, speedup):
    curve = rates.Curve(values, 2.0)
    fast = curve.scaled(speedup)
    assert fast.total == pytest.approx(curve.total)
    assert fast.duration == pytest.approx(curve.duration / speedup)
    assert fast.cumulative(3.3 / speedup) == pytest.approx(curve.cumulative(3.3), rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(0, 50), min_size=1, max_size=9).filter(lambda r: sum(r) > 1), st.integers(0, 60))
def test_arrivals_are_when_messages_are_due(values, n):
    curve = rates.Curve(values, 0.7)
    found = rates.arrivals(curve, n)
    assert found.size == n
    assert found == pytest.approx(np.array([curve.time_of(i + 1e-6) for i in range(n)]) - (n and curve.time_of(1e-6)))
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: rates.normal(5, -1, duration=5), "std must be"),
        (lambda: rates.normal(5, 1, 3, 3, duration=5), "low < high"),
        (lambda: rates.normal(5, 1, duration=0), "duration"),
        (lambda: rates.bimodal(1, 2, period=5, share=0.95, ramp=0.05), "share"),
        (lambda: rates.bimodal(1, 2, period=0), "step"),
        (lambda: rates.grid(spread=0), "spread must be"),
        (lambda: rates.constant(5).scaled(float("inf")), "speedup must be"),
        (lambda: rates.saw_tooth(1, 2, period=-1), "step"),
    ],
)
def test_impossible_shapes_are_refused(make, text):
    with pytest.raises(ConfigError, match=text):
        make()
