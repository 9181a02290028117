"""A Kalman filter per key, and a bare pass, in plain PySpark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

__all__ = ["KalmanPerKey", "bare_pass", "kalman_per_key"]


class KalmanPerKey(StatefulProcessor):
    """Kalman filter over the readings of a key."""

    def __init__(self, q: float = 0.125, r: float = 0.32, p0: float = 30.0) -> None:
        self._parameters = q, r, p0

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("kalman", "x double, p double")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        q, r, p0 = self._parameters
        x, p = self._state.get() or (0.0, p0)
        for frame in rows:
            smooth = []
            for z in frame["value"].tolist():
                p += q
                gain = p / (p + r)
                x += gain * (z - x)
                p *= 1.0 - gain
                smooth.append(x)
            frame["value"] = smooth
            yield frame
        self._state.update((x, p))

    def close(self) -> None:
        pass


def kalman_per_key(readings: Any) -> Any:
    """Smooth a streaming DataFrame of readings per device."""
    return readings.groupBy("device").transformWithStateInPandas(
        KalmanPerKey(), outputStructType=readings.schema, outputMode="append", timeMode="None"
    )


def bare_pass(readings: Any) -> Any:
    """Shuffle by device and pass the rows through Python unchanged."""

    def identity(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    return readings.repartition("device").mapInArrow(identity, readings.schema)
