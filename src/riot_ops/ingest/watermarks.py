"""Watermarks at the source: where in a batch stream time may move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.clock import WATERMARKS
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.timestamps import from_microseconds, microseconds
from riot_ops.kernels.jit import kernel

__all__ = ["WatermarkGenerator", "generate_watermarks"]


@dataclass(frozen=True)
class WatermarkGenerator:
    """The step that turns the records of a stream into watermarks.

    It has no state: it treats each batch as the first of the stream. So a reader of a part of a stream emits enough
    watermarks for that part, and perhaps some that move nothing.

    Parameters
    ----------
    resolution : int
        Microseconds; watermarks are rounded down to a multiple of it.
    guarded : bool
        Whether an event time may be too far ahead to move stream time.
    """

    resolution: int
    guarded: bool

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the watermarks of a batch."""
        return generate_watermarks(batch, self.resolution, self.guarded)


def generate_watermarks(batch: pa.RecordBatch, resolution: int, guarded: bool, lag: int = 0) -> pa.RecordBatch:
    """Return the watermarks of a batch whose rows are in order.

    A batch without ``seq`` is numbered by its rows. ``lag`` is the delay of the rows in microseconds, see
    :class:`~riot_ops.core.clock.StepClock`.
    """
    times, present = microseconds(batch.column("event_time"))
    rows, floors = np.empty(times.size, np.int64), np.empty(times.size, np.int64)
    n = _generate(times, present, resolution, guarded, np.empty(times.size, np.int64), rows, floors)
    seq = rows[:n]
    if "seq" in batch.schema.names:
        seq = int_column(batch.column("seq"))[seq]
    columns = [pa.array(seq), from_microseconds(floors[:n] + lag, TIMESTAMP)]
    return pa.RecordBatch.from_arrays(columns, schema=WATERMARKS)


@kernel
def _generate(times: Any, present: Any, resolution: Any, guarded: Any, stack: Any, rows: Any, floors: Any) -> Any:
    """Find the rows at which stream time may move, and its new values; returns their number.

    Stream time moves where the largest time so far grows. With ``guarded``, a time may be too far ahead, which depends
    on what came before the batch. Then a row is skipped only if its time has already been emitted with no smaller one
    since: if it was too far ahead then, it still is; if not, it has moved stream time. ``stack`` holds those times in
    ascending order.
    """
    top = 0
    n = 0
    for i in range(times.size):
        if not present[i]:
            continue
        if top > 0 and times[i] < stack[top - 1] + resolution and (not guarded or times[i] >= stack[top - 1]):
            continue
        floor = times[i] // resolution * resolution
        if guarded:
            while top > 0 and stack[top - 1] > floor:
                top -= 1
        if top > 0 and stack[top - 1] >= floor:
            continue
        if guarded or top == 0:
            top += 1
        stack[top - 1] = floor
        rows[n] = i
        floors[n] = floor
        n += 1
    return n
