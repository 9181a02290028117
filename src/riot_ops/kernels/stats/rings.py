"""Sliding windows as rings of cells: a window is the tail of one block of records and the head of the next.

A row of ``ring`` has the cells of a key, one for each place, and a row of ``heads`` the cell of the block that has not
ended. A record's cell is merged into the head; when a block ends, each of its cells is merged with those after it,
which makes tails. So nothing is ever subtracted, and a record costs the same for windows of any size.

All stats share these values of a row: ``place`` is that of its cell, ``tail`` that of the tail in its
window (-1: none), ``first`` that of the first record in it and ``held`` the number of these; ``closing`` is the number
of records of a block that ends before it (-1: none ends), of those that later windows may contain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.accumulators import SCALE
from riot_ops.kernels.stats.windows import neumaier_add

__all__ = [
    "EXTREMES",
    "FIRSTS",
    "LASTS",
    "MOMENTS",
    "SUMS",
    "WIDTHS",
    "move_places",
    "place_records",
    "place_times",
    "slide_counts",
    "slide_extremes",
    "slide_firsts",
    "slide_lasts",
    "slide_moments",
    "slide_sums",
    "window_cells",
]

#: Kinds of cells: total and rest; lowest and highest with their rests; number, mean and sum of squared distances from
#: the mean; a value and its rest, the first or the last.
SUMS, EXTREMES, MOMENTS, FIRSTS, LASTS = range(5)
#: Numbers in a cell of each kind.
WIDTHS = (2, 4, 3, 2, 2)


@kernel
def place_records(
    slots: Any, seen: Any, size: Any, full: Any, place: Any, tail: Any, first: Any, held: Any, closing: Any,
    emitted: Any,
) -> None:  # fmt: skip
    """Place rows in windows of ``size`` records; ``seen`` is the number of records of a key."""
    for i in range(slots.size):
        s = np.uint64(slots[i])
        n = seen[s]
        seen[s] = n + 1
        p = np.int64(np.uint64(n) % np.uint64(size))
        place[i] = p
        whole = n >= size and p + 1 < size
        tail[i] = p + 1 if whole else -1
        first[i] = p + 1 if whole else 0
        held[i] = min(n + 1, size)
        closing[i] = -1 if p > 0 else min(n, size - 1)
        emitted[i] = n + 1 >= size or not full


@kernel
def place_times(
    slots: Any, at: Any, size: Any, full: Any, room: Any, times: Any, seen: Any, low: Any, split: Any, begin: Any,
    place: Any, tail: Any, first: Any, held: Any, closing: Any, emitted: Any,
) -> Any:  # fmt: skip
    """Place rows in windows of time, until one does not find room; return how many are placed.

    Of each key, ``room`` is the number of its places, a power of two, ``seen`` the number of its records, ``low`` that
    of the first one in the window, ``split`` that of the first one in the block, and ``begin`` the time of its first.
    """
    for i in range(slots.size):
        s = np.uint64(slots[i])
        now = at[i]
        n = seen[s]
        mask = room[s] - 1
        a = low[s]
        while a < n and times[s, a & mask] <= now - size:
            a += 1
        low[s] = a
        if n - a > mask:
            return i
        if n == 0:
            begin[s] = now
        closing[i] = -1
        if n == 0 or now // size != times[s, (n - 1) & mask] // size:
            closing[i] = n - max(a, split[s])
            split[s] = n
        place[i] = n & mask
        tail[i] = a & mask if a < split[s] else -1
        first[i] = a & mask
        held[i] = n + 1 - a
        emitted[i] = not full or now - begin[s] >= size
        times[s, n & mask] = now
        seen[s] = n + 1
    return slots.size


@kernel
def move_places(width: Any, slots: Any, room: Any, more: Any, seen: Any, low: Any, ring: Any) -> None:
    """Move the cells in the windows of some keys, ``width`` numbers each, to their places among ``more``."""
    for i in range(slots.size):
        s = slots[i]
        for k in range(low[s], seen[s]):
            a = (k & (room[s] - 1)) * width
            b = (k & (more - 1)) * width
            if a != b:
                for c in range(width):
                    ring[s, b + c] = ring[s, a + c]


@kernel(inline=True)
def _set_cell(kind: Any, cells: Any, a: Any, x: Any, y: Any) -> None:
    """Make the cell at ``a`` that of one value: ``x + y``, missing where x is NaN."""
    missing = np.isnan(x)
    if kind == SUMS:
        cells[a] = 0.0
        cells[a + 1] = 0.0
        if not missing:
            cells[a], cells[a + 1] = neumaier_add(x * SCALE, 0.0, y * SCALE)
    elif kind == EXTREMES:
        cells[a] = np.inf if missing else x + 0.0  # no -0.0, which equals 0.0
        cells[a + 1] = -np.inf if missing else x + 0.0
        cells[a + 2] = 0.0 if missing else y
        cells[a + 3] = 0.0 if missing else y
    elif kind == MOMENTS:
        cells[a] = 0.0 if missing else 1.0
        cells[a + 1] = 0.0 if missing else x
        cells[a + 2] = 0.0
    else:
        cells[a] = x
        cells[a + 1] = y


@kernel(inline=True)
def _merge_cell(kind: Any, own: Any, a: Any, other: Any, b: Any) -> None:
    """Merge the cell at ``b``, whose records came later, into the one at ``a``."""
    if kind == SUMS:
        total, rest = neumaier_add(own[a], own[a + 1], other[b])
        own[a] = total
        own[a + 1] = rest + other[b + 1]
    elif kind == EXTREMES:
        if other[b] < own[a] or (other[b] == own[a] and other[b + 2] < own[a + 2]):
            own[a] = other[b]
            own[a + 2] = other[b + 2]
        if other[b + 1] > own[a + 1] or (other[b + 1] == own[a + 1] and other[b + 3] > own[a + 3]):
            own[a + 1] = other[b + 1]
            own[a + 3] = other[b + 3]
    elif kind == MOMENTS:  # Chan, Golub, LeVeque
        if other[b] > 0.0:
            both = own[a] + other[b]
            d = other[b + 1] - own[a + 1]
            own[a + 1] += d * other[b] / both
            own[a + 2] += other[b + 2] + d * d * own[a] * other[b] / both
            own[a] = both
    elif (kind == FIRSTS and np.isnan(own[a])) or (kind == LASTS and not np.isnan(other[b])):
        own[a] = other[b]
        own[a + 1] = other[b + 1]


@kernel(inline=True)
def _slide(
    kind: Any, width: Any, values: Any, rests: Any, slots: Any, place: Any, tail: Any, closing: Any, emitted: Any,
    rooms: Any, heads: Any, ring: Any, window: Any, plain: Any, out: Any,
) -> None:  # fmt: skip
    """:func:`slide_sums` for one kind, which is a constant where this is inlined."""
    found = np.uint64(0)
    for i in range(slots.size):
        s = np.uint64(slots[i])
        cells = ring[s]
        head = heads[s]
        if closing[i] > 1:  # the block before has ended: make its tails, the last cell is one
            room = rooms[s] if rooms.size > 1 else rooms[0]
            b = place[i] - 1 if place[i] > 0 else room - 1
            for _ in range(closing[i] - 1):
                a = b - 1 if b > 0 else room - 1
                _merge_cell(kind, cells, np.uint64(a * width), cells, np.uint64(b * width))
                b = a
        at = np.uint64(width * place[i])
        _set_cell(kind, cells, at, values[i], rests[i] if rests.size > 0 else 0.0)
        if closing[i] >= 0:
            for c in range(width):
                head[np.uint64(c)] = cells[at + np.uint64(c)]
        else:
            _merge_cell(kind, head, np.uint64(0), cells, at)
        if emitted[i]:
            _write_window(kind, width, cells, head, tail[i], window)
            if plain:
                out[np.uint64(0), found] = window[np.uint64(0)] + window[np.uint64(1)]
            else:
                for c in range(width):
                    out[np.uint64(c), found] = window[np.uint64(c)]
            found += np.uint64(1)


@kernel(inline=True)
def _write_window(kind: Any, width: Any, cells: Any, head: Any, tail: Any, window: Any) -> None:
    """Write the cell of a tail and a head to ``window``."""
    if tail >= 0:
        for c in range(width):
            window[np.uint64(c)] = cells[np.uint64(width * tail + c)]
        _merge_cell(kind, window, np.uint64(0), head, np.uint64(0))
    else:
        for c in range(width):
            window[np.uint64(c)] = head[np.uint64(c)]


@kernel
def slide_sums(
    values: Any, rests: Any, slots: Any, place: Any, tail: Any, closing: Any, emitted: Any, rooms: Any, heads: Any,
    ring: Any, window: Any, plain: Any, out: Any,
) -> None:  # fmt: skip
    """Add rows to the rings of their keys, and write the cells of the windows that are emitted, a column for each.

    ``rooms`` has the number of places of each key, or one number for all; ``plain`` writes the sum of the two numbers
    of a cell in place of them. ``window`` is scratch space for a cell.
    """
    _slide(SUMS, 2, values, rests, slots, place, tail, closing, emitted, rooms, heads, ring, window, plain, out)


@kernel
def slide_extremes(
    values: Any, rests: Any, slots: Any, place: Any, tail: Any, closing: Any, emitted: Any, rooms: Any, heads: Any,
    ring: Any, window: Any, plain: Any, out: Any,
) -> None:  # fmt: skip
    _slide(EXTREMES, 4, values, rests, slots, place, tail, closing, emitted, rooms, heads, ring, window, False, out)


@kernel
def slide_moments(
    values: Any, rests: Any, slots: Any, place: Any, tail: Any, closing: Any, emitted: Any, rooms: Any, heads: Any,
    ring: Any, window: Any, plain: Any, out: Any,
) -> None:  # fmt: skip
    _slide(MOMENTS, 3, values, rests, slots, place, tail, closing, emitted, rooms, heads, ring, window, False, out)


@kernel
def slide_firsts(
    values: Any, rests: Any, slots: Any, place: Any, tail: Any, closing: Any, emitted: Any, rooms: Any, heads: Any,
    ring: Any, window: Any, plain: Any, out: Any,
) -> None:  # fmt: skip
    _slide(FIRSTS, 2, values, rests, slots, place, tail, closing, emitted, rooms, heads, ring, window, False, out)


@kernel
def slide_lasts(
    values: Any, rests: Any, slots: Any, place: Any, tail: Any, closing: Any, emitted: Any, rooms: Any, heads: Any,
    ring: Any, window: Any, plain: Any, out: Any,
) -> None:  # fmt: skip
    _slide(LASTS, 2, values, rests, slots, place, tail, closing, emitted, rooms, heads, ring, window, False, out)


@kernel
def window_cells(kind: Any, width: Any, slots: Any, tail: Any, heads: Any, ring: Any, window: Any, out: Any) -> None:
    """Write the cells of the windows at the last records of keys, whose tails are at ``tail``."""
    for i in range(slots.size):
        _write_window(kind, width, ring[slots[i]], heads[slots[i]], tail[i], window)
        for c in range(width):
            out[c, i] = window[c]


@kernel
def slide_counts(
    values: Any, slots: Any, place: Any, first: Any, emitted: Any, totals: Any, before: Any, out: Any
) -> Any:
    """Write the number of values in each window, and return how many windows; empty ``values`` have none missing.

    ``totals`` is the number of values of each key, ``before`` that of the values before each place: a count is exact,
    so that one can be subtracted. ``first`` is the place of the first record in the window.
    """
    found = 0
    for i in range(slots.size):
        s = np.uint64(slots[i])
        before[s, place[i]] = totals[s]
        if values.size == 0 or not np.isnan(values[i]):
            totals[s] += 1
        if emitted[i]:
            out[found] = totals[s] - before[s, first[i]]
            found += 1
    return found
