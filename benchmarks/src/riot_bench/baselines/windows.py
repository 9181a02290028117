"""Mean and count per device and minute: in plain Python, and by Spark's own operators."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["means", "plain_means"]


def plain_means(table: pa.Table) -> list[tuple[str, int, float, int]]:
    """Mean and count per device and minute, as somebody would write it in plain Python."""
    minute = 0
    found: list[tuple[str, int, float, int]] = []
    sums: dict[str, list[Any]] = {}
    times = table.column("event_time").cast(pa.int64()).to_pylist()
    for time, device, value in zip(
        times, table.column("device").to_pylist(), table.column("value").to_pylist(), strict=True
    ):
        if time // 60_000_000 != minute:
            found += [(name, minute, total / n, n) for name, (total, n) in sums.items()]
            minute = time // 60_000_000
            sums = {}
        cell = sums.get(device)
        if cell is None:
            sums[device] = [value, 1]
        else:
            cell[0] += value
            cell[1] += 1
    return found + [(name, minute, total / n, n) for name, (total, n) in sums.items()]


def means(readings: Any) -> Any:
    """The windows of a streaming DataFrame, each put out when the watermark passes its end."""
    from pyspark.sql import functions as F  # noqa: N812

    return (
        readings.withWatermark("event_time", "0 seconds")
        .groupBy(F.window("event_time", "1 minute"), "device")
        .agg(F.avg("value").alias("mean"), F.count("*").alias("n"))
    )
