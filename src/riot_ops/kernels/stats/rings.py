"""Windows of the last records as rings of cells: a window is the tail of one block of records and the head of the next.

A row of ``ring`` belongs to a key: the cell of the head, then one cell for each place. A record's cell is merged into
the head; when a block ends, each of its cells is merged with those after it, which makes tails. So nothing is ever
subtracted, and a record costs the same for windows of any size.
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
    "count_records",
    "slide_cells",
    "slide_counts",
    "window_cells",
]

#: Kinds of cells: total and rest; lowest and highest with their rests; number, mean and sum of squared distances from
#: the mean; a value and its rest, the first or the last.
SUMS, EXTREMES, MOMENTS, FIRSTS, LASTS = range(5)
#: Numbers in a cell of each kind.
WIDTHS = (2, 4, 3, 2, 2)


@kernel
def count_records(slots: Any, seen: Any, before: Any) -> None:
    """Write the number of earlier records of each row's key."""
    for i in range(slots.size):
        s = np.uint64(slots[i])
        before[i] = seen[s]
        seen[s] += 1


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
        cells[a] = np.inf if missing else x
        cells[a + 1] = -np.inf if missing else x
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
    kind: Any, width: Any, values: Any, rests: Any, slots: Any, before: Any, size: Any, full: Any, ring: Any,
    window: Any, plain: Any, out: Any,
) -> None:  # fmt: skip
    """:func:`slide_cells` for one kind, which is a constant where this is inlined."""
    found = np.uint64(0)
    for i in range(slots.size):
        cells = ring[np.uint64(slots[i])]
        n = before[i]
        place = np.int64(np.uint64(n) % np.uint64(size))
        if place == 0 and n > 0:  # the block before has ended: make its tails
            for j in range(width * (size - 1), width, -width):
                _merge_cell(kind, cells, np.uint64(j), cells, np.uint64(j + width))
        at = np.uint64(width * (place + 1))
        _set_cell(kind, cells, at, values[i], rests[i] if rests.size > 0 else 0.0)
        if place == 0:
            for c in range(width):
                cells[np.uint64(c)] = cells[at + np.uint64(c)]
        else:
            _merge_cell(kind, cells, np.uint64(0), cells, at)
        if n + 1 >= size or not full:
            if n >= size and place + 1 < size:
                for c in range(width):
                    window[np.uint64(c)] = cells[at + np.uint64(width + c)]
                _merge_cell(kind, window, np.uint64(0), cells, np.uint64(0))
            else:
                for c in range(width):
                    window[np.uint64(c)] = cells[np.uint64(c)]
            if plain:
                out[np.uint64(0), found] = window[np.uint64(0)] + window[np.uint64(1)]
            else:
                for c in range(width):
                    out[np.uint64(c), found] = window[np.uint64(c)]
            found += np.uint64(1)


@kernel
def slide_cells(
    kind: Any, values: Any, rests: Any, slots: Any, before: Any, size: Any, full: Any, ring: Any, window: Any,
    plain: Any, out: Any,
) -> None:  # fmt: skip
    """Add rows to the rings of their keys, and write the cells of the windows that end at them, a column for each.

    ``before`` has the number of earlier records of the key, ``full`` leaves out windows of fewer than ``size`` records;
    ``plain`` writes the sum of the two numbers of a cell in place of them. ``window`` is scratch space for a cell.
    """
    if kind == SUMS:
        _slide(SUMS, 2, values, rests, slots, before, size, full, ring, window, plain, out)
    elif kind == EXTREMES:
        _slide(EXTREMES, 4, values, rests, slots, before, size, full, ring, window, False, out)
    elif kind == MOMENTS:
        _slide(MOMENTS, 3, values, rests, slots, before, size, full, ring, window, False, out)
    elif kind == FIRSTS:
        _slide(FIRSTS, 2, values, rests, slots, before, size, full, ring, window, False, out)
    else:
        _slide(LASTS, 2, values, rests, slots, before, size, full, ring, window, False, out)


@kernel
def window_cells(kind: Any, width: Any, slots: Any, seen: Any, size: Any, ring: Any, window: Any, out: Any) -> None:
    """Write the cells of the windows at the last records of keys, which have had ``seen`` records, at least one."""
    for i in range(slots.size):
        cells = ring[slots[i]]
        at = width * ((seen[i] - 1) % size + 2)  # of the tail
        if seen[i] > size and at < width * (size + 1):
            for c in range(width):
                window[c] = cells[at + c]
            _merge_cell(kind, window, 0, cells, 0)
        else:
            for c in range(width):
                window[c] = cells[c]
        for c in range(width):
            out[c, i] = window[c]


@kernel
def slide_counts(
    values: Any, slots: Any, before: Any, size: Any, full: Any, present: Any, counts: Any, out: Any
) -> Any:
    """Write the number of values in each window, and return how many windows; empty ``values`` have none missing.

    A count is exact, so that the value that leaves a window is subtracted.
    """
    found = 0
    for i in range(slots.size):
        s = np.uint64(slots[i])
        place = np.uint64(before[i]) % np.uint64(size)
        here = np.uint8(0) if values.size > 0 and np.isnan(values[i]) else np.uint8(1)
        counts[s] += np.int64(here) - np.int64(present[s, place])
        present[s, place] = here
        if before[i] + 1 >= size or not full:
            out[found] = counts[s]
            found += 1
    return found
