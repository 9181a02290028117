"""Spike detection in plain PySpark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "spike_detection"]

BASELINE = Baseline("split, NumPy in transformWithStateInPandas per device")
WINDOW, THRESHOLD = 1000, 0.03


class PerDevice(StatefulProcessor):
    """Mean of a device's latest readings, a batch of rows at a time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("latest", "readings binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        latest = np.zeros(0) if stored is None else np.frombuffer(stored[0])
        for frame in rows:
            known = len(latest)
            latest = np.concatenate([latest, frame["value"].to_numpy()])
            totals = np.concatenate([[0.0], np.cumsum(latest)])
            ends = np.arange(known + 1, len(totals))
            begins = np.maximum(ends - WINDOW, 0)
            means = (totals[ends] - totals[begins]) / (ends - begins)
            yield frame[np.abs(frame["value"] - means) > THRESHOLD * np.abs(means)].assign(
                moving_average=lambda found, means=means: means[found.index]
            )
            latest = latest[-WINDOW:]
        self._state.update((latest.tobytes(),))

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
    return readings.groupBy("device_id").transformWithStateInPandas(
        PerDevice(),
        outputStructType="device_id string, value double, moving_average double",
        outputMode="append",
        timeMode="None",
    )
