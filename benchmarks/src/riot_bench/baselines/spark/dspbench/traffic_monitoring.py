"""Traffic monitoring in plain PySpark."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.baselines.spark.dspbench.segment_grid import SegmentGrid
from riot_ops.models.road_files import read_roads
from riot_ops.models.roads import grid_roads

__all__ = ["BASELINE", "traffic_monitoring"]

BASELINE = Baseline(
    "split, a pandas UDF that finds the road by a grid of segments, transformWithStateInPandas per road"
)
SOUTH, NORTH, WEST, EAST = 39.689602, 40.122410, 116.105789, 116.670021
WIDTH, TOLERANCE = 5.0, 10.0
HISTORY, SIGMA = 30, 2.0


def _finder(spark: Any, roads: str | None) -> Any:
    """Build a UDF that finds the road of each position, by a grid of segments that each worker receives once."""
    network = grid_roads() if roads is None else read_roads(roads)
    grid = spark.sparkContext.broadcast(SegmentGrid(network, math.hypot(WIDTH, TOLERANCE)))

    def find(latitude: pd.Series, longitude: pd.Series) -> pd.Series:
        return pd.Series(grid.value.find(latitude.to_numpy(), longitude.to_numpy()))

    functions: Any = f
    return functions.pandas_udf(find, "long")


class PerRoad(StatefulProcessor):
    """Average speed on a road, without outliers."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("speeds", "latest array<double>, average double")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        latest: deque[float] = deque(() if stored is None else stored[0], maxlen=HISTORY)
        average = 0.0 if stored is None else stored[1]
        found = []
        for frame in rows:
            for speed in frame["speed"].tolist():
                n = len(latest)
                mean = (sum(latest) + speed) / (n + 1)
                spread = math.inf
                if n >= 2:
                    spread = math.sqrt((sum([(x - average) ** 2 for x in latest]) + (speed - average) ** 2) / n)
                if abs(speed - mean) <= SIGMA * spread:
                    latest.append(speed)
                    average = mean
                found.append((key[0], average, len(latest)))
        self._state.update((list(latest), average))
        yield pd.DataFrame(found, columns=["road_id", "average_speed", "count"])

    def close(self) -> None:
        pass


def traffic_monitoring(inputs: Mapping[str, Any], *, roads: str | None = None) -> Any:
    """``road_id``, ``average_speed``, ``count``; ``roads`` is the path of a road network."""
    cells = f.split("value", ",")
    numbers = {"latitude": (3, "double"), "longitude": (4, "double"), "speed": (5, "double"), "bearing": (6, "long")}
    traces = (
        inputs["traces"]
        .select(cells.alias("cells"))
        .where((f.size("cells") == 7) & (f.col("cells")[1] != ""))
        .select(
            f.col("cells")[2].try_cast("timestamp").alias("event_time"),
            *(f.col("cells")[place].try_cast(kind).alias(name) for name, (place, kind) in numbers.items()),
        )
        .where(f.col("event_time").isNotNull() & f.col("bearing").isNotNull() & (f.col("speed") > 0))
        .where(f.col("latitude").between(SOUTH, NORTH) & f.col("longitude").between(WEST, EAST))
    )
    find = _finder(traces.sparkSession, roads)
    matched = traces.select(find("latitude", "longitude").alias("road_id"), "speed").where("road_id >= 0")
    return matched.groupBy("road_id").transformWithStateInPandas(
        PerRoad(),
        outputStructType="road_id long, average_speed double, count long",
        outputMode="append",
        timeMode="None",
    )
