"""Tumbling and hopping windows, and when they are closed."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import END, NEVER, Ticks, to_microseconds
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import State, StateField, TimerOutput
from riot_ops.kernels.arrays.timestamps import from_microseconds, time_limits
from riot_ops.kernels.stats.panes import FUTURE, NONE, assign_panes, full_windows, load_due_panes, store_open_panes
from riot_ops.tasks.window.windowing.accumulators import Accumulators, Numbers, dense_key_numbers, window_columns
from riot_ops.tasks.window.windowing.assigner import (
    NOTHING,
    TimeAssigner,
    Updates,
    event_times,
    joined_output,
    time_type,
)
from riot_ops.tasks.window.windowing.stats import Stat
from riot_ops.windows import Hopping, Tumbling

__all__ = ["TimeWindows"]

#: Beyond any pane number.
MAX_PANE = 1 << 61


class PaneTimes(NamedTuple):
    """Times of rows and of stream time, on an axis where panes have one length.

    Attributes
    ----------
    times, present : arrays
        Of rows.
    moves : array of int64
        Stream time after each move.
    allowed_lateness, resolution : int
        See :class:`Ticks`.
    future : array of bool or None
        Rows that are ahead of stream time; None: those that are so on this axis.
    """

    times: Numbers
    present: npt.NDArray[np.bool_]
    moves: Numbers
    allowed_lateness: int
    resolution: int
    future: npt.NDArray[np.bool_] | None = None


class TimeWindows(TimeAssigner):
    """Tumbling and hopping windows; see :mod:`riot_ops.kernels.stats.panes`."""

    def __init__(
        self, stats: Sequence[Stat], emit: str | timedelta, frame: Tumbling | Hopping, allowed_lateness: timedelta
    ) -> None:
        self._set_emission(stats, emit)
        size, self.offset = to_microseconds(frame.size), to_microseconds(frame.offset)
        self.from_first = frame.origin == "first"
        self.every = to_microseconds(frame.every) if isinstance(frame, Hopping) else size
        self.panes, self.allowed_lateness = size // self.every, to_microseconds(allowed_lateness)
        self.period = math.gcd(self.every, self.offset)  # stream time is rounded to what divides both
        self.retention = size + self.every
        self.room = self.panes + -(-self.allowed_lateness // self.every)

    def _set_emission(self, stats: Sequence[Stat], emit: str | timedelta) -> None:
        super().__init__(stats, emit == "each")
        self.tick = to_microseconds(emit) if isinstance(emit, timedelta) else 0

    def lookback(self) -> Lookback | None:
        return Lookback(span=timedelta(microseconds=self.panes * self.every + self.allowed_lateness))

    def state_fields(self) -> Mapping[str, StateField]:
        origin = {"origin": StateField("int64")} if self.from_first else {}
        fresh = {"fresh": StateField("bool", self.room, initial=False)} if self.tick else {}
        return {"pane": StateField("int64", self.room, NONE), **origin, **fresh}

    def decode_state(self, table: pa.Table) -> pa.Table:
        panes = np.asarray(table.column("pane").combine_chunks().flatten()).reshape(-1, self.room)
        known = panes != NONE
        begins = self._begins(panes.ravel())
        if self.from_first:
            begins += np.repeat(np.asarray(table.column("origin")), self.room)
        begins = from_microseconds(begins)
        return self._listed(table, known, {"begin": begins})

    def _range(self, batch: pa.RecordBatch | None) -> tuple[int, int]:
        """Return the first and the last pane whose windows begin and end at times."""
        low, high = (limit - self.offset for limit in self._time_limits(batch))
        return -(-low // self.every) + self.panes - 1, high // self.every - self.panes

    def _time_limits(self, batch: pa.RecordBatch | None) -> tuple[int, int]:
        return time_limits(time_type(batch))

    def _pane_times(self, times: Numbers, present: npt.NDArray[np.bool_], ticks: Ticks) -> PaneTimes:
        """Return the times of rows and ticks for :func:`assign_panes`."""
        moves = ticks.times - self.offset
        return PaneTimes(times - self.offset, present, moves, self.allowed_lateness, ticks.resolution)

    def _pane_time(self, now: int) -> int:
        """Return stream time on the axis of :meth:`_pane_times`."""
        return now if now == NEVER else now - self.offset

    def _spans(self, ends: Numbers) -> tuple[Numbers, Numbers]:
        """Return begin and end of windows by the numbers of their ends."""
        times = ends * self.every + self.offset
        return times - self.panes * self.every, times

    def _begins(self, panes: Numbers) -> Numbers:
        """Return where panes begin; any time for :data:`NONE`."""
        return np.where(panes == NONE, 0, panes) * self.every + self.offset

    def _closed(self, now: int) -> int:
        return NONE if now == NEVER else self._begun(now - self.allowed_lateness)

    def _begun(self, time: Any) -> Any:
        """Return the number of the pane of a time, or of each."""
        return (time - self.offset) // self.every

    def run(
        self, task: Any, batch: pa.RecordBatch | None, slots: Numbers, state: State, ticks: Ticks, bad: npt.NDArray[Any]
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        if self.from_first and ticks.origin not in (self.offset, NEVER):
            here = copy.copy(self)
            here.offset = ticks.origin
            state["origin"][slots] = ticks.origin
            return here.run(task, batch, slots, state, ticks, bad)
        if self.tick:
            return None, self._emit_at_multiples(task, batch, slots, state, ticks, bad)
        return self._process(task, batch, slots, state, ticks, bad)

    def _emit_at_multiples(
        self, task: Any, batch: pa.RecordBatch | None, slots: Numbers, state: State, ticks: Ticks, bad: npt.NDArray[Any]
    ) -> TimerOutput | None:
        """Add rows and advance time, and emit open windows where it passes a multiple of the duration."""
        base, times = (self.offset if self.from_first else 0), ticks.moments
        if times.size > 1 and times[0] == NEVER:
            times = np.append(times[1], times[1:])
        passed = (times - self.allowed_lateness - base) // self.tick
        # the end of a stream closes all windows
        crossings = np.flatnonzero((np.diff(passed) > 0) & (times[1:] < END))
        parts, row, move = [], 0, 0
        for i in [*crossings.tolist(), ticks.rows.size]:
            last = i == ticks.rows.size
            stop = slots.size if last else int(ticks.rows[i])
            now = int(ticks.moments[move])
            moves = Ticks(
                now, ticks.rows[move:i] - row, ticks.times[move:i], ticks.seq[move:i], ticks.resolution, ticks.lag,
                ticks.origin,
            )  # fmt: skip
            rows = None if batch is None else batch.slice(row, stop - row)
            if stop > row or i > move:
                parts.append(self._process(task, rows, slots[row:stop], state, moves, bad[row:stop])[1])
            if not last:
                parts.append(self._open_windows(task, batch, state, int(passed[i] + 1) * self.tick + base))
            row, move = stop, i
        return joined_output([part for part in parts if part is not None])

    def _open_windows(self, task: Any, batch: pa.RecordBatch | None, state: State, time: int) -> TimerOutput | None:
        """Return, for a time, the windows that end later and have records since the last such time."""
        none, ring = np.zeros(state["pane"].size, np.bool_), state["pane"]
        n = load_due_panes(ring, none, len(ring), MAX_PANE, 0, *[NOTHING] * 3)
        slots, panes, taken = (np.empty(n, np.int64) for _ in range(3))
        if not n:
            return None
        load_due_panes(ring, none, len(ring), MAX_PANE, 0, slots, panes, taken)
        work, fresh = Accumulators(self.stats, state, self.room, taken), state["fresh"].reshape(-1)[taken]
        state["fresh"][:] = False
        ended = int(self._begun(np.array([time]))[0])
        return self._timer_output(task, batch, work, slots, panes, ended, MAX_PANE, fresh, time)

    def _process(
        self, task: Any, batch: pa.RecordBatch | None, slots: Numbers, state: State, ticks: Ticks, bad: npt.NDArray[Any]
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        times, present = event_times(batch)
        columns = self.stat_columns(batch, task.hash_words)
        updates = Updates(task, batch) if self.each and batch is not None else None
        on_axis = self._pane_times(times, present, ticks)
        numbers, key_count = dense_key_numbers(slots, len(state["pane"]))
        groups = np.empty(slots.size, np.int64)
        parts: list[TimerOutput] = []
        start, now, first = 0, ticks.start, 0
        while True:
            held = np.full((key_count, self.room), -1, np.int32)
            found: list[Any] = [np.empty(slots.size - start, np.int64) for _ in range(3)]
            n, stop = assign_panes(
                on_axis.times, on_axis.present, slots, numbers, ticks.rows[first:], on_axis.moves[first:],
                self._pane_time(now), self.every, self.panes, on_axis.allowed_lateness, on_axis.resolution,
                *self._range(batch), start, state["pane"], held, groups, bad, *found,
            )  # fmt: skip
            last = ticks.rows.size if stop == slots.size else int(np.searchsorted(ticks.rows, stop, side="right"))
            before, now = self._closed(now), now if last == first else int(ticks.times[last - 1])
            closed = self._closed(now)
            group_slots, group_panes, taken = self._with_due(state, before, closed, [one[:n] for one in found])
            work = Accumulators(self.stats, state, self.room, taken)
            if updates is None:
                work.add(groups, columns, times, start, stop)
            else:
                self._add_each(updates, work, groups, columns, times, ticks, group_slots, group_panes, start, stop)
            if closed > before or before == NONE:
                due = self._timer_output(task, batch, work, group_slots, group_panes, before, closed)
                if due is not None and not self.each:
                    parts.append(due)
            open_groups, places = np.empty_like(group_slots), np.empty_like(group_slots)
            n = store_open_panes(
                group_slots,
                group_panes,
                taken,
                group_slots.size,
                self.panes,
                closed,
                state["pane"],
                open_groups,
                places,
            )
            work.keep(open_groups[:n], places[:n])
            if self.tick:
                added = np.zeros(group_slots.size + 1, np.bool_)
                added[groups[start:stop]] = True  # the last one is for rows without a group
                state["fresh"].reshape(-1)[places[:n][added[open_groups[:n]]]] = True
            start, first = stop, last
            if start == slots.size and first == ticks.rows.size:
                break
        if on_axis.future is not None:
            bad[on_axis.future] = FUTURE
        return None if updates is None else updates.to_batch(), joined_output(parts)

    def _with_due(self, state: State, before: int, closed: int, found: list[Numbers]) -> list[Numbers]:
        """Add to the groups of a batch the groups of the state that belong to windows about to close."""
        n = found[0].size
        whole = self.each and self.panes > 1  # windows of the new records include earlier panes
        if not whole and before in (closed, NONE):
            return found
        ring = state["pane"]
        taken = np.zeros(ring.size, np.bool_)
        taken[found[2][found[2] >= 0]] = True
        limit = MAX_PANE if whole else closed
        size = len(ring)
        none = [NOTHING] * 3
        more = load_due_panes(ring, taken, size, limit, 0, *none)
        if not more:
            return found
        found = [np.concatenate([one, np.empty(more, np.int64)]) for one in found]
        load_due_panes(ring, taken, size, limit, n, *found)
        return found

    def _timer_output(
        self,
        task: Any,
        batch: pa.RecordBatch | None,
        work: Accumulators,
        slots: Numbers,
        panes: Numbers,
        before: int,
        closed: int,
        fresh: npt.NDArray[np.bool_] | None = None,
        time: int | None = None,
    ) -> TimerOutput | None:
        """Return the windows that end in ``(before, closed]``; only those with ``fresh`` panes, at a ``time``."""
        order = np.lexsort((panes, slots))
        n = full_windows(order, slots, panes, self.panes, before, closed, NOTHING, NOTHING, NOTHING)
        if not n:
            return None
        ends, first, last = (np.empty(n, np.int64) for _ in range(3))
        full_windows(order, slots, panes, self.panes, before, closed, ends, first, last)
        if fresh is not None:
            counts = np.cumsum(np.append(0, fresh[order]))
            kept = counts[last] > counts[first]
            ends, first, last = ends[kept], first[kept], last[kept]
        cells = work.merge_ranges(order, first, last)
        starts, ends = self._spans(ends)
        schema = None if batch is None else batch.schema
        columns = window_columns(task.bound_aggregates(schema), cells, starts, ends, time_type(batch))
        rows = pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])
        due = ends if self.from_first else -(-ends // self.period) * self.period
        if time is not None:
            due = np.full(ends.size, time)
        return TimerOutput(slots[order[first]], rows, due)

    def _add_each(
        self, updates: Updates, work: Accumulators, groups: Numbers, columns: list[Any], times: Numbers, ticks: Ticks,
        slots: Numbers, panes: Numbers, start: int, stop: int,
    ) -> None:  # fmt: skip
        """Add rows one by one per key, and record the windows of each row as an update."""
        if not slots.size:
            return
        order = np.lexsort((panes, slots))
        place = _PaneIndex(slots[order], panes[order])
        apart = groups
        if self.panes > 1:  # windows of a key share panes
            now = ticks.at_rows(groups.size)
            closed = np.where(now == NEVER, NONE, self._begun(now - self.allowed_lateness))
            apart = np.empty_like(groups)
            apart[start:stop] = slots[groups[start:stop]]
        for added in work.add_in_rounds(apart, groups, columns, times, start, stop):
            of = groups[added]
            if self.panes == 1:
                updates.add(added, *self._spans(panes[of] + 1), work.snapshot(of))
                continue
            first_open = np.maximum(panes[of], closed[added]) + 1
            counts = panes[of] + self.panes + 1 - first_open
            rows = np.repeat(np.arange(added.size), counts)
            ends = first_open[rows] + np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
            keys = slots[of][rows]
            cells = work.merge_ranges(order, place.of(keys, ends - self.panes), place.of(keys, ends))
            updates.add(added[rows], *self._spans(ends), cells)


class _PaneIndex:
    """Index of the first group of a key from a pane on, among at least one group in order of key and pane."""

    def __init__(self, slots: Numbers, panes: Numbers) -> None:
        self._keys = np.unique(slots)
        self._least = int(panes.min())
        self._span = int(panes.max()) - self._least + 2
        self._codes = self._code(slots, panes)

    def of(self, slots: Numbers, panes: Numbers) -> Numbers:
        """Look up the first group of each slot from a pane on."""
        found: Numbers = np.searchsorted(self._codes, self._code(slots, panes))
        return found

    def _code(self, slots: Numbers, panes: Numbers) -> Numbers:
        code: Numbers = np.searchsorted(self._keys, slots) * self._span
        code += np.clip(panes - self._least, 0, self._span - 1)
        return code
