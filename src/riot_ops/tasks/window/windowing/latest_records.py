"""Sliding windows of a number of records, in rings of cells: one compiled loop per stat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.clock import to_microseconds
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import State, StateField
from riot_ops.kernels.arrays.arrow import replace_column
from riot_ops.kernels.stats.rings import count_records
from riot_ops.tasks.window.windowing.accumulators import Numbers
from riot_ops.tasks.window.windowing.assigner import TickingAssigner
from riot_ops.tasks.window.windowing.stats import Cells, Stat
from riot_ops.windows import Sliding

__all__ = ["LatestRecords"]


class LatestRecords(TickingAssigner):
    """Windows of the last records of a key, which end at each record, of stats whose cells are in rings."""

    def __init__(self, stats: Sequence[Stat], frame: Sliding, emit: str | timedelta) -> None:
        super().__init__((), each=True)  # no cells of groups
        assert isinstance(frame.size, int)
        self.size, self._frame = frame.size, frame
        self._sliding_stats = stats
        self.every = to_microseconds(emit) if isinstance(emit, timedelta) else 0
        self.keeps_records = not self.every

    def lookback(self) -> Lookback | None:
        return None if self._frame.full else Lookback(self.size - 1)

    def state_fields(self) -> Mapping[str, StateField]:
        fields = {name: StateField("int64") for name in ("seen", *(["fresh"] if self.every else []))}
        for stat in self._sliding_stats:
            fields |= stat.ring_fields(self.size)
        return fields

    def run(self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, dead: DeadLetters) -> pa.RecordBatch:
        """Add the rows of a batch, and return them with the aggregates of their windows."""
        before, cells = self._slide(batch, slots, state)
        results = task.bound_aggregates(batch.schema)
        if self._frame.full:
            whole = before >= self.size - 1
            batch = batch if whole.all() else batch.filter(pa.array(whole))
        for name, one in results.items():
            batch = replace_column(batch, name, one.result(cells))
        return batch

    def absorb(self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, dead: DeadLetters) -> Numbers:
        self._slide(batch, slots, state)
        return slots

    def latest(self, state: State, due: Numbers) -> tuple[Numbers, Cells]:
        due = due[state["seen"][due] >= self.size] if self._frame.full else due
        cells: Cells = {}
        for stat in self._sliding_stats:
            cells |= stat.latest_window(state, due, state["seen"][due], self.size)
        return due, cells

    def _slide(self, batch: pa.RecordBatch, slots: Numbers, state: State) -> tuple[Numbers, Cells]:
        """Add rows; return the number of earlier records of the key of each, and the cells of their windows."""
        before = np.empty(slots.size, np.int64)
        count_records(slots, state["seen"], before)
        cells: Cells = {}
        for stat in self._sliding_stats:
            cells |= stat.slide(state, batch, slots, before, self._frame)
        return before, cells
