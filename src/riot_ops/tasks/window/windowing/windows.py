"""What all kinds of windows share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.operator import StateField
from riot_ops.core.order import next_ordinal
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.text.timestamps import microseconds
from riot_ops.tasks.window.windowing.groups import Numbers, ranks, window_columns
from riot_ops.tasks.window.windowing.stats import Cells, Stat

__all__ = ["NOTHING", "Updates", "Windows", "event_times", "time_type"]

NOTHING = np.empty(0, np.int64)


class Windows(ABC):
    """A kind of windows.

    Parameters
    ----------
    stats : list of Stat
        What is kept of the records of a window.
    update : bool
        Whether each record gives the windows that it falls into, in place of a result when one is closed.
    """

    #: Places for groups in the state of a key; 0: one, which is no array.
    room = 0

    def __init__(self, stats: Sequence[Stat], update: bool) -> None:
        self.stats = stats
        self.update = update

    @abstractmethod
    def fields(self) -> Mapping[str, StateField]:
        """State besides the cells."""

    def decoded(self, table: pa.Table) -> pa.Table:
        """State for people."""
        return table

    def _listed(self, table: pa.Table, open_: Any, heads: Mapping[str, pa.Array]) -> pa.Table:
        """The places that are open as a list of structs per key, in place of a column for each of their parts."""
        parts = dict(heads)
        for stat in self.stats:
            for name, (dtype, width, _) in stat.cells().items():
                if dtype != "json" and not width:
                    parts[name] = table.column(name).combine_chunks().flatten()
        flat = np.flatnonzero(open_.ravel())
        items = pa.StructArray.from_arrays([part.take(pa.array(flat)) for part in parts.values()], list(parts))
        ends = np.concatenate([[0], np.cumsum(open_.sum(axis=1))])
        cells = {name for stat in self.stats for name in stat.cells()}
        kept = [name for name in table.column_names if name not in cells and name not in self.fields()]
        return table.select(kept).append_column("open", pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items))

    def columns(self, batch: pa.RecordBatch | None) -> list[Any]:
        """What the stats want of a batch."""
        return [stat.column(batch) for stat in self.stats]


class Updates:
    """Results of records: rows, windows, and the cells as they stood behind each."""

    def __init__(self, task: Any, batch: pa.RecordBatch) -> None:
        self._task = task
        self._batch = batch
        self._spans: list[tuple[Numbers, Numbers, Numbers]] = [(NOTHING, NOTHING, NOTHING)]
        self._cells: list[Cells] = []

    def add(self, rows: Numbers, starts: Numbers, ends: Numbers, cells: Cells) -> None:
        """Windows of rows; those of one row in order."""
        self._spans.append((rows, starts, ends))
        self._cells.append(cells)

    def made(self) -> pa.RecordBatch:
        """All of them as records."""
        schema = self._task.output_schema(self._batch.schema)
        if not self._cells:
            return pa.RecordBatch.from_pylist([], schema)
        rows, starts, ends = (np.concatenate(parts) for parts in zip(*self._spans, strict=True))
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        taken = self._batch.take(pa.array(rows))
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        columns[next_ordinal(self._batch.schema.names)] = pa.array(ranks(rows))
        cells = {name: _joined([one[name] for one in self._cells], order) for name in self._cells[0]}
        kind = time_type(self._batch)
        columns |= window_columns(self._task.readings(self._batch.schema), cells, starts[order], ends[order], kind)
        return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)


def _joined(parts: list[Any], order: Numbers) -> Any:
    if not isinstance(parts[0], list):
        return np.concatenate(parts)[order]
    flat = [one for part in parts for one in part]
    return [flat[i] for i in order.tolist()]


def event_times(batch: pa.RecordBatch | None) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Event times in microseconds, and where there is one."""
    return (NOTHING, np.empty(0, np.bool_)) if batch is None else microseconds(batch.column("event_time"))


def time_type(batch: pa.RecordBatch | None) -> pa.DataType:
    """The type of the times of results."""
    kind = TIMESTAMP
    if batch is not None and "event_time" in batch.schema.names:
        kind = batch.schema.field("event_time").type
    return kind if pa.types.is_timestamp(kind) else TIMESTAMP
