"""Reinforcement learner in plain PySpark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import pandas as pd
from pyspark.sql import functions as f

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.baselines.spark.dspbench.global_state import with_global_state

__all__ = ["BASELINE", "reinforcement_learner"]

BASELINE = Baseline(
    "split, union, transformWithStateInPandas with one key, and so on one core: choices depend on all rounds"
)
ACTIONS = ("page1", "page2", "page3")
MOST, LEAST_SAMPLE = 9999, 30
LIMIT, LEAST_LIMIT, STEP, INTERVAL = 95, 50, 5, 50
MASK = (1 << 64) - 1


class _Learner:
    """Chooses the action with the highest upper end of its reward interval."""

    def __init__(self) -> None:
        self.random = 0
        self.bins: list[Counter[int]] = [Counter() for _ in ACTIONS]
        self.counts = [0 for _ in ACTIONS]
        self.totals = [0 for _ in ACTIONS]
        self.uppers = [0 for _ in ACTIONS]
        self.stale = {*range(len(ACTIONS))}
        self.limit, self.last_round, self.sampling = LIMIT, -1, True

    def update(self, frames: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
        lines: dict[str, list[tuple[str, int]]] = {"event": [], "reward": []}
        for frame in frames:
            for kind, name, number in zip(*(frame[c].tolist() for c in ("kind", "name", "number")), strict=True):
                lines[kind].append((name, number))
        found: list[tuple[Any, ...]] = []
        for event, reward in zip_longest(lines["event"], lines["reward"]):
            if event is not None and event[0] is not None:
                found.append((event[0], ACTIONS[self._choose(int(event[1]))]))
            if reward is not None and reward[0] in ACTIONS and 0 <= reward[1] <= MOST:
                self._reward(ACTIONS.index(reward[0]), int(reward[1]))
        return found

    def _reward(self, action: int, amount: int) -> None:
        self.bins[action][amount] += 1
        self.counts[action] += 1
        self.totals[action] += amount
        self.stale.add(action)

    def _choose(self, number: int) -> int:
        if self.sampling:
            if min(self.counts) < LEAST_SAMPLE:
                return int(self._uniform() * len(ACTIONS))
            self.sampling, self.last_round = False, number
        steps = (number - self.last_round) // INTERVAL
        if steps > 0 and self.limit > LEAST_LIMIT:
            self.limit = max(LEAST_LIMIT, self.limit - STEP * steps)
            self.last_round = number
            self.stale.update(range(len(ACTIONS)))
        for action in self.stale:
            self.uppers[action] = self._upper(action)
        self.stale.clear()
        return self.uppers.index(max(self.uppers))

    def _upper(self, action: int) -> int:
        """Return the last bin of the interval around the mean that has ``limit`` percent of the rewards."""
        bins, count = self.bins[action], self.counts[action]
        middle, need = int(self.totals[action] / count), count * self.limit // 100
        have, offset = bins[middle], 0
        while have < need:
            offset += 1
            have += bins[middle - offset] + bins[middle + offset]
        return middle + offset

    def _uniform(self) -> float:
        """Draw from splitmix64, so that choices are reproducible."""
        self.random = x = (self.random + 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return float((x ^ (x >> 31)) >> 11) * 2.0**-53


def reinforcement_learner(inputs: Mapping[str, Any]) -> Any:
    """``event_id``, ``action``; rounds and rewards of a micro-batch alternate."""
    parts = []
    for kind, source in (("event", "events"), ("reward", "rewards")):
        cells = f.split("value", ",")
        number = cells[1].try_cast("long")
        good = (f.size(cells) == 2) & (cells[0] != "") & number.isNotNull()
        # an invalid line keeps its position
        name, number = f.when(good, cells[0]), f.when(good, number).otherwise(0)
        parts.append(inputs[source].select(f.lit(kind).alias("kind"), name.alias("name"), number.alias("number")))
    return with_global_state(parts[0].union(parts[1]), _Learner, "event_id string, action string")
