"""Intervals and tests of differences, against closed forms of Student's t and a table of its quantiles."""

from __future__ import annotations

import math
import sys

import pytest
from riot_bench.harness.confidence import batch_means, confidence_interval, tukey_kramer

from riot_ops.core.errors import ConfigError, MissingExtraError


def below_3(t: float) -> float:
    """Student's distribution with 3 degrees of freedom."""
    return 0.5 + (t / math.sqrt(3) / (1 + t * t / 3) + math.atan(t / math.sqrt(3))) / math.pi


@pytest.mark.parametrize(
    ("values", "level", "quantile"),
    [
        ([9, 10, 11], 0.95, 4.302653),
        ([9, 10, 11], 0.9, 2.919986),
        ([1, 5, 3, 3], 0.95, 3.182446),
        ([1, 3], 0.99, 63.65674),
    ],
)
def test_interval_of_the_mean(values, level, quantile):
    mean = sum(values) / len(values)
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
    assert confidence_interval(values, level) == pytest.approx(
        (mean - quantile * error, mean + quantile * error), rel=1e-6
    )
    if level == 0.95:
        assert confidence_interval(values) == confidence_interval(values, level)


def test_interval_needs_two_values():
    assert confidence_interval([4.0, 4.0]) == (4.0, 4.0)
    assert confidence_interval([0.1, 0.1, 0.1]) == (0.1, 0.1)
    assert all(map(math.isnan, (*confidence_interval([4.0]), *confidence_interval([]))))


def test_interval_is_cut_at_the_minimum():
    low, high = confidence_interval([1, 5, 3, 3])
    assert confidence_interval([1, 5, 3, 3], minimum=2.0) == (2.0, high)
    assert confidence_interval([1, 5, 3, 3], minimum=low - 1) == (low, high)
    assert all(map(math.isnan, confidence_interval([4.0], minimum=0.0)))


def test_batch_means_are_of_successive_parts():
    assert batch_means([5.0, 1.0, 2.0]) == [5.0, 1.0, 2.0]
    assert batch_means([1.0, 3.0, 10.0, 20.0, 30.0], max_batches=2) == [14 / 3, 25.0]
    assert batch_means([]) == []
    assert len(batch_means([1.0] * 1000)) == 20
    with pytest.raises(ConfigError, match="max_batches must be >= 1, got 0"):
        batch_means([1.0], max_batches=0)


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, math.nan])
def test_level_outside_0_to_1_is_refused(level):
    with pytest.raises(ConfigError, match=f"level must lie between 0 and 1, got {level}"):
        confidence_interval([1.0, 2.0], level)


def test_two_unequal_groups_equal_a_t_test():
    # pooled variance 4/3 with 3 degrees of freedom, standard error √(4/3 · (1/3 + 1/2))
    found = tukey_kramer({"small": [1.0, 2.0, 3.0], "large": [7.0, 9.0]})
    t = 6 / math.sqrt(10 / 9)
    assert list(found) == [("small", "large")]
    assert found["small", "large"].statistic == pytest.approx(-6)
    assert found["small", "large"].p == pytest.approx(2 * (1 - below_3(t)), rel=1e-4)
    assert math.isnan(found["small", "large"].df)


def test_each_pair_of_groups_has_its_difference():
    found = tukey_kramer({"a": [0.0, 2.0], "b": [10.0, 12.0], "c": [3.0, 5.0]})
    assert {pair: one.statistic for pair, one in found.items()} == {("a", "b"): -10, ("a", "c"): -3, ("b", "c"): 7}
    assert found["a", "b"].p < found["b", "c"].p < found["a", "c"].p


@pytest.mark.parametrize(("first", "second"), [([1.0], [1.0, 2.0]), ([1.0, 2.0], [])])
def test_single_value_gives_no_test(first, second):
    with pytest.raises(ConfigError, match="there must be at least 2 groups"):
        tukey_kramer({"a": first, "b": second})
    with pytest.raises(ConfigError, match="there must be at least 2 groups"):
        tukey_kramer({"a": [1.0, 2.0]})


def test_missing_scipy_is_reported_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtraError, match="confidence intervals"):
        confidence_interval([1.0, 2.0])
