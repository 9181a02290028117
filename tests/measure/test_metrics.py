"""Summaries of runs, and jitter, growth and stability on series whose answer is known."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.measure.metrics import Latency, Summary, growth, jitter, quantiles, stability

T = np.arange(0.0, 10.0, 0.5)
RNG = np.random.default_rng(0)


# -- jitter ----------------------------------------------------------------------------------------


def test_jitter_by_hand() -> None:
    # two outputs per input: at 100/s, 110/s and 90/s the outputs should be 200, 220 and 180
    out, into = np.array([190.0, 220.0, 186.0]), np.array([100.0, 110.0, 90.0])
    np.testing.assert_allclose(jitter(out, into, 2.0), [-10 / 200, 0, 6 / 200], atol=1e-15)


def test_jitter_uses_a_given_mean_of_the_whole_run() -> None:
    assert jitter(np.array([60.0]), np.array([50.0]), 1.0, mean_input_rate=100.0).tolist() == [0.1]


@pytest.mark.parametrize(("selectivity", "mean"), [(0.0, 100.0), (1.0, 0.0), (math.nan, 100.0)])
def test_jitter_is_nan_if_no_record_is_expected(selectivity: float, mean: float) -> None:
    assert np.isnan(jitter(np.array([1.0, 2.0]), np.array([mean, mean]), selectivity)).all()


# -- quantiles -------------------------------------------------------------------------------------


def test_quantiles_of_equal_weights_equal_numpy() -> None:
    values = RNG.lognormal(size=999)
    which = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    expected = np.quantile(values, which, method="inverted_cdf")
    np.testing.assert_array_equal(quantiles(values, np.ones(999), which), expected)


def test_weight_equals_repeated_values() -> None:
    values, counts = RNG.normal(size=50), RNG.integers(1, 9, 50)
    which = (0.0, 0.1, 0.5, 0.9, 1.0)
    repeated = np.repeat(values, counts)
    assert quantiles(values, counts.astype(float), which) == quantiles(repeated, np.ones(repeated.size), which)


def test_quantiles_without_values_are_nan() -> None:
    assert all(map(math.isnan, quantiles(np.empty(0), np.empty(0), (0.5, 0.9))))


# -- stability -------------------------------------------------------------------------------------


def test_growth_is_the_slope_and_ignores_outliers() -> None:
    line = 3.0 + 0.25 * T
    assert growth(T, line) == pytest.approx(0.25)
    line[[3, 11]] = 1e6, math.nan
    assert growth(T, line) == pytest.approx(0.25, rel=0.02)
    assert math.isnan(growth(T[:1], line[:1]))


def test_flat_noisy_latency_is_stable() -> None:
    noisy = 0.02 + 0.01 * RNG.random(T.size)
    assert stability(T, noisy, 50 * RNG.random(T.size), 1000.0).stable


@pytest.mark.parametrize("excess", [0.05, 0.5, 3.0])
def test_rate_above_capacity_is_unstable(excess: float) -> None:
    behind = excess / (1 + excess)  # share of the input that stays in the queue
    rate = 1000.0 * (1 + excess)
    found = stability(T, 0.01 + behind * T + 0.02 * RNG.random(T.size), behind * rate * T, rate)
    assert not found.stable
    assert found.queue_growth == pytest.approx(behind)
    assert found.latency_growth == pytest.approx(behind, abs=0.01)


def test_pause_with_catch_up_is_stable() -> None:
    latency = np.full(T.size, 0.01)
    latency[8:11] = 0.8, 0.5, 0.2
    queue = 1000 * latency
    assert stability(T, latency, queue, 1000.0).stable


def test_saw_tooth_of_micro_batches_is_stable() -> None:
    wave = 1.0 + (T % 2)
    assert stability(T, wave, 7000 * (T % 2), 7000.0, tolerance=0.05, slack_s=1.5).stable


def test_queue_decides_if_no_records_are_delivered() -> None:
    nothing = np.full(T.size, math.nan)
    assert stability(T, nothing, 0 * T, 1000.0).stable
    assert not stability(T, nothing, 200 * T, 1000.0).stable


def test_run_without_samples_is_unstable() -> None:
    assert not stability(np.empty(0), np.empty(0), np.empty(0), 1000.0).stable
    assert not stability(T, 0 * T, 0 * T, math.nan).stable


def test_growth_below_the_tolerance_is_ignored() -> None:
    assert stability(T, 0.015 * T, 0 * T, 1000.0, tolerance=0.02, slack_s=0.0).stable
    assert not stability(T, 0.025 * T, 0 * T, 1000.0, tolerance=0.02, slack_s=0.0).stable


# -- summaries ---------------------------------------------------------------------------------------


def test_counts_are_by_stream_in_any_order_of_arrival():
    summary = Summary()
    for rows in ({"slr": 1}, {"errors": 2, "avg": 3}, {"slr": 4, "dac": 5}, {"errors": 6}):
        summary.count(rows, {}, {})
    assert [*summary.rows.items()] == [("avg", 3), ("dac", 5), ("slr", 5), ("errors", 8)]
    assert [*summary.to_dict()["records"]] == ["avg", "dac", "slr", "errors"]


def test_result_shows_its_record_counts():
    flow = ro.Dataflow("smooth")
    readings = flow.source("in", schema={"value": "float64"})
    kalman = readings.to(t.KalmanFilter(), id="kalman")
    flow.sink("out", kalman, readings.to(t.MovingAverage(window=2), id="avg"))
    result = flow.run([{"value": v} for v in (1.0, 2.0, float("inf"), 3.0)])
    lines = repr(result).splitlines()
    assert re.fullmatch(r"smooth: 4 messages in [\d.]+ m?s \([\d,]+/s\)", lines[0])
    assert lines[1:4] == [
        "  avg     1",
        "  kalman  3",
        "  errors  2  avg: not_finite 1, kalman: not_finite 1",
    ]
    assert re.fullmatch(r"  Latency\(median .* m?s, 99 % .* m?s, max .* m?s\)", lines[4])
    assert len(lines) == 5


def test_summary_without_errors():
    assert repr(Summary(messages=1_500_000, rows={"b": 20, "a": 1_000}, seconds=12.4)).splitlines() == [
        "1,500,000 messages in 12 s (120,968/s)",
        "  a  1,000",
        "  b     20",
    ]
    assert repr(Summary()) == "0 messages in 0 ms"


def test_most_frequent_reasons_come_first():
    summary = Summary(messages=9, rows={"errors": 8}, reasons={"a: x": 1, "b: y": 6, "c: z": 1}, seconds=1.0)
    assert repr(summary).splitlines()[1:] == ["  errors  8  b: y 6, a: x 1, c: z 1"]


def test_latency_quantiles():
    latency = Latency()
    assert repr(latency) == "Latency(no records)"
    latency.add(first_us=0, last_us=0, now_us=2_000, rows=98)
    latency.add(first_us=0, last_us=0, now_us=3_000_000, rows=2)
    assert repr(latency) == "Latency(median 2 ms, 99 % 3 s, max 3 s)"


def test_latency_of_a_long_run_takes_bounded_memory():
    latency, random = Latency(), np.random.default_rng(1)
    values = random.gamma(2.0, 10_000.0, 100_000)
    for value in values:
        latency.add(0, 0, value, 1)
    assert len(latency.blocks()) <= 20_000
    assert sum(rows for _, _, rows in latency.blocks()) == values.size
    assert latency.last_s() == values[-1] / 1e6
    assert latency.quantiles(0.5, 0.95, 0.99) == pytest.approx(
        (np.quantile(values, [0.5, 0.95, 0.99]) / 1e6).tolist(), rel=0.01
    )
    assert math.isnan(Latency().last_s())
