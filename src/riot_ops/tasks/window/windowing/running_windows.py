"""The window of all records of a key so far, with a result at each record or at the last one of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.clock import NEVER, to_microseconds
from riot_ops.core.operator import State, StateField
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import int_column, replace_column, valid_mask
from riot_ops.kernels.arrays.latest_rows import latest_rows
from riot_ops.tasks.window.windowing.accumulators import Accumulators, Numbers
from riot_ops.tasks.window.windowing.assigner import TickingAssigner
from riot_ops.tasks.window.windowing.stats import REFUSED, Cells, Firsts, Lasts, Stat

__all__ = ["CONDENSED", "RunningWindows"]

#: The column with the bits of the cells of combined records, in a batch that is combined before a shuffle; null for a
#: record on its own.
CONDENSED = "cells@condensed"
CELLS = pa.list_(pa.int64())
#: Records per key of a batch from which on combining them costs less than a shuffle of all: measured with 10 to 1,000.
MIN_PER_KEY = 16


class RunningWindows(TickingAssigner):
    """One window per key without an end; its cells are the state itself."""

    def __init__(self, stats: Sequence[Stat], emit: str | timedelta) -> None:
        # those that may refuse a value come first: its record then changes no other cell
        super().__init__(sorted(stats, key=lambda stat: not stat.refuses), emit == "each")
        self._refusing = [stat for stat in self.stats if stat.refuses]
        self._others = self.stats[len(self._refusing) :]
        #: The number of numbers in each cell.
        self._sizes = {name: max(width, 1) for stat in self.stats for name, (_, width, _) in stat.cells().items()}
        self._names = [*self._sizes]
        self.every = to_microseconds(emit) if isinstance(emit, timedelta) else 0
        self.keeps_records = not self.every
        self._initial = {
            name: initial
            for stat in stats
            for name, (_, width, initial) in stat.cells().items()
            if width and not np.isscalar(initial)
        }
        self._runs = all(stat.runs for stat in self.stats)
        #: Cells with the time of the first or last value.
        self._arrivals = [[*stat.cells()][-1] for stat in self.stats if isinstance(stat, (Firsts, Lasts))]

    def state_fields(self) -> Mapping[str, StateField]:
        names = (["begun"] if self._initial else []) + (["fresh"] if self.every else [])
        return {name: StateField("int64") for name in names}

    def _begin(self, slots: Numbers, state: State) -> None:
        """Give new keys the initial cells that a state field cannot have: several numbers."""
        fresh = slots[state["begun"][slots] == 0]
        for name, initial in self._initial.items():
            state[name][fresh] = initial
        state["begun"][fresh] = 1

    def run(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        """Add the rows of a batch, and return them with their results; or only the last one of each key."""
        results = task.bound_aggregates(batch.schema)
        if self._initial:
            self._begin(slots, state)
        condensed = not self.each and CONDENSED in batch.schema.names
        if condensed and batch.column(CONDENSED).null_count == batch.num_rows:
            batch, condensed = batch.drop_columns([CONDENSED]), False
        if self.each or (self._runs and not condensed):
            batch, cells = self._run(task, batch, slots, state, errors)
        else:
            batch, cells = self._last(task, batch, slots, state)
        for name, one in results.items():
            batch = replace_column(batch, name, one.result(cells))
        return batch

    def _run(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> tuple[pa.RecordBatch, Cells]:
        """Add the rows one by one; return those that are not refused, or the last of each key, with their cells."""
        cells: Cells = {}
        key = task.hash_words
        for stat in self._refusing:
            cells.update(stat.run(state, slots, stat.run_column(batch, key), slots))
            if REFUSED in cells:
                refused = cells.pop(REFUSED)
                errors.reject(batch, refused, "overflow", f"{stat.field} is too far from the mean to be squared")
                taken = ~refused
                batch, slots = batch.filter(pa.array(taken)), slots[taken]
                cells = {name: cell[taken] for name, cell in cells.items()}
        last = None if self.each else latest_rows(slots, len(state[self._names[0]]))
        if last is not None and cells:
            cells = {name: cell[last] for name, cell in cells.items()}
        for stat in self._others:
            # first and last go by arrival, not by event time
            times = np.zeros(slots.size, np.int64) if stat.reads_times else slots
            column = stat.run_column(batch, key)
            if last is None:
                cells.update(stat.run(state, slots, column, times))
            else:
                cells.update(stat.run_last(state, slots, column, times, last))
        return batch if last is None or last.size == slots.size else batch.take(pa.array(last)), cells

    def absorb(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> Numbers:
        if self._initial:
            self._begin(slots, state)
        self._last(task, batch, slots, state)
        return slots

    def latest(self, state: State, due: Numbers) -> tuple[Numbers, Cells]:
        return due, Accumulators(self.stats, state, 1, due).snapshot(np.arange(due.size))

    def _last(self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State) -> tuple[pa.RecordBatch, Cells]:
        keys = len(state[self._names[0]])
        taken = latest_rows(slots, keys)
        work = self._folded(task, batch, slots, state, slots[taken], keys)
        rows = np.arange(taken.size)
        work.keep(rows, slots[taken])
        kept = batch.drop_columns([CONDENSED]) if CONDENSED in batch.schema.names else batch
        return kept.take(pa.array(taken)), work.snapshot(rows)

    def condensed(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, keys: int, rejected: Numbers
    ) -> pa.RecordBatch | None:
        """Return the last record of each key with the cells of all; None if they do not merge exactly.

        Rows that will be ``rejected`` have no cells; nor have all others, if a key has few (:data:`MIN_PER_KEY`).
        """
        if not all(stat.merges_exactly(batch.schema) for stat in self.stats):
            return None
        good: Any = np.delete(np.arange(slots.size), rejected) if rejected.size else slice(None)
        latest = latest_rows(slots[good], keys)
        least = 2 if len(self._names) == 1 else MIN_PER_KEY  # a count alone is cheap
        if least * (latest.size + rejected.size) > slots.size and CONDENSED not in batch.schema.names:
            return replace_column(batch, CONDENSED, pa.nulls(slots.size, CELLS))
        chosen, slots = batch.take(pa.array(good)) if rejected.size else batch, slots[good]
        cells = self._folded(task, chosen, slots, {}, slots[latest], keys).cells
        latest = good[latest] if rejected.size else latest
        bits = np.hstack([cells[name].view(np.int64).reshape(-1, size) for name, size in self._sizes.items()])
        rows = np.concatenate([latest, rejected])
        order = np.argsort(rows)
        alone = order >= latest.size
        ends = np.cumsum(np.append(0, ~alone)) * bits.shape[1]
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32(), mask=np.append(alone, False)), bits.ravel())
        return replace_column(batch.take(pa.array(rows[order])), CONDENSED, lists)

    def merged(self, state: State, other: State) -> State | None:
        """Merge the cells of two parts of a stream; None if that is not exact."""
        if not all(stat.exact for stat in self.stats):
            return None
        cells = {name: state[name].copy() for name in self._names}
        every = np.arange(len(cells[self._names[0]]))
        for stat in self.stats:
            stat.merge(cells, every, other, every, every, every + 1)
        return cells

    def _folded(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, keys: Numbers, key_count: int
    ) -> Accumulators:
        """Add the rows of a batch, which may be condensed, to the cells of ``keys``."""
        numbers = np.empty(key_count, np.int64)
        numbers[keys] = np.arange(keys.size)
        work = Accumulators(self.stats, state, 1, keys if state else np.full(keys.size, -1))
        groups, condensed = numbers[slots], CONDENSED in batch.schema.names
        # first and last go by arrival: by number where records are combined, otherwise one after the other
        by_number = condensed or not state
        arrivals = self._arrivals if state and condensed else ()
        for name in arrivals:
            work.cells[name][:] = NEVER  # the state has no arrivals: all of it came before
        if condensed:
            known = valid_mask(batch.column(CONDENSED))
            rows = np.flatnonzero(known)
            bits = np.asarray(batch.column(CONDENSED).flatten()).reshape(-1, sum(self._sizes.values()))
            cut = np.split(bits, np.cumsum([*self._sizes.values()])[:-1], axis=1)
            parts = {
                name: one.copy().view(work.cells[name].dtype).reshape(-1, *work.cells[name].shape[1:])
                for name, one in zip(self._names, cut, strict=True)
            }
            places = np.arange(rows.size)
            for stat in self.stats:
                stat.merge(work.cells, groups[rows], parts, places, places, places + 1)
            groups[known] = -1
        if not condensed or rows.size < slots.size:
            times = int_column(batch.column("seq")) if by_number else np.zeros(slots.size, np.int64)
            work.add(groups, self.stat_columns(batch, task.hash_words), times, 0, slots.size)
        for name in arrivals:
            work.cells[name][:] = 0
        return work
