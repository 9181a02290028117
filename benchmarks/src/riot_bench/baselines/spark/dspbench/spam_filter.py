"""The spam filter in plain PySpark."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "spam_filter"]

BASELINE = Baseline(
    "from_json, split, higher-order functions over the words; training as a batch (not timed)",
    python=False,
    preloaded=("training",),
)
WORDS, THRESHOLD, UNKNOWN, LEAST = 15, 0.9, 0.4, 0.01
BUCKETS = 4096
#: Negative distance of a word's spam share from 0.5, the word, and its addend to the log odds.
Judgement = tuple[float, str, float]


def _mails(lines: Any, more: str = "") -> Any:
    mail = f.from_json("value", f"id string, message string{more}")
    words = f.filter(f.split(f.lower("message"), r"[^a-z0-9_]+"), lambda word: word != "")
    mails = lines.select(mail.alias("m")).select("m.*").where("id is not null and message is not null")
    return mails.withColumn("words", words)


def _learned(lines: Any) -> tuple[dict[str, tuple[int, int]], int, int]:
    """Return the counts of each word in spam and in other mails, and the numbers of words in both."""
    mails = _mails(lines, ", spam boolean").where("spam is not null")
    bad, good = (f.sum(f.when(kind, 1).otherwise(0)) for kind in (f.col("spam"), ~f.col("spam")))
    rows = mails.select("spam", f.explode("words").alias("word")).groupBy("word").agg(bad, good).collect()
    return {row[0]: (row[1], row[2]) for row in rows}, sum(row[1] for row in rows), sum(row[2] for row in rows)


def _judge(known: dict[str, tuple[int, int]], spam: int, ham: int) -> Callable[[str], Judgement]:
    def judged(word: str) -> Judgement:
        bad, good = known.get(word, (0, 0))
        in_spam, in_ham = bad / spam if spam else 0.0, 2 * good / ham if ham else 0.0
        share = UNKNOWN
        if in_spam + in_ham > 0:
            share = min(max(in_spam / (in_spam + in_ham), LEAST), 1 - LEAST)
        return -abs(share - 0.5), word, math.log((1 - share) / share)

    return judged


def _table(spark: Any, judged: Mapping[str, Judgement]) -> Any:
    """Build a constant hash table: maps of few words each, since Spark searches a map linearly."""
    words = spark.createDataFrame([(word,) for word in judged], "word string")
    maps: list[dict[str, dict[str, float]]] = [{} for _ in range(BUCKETS)]
    for word, bucket in words.select("word", _bucket(f.col("word"))).collect():
        maps[bucket][word] = {"rank": judged[word][0], "odds": judged[word][2]}
    return f.from_json(f.lit(json.dumps(maps)), "array<map<string, struct<rank: double, odds: double>>>")


def _bucket(word: Any) -> Any:
    return f.pmod(f.xxhash64(word), f.lit(BUCKETS)).cast("int")


def spam_filter(inputs: Mapping[str, Any]) -> Any:
    """``id``, ``spam_probability``, ``is_spam``; ``training`` is not a stream but is read beforehand."""
    known, spam, ham = _learned(inputs["training"])
    judge = _judge(known, spam, ham)
    table = _table(inputs["analysis"].sparkSession, {word: judge(word) for word in known})
    rank, _, odds = judge("")

    def judged(word: Any) -> Any:
        found = f.try_element_at(f.get(table, _bucket(word)), word)
        values = f.coalesce(found["rank"], f.lit(rank)), word, f.coalesce(found["odds"], f.lit(odds))
        return f.struct(*(value.alias(name) for value, name in zip(values, ("rank", "word", "odds"), strict=True)))

    mails = _mails(inputs["analysis"]).select("id", f.array_distinct("words").alias("words"))
    significant = f.slice(f.array_sort(f.transform("words", judged)), 1, WORDS)
    sums = f.aggregate(significant, f.lit(0.0), lambda total, word: total + word["odds"])
    scored = mails.where(f.size("words") > 0).select("id", (1 / (1 + f.exp(sums))).alias("spam_probability"))
    return scored.withColumn("is_spam", f.col("spam_probability") > THRESHOLD)
