"""Trending topics in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "trending_topics"]

BASELINE = Baseline(
    "from_json, explode, count by sliding window and topic, then the first ten of each window; tweets in order of "
    "time, as Spark counts a late one in its own window, riot_ops on arrival",
    python=False,
    open_windows={"rankings": "tick_time"},
    stream_options={"late": 0.0},
)
WINDOW, EVERY, K = "10 seconds", "2 seconds", 10
TWEET = "id string, created_at string, text string"


def trending_topics(inputs: Mapping[str, Any]) -> Any:
    """``tick_time``, ``rank``, ``topic``, ``count``.

    Windows begin at even seconds, as do the ticks of tweets if the first tweet has such a time.
    """
    tweet = f.from_json("value", f"data struct<{TWEET.replace(' string', ': string')}>, {TWEET}")
    wrapped = f.col("t.data").isNotNull()
    fields = [f.when(wrapped, f.col(f"t.data.{n}")).otherwise(f.col(f"t.{n}")).alias(n) for n in TWEET.split()[::2]]
    tweets = inputs["tweets"].select(tweet.alias("t")).select(*fields)
    topics = f.filter(f.split("text", r"\s+"), lambda word: word.startswith("#"))
    tags = (
        tweets.where(f.col("id").isNotNull() & f.col("text").isNotNull())
        .select(f.col("created_at").try_cast("timestamp").alias("at"), topics.alias("topics"))
        .where(f.col("at").isNotNull())
        .withWatermark("at", "0 seconds")
        .select("at", f.explode("topics").alias("topic"))
    )
    counts = tags.groupBy(f.window("at", WINDOW, EVERY), "topic").agg(f.count("*").alias("count"))
    best = f.array_sort(f.collect_list(f.struct((-f.col("count")).alias("less"), "topic")))
    ranked = counts.groupBy("window").agg(f.slice(best, 1, K).alias("best"))
    rows = ranked.select(f.col("window.end").alias("tick_time"), f.posexplode("best").alias("place", "one"))
    return rows.select(
        "tick_time", (f.col("place") + 1).alias("rank"), "one.topic", (-f.col("one.less")).alias("count")
    )
