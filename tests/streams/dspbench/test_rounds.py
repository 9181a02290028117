"""Generated events and earnings: rounds that count up, the distributions of the specification, dirt."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest

from riot_ops.streams import generate
from riot_ops.streams.dspbench import EarningsSource, RoundsSource
from tests.streams.generated_lines import lines


def test_rounds_count_up_from_one():
    found = [line.split(",") for line in lines(RoundsSource(dirt=False), 0, 3000)]
    assert [int(number) for _, number in found] == list(range(1, 3001))
    assert all(re.fullmatch("s[0-9]{6}", session) for session, _ in found)


def test_earnings_have_the_distributions_of_the_specification():
    earned = defaultdict(list)
    for line in lines(EarningsSource(dirt=False), 0, 60_000):
        action, reward = line.split(",")
        earned[action].append(int(reward))
    assert sorted(earned) == ["page1", "page2", "page3"]
    for action, mean, deviation in (("page1", 30, 12), ("page2", 60, 30), ("page3", 80, 10)):
        many = len(earned[action])
        assert many == pytest.approx(20_000, rel=0.03)
        average = sum(earned[action]) / many
        assert average == pytest.approx(mean - 0.5, abs=0.7)  # they are cut to whole numbers
        variance = sum((x - average) ** 2 for x in earned[action]) / many
        assert variance**0.5 == pytest.approx(deviation, rel=0.04)
        assert min(earned[action]) >= 0


@pytest.mark.long
def test_dirty_lines_have_their_share_and_form():
    bad = Counter(re.sub("[0-9]+", "0", line) for line in lines(RoundsSource(), 0, 100_000))
    assert set(bad) == {"s0,0", "s0", "s0,first"}
    assert bad["s0"] == pytest.approx(200, rel=0.3)
    bad = Counter(re.sub("[0-9]+", "0", line.replace("page9", "none")) for line in lines(EarningsSource(), 0, 100_000))
    assert set(bad) == {"page0,0", "page0", "page0,much", "none,0"}
    assert bad["none,0"] == pytest.approx(200, rel=0.3)


def test_streams_are_found_by_name():
    assert repr(generate("rounds", messages=7)) == "RoundsSource(messages=7, seed=0, dirt=True)"
    assert repr(generate("earnings", seed=3, dirt=False)) == "EarningsSource(messages=None, seed=3, dirt=False)"
