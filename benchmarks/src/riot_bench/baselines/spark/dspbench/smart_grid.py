"""Smart grid in plain PySpark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import functions as f

from riot_bench.baselines.python.dspbench.smart_grid import Outliers, Slices
from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.baselines.spark.dspbench.global_state import with_global_state

__all__ = ["BASELINE", "smart_grid"]

BASELINE = Baseline(
    "split, transformWithStateInPandas with one key, and so on one core: plugs are compared with all",
    open_windows={"outliers": "window_end", "predictions": "timestamp"},
)
CELLS = {"time": (1, "long"), "value": (2, "double"), "kind": (3, "long")} | {
    name: (place, "long") for name, place in (("plug", 4), ("household", 5), ("house", 6))
}
FOUND = (
    "stream string, window_start timestamp, window_end timestamp, percentage double, timestamp timestamp, "
    "house_id long, household_id long, plug_id long, predicted_load double"
)


class _Grid:
    """Medians of all plugs over an hour, and loads in slices of a minute."""

    def __init__(self) -> None:
        self.now = -1
        self.outliers, self.slices = Outliers(3600), Slices(60, 30, 31)

    def update(self, frames: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
        for frame in frames:
            times, values, kinds, *plugs = (frame[name].tolist() for name in CELLS)
            for time, value, kind, plug, household, house in zip(times, values, kinds, *plugs, strict=True):
                if time < self.now:
                    continue
                self.now = time
                self.slices.pass_to(time)
                if kind == 1:
                    self.outliers.add(time, value, (house, household, plug))
                    self.slices.add(value, (house, household, plug))
        rows: list[tuple[Any, ...]] = []
        for start, end, house, share in self.outliers.found:
            rows.append(("outliers", _naive(start), _naive(end), share, None, house, None, None, None))
        for begin, house, household, plug, load in self.slices.found:
            rows.append(("predictions", None, None, None, _naive(begin), house, household, plug, load))
        self.outliers.found, self.slices.found = [], []
        return rows


def _naive(time: Any) -> Any:
    return time.replace(tzinfo=None)


def smart_grid(inputs: Mapping[str, Any]) -> Any:
    """Return the fields of ``outliers`` and ``predictions``, each with its ``stream``."""
    cells = f.split("value", ",")
    typed = [cells[place].try_cast(kind).alias(name) for name, (place, kind) in CELLS.items()]
    readings = inputs["readings"].where(f.size(cells) == 7).select(*typed).dropna()
    return with_global_state(readings.where(f.abs("value") < float("inf")), _Grid, FOUND)
