"""Sliding medians: a queue of values and two heaps over them per key.

The state of key s is row s of several arrays. Its values are in a ring of ``room[s]`` entries that begins at
``head[s]``; ``low`` and ``high`` are heaps of entry numbers, of the lower and the upper half of the values. Each entry
knows its ``place`` in its heap, which is the upper one where ``above``.

Inserting and removing touch one heap only; :func:`rebalance` has to precede :func:`median`. Among many values between
two medians, about as many go to one half as to the other, so few entries change sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["insert", "median", "rebalance", "remove_oldest"]


@kernel
def _precedes(values: Any, s: Any, a: Any, b: Any, upper: Any) -> Any:
    """Whether entry a belongs above b in a heap: the upper heap has its minimum at the root, the lower its maximum."""
    return values[s, a] < values[s, b] if upper else values[s, a] > values[s, b]


@kernel
def _sift_up(values: Any, heap: Any, place: Any, s: Any, p: Any, upper: Any) -> Any:
    """Sift the entry at place p of a heap towards the root; returns its new place."""
    entry = np.uint64(heap[s, np.uint64(p)])
    while p > 0:
        parent = (p - 1) >> 1
        other = np.uint64(heap[s, np.uint64(parent)])
        if not _precedes(values, s, entry, other, upper):
            break
        heap[s, np.uint64(p)] = other
        place[s, other] = p
        p = parent
    heap[s, np.uint64(p)] = entry
    place[s, entry] = p
    return p


@kernel
def _sift_down(values: Any, heap: Any, place: Any, s: Any, size: Any, p: Any, upper: Any) -> None:
    """Sift the entry at place p of a heap away from the root."""
    entry = np.uint64(heap[s, np.uint64(p)])
    while 2 * p + 1 < size:
        child = 2 * p + 1
        other = np.uint64(heap[s, np.uint64(child)])
        if child + 1 < size:
            sibling = np.uint64(heap[s, np.uint64(child + 1)])
            if _precedes(values, s, sibling, other, upper):
                child += 1
                other = sibling
        if not _precedes(values, s, other, entry, upper):
            break
        heap[s, np.uint64(p)] = other
        place[s, other] = p
        p = child
    heap[s, np.uint64(p)] = entry
    place[s, entry] = p


@kernel
def _push(values: Any, heap: Any, place: Any, above: Any, sizes: Any, s: Any, entry: Any, upper: Any) -> None:
    heap[s, np.uint64(sizes[s])] = entry
    above[s, np.uint64(entry)] = upper
    sizes[s] += 1
    _sift_up(values, heap, place, s, np.int64(sizes[s] - 1), upper)


@kernel
def _remove(values: Any, heap: Any, place: Any, sizes: Any, s: Any, p: Any, upper: Any) -> Any:
    """Remove the entry at place p of a heap and return it."""
    entry = np.int64(heap[s, np.uint64(p)])
    sizes[s] -= 1
    if p < sizes[s]:
        heap[s, np.uint64(p)] = heap[s, np.uint64(sizes[s])]
        if _sift_up(values, heap, place, s, p, upper) == p:
            _sift_down(values, heap, place, s, sizes[s], p, upper)
    return entry


@kernel
def rebalance(values: Any, low: Any, high: Any, place: Any, above: Any, lows: Any, highs: Any, s: Any) -> None:
    """Move entries until the lower heap has as many entries as the upper one, or one more."""
    while lows[s] > highs[s] + 1:
        _push(values, high, place, above, highs, s, _remove(values, low, place, lows, s, 0, False), True)
    while highs[s] > lows[s]:
        _push(values, low, place, above, lows, s, _remove(values, high, place, highs, s, 0, True), False)


@kernel
def _grow(
    values: Any, low: Any, high: Any, place: Any, above: Any, lows: Any, head: Any, room: Any, s: Any
) -> None:  # fmt: skip
    """Double the full ring of a key: the entries before its head move to the new half."""
    for e in range(head[s]):
        to = room[s] + e
        values[s, to] = values[s, e]
        place[s, to] = place[s, e]
        above[s, to] = above[s, e]
        if above[s, e]:
            high[s, place[s, e]] = to
        else:
            low[s, place[s, e]] = to
    room[s] *= 2


@kernel
def insert(
    values: Any, low: Any, high: Any, place: Any, above: Any, lows: Any, highs: Any, head: Any, room: Any, s: Any,
    x: Any,
) -> None:  # fmt: skip
    """Add a value to key s: O(log n). The arrays must be as long as the largest ring."""
    if lows[s] + highs[s] == room[s]:
        _grow(values, low, high, place, above, lows, head, room, s)
    entry = head[s] + lows[s] + highs[s]
    if entry >= room[s]:
        entry -= room[s]
    values[s, entry] = x
    if lows[s] > 0:
        upper = x > values[s, np.uint64(low[s, 0])]
    else:
        upper = highs[s] > 0 and x > values[s, np.uint64(high[s, 0])]
    if upper:
        _push(values, high, place, above, highs, s, entry, True)
    else:
        _push(values, low, place, above, lows, s, entry, False)


@kernel
def remove_oldest(
    values: Any, low: Any, high: Any, place: Any, above: Any, lows: Any, highs: Any, head: Any, room: Any, s: Any
) -> None:  # fmt: skip
    """Remove the oldest value of key s: O(log n)."""
    entry = head[s]
    if above[s, entry]:
        _remove(values, high, place, highs, s, np.int64(place[s, entry]), True)
    else:
        _remove(values, low, place, lows, s, np.int64(place[s, entry]), False)
    head[s] = entry + 1 if entry + 1 < room[s] else 0


@kernel
def median(values: Any, low: Any, high: Any, lows: Any, highs: Any, s: Any) -> Any:
    """The median of key s, whose heaps must be balanced; NaN without values, the mean of the middle two if even."""
    if lows[s] == 0:
        return np.nan
    if lows[s] > highs[s]:
        return values[s, np.uint64(low[s, 0])]
    return values[s, np.uint64(low[s, 0])] / 2 + values[s, np.uint64(high[s, 0])] / 2
