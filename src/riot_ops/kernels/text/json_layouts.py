"""Layouts of JSON lines: a line with the layout of an earlier line has its fields at the same positions.

Two lines share a layout if they have the same length, no backslashes, quotes at the same positions, the same bytes
outside of strings and numbers, and numbers at the same positions. All this is compared 64 bytes at a time. Layouts
are kept in a hash table by length and positions of quotes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.byte_masks import WIDTH, low_bits, match64
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.json_fields import PLAIN, TEXT, number_end
from riot_ops.kernels.text.numbers import byte, load8, store8

__all__ = ["MAX_LINE", "apply_layout", "layout_slot", "matches_layout", "new_layouts", "store_layout"]

#: Binary logarithm of the maximum number of layouts; maximum bytes of a line; maximum numbers in a line.
_TABLE_BITS, MAX_LINE, _NUMBERS = 10, 512, 16
#: Columns of a layout: bytes of a line, its :func:`_hash`, its count of numbers, and the spans of the fields, followed
#: by the spans of the numbers.
_SIZE, _HASH, _COUNT, _FIELDS = range(4)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_NOUGHT, _U1, _U2, _U6, _U32 = (np.uint64(n) for n in (0, 1, 2, 6, 32))


def new_layouts(lines: int, fields: int) -> tuple[npt.NDArray[Any], ...]:
    """Allocate a table of layouts for up to ``lines`` lines: spans, masks of quotes and fixed bytes, and the bytes."""
    n = 1 << min(_TABLE_BITS, max(1, lines).bit_length())
    plan = np.zeros((n, _FIELDS + 2 * fields + 2 * _NUMBERS), np.int64)
    return plan, np.empty((n, 2 * MAX_LINE // WIDTH), np.uint64), np.empty(n * MAX_LINE, np.uint8)


@kernel(inline=True)
def _hash(quotes: Any, size: Any) -> Any:
    """Return a hash of the size of a line and the positions of its quotes."""
    h = np.uint64(size)
    for c in range(np.uint64(size + WIDTH - 1) >> _U6):
        h = (h ^ quotes[c]) * _FACTOR
        h ^= h >> _U32
    return h


@kernel(inline=True)
def layout_slot(quotes: Any, size: Any, plan: Any) -> Any:
    """Return the entry of the layout of lines with this size and these quotes, or where it can be stored."""
    h = _hash(quotes, size)
    e = (h * _FACTOR >> _U32) & np.uint64(plan.shape[0] - 1)
    return e if plan[e, _HASH] == np.int64(h) or plan[e, _SIZE] == 0 else e ^ _U1


@kernel(inline=True)
def matches_layout(data: Any, start: Any, size: Any, quotes: Any, e: Any, plan: Any, marks: Any, shapes: Any) -> Any:
    """Whether a line without backslashes has the layout of entry e; 64 bytes after it must be readable."""
    if size == 0 or plan[e, _SIZE] != size:
        return False
    differ = _NOUGHT
    for c in range(np.uint64(size + WIDTH - 1) >> _U6):
        k = c << _U1
        at = np.int64(c << _U6)
        differ |= quotes[c] ^ marks[e, k]
        differ |= ~match64(data, start + at, shapes, np.int64(e) * MAX_LINE + at) & marks[e, k + _U1]
    if differ != _NOUGHT:
        return False
    k = np.uint64(plan.shape[1] - 2 * _NUMBERS)
    for _ in range(plan[e, _COUNT]):
        end = start + plan[e, k + _U1]
        if number_end(data, start + plan[e, k], end) != end:
            return False
        k += _U2
    return True


@kernel
def store_layout(
    data: Any, start: Any, size: Any, quotes: Any, e: Any, pieces: Any, count: Any, begins: Any, sizes: Any, row: Any,
    plan: Any, marks: Any, shapes: Any,
) -> None:  # fmt: skip
    """Store the layout of a line with the pieces of :func:`riot_ops.kernels.text.json_fields.read_line`.

    Field f consists of ``sizes[f, row]`` characters from ``begins[f, row]`` on.
    """
    plan[e, _SIZE] = 0
    for c in range((size + WIDTH - 1) // WIDTH):
        marks[e, 2 * c] = quotes[c]
        marks[e, 2 * c + 1] = low_bits(size - c * WIDTH)
        for k in range(c * WIDTH, (c + 1) * WIDTH, 8):
            store8(shapes, np.int64(e) * MAX_LINE + k, load8(data, start + k))
    at = plan.shape[1] - 2 * _NUMBERS
    for j in range(count - 1):
        begin = pieces[1, j] - start
        end = pieces[0, j + 1] - start
        if pieces[3, j] == PLAIN and byte(data, start + begin) < 58:  # a number, not a boolean
            if at == plan.shape[1]:
                return
            plan[e, at] = begin
            plan[e, at + 1] = end
            at += 2
        elif pieces[3, j] != TEXT:
            continue
        for c in range(begin // WIDTH, (end + WIDTH - 1) // WIDTH):
            marks[e, 2 * c + 1] &= ~low_bits(end - c * WIDTH) | low_bits(max(begin - c * WIDTH, 0))
    for f in range(begins.shape[0]):
        plan[e, _FIELDS + 2 * f] = begins[f, row] - start
        plan[e, _FIELDS + 2 * f + 1] = sizes[f, row]
    plan[e, _COUNT] = (at - plan.shape[1]) // 2 + _NUMBERS
    plan[e, _HASH] = np.int64(_hash(quotes, size))
    plan[e, _SIZE] = size


@kernel(inline=True)
def apply_layout(start: Any, e: Any, plan: Any, begins: Any, sizes: Any, row: Any) -> None:
    """Write the spans of the fields of a line with the layout of entry e."""
    for f in range(begins.shape[0]):
        u = np.uint64(f)
        k = np.uint64(_FIELDS + 2 * f)
        begins[u, row] = start + plan[e, k]
        sizes[u, row] = plan[e, k + _U1]
