"""Generated lines of text: the law of their words, dirt, and that each line is a function of its number."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.streams import generate
from riot_ops.streams.dspbench import TextSource


def lines(source, start=0, end=4000):
    batches = source.read({"start": start, "end": end})
    return [bytes(line).decode() for batch in batches for line in batch["payload"].to_pylist()]


@pytest.mark.long
@given(st.integers(0, 50_000), st.integers(0, 200), st.integers(0, 9))
def test_line_depends_on_its_number_alone(start, n, seed):
    source = TextSource(seed=seed, vocabulary=50)
    assert lines(source, start, start + n) == [lines(source, i, i + 1)[0] for i in range(start, start + n)]


def test_words_follow_the_law_of_zipf():
    source = TextSource(vocabulary=100, dirt=False)
    counts = Counter(word.lower() for line in lines(source, 0, 20_000) for word in re.findall(r"\w+", line))
    found = np.array(sorted(counts.values(), reverse=True)) / sum(counts.values())
    law = 1 / np.arange(1, 101) / np.sum(1 / np.arange(1, 101))
    assert len(found) == 100
    assert np.allclose(found, law, rtol=0.08)


def test_sentences_have_their_lengths():
    found = lines(TextSource(dirt=False))
    assert all(re.fullmatch(r"[A-Z][a-z]*,?( [a-z]+,?)* [a-z]+\.", line) for line in found)
    lengths = [len(line.split()) for line in found]
    assert (min(lengths), max(lengths)) == (4, 16)
    assert np.mean(lengths) == pytest.approx(10, abs=0.2)


def test_dirt_is_blank_lines():
    assert np.mean([not line.strip() for line in lines(TextSource())]) == pytest.approx(0.02, abs=0.007)
    assert all(line.strip() for line in lines(TextSource(dirt=False)))
    assert len({line for line in lines(TextSource()) if not line.strip()}) == 2


def test_options_and_misuse():
    assert lines(TextSource(seed=1)) != lines(TextSource(seed=2))
    source = generate("text", messages=7, vocabulary=9)
    assert repr(source) == "TextSource(messages=7, seed=0, dirt=True, vocabulary=9)"
    assert source.finished(source.latest(source.initial()))
    for options in ({"vocabulary": 0}, {"dirt": 1}, {"messages": -1}, {"seed": "x"}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            TextSource(**options)
    with pytest.raises(ConfigError, match="no sensors"):
        generate("text", 5)
    with pytest.raises(
        ConfigError, match=r"there is no generated stream 'tex'; there are city, .*did you mean \"text\""
    ):
        generate("tex")


def test_times_are_even_and_found():
    source = TextSource(messages=100)
    batch = next(source.read({"start": 0, "end": 100}))
    times = batch["event_time"].cast("int64").to_numpy() // 1000
    assert np.diff(times).tolist() == [1] * 99
    for i in (0, 1, 57):
        assert source.time_at({"message": i}) == times[i] * 1000
        assert source.until({"message": 0}, int(times[i]) * 1000) == {"message": i + 1}
    assert source.until({"message": 0}, int(times[0]) * 1000 - 1) == {"message": 0}
