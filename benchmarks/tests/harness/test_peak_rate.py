"""The search for the highest sustainable rate, on systems whose capacity is known."""

from __future__ import annotations

import pytest
from riot_bench.harness.peak_rate import MIN_RATE, find_peak


@pytest.mark.parametrize("start", [1.0, 730.0, 1000.0, 40_000.0])
@pytest.mark.parametrize("capacity", [17.0, 1000.0, 3e7])
def test_search_finds_the_capacity_from_any_start(capacity: float, start: float) -> None:
    peak = find_peak(lambda rate: rate <= capacity, start)
    assert peak.converged
    assert capacity / 1.05 <= peak.rate <= capacity
    assert len(peak.tried) < 40


def test_search_is_deterministic() -> None:
    assert len({find_peak(lambda rate: rate <= 1234, 500.0).rate for _ in range(3)}) == 1


def test_disturbed_trial_is_repeated() -> None:
    trials = iter([False])  # the first one, whatever the rate
    peak = find_peak(lambda rate: next(trials, rate <= 1000), 800.0)
    assert peak.rate >= 1000 / 1.05


def test_search_time_is_bounded() -> None:
    now = [0.0]

    def trial(rate: float) -> bool:
        now[0] += 3.0
        return rate <= 1e9

    peak = find_peak(trial, 10.0, limit_s=10.0, clock=lambda: now[0])
    assert now[0] <= 13.0
    assert not peak.converged
    assert 0 < peak.rate < 1e9


def test_unsustainable_system_has_rate_0() -> None:
    peak = find_peak(lambda rate: False, 100.0)
    assert (peak.rate, peak.converged) == (0.0, False)
    assert peak.tried[-1][0] >= MIN_RATE
