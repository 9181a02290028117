"""Rate curves."""

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.ingest import rates


@given(
    st.lists(st.floats(0, 1000), min_size=1, max_size=20).filter(lambda r: sum(r) > 1),
    st.integers(100, 10_000).map(lambda ms: ms / 1000),
    st.floats(0, 100),
)
def test_cumulative_is_the_integral_and_time_of_its_inverse(values, step, t):
    curve = rates.Curve(values, timedelta(seconds=step))
    rounds, rest = divmod(t, curve.duration)
    expected = rounds * sum(values) * step
    for i, rate in enumerate(values):
        expected += rate * min(max(rest - i * step, 0), step)
    n = curve.cumulative(t)
    assert n == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert curve.cumulative(curve.time_of(n)) == pytest.approx(n, rel=1e-9, abs=1e-6)
    assert curve.rate(t) in values


def test_rate_repeats_after_the_last_step():
    curve = rates.Curve([10, 30, 0], "0.5s")
    assert [curve.rate(t) for t in (0, 0.49, 0.5, 1.2, 1.5, 2.2, 3.1)] == [10, 10, 30, 0, 10, 30, 10]
    assert [curve.cumulative(t) for t in (0.25, 0.75, 1.25, 1.75, 3)] == [2.5, 12.5, 20, 22.5, 40]
    assert (curve.duration, curve.total) == (1.5, 20)
    assert curve.mean == pytest.approx(40 / 3)


def test_city_is_a_narrow_normal_distribution():
    curve = rates.city()
    assert curve.mean == pytest.approx(6400, abs=30)  # clipped asymmetrically: 4.5 sigma below, 3 above
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
    # the hours 01-06 without half of the two ramps, which are flat at their ends
    assert share[1] == pytest.approx(4 / 24, abs=0.02)
    assert share[4] > 0.7
    assert share[0] == 0
    assert share.sum() == pytest.approx(1)
    assert curve.rates.max() == pytest.approx(4000)
    assert len(edges) == 6


def test_curves_are_seeded_and_scale():
    assert np.array_equal(rates.city(seed=3).rates, rates.city(seed=3).rates)
    assert not np.array_equal(rates.city(seed=3).rates, rates.city(seed=4).rates)
    native = rates.taxi(speed=1, seed=2)
    np.testing.assert_allclose(native.rates * 1000, rates.taxi(seed=2).rates)
    assert native.duration == pytest.approx(1000 * rates.taxi(seed=2).duration)


def test_simple_shapes():
    saw = rates.saw_tooth(100, 200, period="10s")
    assert saw.rate(0.01) < 101
    assert saw.rate(9.99) > 199
    assert saw.rate(10.01) < 101
    burst = rates.burst(10, 110, period="10s", duration="1s")
    assert burst.mean == pytest.approx(20)
    assert [burst.rate(t) for t in (0.5, 5, 10.5)] == [110, 10, 110]
    assert rates.constant(5).time_of(10) == 2


def test_observed_rates_count_windows():
    times = pa.array([0, 10, 999_999, 1_000_000, 3_500_000], TIMESTAMP)
    assert rates.observed_rates(times).tolist() == [3, 1, 0, 1]
    assert rates.observed_rates(times.slice(0, 0)).tolist() == []
    assert rates.observed_rates(np.array([5, 500_005]), window="0.5s").tolist() == [2, 2]


@pytest.mark.parametrize("values", [[], [0], [-1], [float("nan")], [float("inf")]])
def test_invalid_rates_are_refused(values):
    with pytest.raises(ConfigError, match="rates"):
        rates.Curve(values)


def test_invalid_shapes_are_refused():
    with pytest.raises(ConfigError, match="every must be > 0"):
        rates.Curve([1], "0s")
    with pytest.raises(ConfigError, match="duration"):
        rates.burst(1, 2, period="5s", duration="5s")


def test_normal_is_clipped_and_correlated():
    curve = rates.normal(50, 10, 30, 70, duration="20000s", correlation=0.5, seed=3)
    assert curve.mean == pytest.approx(50, abs=0.3)
    assert curve.rates.std() == pytest.approx(10 * 0.96, rel=0.03)  # clipped at two deviations
    assert curve.rates.min() == 30
    assert curve.rates.max() == 70
    x = curve.rates - curve.mean
    assert (x[1:] * x[:-1]).mean() / x.var() == pytest.approx(0.5, abs=0.03)
    assert np.array_equal(curve.rates, rates.normal(50, 10, 30, 70, duration="20000s", correlation=0.5, seed=3).rates)
    assert rates.normal(50, 0, duration="5s").rates.tolist() == [50] * 5


def test_bimodal_has_two_modes():
    curve = rates.bimodal(10, 100, period="100s", share=0.3, transition=0, noise=0.02, periods=50, steps=100)
    share, _ = rates.histogram(curve, bins=[0, 12, 90, 111])
    assert share.tolist() == pytest.approx([0.3, 0, 0.7])
    assert curve.mean == pytest.approx(0.3 * 10 + 0.7 * 100, rel=0.01)
    assert curve.duration == pytest.approx(5000)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9).filter(lambda r: sum(r) > 1), st.floats(0.01, 1000))
def test_scaled_time_keeps_the_messages(values, speed):
    curve = rates.Curve(values, "2s")
    fast = curve.scaled(speed)
    assert fast.rates.tolist() == pytest.approx([speed * value for value in values])
    assert fast.total == pytest.approx(2.0 * sum(values))
    assert fast.duration == pytest.approx(2.0 * len(values) / speed)
    assert fast.cumulative(3.3 / speed) == pytest.approx(curve.cumulative(3.3), rel=1e-6, abs=1e-6)


@given(
    st.lists(st.just(0.0) | st.floats(0.1, 50), min_size=1, max_size=9).filter(lambda r: sum(r) > 1),
    st.integers(0, 60),
)
def test_arrivals_invert_the_integral_of_the_rates(values, n):
    found = rates.arrivals(rates.Curve(values, "0.7s"), n)
    assert found.size == n
    # the integral is linear between the ends of steps, so numpy interpolates its inverse
    rounds = 2 + int(n / (0.7 * sum(values)))
    messages = np.concatenate([[0.0], np.cumsum(values * rounds) * 0.7])
    due = np.interp(np.arange(n) + 1e-6, messages, 0.7 * np.arange(messages.size))
    assert found == pytest.approx(due - due[:1].sum(), abs=1e-7)
    assert (np.diff(found) >= 0).all()


def test_arrivals_equal_hand_computed_times():
    # 2 messages in the first second, none in the second, 4 in the third; then again
    curve = rates.Curve([2, 0, 4])
    assert rates.arrivals(curve, 8) == pytest.approx([0, 0.5, 2, 2.25, 2.5, 2.75, 3, 3.5], abs=1e-5)
    assert [curve.time_of(n) for n in (1, 3, 5, 7)] == pytest.approx([0.5, 2.25, 2.75, 3.5])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: rates.normal(5, -1, duration="5s"), "std must be"),
        (lambda: rates.normal(5, 1, 3, 3, duration="5s"), "low < high"),
        (lambda: rates.normal(5, 1, duration="0s"), "duration"),
        (lambda: rates.bimodal(1, 2, period="5s", share=0.95, transition=0.05), "share"),
        (lambda: rates.bimodal(1, 2, period="0s"), "period must be > 0"),
        (lambda: rates.grid(burst="0s"), "burst must be > 0"),
        (lambda: rates.constant(5).scaled(float("inf")), "speed must be"),
        (lambda: rates.saw_tooth(1, 2, period="0s"), "period must be > 0"),
        (lambda: rates.grid(burst="1800.5s"), "burst must be at most half an hour"),
        (lambda: rates.burst(1, 2, period="5s", duration="0s"), "duration"),
        (lambda: rates.normal(5, 1, duration="1s", every="1.5s"), "duration must be at least every = '1.5s'"),
        (lambda: rates.normal(5, 1, duration="1s", every="0s"), "every must be > 0"),
        (lambda: rates.normal(5, 1, duration=3600), "duration must be a timedelta or a text"),
        (lambda: rates.normal(5, 1, duration="5s", correlation=1.0), "correlation"),
        (lambda: rates.normal(5, 1, duration="5s", correlation=-1.0), "correlation"),
        (lambda: rates.bimodal(1, 2, period="5s", share=0), "share"),
        (lambda: rates.bimodal(1, 2, period="5s", transition=-0.01), "transition"),
        (lambda: rates.bimodal(1, 2, period="5s", share=0.5, transition=0.25), "share"),
        (lambda: rates.constant(5).scaled(0), "speed must be"),
        (lambda: rates.Curve([1], 2.0), "every must be a timedelta or a text"),
        (lambda: rates.Curve([[1, 2]]), "rates must be"),
    ],
)
def test_inconsistent_shapes_are_refused(make, text):
    with pytest.raises(ConfigError, match=text):
        make()


def test_shapes_equal_hand_computed_rates():
    assert rates.saw_tooth(100, 200, period="2s", steps=4).rates.tolist() == [112.5, 137.5, 162.5, 187.5]
    assert rates.saw_tooth(100, 200, period="2s", steps=4).step == 0.5
    assert rates.saw_tooth(0, 1, period="2s").rates.size == 100
    two = rates.bimodal(10, 20, period="20s", share=0.2, transition=0.2, noise=0, periods=2, steps=10)
    # low up to 1/5, high from 2/5 to 4/5; the middle of a step on a ramp is a quarter up or down
    assert two.rates.tolist() == pytest.approx([10, 10, 12.5, 17.5, 20, 20, 20, 20, 17.5, 12.5] * 2)
    assert two.step == 2
    assert rates.bimodal(1, 2, period="96s").rates.size == 7 * 96
    assert rates.grid(speed=1, meters=3600, burst="30min").rates.tolist() == [2.0]


@pytest.mark.parametrize(("period", "duration", "steps"), [(10, 1, 10), (60, 6, 10), (3, 2, 3), (10, np.pi, 1000)])
def test_bursts_have_their_messages(period, duration, steps):
    curve = rates.burst(10, 110, timedelta(seconds=period), timedelta(seconds=duration))
    assert curve.rates.size == steps
    assert curve.total == pytest.approx(10 * period + 100 * duration, rel=1e-6)
    whole = np.count_nonzero(curve.rates == 110)
    assert whole == int(duration / period * steps + 1e-9)
    assert (curve.rates[whole + 1 :] == 10).all()
    if steps < 1000:
        assert set(curve.rates) == {10, 110}


def test_normal_is_an_ar1_process_with_the_given_moments():
    values = rates.normal(50, 2, duration="200000s", every="2s", correlation=0.8, seed=7).rates
    assert values.size == 100_000
    assert (np.mean(values), np.std(values)) == pytest.approx((50, 2))
    for lag in (1, 2, 5, 10):  # the autocorrelation of AR(1); estimated with a standard error of 0.007
        assert np.corrcoef(values[:-lag], values[lag:])[0, 1] == pytest.approx(0.8**lag, abs=0.025)
    shares = [np.mean(np.abs(values - 50) <= 2 * k) for k in (1, 2, 3)]
    assert shares == pytest.approx([0.6827, 0.9545, 0.9973], abs=0.01)  # of the normal distribution


def test_normal_covers_the_duration_in_steps():
    assert rates.normal(50, 2, duration="1s").rates.size == 2
    assert rates.normal(50, 2, duration="2.5s").rates.size == 3


def test_noise_stays_within_four_deviations():
    curve = rates.bimodal(100, 100, period="1s", transition=0, noise=0.1, periods=3000, steps=100, seed=1)
    assert curve.rates.min() == pytest.approx(60)
    assert curve.rates.max() == pytest.approx(140)
    assert curve.rates.std() == pytest.approx(10, rel=0.02)


def test_day_of_taxi_equals_hand_computed_rates():
    hours = [0, 0.25, 1, 1.75, 3, 5.25, 6, 6.75, 12, 18, 19, 20, 21, 22, 23.99]
    # half a cosine down from 0.25 to 1.75 h and up from 5.25 to 6.75 h; half a sine from 18 to 22 h
    side = 3200 + 500 * 0.5**0.5
    wanted = [3200, 3200, 1750, 300, 300, 300, 1750, 3200, 3200, 3200, side, 3700, side, 3200, 3200]
    assert rates.taxi_profile(np.array(hours)).tolist() == pytest.approx(wanted)
