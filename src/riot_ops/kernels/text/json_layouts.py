"""Lines of JSON that are laid out as an earlier one: all in them stands where it stood there.

That is so where lines are of one length, without backslashes, have quotes in the same places and the same bytes
everywhere but in texts and numbers, and these numbers are numbers again. Each of it is seen of 64 bytes at once.
Layouts of many lengths are kept, each at a place that follows from where the quotes are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.masks import WIDTH, first, same64
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.json_fields import PLAIN, TEXT, number
from riot_ops.kernels.text.numbers import byte, load8, store8

__all__ = ["LONGEST", "keep_layout", "laid_out", "layout_room", "place_of", "same_layout"]

#: Most layouts that are kept, by bits; longest line that has one, in bytes; most numbers in it.
_BITS, LONGEST, _NUMBERS = 10, 512, 16
#: Of a layout: bytes of a line, what :func:`_name` says, numbers in it, and from where on it has the places of fields.
#: Behind these are those of the numbers.
_SIZE, _NAME, _COUNT, _FIELDS = range(4)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_NOUGHT, _U1, _U2, _U6, _U32 = (np.uint64(n) for n in (0, 1, 2, 6, 32))


def layout_room(lines: int, fields: int) -> tuple[npt.NDArray[Any], ...]:
    """What is kept of layouts, for so many lines: numbers, where quotes are and what does not change, the bytes."""
    n = 1 << min(_BITS, max(1, lines).bit_length())
    plan = np.zeros((n, _FIELDS + 2 * fields + 2 * _NUMBERS), np.int64)
    return plan, np.empty((n, 2 * LONGEST // WIDTH), np.uint64), np.empty(n * LONGEST, np.uint8)


@kernel(inline=True)
def _name(quotes: Any, size: Any) -> Any:
    """A number for lines of that size with these quotes."""
    h = np.uint64(size)
    for c in range(np.uint64(size + WIDTH - 1) >> _U6):
        h = (h ^ quotes[c]) * _FACTOR
        h ^= h >> _U32
    return h


@kernel(inline=True)
def place_of(quotes: Any, size: Any, plan: Any) -> Any:
    """Where the layout of a line of that size with these quotes is kept, or can be: at one place or beside it."""
    h = _name(quotes, size)
    e = (h * _FACTOR >> _U32) & np.uint64(plan.shape[0] - 1)
    return e if plan[e, _NAME] == np.int64(h) or plan[e, _SIZE] == 0 else e ^ _U1


@kernel(inline=True)
def same_layout(data: Any, start: Any, size: Any, quotes: Any, e: Any, plan: Any, marks: Any, shapes: Any) -> Any:
    """Whether a line without backslashes has a layout; 64 bytes behind it can be read."""
    if size == 0 or plan[e, _SIZE] != size:
        return False
    differ = _NOUGHT
    for c in range(np.uint64(size + WIDTH - 1) >> _U6):
        k = c << _U1
        at = np.int64(c << _U6)
        differ |= quotes[c] ^ marks[e, k]
        differ |= ~same64(data, start + at, shapes, np.int64(e) * LONGEST + at) & marks[e, k + _U1]
    if differ != _NOUGHT:
        return False
    k = np.uint64(plan.shape[1] - 2 * _NUMBERS)
    for _ in range(plan[e, _COUNT]):
        end = start + plan[e, k + _U1]
        if number(data, start + plan[e, k], end) != end:
            return False
        k += _U2
    return True


@kernel
def keep_layout(
    data: Any, start: Any, size: Any, quotes: Any, e: Any, pieces: Any, count: Any, begins: Any, sizes: Any, row: Any,
    plan: Any, marks: Any, shapes: Any,
) -> None:  # fmt: skip
    """Keep the layout of a line that was read, see :func:`riot_ops.kernels.text.json_fields.read_line` for its pieces.

    Field f is the ``sizes[f, row]`` characters from ``begins[f, row]`` on.
    """
    plan[e, _SIZE] = 0
    for c in range((size + WIDTH - 1) // WIDTH):
        marks[e, 2 * c] = quotes[c]
        marks[e, 2 * c + 1] = first(size - c * WIDTH)
        for k in range(c * WIDTH, (c + 1) * WIDTH, 8):
            store8(shapes, np.int64(e) * LONGEST + k, load8(data, start + k))
    at = plan.shape[1] - 2 * _NUMBERS
    for j in range(count - 1):
        begin = pieces[1, j] - start
        end = pieces[0, j + 1] - start
        if pieces[3, j] == PLAIN and byte(data, start + begin) < 58:  # a number, no truth value
            if at == plan.shape[1]:
                return
            plan[e, at] = begin
            plan[e, at + 1] = end
            at += 2
        elif pieces[3, j] != TEXT:
            continue
        for c in range(begin // WIDTH, (end + WIDTH - 1) // WIDTH):
            marks[e, 2 * c + 1] &= ~first(end - c * WIDTH) | first(max(begin - c * WIDTH, 0))
    for f in range(begins.shape[0]):
        plan[e, _FIELDS + 2 * f] = begins[f, row] - start
        plan[e, _FIELDS + 2 * f + 1] = sizes[f, row]
    plan[e, _COUNT] = (at - plan.shape[1]) // 2 + _NUMBERS
    plan[e, _NAME] = np.int64(_name(quotes, size))
    plan[e, _SIZE] = size


@kernel(inline=True)
def laid_out(start: Any, e: Any, plan: Any, begins: Any, sizes: Any, row: Any) -> None:
    """Where the fields of a line with a layout are."""
    for f in range(begins.shape[0]):
        u = np.uint64(f)
        k = np.uint64(_FIELDS + 2 * f)
        begins[u, row] = start + plan[e, k]
        sizes[u, row] = plan[e, k + _U1]
