"""Log processing in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.baselines.spark.dspbench.count_key import count_key
from riot_bench.baselines.spark.dspbench.geo_join import with_location

__all__ = ["BASELINE", "log_processing"]

BASELINE = Baseline(
    "from_csv, joins with the networks, one groupBy",
    "update",
    {"emit": "update"},
    python=False,
    omitted_fields=("country_total",),
)
CELLS = "ip string, ident string, user string, day string, zone string, request string, response string, bytes string"


def log_processing(inputs: Mapping[str, Any]) -> Any:
    """Counts by minute, status, country and city, each with its ``stream``.

    Spark's update mode allows a single aggregation, so it has all counts; the totals of countries are separate rows.
    """
    line = f.from_csv("value", f.lit(CELLS.replace(" string", " STRING")), {"sep": " "})
    time = f.expr("try_to_timestamp(concat(substr(day, 2), ' ', rtrim(']', zone)), 'dd/MMM/yyyy:HH:mm:ss Z')")
    lines = (
        inputs["log"]
        .where(f.col("value").rlike(r'^\S+ \S+ \S+ \[[^\]]+\] "[^"]+" \d\d\d (\d+|-)( |$)'))
        .select(line.alias("l"))
        .select("l.*")
        .withColumn("event_time", time)
        .where(f.col("event_time").isNotNull())
        .select("ip", "response", f.date_trunc("minute", "event_time").alias("minute"))
    )
    known = f.col("country").isNotNull()
    counted = f.array(
        count_key("volume", f.col("minute").cast("string")),
        count_key("status", f.col("response")),
        f.when(known, count_key("country_totals", f.col("country"))),
        f.when(known, count_key("countries", f.col("country"), f.col("city"))),
    )
    kinds = with_location(lines).select(f.explode(counted).alias("k")).where(f.col("k").isNotNull()).select("k.*")
    counts = kinds.groupBy("stream", "a", "b").count()
    return counts.select(
        "stream",
        f.when(f.col("stream") == "volume", f.col("a").cast("timestamp")).alias("minute"),
        f.when(f.col("stream") == "status", f.col("a").cast("long")).alias("response"),
        f.when(f.col("stream").isin("country_totals", "countries"), f.col("a")).alias("country"),
        f.col("b").alias("city"),
        "count",
        f.col("count").alias("city_total"),
    )
