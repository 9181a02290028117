"""Assigners: the base classes of time, session and count windows, and their results per record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import NEVER, Ticks
from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import State, StateField, TimerOutput
from riot_ops.core.order import next_ordinal
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.tasks.window.windowing.accumulators import Numbers, ranks_within_groups, window_columns
from riot_ops.tasks.window.windowing.stats import Cells, HashWords, Stat

__all__ = [
    "NOTHING",
    "Assigner",
    "TickingAssigner",
    "TimeAssigner",
    "Updates",
    "event_times",
    "joined",
    "joined_output",
    "time_type",
]

NOTHING = np.empty(0, np.int64)


class Assigner(ABC):
    """Assigns records to windows, and decides when windows are closed.

    Parameters
    ----------
    stats : list of Stat
        Stats to keep for each window.
    each : bool
        Whether each record emits the windows that contain it, instead of a result when a window is closed.
    """

    #: Whether a result is a record with its own fields and the aggregates.
    keeps_records: bool = False
    #: Places for groups in the state of a key; 0: one group, without a place axis.
    room = 0

    def __init__(self, stats: Sequence[Stat], each: bool) -> None:
        self.stats = stats
        self.each = each

    @abstractmethod
    def state_fields(self) -> Mapping[str, StateField]:
        """Declare the state besides the cells."""

    def lookback(self) -> Lookback | None:
        """Return how much of the input the result of a closed window depends on; None: all of it."""
        return None

    def decode_state(self, table: pa.Table) -> pa.Table:
        """Return the state in readable form."""
        return table

    def _listed(self, table: pa.Table, open_: Any, heads: Mapping[str, pa.Array]) -> pa.Table:
        """Replace the columns of the places by one list per key, with a struct for each open place."""
        parts = dict(heads)
        for stat in self.stats:
            for name, (dtype, width, _) in stat.cells().items():
                if dtype != "object" and not width:
                    parts[name] = table.column(name).combine_chunks().flatten()
        flat = np.flatnonzero(open_.ravel())
        items = pa.StructArray.from_arrays([part.take(pa.array(flat)) for part in parts.values()], list(parts))
        ends = np.concatenate([[0], np.cumsum(open_.sum(axis=1))])
        cells = {name for stat in self.stats for name in stat.cells()}
        other_columns = [name for name in table.column_names if name not in cells and name not in self.state_fields()]
        return table.select(other_columns).append_column(
            "open", pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)
        )

    def stat_columns(self, batch: pa.RecordBatch | None, key: HashWords) -> list[Any]:
        """Return the input of each stat from a batch; ``key`` is that of hashes."""
        return [stat.column(batch, key) for stat in self.stats]


class TickingAssigner(Assigner):
    """An assigner of windows without an end, which may emit results at multiples of a duration of stream time."""

    #: The duration in microseconds; 0: results are emitted at records.
    every = 0

    @abstractmethod
    def absorb(
        self, task: Any, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> Numbers:
        """Add rows without results, and return the slots of those that are not rejected."""

    @abstractmethod
    def latest(self, state: State, due: Numbers) -> tuple[Numbers, Cells]:
        """Return those of some keys that have a result, and the cells of the window at the last record of each."""

    def advance(
        self,
        task: Any,
        batch: pa.RecordBatch | None,
        slots: Numbers,
        state: State,
        ticks: Ticks,
        errors: RejectedRecords,
    ) -> TimerOutput | None:
        """Add rows, and return the results that are due: where stream time passes a multiple, of keys with records."""
        done, now = 0, ticks.start
        parts: list[TimerOutput] = []
        for row, time in zip(ticks.rows.tolist(), ticks.times.tolist(), strict=True):
            if now != NEVER and time // self.every > now // self.every:
                if row > done and batch is not None:
                    state["fresh"][self.absorb(task, batch.slice(done, row - done), slots[done:row], state, errors)] = 1
                    done = row
                found = self._due_output(task, batch, state, (now // self.every + 1) * self.every)
                parts += [] if found is None else [found]
            now = time
        if batch is not None and done < batch.num_rows:
            state["fresh"][self.absorb(task, batch.slice(done), slots[done:], state, errors)] = 1
        return joined_output(parts)

    def _due_output(self, task: Any, batch: pa.RecordBatch | None, state: State, time: int) -> TimerOutput | None:
        """Return the results of the keys with records since the last multiple, at ``time``."""
        due = np.flatnonzero(state["fresh"])
        cells: Cells = {}
        state["fresh"][due] = 0
        if due.size:
            due, cells = self.latest(state, due)
        if not due.size:
            return None
        aggregates = task.bound_aggregates(None if batch is None else batch.schema)
        columns = {name: one.result(cells) for name, one in aggregates.items()}
        return TimerOutput(due, pa.RecordBatch.from_pydict(columns), np.full(due.size, time))


class TimeAssigner(Assigner):
    """Assigns records to windows of event time, which stream time closes."""

    #: Windows begin or end at multiples of it, in microseconds.
    period: int
    #: How long the windows of a record stay open after it at most, in microseconds, without lateness.
    retention: int
    #: Whether windows are counted from the first event time of the stream.
    from_first: bool = False
    #: The duration at whose multiples open windows are emitted, in microseconds; 0: never.
    tick: int = 0

    @abstractmethod
    def run(
        self, task: Any, batch: pa.RecordBatch | None, slots: Numbers, state: State, ticks: Ticks, bad: npt.NDArray[Any]
    ) -> tuple[pa.RecordBatch | None, TimerOutput | None]:
        """Add rows and advance time; ``bad`` receives the reasons of rows that belong to no open window."""


class Updates:
    """Results per record: rows, their windows, and the cells after each row."""

    def __init__(self, task: Any, batch: pa.RecordBatch) -> None:
        self._task = task
        self._batch = batch
        self._spans: list[tuple[Numbers, Numbers, Numbers]] = [(NOTHING, NOTHING, NOTHING)]
        self._cells: list[Cells] = []

    def add(self, rows: Numbers, starts: Numbers, ends: Numbers, cells: Cells) -> None:
        """Append windows of rows; the windows of one row must come in order."""
        self._spans.append((rows, starts, ends))
        self._cells.append(cells)

    def to_batch(self) -> pa.RecordBatch:
        """Build a batch of all results, in order of the rows."""
        schema = self._task.output_schema(self._batch.schema)
        if not self._cells:
            return pa.RecordBatch.from_pylist([], schema)
        rows, starts, ends = (np.concatenate(parts) for parts in zip(*self._spans, strict=True))
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        taken = self._batch.take(pa.array(rows))
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        columns[next_ordinal(self._batch.schema.names)] = pa.array(ranks_within_groups(rows))
        cells = {name: joined([one[name] for one in self._cells], order) for name in self._cells[0]}
        dtype = time_type(self._batch)
        columns |= window_columns(
            self._task.bound_aggregates(self._batch.schema), cells, starts[order], ends[order], dtype
        )
        return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)


def joined(parts: list[Any], order: Numbers) -> Any:
    """Join arrays or lists, and take the elements of an order."""
    if not isinstance(parts[0], list):
        return np.concatenate(parts)[order]
    flat = [one for part in parts for one in part]
    return [flat[i] for i in order.tolist()]


def event_times(batch: pa.RecordBatch | None) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return event times in microseconds, and which of them are present."""
    return (NOTHING, np.empty(0, np.bool_)) if batch is None else microseconds(batch.column("event_time"))


def time_type(batch: pa.RecordBatch | None) -> pa.DataType:
    """Return the type for the times of results."""
    dtype = TIMESTAMP
    if batch is not None and "event_time" in batch.schema.names:
        dtype = batch.schema.field("event_time").type
    return dtype if pa.types.is_timestamp(dtype) else TIMESTAMP


def joined_output(found: Sequence[TimerOutput]) -> TimerOutput | None:
    """Join timer output that is due at one time after the other."""
    if len(found) < 2:
        return found[0] if found else None
    times = [one.times for one in found if one.times is not None]
    rows = pa.Table.from_batches([one.rows for one in found]).combine_chunks().to_batches()[0]
    return TimerOutput(np.concatenate([one.slots for one in found]), rows, np.concatenate(times))
