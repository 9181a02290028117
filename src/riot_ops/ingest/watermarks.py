"""Watermarks at the source: where in a batch stream time may move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.clock import WATERMARKS
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import int_column, readonly
from riot_ops.kernels.arrays.timestamps import from_microseconds, microseconds
from riot_ops.kernels.jit import kernel

__all__ = ["WatermarkGenerator", "generate_watermarks"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WatermarkGenerator:
    """The step that turns the records of a stream into watermarks.

    It has no state: it treats each batch as the first of the stream. So a reader of a part of a stream emits enough
    watermarks for that part, and perhaps some that move nothing.

    Parameters
    ----------
    resolution : int
        Microseconds; watermarks are rounded down to a multiple of it.
    cell, votes_per_run : int
        Where event times may disagree: the first ``votes_per_run`` records of each run in one cell of ``cell``
        microseconds give watermarks, whether or not their times are new maxima. By default all times are in one cell.
    """

    resolution: int
    cell: int = 0
    votes_per_run: int = 1

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords | None = None) -> pa.RecordBatch:
        """Return the watermarks of a batch; none of its records is rejected."""
        return generate_watermarks(batch, self.resolution, self.cell, self.votes_per_run)

    def merge(self, batches: Sequence[pa.RecordBatch], heartbeats: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the watermarks of batches, and of heartbeats between their records, which are part of runs, too."""
        every = [*batches, *heartbeats]
        seq = np.concatenate([int_column(batch.column("seq")) for batch in every])
        numbers = np.concatenate(
            [
                *(np.zeros(batch.num_rows, np.int64) for batch in batches),
                *(int_column(beats.column("heartbeat")) for beats in heartbeats),
            ]
        )
        order = np.lexsort([numbers, seq])
        parts = [microseconds(batch.column("event_time")) for batch in every]
        times, present = (np.concatenate(columns)[order] for columns in zip(*parts, strict=True))
        rows, floors = _moving_rows(times, present, self.resolution, self.cell, self.votes_per_run)
        return _watermarks(seq[order][rows], floors, numbers[order][rows])


def generate_watermarks(
    batch: pa.RecordBatch, resolution: int, cell: int = 0, votes_per_run: int = 1, lag: int = 0
) -> pa.RecordBatch:
    """Return the watermarks of a batch whose rows are in order, see :class:`WatermarkGenerator`.

    A batch without ``seq`` is numbered by its rows. ``lag`` is the delay of the rows in microseconds, see
    :class:`~riot_ops.core.clock.StepClock`.
    """
    times, present = microseconds(batch.column("event_time"))
    rows, floors = _moving_rows(times, present, resolution, cell, votes_per_run)
    seq = rows
    if "seq" in batch.schema.names:
        seq = int_column(batch.column("seq"))[seq]
    return _watermarks(seq, floors + lag, np.zeros(seq.size, np.int64))


def _watermarks(seq: Numbers, times: Numbers, heartbeats: Numbers) -> pa.RecordBatch:
    columns = [pa.array(seq), from_microseconds(times, TIMESTAMP), pa.array(heartbeats)]
    return pa.RecordBatch.from_arrays(columns, schema=WATERMARKS)


def _moving_rows(
    times: Numbers, present: npt.NDArray[np.bool_], resolution: int, cell: int, votes: int
) -> tuple[Numbers, Numbers]:
    """Return the rows at which stream time may move, and its new values."""
    rows, floors = np.empty(times.size, np.int64), np.empty(times.size, np.int64)
    n = _generate(readonly(times), readonly(present), resolution, cell, votes, rows, floors)
    return rows[:n], floors[:n]


@kernel
def _generate(times: Any, present: Any, resolution: Any, cell: Any, votes: Any, rows: Any, floors: Any) -> Any:
    """Find the rows at which stream time may move, and its new values; returns their number.

    The effect of a row depends on the rows before the batch. But in a run of rows in one cell, after ``votes`` of them
    the cell has stream time or never gets it; from then on only a new maximum of the run can move it.
    """
    n = 0
    count = 0  # of the run
    newest = 0
    low = 0
    high = 0
    for i in range(times.size):
        if not present[i]:
            continue
        t = times[i]
        same = count > 0 and (cell == 0 or (t >= low and t < high))
        if same and count >= votes and t < newest + resolution:
            continue
        floor = t // resolution * resolution
        if same:
            newest = max(newest, floor)
        else:
            count = 0
            newest = floor
            if cell > 0:
                low = t // cell * cell
                high = low + cell
        count += 1
        rows[n] = i
        floors[n] = floor
        n += 1
    return n
