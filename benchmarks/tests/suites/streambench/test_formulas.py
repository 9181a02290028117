"""Formulas of the metrics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riot_bench.suites.streambench.formulas import (
    availability,
    count_lost_and_duplicated,
    pareto_front,
    penalty,
    relative_slope,
)

from riot_ops.core.errors import ConfigError


def test_penalty() -> None:
    assert penalty(120.0, 200.0, 100.0) == 0.8
    assert penalty(7.0, 7.0, 7.0) == 1.0
    for wrong in (0.0, -1.0, math.nan, math.inf):
        for place, name in enumerate(("failing", "whole", "fewer")):
            values = [1.0, 1.0, 1.0]
            values[place] = wrong
            with pytest.raises(ConfigError, match=f"{name} must be a finite number > 0, got {wrong}"):
                penalty(*values)


def test_availability() -> None:
    assert availability([0.0, 30.0, 30.1, None], 30.0) == 50.0
    assert availability([None], 1.0) == 0.0
    assert availability([1.0, 2.0], 2.0) == 100.0
    with pytest.raises(ConfigError, match="delays_s must have at least one slot"):
        availability([], 1.0)
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ConfigError, match=f"limit_s must be > 0, got {wrong}"):
            availability([1.0], wrong)


def test_lost_and_duplicated_counts() -> None:
    assert count_lost_and_duplicated("aabc", "abccd") == (1, 2)
    assert count_lost_and_duplicated([], []) == (0, 0)


def test_slope() -> None:
    assert relative_slope([0.0, 60.0], [100.0, 102.0]) == pytest.approx(100 * 2 / 101)
    assert relative_slope([0, 60, 120, 180], [100, 100, 100, 100]) == 0
    assert relative_slope([0, 60, 120, 180, 240], [100, 100, 900, 100, 100]) == 0  # one sample says nothing
    assert relative_slope([0.0, 60.0, 60.0], [101.0, 100.0, 99.0]) == pytest.approx(-1.5)
    for times, values, message in (
        ([1.0], [1.0], "must have the same length of at least 2, got 1 and 1"),
        ([1.0, 2.0], [1.0], "must have the same length of at least 2, got 2 and 1"),
        ([0.0, 1.0], [0.0, 0.0], "the mean of the values must be > 0"),
        ([1.0, 1.0], [2.0, 3.0], "times_s must differ"),
    ):
        with pytest.raises(ConfigError, match=message):
            relative_slope(times, values)


def test_slope_of_many_samples() -> None:
    """Of two days there are 130,000 samples, and more pairs than any memory holds."""
    random = np.random.default_rng(1)
    times = np.cumsum(random.uniform(0.5, 1.5, 1_500))
    values = 1e6 + 40.0 * times + random.normal(0, 3e3, times.size)
    values[::50] = 9e6  # which say nothing
    first, second = np.triu_indices(times.size, 1)
    rises = (values[second] - values[first]) / (times[second] - times[first])
    pairs = 100 * 60 * float(np.median(rises)) / float(np.mean(values))
    assert relative_slope(times.tolist(), values.tolist()) == pytest.approx(pairs, rel=0.05)
    seconds = [float(n) for n in range(130_000)]
    assert relative_slope(seconds, [1e6 + 2 * s for s in seconds]) == pytest.approx(100 * 60 * 2 / (1e6 + 129_999))


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_pareto_front_by_hand(points: dict[str, tuple[int, int]]) -> None:
    best = pareto_front(points)
    for name, (rate, latency) in points.items():
        better = [o for o in points.values() if (o[0] > rate and o[1] <= latency) or (o[0] >= rate and o[1] < latency)]
        assert (name in best) == (not better)
