"""The spam filter in plain PySpark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.opponent import Opponent

__all__ = ["OPPONENT", "spam_filter"]

OPPONENT = Opponent(
    "from_json, split; training as a batch (not timed), then a dict in mapInPandas", first=("training",)
)
WORDS, THRESHOLD, UNKNOWN, LEAST = 15, 0.9, 0.4, 0.01
#: How little a word says, the word, and what it adds to the logarithm of the odds.
Judgement = tuple[float, str, float]


def _mails(lines: Any, more: str = "") -> Any:
    mail = f.from_json("value", f"id string, message string{more}")
    words = f.filter(f.split(f.lower("message"), r"[^a-z0-9_]+"), lambda word: word != "")
    mails = lines.select(mail.alias("m")).select("m.*").where("id is not null and message is not null")
    return mails.withColumn("words", words)


def _learned(lines: Any) -> tuple[dict[str, tuple[int, int]], int, int]:
    """How often each word was in spam and in other mails, and how many words there were in both."""
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
    """``id``, ``spam_probability``, ``is_spam``; ``training`` is no stream: it is there before."""
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
            made = pd.DataFrame({"id": frame["id"], "spam_probability": chances})
            made["is_spam"] = made["spam_probability"] > THRESHOLD
            yield made

    mails = _mails(inputs["analysis"]).select("id", f.array_distinct("words").alias("words"))
    schema = "id string, spam_probability double, is_spam boolean"
    return mails.where(f.size("words") > 0).mapInPandas(judged, schema)
