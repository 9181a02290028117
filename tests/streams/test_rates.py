"""Rate curves."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.errors import ConfigError
from riot_ops.schema import TIMESTAMP
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
    share, edges = rates.histogram(curve, bins=[0, 200, 450, 2000, 2700, 3700, 5000])
    assert share[1] == pytest.approx(5 / 24, abs=0.03)  # 01-06 h
    assert share[4] > 0.45  # the rest of the day but for ramps and evening
    assert share[0] + share[2] + share[3] < 0.2
    assert curve.rates.max() < 4000 * 1.2
    assert len(edges) == 7


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
