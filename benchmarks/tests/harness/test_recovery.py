"""What the rate was before a failure, what is a dip behind it, and when the rate is back: by hand."""

from __future__ import annotations

import math

import pytest
from riot_bench.harness.recovery import CommitHistory


def test_the_rate_before_has_nothing_of_the_outage() -> None:
    # a commit a second; killed half a second after one, and the next is six seconds later
    run = CommitHistory((*map(float, range(11)), 16.0), (*(100 * i for i in range(11)), 1060))
    assert run.rate(5.5, 10.5) < 92, "the rate up to the failure itself has"
    assert run.rate_before(10.5, 5.0) == 100.0
    rising = CommitHistory((0.0, 4.0, 5.0, 9.0), (0, 40, 60, 300))
    assert [rising.rate_before(8.0, seconds) for seconds in (0.5, 1.0, 2.0, 5.0)] == [20.0, 20.0, 20.0, 12.0]
    assert rising.rate_before(4.0, 1.0) == 10.0 and math.isnan(rising.rate_before(3.0, 5.0))
    assert math.isnan(rising.dip(3.0, math.nan)) and math.isnan(rising.recovery_s(3.0, math.nan))


def test_each_of_three_seconds_has_to_be_back() -> None:
    # nothing from 10 to 12; then 300 in a second, 20 in the next, 100 in each from there on: 140 a second in the first 3
    times = (*map(float, range(11)), *map(float, range(12, 31)))
    counts = (*(100 * i for i in range(11)), 1000, 1300, 1320, *(1320 + 100 * i for i in range(1, 17)))
    run = CommitHistory(times, counts)
    assert run.rate(12.0, 15.0) == 140.0
    # the second from 13.9 on has 0.1 x 20 + 0.9 x 100 = 92, that from 14 on 100; half a second from 13.9 on 42 of 47.5
    assert run.recovery_s(10.0, 100.0) == pytest.approx(4.0)


def test_what_is_usual_is_no_dip() -> None:
    # by turns 150 and 50 a second, before a failure at 20 and behind it
    counts = [0]
    for i in range(40):
        counts.append(counts[-1] + (150, 50)[i % 2])
    run = CommitHistory(tuple(map(float, range(41))), tuple(counts))
    assert run.rate_before(20.0, 10.0) == 100.0
    assert run.recovery_s(20.0, 100.0) == 0.0 and run.dip(20.0, 100.0) == 0.5, "the lowest is told all the same"
    # a start at 10 a second is not what is usual: the second from 10 on, of 50, is a dip
    late = CommitHistory((0.0, 4.0, *map(float, range(5, 11)), 11.0, *map(float, range(12, 20))),
                    (0, 40, *(40 + 100 * i for i in range(1, 7)), 690, *(690 + 100 * i for i in range(1, 9))))  # fmt: skip
    assert late.recovery_s(10.0, 100.0) == pytest.approx(1.0)
