"""Sliding windows in rings of cells: one compiled loop per stat, which changes the state in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.clock import to_microseconds
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import State, StateField
from riot_ops.core.parameters import as_timedelta
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import replace_column
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.kernels.stats.panes import NONE
from riot_ops.kernels.stats.rings import move_places, place_records, place_times
from riot_ops.kernels.stats.sliding import find_late
from riot_ops.tasks.window.windowing.accumulators import Numbers
from riot_ops.tasks.window.windowing.assigner import TickingAssigner
from riot_ops.tasks.window.windowing.stats import Cells, Placed, Stat
from riot_ops.windows import Sliding

__all__ = ["RingWindows"]

#: Places of a key at first, in windows of time.
INITIAL_ROOM = 8


class RingWindows(TickingAssigner):
    """Windows that end at each record, of stats whose cells are in rings."""

    def __init__(self, stats: Sequence[Stat], frame: Sliding, emit: str | timedelta) -> None:
        super().__init__((), each=True)  # no cells of groups
        self.by_time = not isinstance(frame.size, int)
        self.size = frame.size if isinstance(frame.size, int) else to_microseconds(as_timedelta(frame.size))
        self.full = frame.full
        self._ring_stats = stats
        self.every = to_microseconds(emit) if isinstance(emit, timedelta) else 0
        self.keeps_records = not self.every
        self._rings = {name: width for stat in stats for name, width in stat.rings().items()}
        if self.by_time:
            self._rings["at"] = 1

    def lookback(self) -> Lookback | None:
        return None if self.by_time or self.full else Lookback(self.size - 1)

    def state_fields(self) -> Mapping[str, StateField]:
        fields = {name: StateField("int64") for name in ("seen", *(["fresh"] if self.every else []))}
        if self.by_time:
            fields |= {name: StateField("int64") for name in ("low", "split", "begin")}
            fields |= {"latest": StateField("int64", initial=NONE), "room": StateField("int64", initial=INITIAL_ROOM)}
            fields |= {"at": StateField("int64", INITIAL_ROOM, growable=True)}
        for stat in self._ring_stats:
            fields |= stat.ring_fields(INITIAL_ROOM if self.by_time else self.size, self.by_time)
        return fields

    def run(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        """Add the rows of a batch, and return them with the aggregates of their windows."""
        batch, _, emitted, cells = self._add(batch, slots, state, errors)
        results = task.bound_aggregates(batch.schema)
        if self.full and not emitted.all():
            batch = batch.filter(pa.array(emitted))
        for name, one in results.items():
            batch = replace_column(batch, name, one.result(cells))
        return batch

    def absorb(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> Numbers:
        return self._add(batch, slots, state, errors)[1]

    def latest(self, state: State, due: Numbers) -> tuple[Numbers, Cells]:
        if self.by_time:
            self._widen(state, due)
            if self.full:
                due = due[state["latest"][due] - state["begin"][due] >= self.size]
            low, mask = state["low"][due], state["room"][due] - 1
            first, held = low & mask, state["seen"][due] - low
            tail = np.where(low < state["split"][due], first, -1)
        else:
            due = due[state["seen"][due] >= self.size] if self.full else due
            seen = state["seen"][due]
            after, held = (seen - 1) % self.size + 1, np.minimum(seen, self.size)
            tail = np.where((seen > self.size) & (after < self.size), after, -1)
            first = np.maximum(tail, 0)
        cells: Cells = {}
        for stat in self._ring_stats:
            cells |= stat.latest_window(state, due, tail, first, held)
        return due, cells

    def _add(
        self, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> tuple[pa.RecordBatch, Numbers, Any, Cells]:
        """Add the rows that are not late; return them, their slots, which have results, and the cells of these."""
        if self.by_time:
            times, _ = microseconds(batch.column("event_time"))
            late = np.zeros(slots.size, np.bool_)
            if find_late(slots, times, state["latest"], late):
                errors.reject(batch, late, "late", "a record of its key with a later time came earlier")
                batch, slots, times = batch.filter(pa.array(~late)), slots[~late], times[~late]
            fresh = slots[state["seen"][slots] == 0]
            state["room"][fresh] = state["at"].shape[1]
            self._widen(state, slots)
        placed = Placed.empty(slots, state["room"] if self.by_time else np.array([self.size]))
        if not self.by_time:
            place_records(slots, state["seen"], self.size, self.full, *placed.outputs())
            return batch, slots, placed.emitted, self._slide(batch, state, placed)
        parts: list[Cells] = []
        start = 0
        while not parts or start < slots.size:
            rest = placed.part(start)
            of: list[Any] = [state[name] for name in ("room", "at", "seen", "low", "split", "begin")]
            found = place_times(rest.slots, times[start:], self.size, self.full, *of, *rest.outputs())
            parts.append(self._slide(batch.slice(start, found), state, rest.part(0, found)))
            start += found
            if start < slots.size:
                self._grow(state, int(state["room"][slots[start]]))
        cells = parts[0] if len(parts) == 1 else {n: np.concatenate([one[n] for one in parts]) for n in parts[0]}
        return batch, slots, placed.emitted, cells

    def _slide(self, batch: pa.RecordBatch, state: State, placed: Placed) -> Cells:
        cells: Cells = {}
        for stat in self._ring_stats:
            cells |= stat.slide(state, batch, placed)
        return cells

    def _widen(self, state: State, slots: Numbers) -> None:
        """Make each ring as wide as keys have room, which a restart does not give it."""
        room = int(state["room"][slots].max(initial=INITIAL_ROOM))
        for name, width in self._rings.items():
            if state[name].shape[1] < room * width:
                state[name] = self.state_fields()[name].widen(state[name], room * width)

    def _grow(self, state: State, room: int) -> None:
        """Double the room of all keys with ``room`` places or fewer."""
        slots = np.flatnonzero(state["room"] <= room)
        fields = self.state_fields()
        for name, width in self._rings.items():
            state[name] = fields[name].widen(state[name], 2 * room * width)
            move_places(width, slots, state["room"], 2 * room, state["seen"], state["low"], state[name])
        state["room"][slots] = 2 * room
