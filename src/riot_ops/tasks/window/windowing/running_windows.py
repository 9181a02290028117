"""The window of all records of a key so far, with a result at each record or at the last one of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.operator import State, StateField
from riot_ops.kernels.arrays.arrow import replace_column
from riot_ops.kernels.arrays.latest_rows import latest_rows
from riot_ops.tasks.window.windowing.accumulators import Accumulators, Numbers
from riot_ops.tasks.window.windowing.assigner import Assigner
from riot_ops.tasks.window.windowing.stats import Cells, KernelStat, Stat

__all__ = ["RunningWindows"]


class RunningWindows(Assigner):
    """One window per key without an end; its cells are the state itself."""

    def __init__(self, stats: Sequence[Stat], emit: str) -> None:
        super().__init__(stats, emit == "each")

    def state_fields(self) -> Mapping[str, StateField]:
        return {}

    def run(self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State) -> pa.RecordBatch:
        """Add the rows of a batch, and return them with their results; or only the last one of each key."""
        columns = self.stat_columns(batch, task.hash_key.words)
        arrival = np.zeros(slots.size, np.int64)  # first and last go by arrival, not by event time
        results = task.bound_aggregates(batch.schema)
        if self.each:
            cells: Cells = {}
            for stat, values in zip(self.stats, columns, strict=True):
                assert isinstance(stat, KernelStat)
                cells |= stat.run(state, slots, values, arrival)
        else:
            keys = len(state[next(iter(self.stats[0].cells()))])
            taken = latest_rows(slots, keys)
            groups = slots[taken]
            numbers = np.empty(keys, np.int64)
            numbers[groups] = np.arange(groups.size)
            work = Accumulators(self.stats, state, 1, groups)
            work.add(numbers[slots], columns, arrival, 0, slots.size)
            work.keep(np.arange(groups.size), groups)
            cells = work.snapshot(np.arange(groups.size))
            batch = batch.take(pa.array(taken))
        for name, one in results.items():
            batch = replace_column(batch, name, one.result(cells))
        return batch
