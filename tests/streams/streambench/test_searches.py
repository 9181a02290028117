"""Generated searches: the shape of their lines, and that they come again."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.streams.streambench import SearchesSource
from tests.streams.generated_lines import lines


def cells(**options):
    return [line.split("\t") for line in lines(SearchesSource(**options), 0, 10_000)]


@pytest.mark.parametrize("seed", range(6))
def test_line_has_sixty_bytes(seed):
    assert np.mean([len(line) + 1 for line in lines(SearchesSource(seed=seed), 0, 10_000)]) == pytest.approx(60, abs=1)


def test_lines_repeat_after_the_seed_set():
    source = SearchesSource(records=7, seed=3)
    first = lines(source, 0, 7)
    assert len(set(first)) == 7
    assert lines(source, 0, 40) == [first[k % 7] for k in range(40)]
    assert lines(SearchesSource(), 19_990, 20_020) == lines(SearchesSource(), 9_990, 10_000) + lines(
        SearchesSource(), 0, 20
    )


def test_cells_of_a_line():
    found = cells()
    assert {len(line) for line in found} == {5}
    users = Counter(int(line[0]) for line in found)
    assert 1_300 < len(users) < 1_800
    assert 0.14 < users.most_common(1)[0][1] / 10_000 < 0.19  # 1 / sum of r^-1.1
    words = [line[1].split(" ") for line in found]
    assert np.mean([len(query) for query in words]) == pytest.approx(2.6, abs=0.06)
    assert {len(query) for query in words} == set(range(1, 7))
    every = Counter(word for query in words for word in query)
    assert {len(word) for word in every} == set(range(2, 11))
    assert every.most_common(1)[0][1] / every.total() == pytest.approx(1 / 7.517, rel=0.06)
    times = [datetime.fromisoformat(line[2]) for line in found]
    assert times == sorted(times)
    assert (times[0].date().isoformat(), times[-1].date().isoformat()) == ("2006-03-01", "2006-05-31")
    clicks = [line[3:] for line in found if line[3]]
    assert all(line[3:] == ["", ""] for line in found if not line[3])
    assert len(clicks) / 10_000 == pytest.approx(0.55, abs=0.02)
    assert Counter(rank for rank, _ in clicks)["1"] / len(clicks) == pytest.approx(0.5, abs=0.03)
    hosts = {url.removeprefix("http://www.").removesuffix(".com") for _, url in clicks}
    assert len(hosts) <= 2_000
    assert all(url == f"http://www.{host}.com" for _, url in clicks for host in [url[11:-4]])


def test_vocabulary_is_the_same_for_all_seeds():
    words = [{word for line in cells(seed=seed) for word in line[1].split(" ")} for seed in (1, 2)]
    assert len(words[0] | words[1]) < 5_000 < len(words[0]) + len(words[1])


def test_dirty_lines_have_their_share_and_form():
    kinds = Counter(len(line) if line != [""] else 0 for line in cells(dirt=True))
    assert all(5 < kinds[n] < 40 for n in (0, 1, 2))
    assert set(kinds) == {0, 1, 2, 5}


@pytest.mark.parametrize("records", [0, 1.5, True])
def test_misuse_is_refused(records):
    with pytest.raises(ConfigError, match="records must be a whole number >= 1"):
        SearchesSource(records=records)
