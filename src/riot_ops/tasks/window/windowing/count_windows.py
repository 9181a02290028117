"""Count windows: windows with a fixed number of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import State, StateField
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.kernels.stats.panes import NONE, assign_count_windows
from riot_ops.tasks.window.windowing.accumulators import Accumulators, Numbers, dense_key_numbers, window_columns
from riot_ops.tasks.window.windowing.assigner import Assigner, Updates, time_type
from riot_ops.tasks.window.windowing.stats import Cells, Stat
from riot_ops.windows import Count

__all__ = ["CountWindows"]

ORDER = ("seq", "ordinal")
#: Beyond any event time.
MAX_TIME = 1 << 61


class CountWindows(Assigner):
    """Windows with a fixed number of records."""

    def __init__(self, stats: Sequence[Stat], each: bool, frame: Count) -> None:
        super().__init__(stats, each)
        self.window, self.partial = frame.size, frame.partial

    def lookback(self) -> Lookback | None:
        return (
            Lookback() if self.window == 1 else None
        )  # where a window begins depends on the number of earlier records

    def state_fields(self) -> Mapping[str, StateField]:
        whole = {name: StateField("int64", 0, NONE) for name in ("begin", "until", *(f"last_{name}" for name in ORDER))}
        return {"filled": StateField("int64"), **whole}

    def run(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        """Add the rows of a batch, and return the results of filled windows (or the updates)."""
        columns = self.stat_columns(batch, task.hash_words)
        arrival = np.zeros(slots.size, np.int64)  # first and last go by arrival, not by event time
        numbers, key_count = dense_key_numbers(slots, len(state["filled"]))
        held = np.full(key_count, -1, np.int64)
        groups = np.empty(slots.size, np.int64)
        group_slots, taken, full_rows, full_groups = (np.empty(slots.size, np.int64) for _ in range(4))
        n, full = assign_count_windows(
            slots, numbers, self.window, state["filled"], held, groups, group_slots, taken, full_rows, full_groups
        )
        work = Accumulators(self.stats, state, 1, taken[:n])
        spans = _EventTimeSpans(batch, groups, state, taken[:n])
        if self.each:
            updates = Updates(task, batch)
            for added in work.add_in_rounds(groups, groups, columns, arrival, 0, slots.size):
                spans.add(added)
                updates.add(added, *spans.of(groups[added]), work.snapshot(groups[added]))
            results = updates.to_batch()
        else:
            work.add(groups, columns, arrival, 0, slots.size)
            spans.add(np.arange(slots.size))
            rows, whole = full_rows[:full], full_groups[:full]
            places = np.arange(full)
            results = self._results(
                task, batch.take(pa.array(rows)), work.merge_ranges(whole, places, places + 1), *spans.of(whole)
            )
        open_ = held[held >= 0]
        work.keep(open_, group_slots[open_])
        spans.keep(open_, group_slots[open_])
        if self.partial and slots.size:
            for name in ORDER:
                if name in batch.schema.names:
                    state[f"last_{name}"][slots] = int_column(batch.column(name))
        return results

    def flush_partial(self, task: Any, keys: pa.RecordBatch, state: State) -> pa.RecordBatch | None:
        """Return the results of the windows that are not full, if they are wanted."""
        if not self.partial:
            return None
        slots = np.flatnonzero(state["filled"] > 0)
        if not slots.size:
            return None
        places = np.arange(slots.size)
        cells = Accumulators(self.stats, state, 1, slots).merge_ranges(places, places, places + 1)
        columns = {name: keys.column(name).take(pa.array(slots)) for name in keys.schema.names}
        if state["last_seq"][slots].min() != NONE:
            columns |= {
                name: pa.array(state[f"last_{name}"][slots])
                for name in ORDER
                if state[f"last_{name}"][slots].min() != NONE
            }
        found = window_columns(task.bound_aggregates(), cells, state["begin"][slots], state["until"][slots], TIMESTAMP)
        columns["event_time"] = found["window_end"]
        return pa.RecordBatch.from_pydict(columns | found)

    def _results(
        self, task: Any, taken: pa.RecordBatch, cells: Cells, starts: Numbers, ends: Numbers
    ) -> pa.RecordBatch:
        schema = task.output_schema(taken.schema)
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        columns |= window_columns(task.bound_aggregates(taken.schema), cells, starts, ends, time_type(taken))
        return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)


class _EventTimeSpans:
    """First and last event time of groups; the last is NONE for groups without event times."""

    def __init__(self, batch: pa.RecordBatch, groups: Numbers, state: State, taken: Numbers) -> None:
        self._state = state
        self._groups = groups
        self.begins, self.lasts = np.full(taken.size, MAX_TIME), np.full(taken.size, NONE)
        known = np.flatnonzero(taken >= 0)
        known = known[state["until"][taken[known]] != NONE]
        self.begins[known], self.lasts[known] = state["begin"][taken[known]], state["until"][taken[known]]
        if "event_time" in batch.schema.names:
            self._times, self._present = microseconds(batch.column("event_time"))
        else:
            self._times, self._present = groups, np.zeros(groups.size, np.bool_)

    def add(self, rows: Numbers) -> None:
        """Include rows of the batch."""
        rows = rows[self._present[rows]]
        np.minimum.at(self.begins, self._groups[rows], self._times[rows])
        np.maximum.at(self.lasts, self._groups[rows], self._times[rows])

    def of(self, groups: Any) -> tuple[Any, Any]:
        """Return first and last event time of groups."""
        return self.begins[groups], self.lasts[groups]

    def keep(self, groups: Numbers, places: Numbers) -> None:
        """Store the spans of groups in the state."""
        self._state["begin"][places], self._state["until"][places] = self.of(groups)
