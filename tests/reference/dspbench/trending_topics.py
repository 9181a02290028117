"""Trending topics, one tweet at a time."""

from __future__ import annotations

import json
import string
from datetime import datetime

from tests.reference.dspbench.sliding import SlottedCounter, Ticks


def parse(line):
    """Return time in microseconds and text of a tweet; None if it is malformed."""
    try:
        given = json.loads(line)
        given = given.get("data", given)
        assert isinstance(given["id"], str)
        if not isinstance(given["text"], str):
            return None
        text = given["created_at"].replace("Z", "+00:00")
        if text[:1].isalpha():
            time = datetime.strptime(text, "%a %b %d %H:%M:%S %z %Y")
        else:
            time = datetime.fromisoformat(text)
        return round(time.timestamp() * 1e6), given["text"]
    except (ValueError, KeyError, AttributeError):
        return None


def topics(text, normalise):
    """Yield the hash tags of a text."""
    for word in text.split():
        if not word.startswith("#"):
            continue
        if not normalise:
            yield word
        elif rest := word[1:].strip(string.punctuation):
            yield f"#{rest}".lower()


def trending_topics(lines, *, window=10_000_000, every=2_000_000, k=10, normalise=False, partial=True):
    """Return rows of tick (microseconds), rank, topic and count, and the numbers of malformed lines."""
    slots = max(2, window // every)
    counter, ticks, rankings, bad = SlottedCounter(slots), Ticks(every), [], []

    def rank(tick, counts):
        best = sorted((-n, topic) for topic, n in counts.items() if n)[:k]
        rankings.extend((tick, place, topic, -n) for place, (n, topic) in enumerate(best, 1))

    for number, line in enumerate(lines):
        tweet = parse(line)
        if tweet is None:
            bad.append(number)
            continue
        for tick in ticks.move(tweet[0]):
            rank(tick, counter.tick())
        for topic in topics(tweet[1], normalise):
            counter.add(topic)
    if partial and ticks.first is not None:
        rank(ticks.last(), counter.totals())
    return rankings, bad
