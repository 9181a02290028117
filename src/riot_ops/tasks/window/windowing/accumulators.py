"""Accumulators: the cells of the window groups that a batch touches, loaded from the state and stored back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.operator import State, StateField
from riot_ops.kernels.arrays.timestamps import from_microseconds
from riot_ops.kernels.stats.panes import NONE
from riot_ops.tasks.window.windowing.aggregates import BoundAggregate
from riot_ops.tasks.window.windowing.stats import Cells, ExactSums, Stat, Summaries
from riot_ops.tasks.window.windowing.value_stats import ObjectStat, object_field

__all__ = [
    "Accumulators",
    "cell_state_fields",
    "dense_key_numbers",
    "distinct_stats",
    "ranks_within_groups",
    "timestamp_column",
    "window_columns",
]

Numbers = npt.NDArray[np.int64]


def distinct_stats(readings: Iterable[BoundAggregate]) -> list[Stat]:
    """Return the stats that the aggregates read, each once; one in place of those whose cells it has."""
    stats = dict.fromkeys(stat for one in readings for stat in one.stats)
    for exact in [stat for stat in stats if isinstance(stat, ExactSums)]:
        whole = Summaries(exact.field)
        if stats.keys() >= {*whole.parts}:
            stats = dict.fromkeys(
                whole if stat == exact else stat for stat in stats if stat == exact or stat not in whole.parts
            )
    return list(stats)


def cell_state_fields(stats: Iterable[Stat], room: int, growable: bool = False) -> dict[str, StateField]:
    """Declare the state of one key with ``room`` places for groups (0: one group, without a place axis)."""
    fields = {}
    for stat in stats:
        for name, (dtype, width, initial) in stat.cells().items():
            if dtype == "object":
                fields[name] = object_field(stat)
            else:  # a state field is initialised with one number; array-valued initial cells are stored with the group
                first = initial if np.isscalar(initial) or initial is None else 0.0
                fields[name] = StateField(dtype, max(room, 1) * max(width, 1) if room or width else 0, first, growable)
    return fields


def dense_key_numbers(slots: Numbers, size: int) -> tuple[Numbers, int]:
    """Number the keys of a batch densely; return the numbers and their upper bound."""
    if size <= 4 * slots.size + 1024:
        return slots, size
    distinct, numbers = np.unique(slots, return_inverse=True)
    return numbers.astype(np.int64), distinct.size


class Accumulators:
    """Cells of the groups that a batch touches.

    Parameters
    ----------
    stats : list of Stat
    state : dict
        The state arrays of all keys, with ``room`` places each.
    taken : array of int64
        For each group the place in the state that it continues, counted over all keys; -1 for a new group.
    """

    def __init__(self, stats: Sequence[Stat], state: State, room: int, taken: Numbers) -> None:
        self._stats = stats
        self._state = state
        self._room = room
        self.cells: Cells = {}
        known = np.flatnonzero(taken >= 0)
        for name, (dtype, width, initial) in self._layout():
            if dtype == "object":
                self.cells[name] = [self._load_object(name, int(place)) for place in taken]
                continue
            cell = np.empty((taken.size, width) if width else taken.size, dtype)
            cell[...] = initial
            cell[known] = self._flat_state(name, width)[taken[known]]
            self.cells[name] = cell

    def add(self, groups: Numbers, columns: Sequence[Any], times: Numbers, start: int, stop: int) -> None:
        """Add rows to their groups."""
        for stat, values in zip(self._stats, columns, strict=True):
            stat.add(self.cells, groups, values, times, start, stop)

    def add_in_rounds(
        self, apart: Numbers, groups: Numbers, columns: Sequence[Any], times: Numbers, start: int, stop: int
    ) -> Iterator[Numbers]:
        """Add rows in rounds with at most one row per value of ``apart``; yield the rows of each round."""
        rows = np.flatnonzero(groups[start:stop] >= 0) + start
        rank = ranks_within_groups(apart[rows])
        order = np.argsort(rank, kind="stable")
        rows, rank = rows[order], rank[order]
        groups, times = groups[rows], times[rows]
        columns = [_select_rows(column, rows) for column in columns]
        for first, last in pairwise([*np.flatnonzero(np.diff(rank, prepend=-1)).tolist(), rows.size]):
            self.add(groups, columns, times, first, last)
            yield rows[first:last]

    def merge(self, into: Numbers, others: Numbers) -> None:
        """Merge groups into others, one after the other."""
        first = np.arange(others.size)
        for stat in self._stats:
            stat.merge(self.cells, into, self.cells, others, first, first + 1)

    def join(
        self, into: Numbers, one: Numbers, other: Numbers, alone: npt.NDArray[np.bool_], *, second: bool = True
    ) -> None:
        """Merge two groups into an empty one, row after row; where ``alone`` only the ``second``, or else the first."""
        pairs = np.stack([one, other], axis=1).ravel()
        first = 2 * np.arange(into.size)
        last = first + 2
        if second:
            first = first + alone
        else:
            last = last - alone
        for stat in self._stats:
            stat.merge(self.cells, into, self.cells, pairs, first, last)

    def merge_ranges(self, order: Numbers, first: Numbers, last: Numbers) -> Cells:
        """Return, for each i, the merged cells of the groups ``order[first[i]:last[i]]``."""
        whole = Accumulators(self._stats, {}, 1, np.full(first.size, -1)).cells
        for stat in self._stats:
            stat.merge(whole, np.arange(first.size), self.cells, order, first, last)
        return whole

    def snapshot(self, groups: Numbers) -> Cells:
        """Copy the current cells of groups."""
        copies: Cells = {}
        for stat in self._stats:
            for name in stat.cells():
                cell = self.cells[name]
                copies[name] = (
                    [None if cell[g] is None else stat.frozen(cell[g]) for g in groups.tolist()]
                    if isinstance(stat, ObjectStat)
                    else cell[groups]
                )
        return copies

    def keep(self, groups: Numbers, places: Numbers, room: int | None = None) -> None:
        """Store groups in places of the state, which may have got more ``room``."""
        room = room or self._room
        for name, (dtype, width, _) in self._layout():
            if dtype != "object":
                self._flat_state(name, width)[places] = self.cells[name][groups]
                continue
            for group, place in zip(groups.tolist(), places.tolist(), strict=True):
                held = self._state[name]
                ring = list(held[place // room] or [])
                ring += [None] * (room - len(ring))
                ring[place % room] = self.cells[name][group]
                held[place // room] = ring

    def _layout(self) -> Iterable[tuple[str, tuple[str, int, Any]]]:
        for stat in self._stats:
            yield from stat.cells().items()

    def _flat_state(self, name: str, width: int) -> Any:
        """View a state array as one row per place."""
        array = self._state[name] if self._state else np.empty(0)
        return array.reshape(-1, width) if width else array.reshape(-1)

    def _load_object(self, name: str, place: int) -> Any:
        """Return the object in a place of the state, which then changes with the group."""
        ring = self._state[name][place // self._room] if place >= 0 else None
        return None if ring is None or place % self._room >= len(ring) else ring[place % self._room]


def ranks_within_groups(groups: Numbers) -> Numbers:
    """Return, for each row, the number of earlier rows of its group."""
    order = np.argsort(groups, kind="stable")
    places = np.arange(groups.size)
    new = np.diff(groups[order], prepend=-1) != 0
    ranks_within_groups = np.empty_like(groups)
    ranks_within_groups[order] = places - np.maximum.accumulate(np.where(new, places, 0))
    return ranks_within_groups


def _select_rows(column: Any, rows: Numbers) -> Any:
    """Select rows from the input of a stat."""
    if isinstance(column, tuple):
        return tuple(_select_rows(part, rows) for part in column)
    if isinstance(column, pa.Array):
        return column.take(pa.array(rows))
    if isinstance(column, list):
        return [column[row] for row in rows.tolist()]
    return column[rows] if column.size else column


def window_columns(
    readings: Mapping[str, BoundAggregate], cells: Cells, starts: Numbers, ends: Numbers, dtype: pa.DataType
) -> dict[str, pa.Array]:
    """Build start, end and aggregates of windows; start and end are null where the end is :data:`NONE`."""
    columns = {"window_start": timestamp_column(starts, ends, dtype), "window_end": timestamp_column(ends, ends, dtype)}
    return columns | {name: one.result(cells) for name, one in readings.items()}


def timestamp_column(times: Numbers, ends: Numbers, dtype: pa.DataType) -> pa.Array:
    """Convert times to a column, null for windows without event times."""
    known = ends != NONE
    column = from_microseconds(np.where(known, times, 0), dtype)
    return column if known.all() else pc.if_else(pa.array(known), column, None)
