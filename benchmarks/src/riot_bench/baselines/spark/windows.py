"""Mean and count per device and minute in plain PySpark."""

from __future__ import annotations

from typing import Any

__all__ = ["spark_window_means"]


def spark_window_means(readings: Any) -> Any:
    """Aggregate a streaming DataFrame; a window is emitted when the watermark passes its end."""
    from pyspark.sql import functions as F  # noqa: N812

    return (
        readings.withWatermark("event_time", "0 seconds")
        .groupBy(F.window("event_time", "1 minute"), "device")
        .agg(F.avg("value").alias("mean"), F.count("*").alias("n"))
    )
