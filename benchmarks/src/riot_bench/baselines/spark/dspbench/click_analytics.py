"""Click analytics in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.baselines.spark.dspbench.count_key import count_key
from riot_bench.baselines.spark.dspbench.geo_join import with_location

__all__ = ["BASELINE", "click_analytics"]

BASELINE = Baseline(
    "from_json, dropDuplicates, joins with the networks, groupBy",
    "update",
    {"emit": "update"},
    python=False,
    omitted_fields=("country_total", "total_unique"),
)


def click_analytics(inputs: Mapping[str, Any]) -> Any:
    """Totals of visits and counts by country and city, each with its ``stream``."""
    click = f.from_json("value", "ip string, url string, clientKey string")
    clicks = inputs["clicks"].select(click.alias("c")).select("c.*").dropna(subset=["ip", "url"])
    clicks = clicks.withColumn("clientKey", f.coalesce("clientKey", "ip"))
    first = clicks.dropDuplicates(["url", "clientKey"]).select(count_key("unique").alias("k")).select("k.*")
    known = f.col("country").isNotNull()
    counted = f.array(
        count_key("visits"),
        f.when(known, count_key("country_totals", f.col("country"))),
        f.when(known, count_key("locations", f.col("country"), f.col("city"))),
    )
    kinds = with_location(clicks).select(f.explode(counted).alias("k")).where(f.col("k").isNotNull()).select("k.*")
    counts = kinds.union(first).groupBy("stream", f.col("a").alias("country"), f.col("b").alias("city")).count()
    return counts.withColumns({"total_count": f.col("count"), "city_total": f.col("count")})
