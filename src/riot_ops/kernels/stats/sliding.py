"""Bounds of sliding windows over rows in order of key and axis (a number of records, or time)."""

from __future__ import annotations

from typing import Any

from riot_ops.kernels.jit import kernel

__all__ = ["find_late", "sliding_bounds"]


@kernel
def find_late(slots: Any, at: Any, latest: Any, late: Any) -> Any:
    """Mark the rows before a time of their key; return whether there is one. ``latest`` is the latest time by slot."""
    found = False
    for i in range(slots.size):
        s = slots[i]
        if at[i] < latest[s]:
            late[i] = True
            found = True
        else:
            latest[s] = at[i]
    return found


@kernel
def sliding_bounds(keys: Any, at: Any, size: Any, first: Any, head: Any, closes: Any) -> None:
    """Find the first row of the window that ends at each row.

    The axis is divided into blocks of the windows' size, so that a window is the tail of one block and the head of the
    next, or one of both. ``head`` is the first row of a row's block, ``closes`` whether it is the last one.
    """
    low = 0
    for i in range(keys.size):
        if i == 0 or keys[i] != keys[i - 1]:
            low = i
            head[i] = i
        elif at[i] // size != at[i - 1] // size:
            head[i] = i
        else:
            head[i] = head[i - 1]
            closes[i - 1] = False
        closes[i] = True
        while at[low] <= at[i] - size:
            low += 1
        first[i] = low
