"""Medians of values that come and go, the oldest first: a queue and two heaps per key.

The state of key s are rows of arrays: its values stand in a ring of ``room[s]`` entries from ``head[s]`` on; ``low``
and ``high`` are heaps of the lower and the upper half of them, as numbers of entries; and each entry knows its
``place`` in the heap that it is in, the upper one where it is ``above``.

Values come and go at the cost of the heap that they are in; only who asks for the median has to :func:`level` the two
before. Of many values between two medians, as many join one half as the other, and few entries have to change sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["include", "leave_out", "level", "middle"]


@kernel
def _before(values: Any, s: Any, a: Any, b: Any, upper: Any) -> Any:
    """Whether entry a is nearer to the root than b: of the upper heap the least, of the lower one the largest is."""
    return values[s, a] < values[s, b] if upper else values[s, a] > values[s, b]


@kernel
def _up(values: Any, heap: Any, place: Any, s: Any, p: Any, upper: Any) -> Any:
    """Move the entry in place p of a heap towards the root as far as it belongs; returns its place."""
    entry = np.uint64(heap[s, np.uint64(p)])
    while p > 0:
        parent = (p - 1) >> 1
        other = np.uint64(heap[s, np.uint64(parent)])
        if not _before(values, s, entry, other, upper):
            break
        heap[s, np.uint64(p)] = other
        place[s, other] = p
        p = parent
    heap[s, np.uint64(p)] = entry
    place[s, entry] = p
    return p


@kernel
def _down(values: Any, heap: Any, place: Any, s: Any, size: Any, p: Any, upper: Any) -> None:
    """Move the entry in place p of a heap away from the root as far as it belongs."""
    entry = np.uint64(heap[s, np.uint64(p)])
    while 2 * p + 1 < size:
        child = 2 * p + 1
        other = np.uint64(heap[s, np.uint64(child)])
        if child + 1 < size:
            sibling = np.uint64(heap[s, np.uint64(child + 1)])
            if _before(values, s, sibling, other, upper):
                child += 1
                other = sibling
        if not _before(values, s, other, entry, upper):
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
    _up(values, heap, place, s, np.int64(sizes[s] - 1), upper)


@kernel
def _take(values: Any, heap: Any, place: Any, sizes: Any, s: Any, p: Any, upper: Any) -> Any:
    """Remove what stands in place p of a heap, and return it."""
    entry = np.int64(heap[s, np.uint64(p)])
    sizes[s] -= 1
    if p < sizes[s]:
        heap[s, np.uint64(p)] = heap[s, np.uint64(sizes[s])]
        if _up(values, heap, place, s, p, upper) == p:
            _down(values, heap, place, s, sizes[s], p, upper)
    return entry


@kernel
def level(values: Any, low: Any, high: Any, place: Any, above: Any, lows: Any, highs: Any, s: Any) -> None:
    """Let the lower heap have as many entries as the upper one, or one more."""
    while lows[s] > highs[s] + 1:
        _push(values, high, place, above, highs, s, _take(values, low, place, lows, s, 0, False), True)
    while highs[s] > lows[s]:
        _push(values, low, place, above, lows, s, _take(values, high, place, highs, s, 0, True), False)


@kernel
def _make_room(
    values: Any, low: Any, high: Any, place: Any, above: Any, lows: Any, head: Any, room: Any, s: Any
) -> None:  # fmt: skip
    """Let the full ring of a key have twice the entries: those that stand before its head move behind its end."""
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
def include(
    values: Any, low: Any, high: Any, place: Any, above: Any, lows: Any, highs: Any, head: Any, room: Any, s: Any,
    x: Any,
) -> None:  # fmt: skip
    """Add a value to those of key s: O(log n). The arrays must be as long as the ring may come to be."""
    if lows[s] + highs[s] == room[s]:
        _make_room(values, low, high, place, above, lows, head, room, s)
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
def leave_out(
    values: Any, low: Any, high: Any, place: Any, above: Any, lows: Any, highs: Any, head: Any, room: Any, s: Any
) -> None:  # fmt: skip
    """Take the oldest value away: O(log n)."""
    entry = head[s]
    if above[s, entry]:
        _take(values, high, place, highs, s, np.int64(place[s, entry]), True)
    else:
        _take(values, low, place, lows, s, np.int64(place[s, entry]), False)
    head[s] = entry + 1 if entry + 1 < room[s] else 0


@kernel
def middle(values: Any, low: Any, high: Any, lows: Any, highs: Any, s: Any) -> Any:
    """The median of the values of key s, in level heaps, NaN of none; of an even number the mean of the middle two."""
    if lows[s] == 0:
        return np.nan
    if lows[s] > highs[s]:
        return values[s, np.uint64(low[s, 0])]
    return values[s, np.uint64(low[s, 0])] / 2 + values[s, np.uint64(high[s, 0])] / 2
