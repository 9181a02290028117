"""Spike detection in plain PySpark."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "spike_detection"]

BASELINE = Baseline("split, transformWithStateInPandas per device, where")
WINDOW, THRESHOLD = 1000, 0.03


class PerDevice(StatefulProcessor):
    """Mean of a device's latest readings."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("latest", "readings array<double>")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        latest: deque[float] = deque(() if stored is None else stored[0], maxlen=WINDOW)
        total = sum(latest)
        for frame in rows:
            means = []
            for value in frame["value"].tolist():
                if len(latest) == WINDOW:
                    total -= latest[0]
                latest.append(value)
                total += value
                means.append(total / len(latest))
            frame["moving_average"] = means
            yield frame
        self._state.update((list(latest),))

    def close(self) -> None:
        pass


def spike_detection(inputs: Mapping[str, Any]) -> Any:
    """``device_id``, ``value``, ``moving_average``."""
    cells = f.split(f.trim("value"), r"\s+")
    readings = (
        inputs["sensors"]
        .select(cells.alias("cells"))
        .where((f.size("cells") == 8) & f.col("cells")[2].try_cast("long").isNotNull())
        .where(f.forall(f.slice("cells", 6, 3), lambda text: f.abs(text.try_cast("double")) < float("inf")))
        .select(
            f.col("cells")[3].alias("device_id"),
            f.col("cells")[4].try_cast("double").alias("value"),
            f.concat_ws(" ", f.col("cells")[0], f.col("cells")[1]).try_cast("timestamp").alias("event_time"),
        )
        .where(f.col("event_time").isNotNull() & (f.abs("value") < float("inf")) & ~f.isnan("value"))
        .select("device_id", "value")
    )
    means = readings.groupBy("device_id").transformWithStateInPandas(
        PerDevice(),
        outputStructType="device_id string, value double, moving_average double",
        outputMode="append",
        timeMode="None",
    )
    return means.where(f.abs(f.col("value") - f.col("moving_average")) > THRESHOLD * f.abs("moving_average"))
