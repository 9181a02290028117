"""Click analytics in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.opponent import Opponent
from riot_bench.baselines.spark.dspbench.places import kind, located

__all__ = ["OPPONENT", "click_analytics"]

OPPONENT = Opponent("from_json, dropDuplicates, joins with the networks, groupBy", "update", {"emit": "update"}, False)


def click_analytics(inputs: Mapping[str, Any]) -> Any:
    """The totals of visits, and the counts by country and by city, with the ``stream`` that they belong to."""
    click = f.from_json("value", "ip string, url string, clientKey string")
    clicks = inputs["clicks"].select(click.alias("c")).select("c.*").dropna()
    first = clicks.dropDuplicates(["url", "clientKey"]).select(kind("unique").alias("k")).select("k.*")
    known = f.col("country").isNotNull()
    counted = f.array(
        kind("visits"),
        f.when(known, kind("country_totals", f.col("country"))),
        f.when(known, kind("locations", f.col("country"), f.col("city"))),
    )
    kinds = located(clicks).select(f.explode(counted).alias("k")).where(f.col("k").isNotNull()).select("k.*")
    counts = kinds.union(first).groupBy("stream", f.col("a").alias("country"), f.col("b").alias("city")).count()
    return counts.withColumns({"total_count": f.col("count"), "city_total": f.col("count")})
