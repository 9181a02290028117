"""Sliding windows of a number of records, in rings of cells: one compiled loop per stat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import State, StateField
from riot_ops.kernels.arrays.arrow import replace_column
from riot_ops.kernels.stats.rings import count_records
from riot_ops.tasks.window.windowing.accumulators import Numbers
from riot_ops.tasks.window.windowing.assigner import Assigner
from riot_ops.tasks.window.windowing.stats import Cells, Stat
from riot_ops.windows import Sliding

__all__ = ["LatestRecords"]


class LatestRecords(Assigner):
    """Windows of the last records of a key, which end at each record, of stats whose cells are in rings."""

    keeps_records = True

    def __init__(self, stats: Sequence[Stat], frame: Sliding) -> None:
        super().__init__((), each=True)  # no cells of groups
        assert isinstance(frame.size, int)
        self.size, self._frame = frame.size, frame
        self._sliding_stats = stats

    def lookback(self) -> Lookback | None:
        return None if self._frame.full else Lookback(self.size - 1)

    def state_fields(self) -> Mapping[str, StateField]:
        fields = {"seen": StateField("int64")}
        for stat in self._sliding_stats:
            fields |= stat.ring_fields(self.size)
        return fields

    def run(self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, dead: DeadLetters) -> pa.RecordBatch:
        """Add the rows of a batch, and return them with the aggregates of their windows."""
        before = np.empty(slots.size, np.int64)
        count_records(slots, state["seen"], before)
        cells: Cells = {}
        for stat in self._sliding_stats:
            cells |= stat.slide(state, batch, slots, before, self._frame)
        results = task.bound_aggregates(batch.schema)
        if self._frame.full:
            whole = before >= self.size - 1
            batch = batch if whole.all() else batch.filter(pa.array(whole))
        for name, one in results.items():
            batch = replace_column(batch, name, one.result(cells))
        return batch
