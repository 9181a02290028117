"""The Yahoo streaming benchmark in plain PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_ops.streams.dspbench.adverts import campaigns

__all__ = ["BASELINE", "yahoo_streaming"]

BASELINE = Baseline(
    "from_json, broadcast join, window and count", python=False, open_windows={"campaigns": "window_start"}
)


def yahoo_streaming(inputs: Mapping[str, Any]) -> Any:
    """``window_start``, ``campaign_id``, ``count``."""
    events = inputs["events"]
    ads = events.sparkSession.createDataFrame(list(campaigns().items()), "ad_id string, campaign_id string")
    event = f.from_json("value", "ad_id string, event_type string, event_time string")
    views = (
        events.select(event.alias("e"))
        .where(f.col("e.event_type") == "view")
        .select("e.ad_id", f.timestamp_millis(f.col("e.event_time").try_cast("long")).alias("event_time"))
        .withWatermark("event_time", "0 seconds")
        .join(f.broadcast(ads), "ad_id")
    )
    counts = views.groupBy(f.window("event_time", "10 seconds"), "campaign_id").count()
    return counts.select(f.col("window.start").alias("window_start"), "campaign_id", "count")
