"""Machine outlier in plain PySpark."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from riot_bench.baselines.spark.dspbench.baseline import Baseline

__all__ = ["BASELINE", "machine_outlier"]

BASELINE = Baseline(
    "split, transformWithStateInPandas with one key, and so on one core: loads of all machines are compared",
    open_windows={"alerts": "timestamp"},
)
WINDOW, SCALE = 10, 100.0
ALERTS = "machine_id string, stream_score double, timestamp timestamp, instance_score double"

Load = tuple[str, float, float]


class _Machines:
    """The loads of the latest time, and the latest scores of each machine."""

    def __init__(self, text: str = "[-1, [], {}]") -> None:
        self.now, batch, latest = json.loads(text)
        self.batch: list[Load] = [(machine, cpu, memory) for machine, cpu, memory in batch]
        self.latest: dict[str, deque[float]] = {m: deque(scores, maxlen=WINDOW) for m, scores in latest.items()}

    def to_json(self) -> str:
        """Serialize the state as JSON."""
        return json.dumps([self.now, self.batch, {machine: [*scores] for machine, scores in self.latest.items()}])

    def add(self, now: int, load: Load) -> list[tuple[Any, ...]]:
        """Add a load; return the alerts of the previous time if it has ended."""
        if now < self.now:
            return []
        found = self._alerts() if now > self.now and self.batch else []
        self.now = now
        self.batch.append(load)
        return found

    def _alerts(self) -> list[tuple[Any, ...]]:
        n = len(self.batch)
        x, y = sum(load[1] for load in self.batch) / n, sum(load[2] for load in self.batch) / n
        scores = []
        for machine, cpu, memory in self.batch:
            score = 1.0 + math.hypot(cpu - x, memory - y)
            latest = self.latest.setdefault(machine, deque(maxlen=WINDOW))
            latest.append(score)
            scores.append((machine, sum(latest), score))
        sums = sorted(total for _, total, _ in scores)
        min_score = min(score for *_, score in scores) + 0.1
        min_total = max(2 * sums[n // 2] - sums[0], sums[0] + 2 * math.sqrt(2))
        at = pd.Timestamp(self.now, unit="s")
        self.batch = []
        return [
            (machine, total, at, score) for machine, total, score in scores if total > min_total and score > min_score
        ]


class AllMachines(StatefulProcessor):
    """All machines as one key, with JSON as state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("machines", "data string")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        stored = self._state.get()
        machines = _Machines() if stored is None else _Machines(stored[0])
        found: list[tuple[Any, ...]] = []
        for frame in rows:
            columns = (frame[name].tolist() for name in ("time", "machine_id", "cpu", "memory"))
            for now, machine, cpu, memory in zip(*columns, strict=True):
                found += machines.add(now, (machine, cpu / SCALE, memory / SCALE))
        self._state.update((machines.to_json(),))
        yield pd.DataFrame(found, columns=[part.split()[0] for part in ALERTS.split(", ")])

    def close(self) -> None:
        pass


def machine_outlier(inputs: Mapping[str, Any]) -> Any:
    """``machine_id``, ``stream_score``, ``timestamp``, ``instance_score``."""
    cells = f.split("value", ",")
    loads = (
        inputs["usage"]
        .select(cells.alias("cells"))
        .where((f.size("cells") == 9) & (f.col("cells")[0] != ""))
        .select(
            f.lit(True).alias("all"),
            f.col("cells")[0].alias("machine_id"),
            f.col("cells")[1].try_cast("long").alias("time"),
            f.col("cells")[2].try_cast("double").alias("cpu"),
            f.col("cells")[3].try_cast("double").alias("memory"),
        )
        .where(f.col("time").isNotNull() & (f.abs("cpu") < float("inf")) & (f.abs("memory") < float("inf")))
    )
    return loads.groupBy("all").transformWithStateInPandas(
        AllMachines(), outputStructType=ALERTS, outputMode="append", timeMode="None"
    )
