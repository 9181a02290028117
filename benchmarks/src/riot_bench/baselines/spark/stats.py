"""STATS in plain PySpark with JSON functions and state per key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.python.senml import FIELDS
from riot_bench.baselines.python.stats import HORIZON, HyperLogLog, SensorState

__all__ = ["stats"]

MESSAGE = "e array<struct<n string, v string, sv string>>, bt long"
RESULTS = (
    "kind string, event_time timestamp, sensor_id string, obs_type string, value double, predictions array<double>"
)
COLUMNS = ["kind", "event_time", "sensor_id", "obs_type", "value", "predictions"]


class PerSensor(StatefulProcessor):
    """Averages, and predictions of the smoothed readings, of one observation type of one sensor."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("sensor", "total double, n int, x double, p double, window array<double>")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        state = SensorState()
        stored = self._state.get()
        if stored is not None:
            state.total, state.n, state.x, state.p, window = stored
            state.window.extend(window)
        out = []
        for frame in rows:
            for time, value in zip(frame["event_time"], frame["value"].tolist(), strict=True):
                reading = None if value != value else value  # noqa: PLR0124 (pandas has null as NaN)
                mean = None if reading is None else state.average(reading)
                if mean is not None:
                    out.append(("avg", time, *key, mean, None))
                predictions = state.predict(state.smooth(reading))
                if predictions is not None:
                    out.append(("slr", time, *key, sum(predictions) / HORIZON, predictions))
        self._state.update((state.total, state.n, state.x, state.p, list(state.window)))
        yield pd.DataFrame(out, columns=COLUMNS)

    def close(self) -> None:
        pass


class PerType(StatefulProcessor):
    """Number of distinct readings of an observation type."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("sketch", "registers binary, total double, zeros int")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        sketch = HyperLogLog() if stored is None else HyperLogLog(10, bytes(stored[0]), stored[1], stored[2])
        for frame in rows:
            estimates = []
            for value in frame["value"].tolist():
                if value == value:  # noqa: PLR0124
                    sketch.add(value)
                estimates.append(float(sketch.estimate()))
            yield frame.assign(kind="dac", value=estimates, predictions=None)[COLUMNS]
        self._state.update((bytes(sketch.registers), sketch.total, sketch.zeros))

    def close(self) -> None:
        pass


def stats(lines: Any) -> Any:
    """Build STATS over a streaming DataFrame of text lines."""
    message = f.from_json(f.expr("substr(value, instr(value, ',') + 1)"), MESSAGE)
    observations = (
        lines.select(message.alias("m"))
        .select(
            (f.col("m.bt") / 1000).cast("timestamp").alias("event_time"),
            f.expr("filter(m.e, r -> r.n = 'source')[0].sv").alias("sensor_id"),
            f.explode("m.e").alias("r"),
        )
        .where(f.col("r.n").isin(*FIELDS))
        .select(
            "event_time", "sensor_id", f.col("r.n").alias("obs_type"), f.col("r.v").try_cast("double").alias("value")
        )
    )
    per_sensor = observations.groupBy("sensor_id", "obs_type").transformWithStateInPandas(
        PerSensor(), outputStructType=RESULTS, outputMode="append", timeMode="None"
    )
    per_type = observations.groupBy("obs_type").transformWithStateInPandas(
        PerType(), outputStructType=RESULTS, outputMode="append", timeMode="None"
    )
    return per_sensor.union(per_type)
