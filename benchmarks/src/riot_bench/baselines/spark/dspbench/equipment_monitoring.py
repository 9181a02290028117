"""Equipment monitoring in plain PySpark."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pandas as pd
from pyspark.sql import functions as f

from riot_bench.baselines.python.dspbench.equipment_monitoring import DelayWindow
from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.baselines.spark.dspbench.global_state import with_global_state

__all__ = ["BASELINE", "equipment_monitoring"]

BASELINE = Baseline(
    "split, transformWithStateInPandas with one key, and so on one core: readings are put in order",
    open_windows={"delays": "ts", "alarms": "ts", "monitor": "ts"},
)
PAIRS = ("bm05-bm08", "bm06-bm09", "bm07-bm10")
STATES, CELLS = range(12, 18), 66
LATENESS_US, PENDING = 1_000_000, 16
MONITOR = "count long, mean double, min long, max long, slope double, alarm boolean"
FOUND = f"stream string, pair string, ts long, delay long, {MONITOR}"


class _Equipment:
    """Readings that wait for late ones, the previous reading, and the delays of each pair over the last day."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, list[int]]] = []
        self.number, self.newest = 0, -(1 << 63)
        self.before: list[int] | None = None
        self.queues: list[deque[tuple[int, int]]] = [deque(maxlen=PENDING) for _ in PAIRS]
        day = timedelta(days=1) // timedelta(microseconds=1) * 1000
        self.windows = [DelayWindow(day, 0.01, "min") for _ in PAIRS]

    def update(self, frames: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for frame in frames:
            for at, states in zip(frame["at"].tolist(), frame["states"].tolist(), strict=True):
                self.newest = max(self.newest, at // 1000)
                if at // 1000 + LATENESS_US >= self.newest:
                    heapq.heappush(self.waiting, (at, self.number, [int(state) for state in states]))
                self.number += 1
                while self.waiting and self.waiting[0][0] // 1000 + LATENESS_US < self.newest:
                    earliest, _, of_then = heapq.heappop(self.waiting)
                    self._take(earliest, of_then, found)
        return found

    def _take(self, at: int, states: list[int], found: list[tuple[Any, ...]]) -> None:
        before, self.before = self.before, states
        if before is None or states == before:
            return
        for pair, queue in enumerate(self.queues):
            if states[pair] != before[pair]:
                queue.append((states[pair], at))
        for pair, queue in enumerate(self.queues):
            value = states[3 + pair]
            cause = None if value == before[3 + pair] else next((c for c in queue if c[0] == value), None)
            if cause is None:
                continue
            queue.remove(cause)
            delay = at - cause[1]
            seen = self.windows[pair].add(at, delay)
            nothing = (None,) * len(seen)
            found.append(("delays", PAIRS[pair], at, delay, *nothing))
            found.append(("monitor", PAIRS[pair], at, None, *seen))
            if seen[-1]:
                found.append(("alarms", PAIRS[pair], at, delay, *nothing))


def equipment_monitoring(inputs: Mapping[str, Any]) -> Any:
    """Return the fields of ``delays``, ``alarms`` and ``monitor``, each with its ``stream``."""
    cells = f.split("value", r"[\t,]")
    states = [f.lower(cells[place]) for place in STATES]
    bits = [f.when(state.isin("1", "true"), 1).when(state.isin("0", "false"), 0) for state in states]
    readings = inputs["readings"].where(f.size(cells) == CELLS)
    readings = readings.select(cells[0].try_cast("long").alias("at"), f.array(*bits).alias("states"))
    known = f.col("at").isNotNull() & f.forall("states", lambda state: state.isNotNull())
    return with_global_state(readings.where(known), _Equipment, FOUND)
