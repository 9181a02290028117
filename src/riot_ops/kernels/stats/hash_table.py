"""A set of 64-bit hashes as an open-addressing table, where 0 marks a free place."""

from __future__ import annotations

from typing import Any

from riot_ops.kernels.jit import kernel

__all__ = ["insert_hashes"]


@kernel
def insert_hashes(table: Any, hashes: Any, start: Any, count: Any) -> Any:
    """Insert hashes (not 0) from ``start`` on until the table is half full; returns ``(next, count)``.

    The length of the table is a power of two; ``count`` is the number of hashes in it.
    """
    last = table.size - 1
    i = start
    while i < hashes.size and 2 * count < table.size:
        h = hashes[i]
        place = h & last
        while table[place] != 0 and table[place] != h:
            place = (place + 1) & last
        if table[place] == 0:
            table[place] = h
            count += 1
        i += 1
    return i, count
