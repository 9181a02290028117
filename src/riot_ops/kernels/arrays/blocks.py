"""Parting streams of things of different size into blocks of limited size."""

from __future__ import annotations

from typing import Any

from riot_ops.kernels.jit import kernel

__all__ = ["limited_blocks"]


@kernel
def limited_blocks(
    slots: Any, sizes: Any, most: Any, most_bytes: Any, current: Any, count: Any, total: Any, block: Any, closed: Any
) -> Any:
    """Give each row the number of its block; returns how many there are.

    A block of a slot is full with ``most`` rows, or when a further one would take it beyond
    ``most_bytes``. ``closed[b]`` is the row that showed block b to be full, -1 where it is not.
    """
    n = 0
    for i in range(slots.size):
        s = slots[i]
        if count[s] > 0 and total[s] + sizes[i] > most_bytes:
            closed[current[s]] = i
            count[s] = 0
        if count[s] == 0:
            current[s] = n
            closed[n] = -1
            total[s] = 0
            n += 1
        block[i] = current[s]
        count[s] += 1
        total[s] += sizes[i]
        if count[s] == most:
            closed[current[s]] = i
            count[s] = 0
    return n
