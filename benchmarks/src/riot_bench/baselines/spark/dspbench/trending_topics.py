"""Trending topics in plain PySpark."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.baselines.spark.dspbench.global_state import with_global_state

__all__ = ["BASELINE", "trending_topics"]

BASELINE = Baseline(
    "from_json, split, transformWithStateInPandas over all tweets, whose times advance the ticks",
    omits_open_windows=True,
)
EVERY, SLOTS, K = pd.Timedelta("2s"), 5, 10
TWEET = "id string, created_at string, text string"
RANKINGS = "tick_time timestamp, rank long, topic string, count long"


class _Topics:
    """Topic counts over the latest slots."""

    def __init__(self) -> None:
        self.slots: deque[Counter[str]] = deque(Counter() for _ in range(SLOTS))
        self.totals: Counter[str] = Counter()
        self.following: pd.Timestamp | None = None

    def update(self, frames: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for frame in frames:
            for at, topics in zip(frame["at"], frame["topics"].tolist(), strict=True):
                if self.following is None:
                    self.following = at + EVERY
                while at >= self.following:
                    top = heapq.nsmallest(K, self.totals.items(), key=lambda one: (-one[1], one[0]))
                    found += [(self.following, rank, topic, n) for rank, (topic, n) in enumerate(top, 1)]
                    self._advance()
                    self.following += EVERY
                self.slots[-1].update(topics)
                self.totals.update(topics)
        return found

    def _advance(self) -> None:
        self.totals -= self.slots.popleft()  # which drops zero counts
        self.slots.append(Counter())


def trending_topics(inputs: Mapping[str, Any]) -> Any:
    """``tick_time``, ``rank``, ``topic``, ``count``."""
    tweet = f.from_json("value", f"data struct<{TWEET.replace(' string', ': string')}>, {TWEET}")
    fields = [f.coalesce(f"t.data.{name}", f"t.{name}").alias(name) for name in TWEET.split()[::2]]
    tweets = inputs["tweets"].select(tweet.alias("t")).select(*fields)
    at = f.col("created_at").try_cast("timestamp")
    topics = f.filter(f.split("text", r"\s+"), lambda word: word.startswith("#"))
    tweets = tweets.where(f.col("id").isNotNull() & f.col("text").isNotNull()).select(
        at.alias("at"), topics.alias("topics")
    )
    return with_global_state(tweets.where(f.col("at").isNotNull()), _Topics, RANKINGS)
