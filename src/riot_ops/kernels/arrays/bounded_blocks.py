"""Splitting streams of rows into blocks of bounded size."""

from __future__ import annotations

from typing import Any

from riot_ops.kernels.jit import kernel

__all__ = ["assign_blocks"]


@kernel
def assign_blocks(
    slots: Any, sizes: Any, max_rows: Any, max_bytes: Any, current: Any, rows: Any, bytes_: Any, block: Any, closed: Any
) -> Any:
    """Give each row the number of its block; returns the number of blocks.

    The rows of a slot go to one block until it has ``max_rows`` rows, or the next row would take it beyond
    ``max_bytes``. ``closed[b]`` is the row at which block b was found full, -1 while it is open.
    """
    n = 0
    for i in range(slots.size):
        s = slots[i]
        if rows[s] > 0 and bytes_[s] + sizes[i] > max_bytes:
            closed[current[s]] = i
            rows[s] = 0
        if rows[s] == 0:
            current[s] = n
            closed[n] = -1
            bytes_[s] = 0
            n += 1
        block[i] = current[s]
        rows[s] += 1
        bytes_[s] += sizes[i]
        if rows[s] == max_rows:
            closed[current[s]] = i
            rows[s] = 0
    return n
