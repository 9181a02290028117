"""Trending topics in plain Python."""

from __future__ import annotations

import heapq
import string
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from riot_bench.baselines.python.dspbench.sentiment_analysis import tweets
from riot_bench.baselines.python.rows import new_rows
from riot_ops.core.parameters import duration

__all__ = ["trending_topics"]


class _Counter:
    """Topic counts over the latest slots."""

    def __init__(self, slots: int) -> None:
        self.slots: deque[dict[str, int]] = deque({} for _ in range(slots))
        self.totals: dict[str, int] = {}

    def add(self, topic: str) -> None:
        slot = self.slots[-1]
        slot[topic] = slot.get(topic, 0) + 1
        self.totals[topic] = self.totals.get(topic, 0) + 1

    def top(self, k: int) -> list[tuple[str, int]]:
        return heapq.nsmallest(k, self.totals.items(), key=lambda one: (-one[1], one[0]))

    def advance(self) -> None:
        for topic, n in self.slots.popleft().items():
            left = self.totals[topic] - n
            if left:
                self.totals[topic] = left
            else:
                del self.totals[topic]
        self.slots.append({})


def trending_topics(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    window: str | timedelta = "10s",
    every: str | timedelta = "2s",
    k: int = 10,
    normalise: bool = False,
    rankers: int = 4,
    partial: bool = True,
) -> dict[str, list[tuple[Any, ...]]]:
    """``rankings``: tick_time, rank, topic, count. ``inputs`` has ``tweets``; there is a single ranker."""
    length, period = (duration(given) if isinstance(given, str) else given for given in (window, every))
    counter = _Counter(max(2, length // period))
    rankings = new_rows()
    following: datetime | None = None

    def tick(at: datetime) -> None:
        rankings.extend((at, rank, topic, n) for rank, (topic, n) in enumerate(counter.top(k), 1))
        counter.advance()

    for _, at, text, _ in tweets(inputs["tweets"]):
        if following is None:
            following = at + period
        while at >= following:
            tick(following)
            following += period
        for word in text.split():
            if word[0] != "#":
                continue
            if normalise:
                word = word[1:].strip(string.punctuation).lower()
                if not word:
                    continue
                word = f"#{word}"
            counter.add(word)
    if partial and following is not None:
        tick(following)
    return {"rankings": rankings}
