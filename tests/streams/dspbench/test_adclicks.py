"""Generated records of advertisements: format, frequencies, rates and dirt."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import AdclicksSource
from tests.streams.generated_lines import lines


def records(n=40_000, **options):
    return [[*map(int, line.split("\t"))] for line in lines(AdclicksSource(dirt=False, **options), 0, n)]


def test_shares_of_the_specification():
    found = np.array(records())
    assert found.shape == (40_000, 12)
    assert found[:, 1].mean() == pytest.approx(3195 / 2000, abs=0.03)
    assert found[:, 0].sum() / found[:, 1].sum() == pytest.approx(195 / 3195, abs=0.006)
    assert (found[:, 0] <= found[:, 1]).all()
    assert (found[:, 6] <= found[:, 5]).all()
    assert {*found[:, 5]} == {1, 2, 3}


def test_queries_and_ads_follow_the_law_of_zipf():
    found = records(queries=40, ads=20)
    for cell, first, n in ((7, 1, 40), (3, 100, 20)):
        counts = Counter(record[cell] for record in found)
        law = 1 / np.arange(1, n + 1)
        assert sorted(counts) == [*range(first, first + n)]
        assert [counts[first + i] / len(found) for i in range(5)] == pytest.approx((law / law.sum())[:5], rel=0.1)
    urls = defaultdict(set)
    for record in found:
        urls[record[3]].add((record[2], record[4], record[9], record[10]))
    assert all(len(one) == 1 for one in urls.values())


@pytest.mark.long
def test_click_rates_belong_to_advertisements():
    totals = np.zeros((8, 2))
    for record in records(60_000, ads=8):
        totals[record[3] - 100] += record[:2]
    wanted = [0.02 + 0.08 * ((100 + i) * 37 % 101) / 100 for i in range(8)]
    assert totals[:, 0] / totals[:, 1] == pytest.approx(wanted, abs=0.012)


def test_dirty_lines_have_their_share_and_form():
    found = lines(AdclicksSource(), 0, 60_000)
    short = [line for line in found if len(line.split("\t")) == 10]
    odd = [line for line in found if line.startswith("NA\tNA\t")]
    assert [len(short), len(odd)] == pytest.approx([30, 30], rel=0.6)
    assert all(len(line.split("\t")) == 12 for line in found if line not in short)


def test_options_and_misuse():
    assert repr(generate("adclicks", messages=7, queries=9, ads=2)) == (
        "AdclicksSource(messages=7, seed=0, dirt=True, queries=9, ads=2)"
    )
    for options in ({"queries": 0}, {"ads": 1.5}, {"dirt": 1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            AdclicksSource(**options)
