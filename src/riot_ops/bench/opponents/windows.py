"""Mean and count per device and minute by Spark's own operators."""

from __future__ import annotations

from typing import Any

__all__ = ["means"]


def means(readings: Any) -> Any:
    """The windows of a streaming DataFrame, each put out when the watermark passes its end."""
    from pyspark.sql import functions as F  # noqa: N812

    return (
        readings.withWatermark("event_time", "0 seconds")
        .groupBy(F.window("event_time", "1 minute"), "device")
        .agg(F.avg("value").alias("mean"), F.count("*").alias("n"))
    )
