"""What all generated streams of lines have in common."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.streams.catalog import LINES as STREAMS
from riot_ops.streams.text_lines import choices, normals, random_words, uniforms
from tests.streams.generated_lines import lines

NAMES = sorted(STREAMS)


@pytest.mark.long
@given(st.sampled_from(NAMES), st.integers(0, 10**9), st.integers(1, 9), st.integers(0, 2**40))
def test_line_depends_on_its_number_alone(name, start, n, seed):
    source = STREAMS[name](seed=seed)
    assert lines(source, start, start + n) == [lines(source, i, i + 1)[0] for i in range(start, start + n)]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_lines_follow_seed_dirt_and_length(name):
    make = STREAMS[name]
    found = lines(make(dirt=True), 0, 20_000)
    assert len(found) == 20_000
    assert not any("\n" in line for line in found)
    assert lines(make(seed=1), 0, 100) != lines(make(seed=2), 0, 100)
    clean = lines(make(dirt=False), 0, 20_000)
    changed = np.mean([a != b for a, b in zip(found, clean, strict=True)])
    assert 0.0005 < changed < 0.05  # dirt is that alone
    source = make(messages=7)
    assert source.finished(source.latest(source.initial()))
    for options in ({"dirt": 1}, {"messages": -1}, {"seed": "x"}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            make(**options)


def test_share_of_dirt_is_the_given_one():
    source = STREAMS["text"]()
    numbers = np.arange(100_000)
    with_dirt = source.with_dirt(numbers, np.full(100_000, "good"), 0.1, ["a", "b"]).to_pylist()
    assert with_dirt.count("a") == pytest.approx(5_000, rel=0.06)
    assert with_dirt.count("b") == pytest.approx(5_000, rel=0.06)
    numbered = source.with_dirt(numbers, numbers.astype(str), 0.1, ["a", lambda rows: [f"b{row}" for row in rows]])
    for i, (some, other) in enumerate(zip(with_dirt, numbered.to_pylist(), strict=True)):
        assert other == {"good": str(i), "a": "a", "b": f"b{i}"}[some]
    source = STREAMS["text"](dirt=False)
    assert source.with_dirt(numbers, "all", 0.1, ["a", "b"]) == "all"


def test_random_words_of_uses_and_seeds_are_independent():
    numbers = np.arange(50_000)
    columns = [uniforms(seed, use, numbers) for seed in (0, 1, -1) for use in (0, 1)]
    columns += [normals(0, use, numbers) for use in (2, 3)]
    between = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(between).max() < 0.02
    assert np.abs(np.corrcoef(columns[0][1:], columns[0][:-1])[0, 1]) < 0.02
    assert columns[0].min() >= 0
    assert columns[0].max() < 1
    assert np.histogram(columns[0], 20, (0, 1))[0] == pytest.approx(2500, rel=0.1)
    assert normals(0, 5, numbers).mean() == pytest.approx(0, abs=0.02)
    assert np.mean(np.abs(normals(0, 5, numbers)) < 1) == pytest.approx(0.683, abs=0.01)
    assert np.bincount(choices(3, 1, numbers, [3, 0, 1])) == pytest.approx([37500, 0, 12500], rel=0.03)
    assert len(set(random_words(0, 0, numbers).tolist())) == 50_000
