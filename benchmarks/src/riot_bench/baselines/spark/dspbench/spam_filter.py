"""The spam filter in plain PySpark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "spam_filter"]

BASELINE = Baseline(
    "from_json, split; training as a batch (not timed), then a dict in mapInPandas", preloaded=("training",)
)
WORDS, THRESHOLD, UNKNOWN, LEAST = 15, 0.9, 0.4, 0.01
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


def spam_filter(inputs: Mapping[str, Any]) -> Any:
    """``id``, ``spam_probability``, ``is_spam``; ``training`` is not a stream but is read beforehand."""
    known, spam, ham = _learned(inputs["training"])
    judge = _judge(known, spam, ham)
    table = {word: judge(word) for word in known}

    def judged(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            chances = []
            for words in frame["words"].tolist():
                telling = sorted([table.get(word) or judge(word) for word in words])[:WORDS]
                odds = sum(one[2] for one in telling)
                chances.append(1 / (1 + math.exp(odds)) if odds < 700 else 0.0)
            result = pd.DataFrame({"id": frame["id"], "spam_probability": chances})
            result["is_spam"] = result["spam_probability"] > THRESHOLD
            yield result

    mails = _mails(inputs["analysis"]).select("id", f.array_distinct("words").alias("words"))
    schema = "id string, spam_probability double, is_spam boolean"
    return mails.where(f.size("words") > 0).mapInPandas(judged, schema)
