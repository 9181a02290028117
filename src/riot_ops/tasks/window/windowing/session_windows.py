"""Session windows, and when they are closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import NEVER, Ticks, to_microseconds
from riot_ops.core.operator import State, StateField, TimerOutput
from riot_ops.kernels.arrays.timestamps import from_microseconds, time_limits
from riot_ops.kernels.stats.panes import NONE
from riot_ops.kernels.stats.sessions import assign_sessions, load_ended_sessions, store_open_sessions
from riot_ops.tasks.window.windowing.accumulators import Accumulators, Numbers, dense_key_numbers, window_columns
from riot_ops.tasks.window.windowing.assigner import NOTHING, TimeAssigner, Updates, event_times, time_type
from riot_ops.tasks.window.windowing.stats import Stat
from riot_ops.windows import Session

__all__ = ["SessionWindows"]


class SessionWindows(TimeAssigner):
    """Session windows; see :mod:`riot_ops.kernels.stats.sessions`."""

    def __init__(self, stats: Sequence[Stat], each: bool, frame: Session, allowed_lateness: timedelta) -> None:
        super().__init__(stats, each)
        self.gap, self.allowed_lateness = to_microseconds(frame.gap), to_microseconds(allowed_lateness)
        self.period, self.retention = max(self.gap // 8, 1), 3 * self.gap
        self.room = -(-self.allowed_lateness // self.gap) + 3

    def state_fields(self) -> Mapping[str, StateField]:
        return {
            "begin": StateField("int64", self.room),
            "until": StateField("int64", self.room, NONE),
            "ended": StateField("int64", initial=NONE),
        }

    def decode_state(self, table: pa.Table) -> pa.Table:
        spans = {name: np.asarray(table.column(name).combine_chunks().flatten()) for name in ("begin", "until")}
        known = spans["until"] != NONE
        heads = {name: from_microseconds(np.where(known, times, 0)) for name, times in spans.items()}
        return self._listed(table, known.reshape(-1, self.room), heads)

    def _closed(self, now: int) -> int:
        return NONE if now == NEVER else (now - self.allowed_lateness) // self.period * self.period

    def run(
        self, task: Any, batch: pa.RecordBatch | None, slots: Numbers, state: State, ticks: Ticks, bad: npt.NDArray[Any]
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        times, present = event_times(batch)
        columns = self.stat_columns(batch, task.hash_words)
        updates = Updates(task, batch) if self.each and batch is not None else None
        lasts = state["until"]
        limit = time_limits(time_type(batch))[1] // self.period * self.period - self.gap
        numbers, key_count = dense_key_numbers(slots, len(lasts))
        held = np.full((key_count, self.room), -1, np.int64)
        groups = np.empty(slots.size, np.int64)
        size = slots.size + min(slots.size, len(lasts)) * self.room
        found: list[Any] = [np.empty(size, np.int64) for _ in range(4)]
        merges: list[Any] = [np.empty(size, np.int64) for _ in range(3)]
        begins: Any = np.empty(slots.size, np.int64), np.empty(slots.size, np.int64)
        n, m = assign_sessions(
            times, present, slots, numbers, ticks.rows, ticks.times, ticks.start, self.gap, self.period,
            self.allowed_lateness, ticks.resolution, limit, state["begin"], lasts,
            state["ended"], np.zeros(key_count, np.bool_), held, groups, bad, *found, *merges, *begins,
        )  # fmt: skip
        found = [one[:n] for one in found]
        closed = self._closed(ticks.end)
        if closed > self._closed(ticks.start):
            found = self._with_ended(state, closed, found)
        group_slots, first, last, taken = found
        work = Accumulators(self.stats, state, self.room, taken)
        at = 0
        for row, into, other in zip(*(one[:m].tolist() for one in merges), strict=True):
            self._add(work, updates, groups, columns, times, begins, at, row)
            work.merge(np.array([into]), np.array([other]))
            at = row
        self._add(work, updates, groups, columns, times, begins, at, slots.size)
        due = None if self.each else self._timer_output(task, batch, work, group_slots, first, last, closed)
        open_groups, places = np.empty_like(group_slots), np.empty_like(group_slots)
        n = store_open_sessions(
            group_slots,
            first,
            last,
            taken,
            group_slots.size,
            self.gap,
            closed,
            state["begin"],
            lasts,
            state["ended"],
            open_groups,
            places,
        )
        work.keep(open_groups[:n], places[:n])
        return None if updates is None else updates.to_batch(), due

    def _with_ended(self, state: State, closed: int, found: list[Numbers]) -> list[Numbers]:
        lasts, n = state["until"], found[0].size
        taken = np.zeros(lasts.size, np.bool_)
        taken[found[3][found[3] >= 0]] = True
        none = [NOTHING] * 4
        more = load_ended_sessions(state["begin"], lasts, taken, len(lasts), self.gap, closed, 0, *none)
        if not more:
            return found
        found = [np.concatenate([one, np.empty(more, np.int64)]) for one in found]
        load_ended_sessions(state["begin"], lasts, taken, len(lasts), self.gap, closed, n, *found)
        return found

    def _add(
        self, work: Accumulators, updates: Updates | None, groups: Numbers, columns: list[Any], times: Numbers,
        spans: tuple[Numbers, Numbers], start: int, stop: int,
    ) -> None:  # fmt: skip
        if updates is None:
            work.add(groups, columns, times, start, stop)
            return
        for rows in work.add_in_rounds(groups, groups, columns, times, start, stop):
            updates.add(rows, spans[0][rows], spans[1][rows] + self.gap, work.snapshot(groups[rows]))

    def _timer_output(
        self,
        task: Any,
        batch: pa.RecordBatch | None,
        work: Accumulators,
        slots: Numbers,
        first: Numbers,
        last: Numbers,
        closed: int,
    ) -> TimerOutput | None:
        ended = np.flatnonzero((last != NONE) & (last + self.gap <= closed)) if closed != NONE else NOTHING
        if not ended.size:
            return None
        ended = ended[np.lexsort((first[ended], slots[ended]))]
        places = np.arange(ended.size)
        cells = work.merge_ranges(ended, places, places + 1)
        ends = last[ended] + self.gap
        schema = None if batch is None else batch.schema
        columns = window_columns(task.bound_aggregates(schema), cells, first[ended], ends, time_type(batch))
        return TimerOutput(slots[ended], pa.RecordBatch.from_pydict(columns), -(-ends // self.period) * self.period)
