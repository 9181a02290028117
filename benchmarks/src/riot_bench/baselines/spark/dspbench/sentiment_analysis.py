"""Sentiment analysis in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_ops.dataflows.dspbench.operators.sentiment_lexicons import VALENCES

__all__ = ["BASELINE", "sentiment_analysis"]

BASELINE = Baseline("from_json, split, aggregate over the words", python=False)
TWEET = "id string, created_at string, text string, lang string"


def _value(word: Any) -> Any:
    """Return the valence of a word, from sets of words by value, which Spark looks up by hash."""
    by_value: dict[float, list[str]] = {}
    for term, value in VALENCES.items():
        by_value.setdefault(value, []).append(term)
    cases = [(word.isin(*terms), f.lit(value)) for value, terms in by_value.items()]
    first = f.when(*cases[0])
    return reduce(lambda chain, case: chain.when(*case), cases[1:], first).otherwise(f.lit(0.0))


def sentiment_analysis(inputs: Mapping[str, Any]) -> Any:
    """``id``, ``sentiment``, ``score``."""
    tweet = f.from_json("value", f"data struct<{TWEET.replace(' string', ': string')}>, {TWEET}")
    tweets = inputs["tweets"].select(tweet.alias("t"))
    wrapped = f.col("t.data").isNotNull()
    fields = [f.when(wrapped, f.col(f"t.data.{n}")).otherwise(f.col(f"t.{n}")).alias(n) for n in TWEET.split()[::2]]
    tweets = tweets.select(*fields).where(
        f.col("id").isNotNull()
        & f.col("text").isNotNull()
        & f.col("created_at").try_cast("timestamp").isNotNull()
        & f.coalesce(f.col("lang") == "en", f.lit(True))
    )
    words = f.split(f.lower("text"), r"[\p{Punct}\s\x00]+")
    score = f.aggregate(words, f.lit(0.0), lambda total, word: total + _value(word))
    label = f.when(f.col("score") > 0, "Positive").when(f.col("score") < 0, "Negative").otherwise("Neutral")
    return tweets.select("id", score.alias("score")).select("id", label.alias("sentiment"), "score")
