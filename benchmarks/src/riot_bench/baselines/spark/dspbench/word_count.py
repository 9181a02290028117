"""Word count in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "word_count"]

BASELINE = Baseline("split, explode, groupBy(word).count()", "update", {"emit": "update"}, python=False)


def word_count(inputs: Mapping[str, Any]) -> Any:
    """``word``, ``count``: a row for each word of a micro-batch."""
    words = inputs["lines"].select(f.explode(f.split("value", r"[^A-Za-z0-9_]+")).alias("word"))
    return words.where(f.col("word") != "").groupBy("word").count()
