"""Jitter, growth and stability on series whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from riot_ops.measure.metrics import growth, jitter, quantiles, stability

T = np.arange(0.0, 10.0, 0.5)
RNG = np.random.default_rng(0)


# -- jitter ----------------------------------------------------------------------------------------


def test_jitter_by_hand() -> None:
    # two outputs per input: at 100/s, 110/s and 90/s the outputs should be 200, 220 and 180
    out, into = np.array([190.0, 220.0, 186.0]), np.array([100.0, 110.0, 90.0])
    np.testing.assert_allclose(jitter(out, into, 2.0), [-10 / 200, 0, 6 / 200], atol=1e-15)


def test_jitter_takes_the_mean_of_the_whole_run_where_it_is_given() -> None:
    assert jitter(np.array([60.0]), np.array([50.0]), 1.0, mean_input_rate=100.0).tolist() == [0.1]


@pytest.mark.parametrize(("selectivity", "mean"), [(0.0, 100.0), (1.0, 0.0), (math.nan, 100.0)])
def test_jitter_is_nan_where_nothing_is_expected(selectivity: float, mean: float) -> None:
    assert np.isnan(jitter(np.array([1.0, 2.0]), np.array([mean, mean]), selectivity)).all()


# -- quantiles -------------------------------------------------------------------------------------


def test_quantiles_of_equal_weights_are_those_of_numpy() -> None:
    values = RNG.lognormal(size=999)
    which = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    expected = np.quantile(values, which, method="inverted_cdf")
    np.testing.assert_array_equal(quantiles(values, np.ones(999), which), expected)


def test_a_weight_stands_for_that_many_values() -> None:
    values, counts = RNG.normal(size=50), RNG.integers(1, 9, 50)
    which = (0.0, 0.1, 0.5, 0.9, 1.0)
    repeated = np.repeat(values, counts)
    assert quantiles(values, counts.astype(float), which) == quantiles(repeated, np.ones(repeated.size), which)


def test_quantiles_of_nothing_are_nan() -> None:
    assert all(map(math.isnan, quantiles(np.empty(0), np.empty(0), (0.5, 0.9))))


# -- stability -------------------------------------------------------------------------------------


def test_growth_is_the_slope_and_ignores_outliers() -> None:
    line = 3.0 + 0.25 * T
    assert growth(T, line) == pytest.approx(0.25)
    line[[3, 11]] = 1e6, math.nan
    assert growth(T, line) == pytest.approx(0.25, rel=0.02)
    assert math.isnan(growth(T[:1], line[:1]))


def test_a_flat_and_noisy_latency_is_stable() -> None:
    noisy = 0.02 + 0.01 * RNG.random(T.size)
    assert stability(T, noisy, 50 * RNG.random(T.size), 1000.0).stable


@pytest.mark.parametrize("excess", [0.05, 0.5, 3.0])
def test_a_rate_above_capacity_is_unstable(excess: float) -> None:
    behind = excess / (1 + excess)  # share of the input that stays in the queue
    rate = 1000.0 * (1 + excess)
    found = stability(T, 0.01 + behind * T + 0.02 * RNG.random(T.size), behind * rate * T, rate)
    assert not found.stable
    assert found.queue_growth == pytest.approx(behind)
    assert found.latency_growth == pytest.approx(behind, abs=0.01)


def test_a_pause_that_is_caught_up_with_is_stable() -> None:
    latency = np.full(T.size, 0.01)
    latency[8:11] = 0.8, 0.5, 0.2
    queue = 1000 * latency
    assert stability(T, latency, queue, 1000.0).stable


def test_a_saw_tooth_of_micro_batches_is_stable() -> None:
    wave = 1.0 + (T % 2)
    assert stability(T, wave, 7000 * (T % 2), 7000.0, tolerance=0.05, slack_s=1.5).stable


def test_the_queue_alone_tells_where_nothing_comes_out() -> None:
    nothing = np.full(T.size, math.nan)
    assert stability(T, nothing, 0 * T, 1000.0).stable
    assert not stability(T, nothing, 200 * T, 1000.0).stable


def test_nothing_seen_is_not_stable() -> None:
    assert not stability(np.empty(0), np.empty(0), np.empty(0), 1000.0).stable
    assert not stability(T, 0 * T, 0 * T, math.nan).stable


def test_less_than_the_tolerance_is_no_growth() -> None:
    assert stability(T, 0.015 * T, 0 * T, 1000.0, tolerance=0.02, slack_s=0.0).stable
    assert not stability(T, 0.025 * T, 0 * T, 1000.0, tolerance=0.02, slack_s=0.0).stable
