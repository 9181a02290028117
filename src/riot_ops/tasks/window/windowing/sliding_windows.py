"""Sliding windows: at each record, the last records of its key or those less than a duration before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import to_microseconds
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import State, StateField
from riot_ops.core.parameters import as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import chunk_ranges, replace_column
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.kernels.stats.panes import NONE
from riot_ops.kernels.stats.sliding import find_late, sliding_bounds
from riot_ops.tasks.window.windowing.accumulators import Accumulators, Numbers
from riot_ops.tasks.window.windowing.assigner import TickingAssigner, joined
from riot_ops.tasks.window.windowing.stats import Cells, Stat
from riot_ops.windows import Sliding

__all__ = ["SlidingWindows"]

#: Records of a key for which a window of time has room at first.
INITIAL_ROOM = 8
#: Bytes of the cells that are processed at once, those of earlier batches included.
CHUNK_BYTES = 1 << 26


class SlidingWindows(TickingAssigner):
    """Windows that end at each record; each record is kept with its own cells.

    A window is the tail of one block of records and the head of the next. Heads are merged from the first record on and
    tails from the last one, so that a window is two parts, nothing is ever subtracted, and a result does not depend on
    how the stream is cut.
    """

    def __init__(self, stats: Sequence[Stat], frame: Sliding, emit: str | timedelta) -> None:
        super().__init__(stats, each=True)
        self.every = to_microseconds(emit) if isinstance(emit, timedelta) else 0
        self.keeps_records = not self.every
        self.full = frame.full
        self.by_time = not isinstance(frame.size, int)
        self.size = frame.size if isinstance(frame.size, int) else to_microseconds(as_timedelta(frame.size))
        cells = [cell for stat in stats for cell in stat.cells().values()]
        self._bytes = 3 * sum(
            max(width, 1) * (64 if kind == "object" else np.dtype(kind).itemsize) for kind, width, _ in cells
        )
        #: How many records of a window of records are kept: those of the window at the next record, or at the last one.
        self._kept = self.size if self.every else self.size - 1
        self.room = INITIAL_ROOM if self.by_time else max(self._kept, 1)
        #: Fields of the state with a place for each record that a key may keep, as many in each.
        self._places = {"at": StateField("int64", INITIAL_ROOM, growable=True)} | {
            name: StateField(dtype, INITIAL_ROOM * max(width, 1), initial if np.isscalar(initial) else 0.0, True)
            for stat in stats
            for name, (dtype, width, initial) in stat.cells().items()
            if dtype != "object"
        }

    def lookback(self) -> Lookback | None:
        return None if self.by_time or self.full else Lookback(self.size - 1)

    def state_fields(self) -> Mapping[str, StateField]:
        fresh = {"fresh": StateField("int64")} if self.every else {}
        if not self.by_time:
            return {"seen": StateField("int64"), **fresh}
        times = {name: StateField("int64", 0, NONE) for name in ("begin", "latest")}
        return {"kept": StateField("int64"), **times, **fresh, "at": self._places["at"]}

    def run(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        """Add the rows of a batch, and return them with the aggregates of their windows."""
        batch, slots, found, cells = self._add(task, batch, slots, state, errors)
        if found.size < slots.size:
            batch = batch.take(pa.array(found))
        for name, one in task.bound_aggregates(batch.schema).items():
            batch = replace_column(batch, name, one.result(cells))
        return batch

    def absorb(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> Numbers:
        return self._add(task, batch, slots, state, errors)[1]

    def latest(self, state: State, due: Numbers) -> tuple[Numbers, Cells]:
        if self.by_time:
            self._widen(state, 0)
        columns = [stat.column(None) for stat in self.stats]
        none = np.zeros(due.size, np.int64)
        found, cells = self._run_all(state, due, none, none[:0], columns, none[:0])
        return due[found], cells

    def _add(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> tuple[pa.RecordBatch, Numbers, Numbers, Cells]:
        """Add the rows that are not late; return them, their slots, which have results, and the cells of these."""
        times = np.zeros(slots.size, np.int64)
        if self.by_time:
            self._widen(state, 0)
            times, _ = microseconds(batch.column("event_time"))
            late = np.zeros(slots.size, np.bool_)
            if find_late(slots, times, state["latest"], late):
                errors.reject(batch, late, "late", "a record of its key with a later time came earlier")
                batch, slots, times = batch.filter(pa.array(~late)), slots[~late], times[~late]
        columns = self.stat_columns(batch, task.hash_words)
        order = np.argsort(slots, kind="stable")
        keys, new = np.unique(slots, return_counts=True)
        return batch, slots, *self._run_all(state, keys, new, order, columns, times)

    def _run_all(
        self, state: State, keys: Numbers, new: Numbers, order: Numbers, columns: list[Any], times: Numbers
    ) -> tuple[Numbers, Cells]:
        """Add ``new`` rows to each key, which stand in ``order``, many keys at once.

        Return the rows with results, in their order, and the cells of their windows; without new rows the keys with
        results, and those of the windows at their last records.
        """
        kept = state["kept"][keys] if self.by_time else np.minimum(state["seen"][keys], self._kept)
        ends = np.cumsum(new)
        parts: list[tuple[Numbers, Cells]] = []
        for a, b in chunk_ranges((kept + new) * self._bytes, CHUNK_BYTES):
            rows = order[ends[a] - new[a] : ends[b - 1]] if b > a else order
            found, cells = self._run_keys(state, keys[a:b], kept[a:b], new[a:b], rows, columns, times)
            parts.append((found if order.size else found + a, cells))
        found = np.concatenate([found for found, _ in parts])
        place = np.argsort(found, kind="stable")
        return found[place], {name: joined([one[name] for _, one in parts], place) for name in parts[0][1]}

    def _run_keys(
        self,
        state: State,
        keys: Numbers,
        kept: Numbers,
        new: Numbers,
        rows: Numbers,
        columns: list[Any],
        times: Numbers,
    ) -> tuple[Numbers, Cells]:
        """Add the rows of some keys; return those with results (without rows: keys), and the cells of their windows."""
        many = kept + new
        n = int(many.sum())
        begins = np.cumsum(many) - many
        of = np.repeat(np.arange(keys.size), many)
        within = np.arange(n) - begins[of]
        arrived = within >= kept[of]
        places = keys[of] * self._room_of(state) + within  # where kept records are
        # first the records, then heads of blocks that end at them, then tails that begin at them
        work = Accumulators(
            self.stats, state, self._room_of(state), np.concatenate([np.where(arrived, -1, places), np.full(2 * n, -1)])
        )
        groups = np.full(times.size, -1)
        groups[rows] = np.flatnonzero(arrived)
        work.add(groups, columns, times, 0, times.size)
        at = self._axis(state, keys, kept, of, within, arrived, times[rows])
        first, head, closes = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.bool_)
        sliding_bounds(of, at, self.size, first, head, closes)
        every = np.arange(n)
        work.join(n + every, every + n - 1, every, head == every)
        work.join(2 * n + every[::-1], every[::-1], 2 * n + every[::-1] + 1, closes[::-1], second=False)
        wanted = arrived if new.any() else np.bincount(begins + many - 1, minlength=n) > 0
        if self.full:
            whole = at - state["begin"][keys][of] >= self.size if self.by_time else at >= self.size - 1
            wanted = wanted & whole
        ending = np.flatnonzero(wanted)
        low = first[ending]
        pairs = np.stack([2 * n + low, n + ending], axis=1).ravel()
        from_ = 2 * np.arange(ending.size)
        cells = work.merge_ranges(pairs, from_ + (low == head[ending]), from_ + 2)
        if not new.any():
            return of[wanted], cells
        self._keep(state, work, keys, many, begins, first, at)
        return rows[wanted[arrived]], cells

    def _room_of(self, state: State) -> int:
        return int(state["at"].shape[1]) if self.by_time else self.room

    def _axis(
        self,
        state: State,
        keys: Numbers,
        kept: Numbers,
        of: Numbers,
        within: Numbers,
        arrived: npt.NDArray[np.bool_],
        times: Numbers,
    ) -> Numbers:
        """Return, for each record, its number or its time."""
        if not self.by_time:
            numbers: Numbers = (state["seen"][keys] - kept)[of] + within
            return numbers
        at = np.empty(of.size, np.int64)
        at[~arrived] = state["at"][keys[of[~arrived]], within[~arrived]]
        at[arrived] = times
        opening = at[np.searchsorted(of, np.arange(keys.size))]
        begun = state["begin"][keys]
        state["begin"][keys] = np.where(begun == NONE, opening, begun)
        return at

    def _keep(
        self,
        state: State,
        work: Accumulators,
        keys: Numbers,
        many: Numbers,
        begins: Numbers,
        first: Numbers,
        at: Numbers,
    ) -> None:
        """Store the records that later windows may contain, from place 0 on."""
        last = begins + many - 1
        if self.by_time:
            held = last + 1 - first[last]
            state["kept"][keys] = held
            self._widen(state, int(held.max(initial=0)))
        else:
            held = np.minimum(many, self._kept)
            state["seen"][keys] = at[last] + 1
        of = np.repeat(np.arange(keys.size), held)
        within = np.arange(of.size) - (np.cumsum(held) - held)[of]
        records = (last + 1 - held)[of] + within
        work.keep(records, keys[of] * self._room_of(state) + within, self._room_of(state))
        if self.by_time:
            state["at"][keys[of], within] = at[records]

    def _widen(self, state: State, room: int) -> None:
        """Make room for a number of records per key: as much in each field, which a restart does not give them."""
        room = max(room, *(state[name].shape[1] * INITIAL_ROOM // field.shape for name, field in self._places.items()))
        for name, field in self._places.items():
            state[name] = field.widen(state[name], room * field.shape // INITIAL_ROOM)
