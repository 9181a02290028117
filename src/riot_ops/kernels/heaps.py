"""Medians of values that come and go: two heaps per key, in which each value knows its place."""

from __future__ import annotations

from typing import Any

from riot_ops.kernels.jit import kernel

__all__ = ["include", "leave_out", "middle"]


@kernel
def _before(values: Any, a: Any, b: Any, upper: Any) -> Any:
    """Whether entry a is nearer to the root than b: of the upper heap the least, of the lower one the largest is."""
    return values[a] < values[b] if upper else values[a] > values[b]


@kernel
def _up(values: Any, heap: Any, place: Any, base: Any, p: Any, upper: Any) -> Any:
    """Move the entry in place p of a heap towards the root as far as it belongs; returns its place."""
    entry = heap[base + p]
    while p > 0:
        parent = (p - 1) >> 1
        if not _before(values, entry, heap[base + parent], upper):
            break
        heap[base + p] = heap[base + parent]
        place[heap[base + p]] = p
        p = parent
    heap[base + p] = entry
    place[entry] = p
    return p


@kernel
def _down(values: Any, heap: Any, place: Any, base: Any, size: Any, p: Any, upper: Any) -> None:
    """Move the entry in place p of a heap away from the root as far as it belongs."""
    entry = heap[base + p]
    while 2 * p + 1 < size:
        child = 2 * p + 1
        if child + 1 < size and _before(values, heap[base + child + 1], heap[base + child], upper):
            child += 1
        if not _before(values, heap[base + child], entry, upper):
            break
        heap[base + p] = heap[base + child]
        place[heap[base + p]] = p
        p = child
    heap[base + p] = entry
    place[entry] = p


@kernel
def _push(
    values: Any, heap: Any, place: Any, above: Any, base: Any, sizes: Any, s: Any, entry: Any, upper: Any
) -> None:
    heap[base + sizes[s]] = entry
    above[entry] = upper
    sizes[s] += 1
    _up(values, heap, place, base, sizes[s] - 1, upper)


@kernel
def _take(values: Any, heap: Any, place: Any, base: Any, sizes: Any, s: Any, p: Any, upper: Any) -> Any:
    """Remove what stands in place p of a heap, and return it."""
    entry = heap[base + p]
    sizes[s] -= 1
    if p < sizes[s]:
        heap[base + p] = heap[base + sizes[s]]
        if _up(values, heap, place, base, p, upper) == p:
            _down(values, heap, place, base, sizes[s], p, upper)
    return entry


@kernel
def _level(
    values: Any, low: Any, high: Any, place: Any, above: Any, base: Any, lows: Any, highs: Any, s: Any
) -> None:  # fmt: skip
    """Let the lower heap have as many entries as the upper one, or one more."""
    if lows[s] > highs[s] + 1:
        _push(values, high, place, above, base, highs, s, _take(values, low, place, base, lows, s, 0, False), True)
    elif highs[s] > lows[s]:
        _push(values, low, place, above, base, lows, s, _take(values, high, place, base, highs, s, 0, True), False)


@kernel
def include(
    values: Any, low: Any, high: Any, place: Any, above: Any, base: Any, lows: Any, highs: Any, s: Any, entry: Any
) -> None:  # fmt: skip
    """Add an entry to the values of key s, of which the heaps begin at ``base``: O(log n)."""
    upper = lows[s] > 0 and values[entry] > values[low[base]]
    if upper:
        _push(values, high, place, above, base, highs, s, entry, True)
    else:
        _push(values, low, place, above, base, lows, s, entry, False)
    _level(values, low, high, place, above, base, lows, highs, s)


@kernel
def leave_out(
    values: Any, low: Any, high: Any, place: Any, above: Any, base: Any, lows: Any, highs: Any, s: Any, entry: Any
) -> None:  # fmt: skip
    """Remove an entry: O(log n)."""
    if above[entry]:
        _take(values, high, place, base, highs, s, place[entry], True)
    else:
        _take(values, low, place, base, lows, s, place[entry], False)
    _level(values, low, high, place, above, base, lows, highs, s)


@kernel
def middle(values: Any, low: Any, high: Any, base: Any, lows: Any, highs: Any, s: Any) -> Any:
    """The median of the values of key s; of an even number the mean of the two in the middle."""
    if lows[s] > highs[s]:
        return values[low[base]]
    return values[low[base]] / 2 + values[high[base]] / 2
