"""Generated tweets: format, languages, feelings, topics, times and dirt."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators.sentiment_lexicons import VALENCES
from riot_ops.streams import generate
from riot_ops.streams.dspbench import TweetsSource
from riot_ops.streams.dspbench.tweets import BAD, GOOD
from tests.streams.generated_lines import lines


def tweets(n=20_000, start=0, **options):
    found = [json.loads(line) for line in lines(TweetsSource(dirt=False, **options), start, start + n)]
    return [tweet.get("data", tweet) for tweet in found]


@pytest.mark.long
def test_lines_have_the_format_of_the_data_set():
    whole = [json.loads(line) for line in lines(TweetsSource(dirt=False), 0, 20_000)]
    assert np.mean(["data" in tweet for tweet in whole]) == pytest.approx(0.98, abs=0.005)
    for number, tweet in enumerate(tweets(500)):
        assert set(tweet) - {"lang"} == {"author_id", "created_at", "text", "id"}
        assert tweet["id"] == str(9_000_000 + number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", tweet["created_at"])
        assert 1000 <= int(tweet["author_id"]) < 10_000
    assert np.mean(["\n" in tweet["text"] and '"' in tweet["text"] for tweet in tweets()]) == pytest.approx(
        0.02, abs=0.005
    )


def test_shares_of_languages():
    found = Counter(tweet.get("lang") for tweet in tweets())
    for language, share in {"en": 0.88 * 0.99, "pt": 0.08 * 0.99, "de": 0.04 * 0.99, None: 0.01}.items():
        assert found[language] / 20_000 == pytest.approx(share, abs=0.01)
    texts = {tweet["lang"]: tweet["text"] for tweet in tweets(2000) if "lang" in tweet}
    assert not texts["de"].isascii() or not texts["pt"].isascii()


@pytest.mark.long
def test_shares_of_feelings():
    assert all(VALENCES[word] > 0 for word in GOOD.split())
    assert all(VALENCES[word] < 0 for word in BAD.split())
    words = [word.strip("!,").lower() for tweet in tweets() for word in tweet["text"].split() if word[0] != "#"]
    assert np.mean([word in GOOD.split() for word in words]) == pytest.approx(0.09, abs=0.005)
    assert np.mean([word in BAD.split() for word in words]) == pytest.approx(0.07, abs=0.005)
    lengths = [sum(word[0] != "#" for word in tweet["text"].split()) for tweet in tweets(5000)]
    assert np.mean(lengths) == pytest.approx(9, abs=0.2)


def tags(**options):
    return [re.findall(r"#\w+", tweet["text"]) for tweet in tweets(**options)]


def test_topics_follow_the_law_of_zipf():
    found = tags(topics=10)
    assert np.bincount([len(one) for one in found]) / 20_000 == pytest.approx([0.3, 0.35, 0.24, 0.11], abs=0.015)
    assert np.mean([len(one) for one in found]) == pytest.approx(697 / 600, abs=0.03)
    counts = Counter(tag for one in found for tag in one).most_common()
    law = 1 / np.arange(1, 11)
    assert np.array([n for _, n in counts]) / sum(n for _, n in counts) == pytest.approx(law / law.sum(), rel=0.1)
    assert counts[0][0] == "#spark"
    later = Counter(tag for one in tags(topics=10, start=20_000) for tag in one).most_common()
    assert later[0][0] == "#storm"
    assert len({tag for one in tags(topics=40) for tag in one}) == 40


@pytest.mark.parametrize("late", [0.02, 0.5])
def test_times_are_nearly_ascending(late):
    found = tweets(rate=10.0, late=late)
    times = np.array([datetime.fromisoformat(tweet["created_at"]).timestamp() for tweet in found])
    back = 1_605_846_600 + np.arange(times.size) / 10 - times
    assert np.mean(back > 0.0005) == pytest.approx(late, rel=0.15)
    assert 4.9 < back.max() < 5
    assert TweetsSource(rate=50).gap_ms == 20


def test_dirty_lines_have_their_share_and_form():
    found = lines(TweetsSource(), 0, 60_000)
    assert sum(line == "tweet" for line in found) == pytest.approx(100, rel=0.3)
    assert sum(not line for line in found) == pytest.approx(100, rel=0.3)
    assert sum(bool(line) and line[0] == "{" and "text" not in line for line in found) == pytest.approx(100, rel=0.3)


def test_options_and_misuse():
    assert repr(generate("tweets", messages=7, topics=9, rate=2.0, late=0.5)) == (
        "TweetsSource(messages=7, seed=0, dirt=True, topics=9, rate=2.0, late=0.5)"
    )
    for options in ({"topics": 0}, {"topics": 2.5}, {"rate": 0}, {"late": 1.5}, {"late": -0.1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            TweetsSource(**options)
