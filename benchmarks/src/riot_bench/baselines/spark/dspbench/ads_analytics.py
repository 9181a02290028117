"""Ads analytics in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "ads_analytics"]

BASELINE = Baseline(
    "split, groupBy(query, ad).sum; the file is read once for clicks and impressions",
    "update",
    {"emit": "update"},
    python=False,
)
MOST = 2**31 - 1


def _number(cell: int) -> Any:
    return f.col("cells")[cell].try_cast("long")


def ads_analytics(inputs: Mapping[str, Any]) -> Any:
    """``query_id``, ``ad_id``, ``ctr``, ``impressions``, ``clicks``: a row for each pair of a micro-batch."""
    records = (
        inputs["clicks"]
        .select(f.split("value", "\t").alias("cells"))
        .where(f.size("cells") == 12)
        .select(*(_number(c).alias(name) for c, name in ((7, "query_id"), (3, "ad_id"), (0, "clicks"), (1, "shown"))))
        .where(f.col("query_id").isNotNull() & f.col("ad_id").isNotNull())
        .where(f.col("clicks").between(0, MOST) & f.col("shown").between(0, MOST))
        .where(f.col("clicks") + f.col("shown") > 0)
    )
    sums = records.groupBy("query_id", "ad_id").agg(
        f.sum("shown").alias("impressions"), f.sum("clicks").alias("clicks")
    )
    rate = (f.col("clicks") / f.col("impressions")).alias("ctr")
    return sums.where("impressions > 0").select("query_id", "ad_id", rate, "impressions", "clicks")
