"""Lines of any form, split into cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.fast_values import NO_VALUE
from riot_ops.kernels.text.numbers import byte

__all__ = ["is_escaped", "line_end", "split_lines", "trim"]

#: How lines are split, see :func:`split_lines`.
DELIMITED, SPACED, LOGGED = 0, 1, 2


@kernel
def is_escaped(data: Any, start: Any, q: Any) -> Any:
    """Whether an odd number of backslashes, from ``start`` on, stands before q."""
    p = q
    while p > start and byte(data, p - 1) == 92:
        p -= 1
    return (q - p) % 2 == 1


@kernel
def line_end(data: Any, start: Any, end: Any) -> Any:
    """Return the end of a line without its line break."""
    if start < end and byte(data, end - 1) == 10:
        end -= 1
    if start < end and byte(data, end - 1) == 13:
        end -= 1
    return end


@kernel
def split_lines(
    data: Any, starts: Any, ends: Any, valid: Any, cuts: Any, how: Any, place: Any, cell_starts: Any, cell_ends: Any,
    counts: Any,
) -> None:  # fmt: skip
    """Write the spans of cells; ``place[c]`` is the row of cell c in ``cell_starts`` and ``cell_ends``, -1: not wanted.

    ``cuts`` flags the bytes that separate cells: each of them (``DELIMITED``), runs of them (``SPACED``), or each of
    them outside of double quotes and brackets, which are not part of a cell (``LOGGED``); a quote after a backslash
    only ends a cell if no other does. A line break at the end is ignored. ``counts`` gets the number of cells, 0 for a
    null.
    """
    for i in range(starts.size):
        counts[i] = 0
        if valid.size > 0 and not valid[i]:
            continue
        p = starts[i]
        end = line_end(data, p, ends[i])
        c = 0
        escapes = True
        while True:
            if how == SPACED:
                while p < end and cuts[data[np.uint64(p)]]:
                    p += 1
                if p >= end:
                    break
            close = 0
            if how == LOGGED and p < end:
                b = byte(data, p)
                close = 34 if b == 34 else (93 if b == 91 else 0)
            if close:
                q = p + 1
                escaped = end
                while q < end:
                    if byte(data, q) == close and (q + 1 == end or cuts[data[np.uint64(q + 1)]]):
                        if close != 34 or not (escapes and is_escaped(data, p + 1, q)):
                            break
                        escaped = min(q, escaped)
                    q += 1
                if q == end and escaped < end:
                    q = escaped
                    escapes = False  # no quote of this line ends a cell otherwise: do not search for one again
                begin = p + 1
                stop = q
                if q < end:
                    q += 1
                else:
                    c = -1  # a quote or bracket is not closed
                    break
            else:
                q = p
                while q < end and not cuts[data[np.uint64(q)]]:
                    q += 1
                begin = p
                stop = q
            if c < place.size and place[c] >= 0:
                cell_starts[place[c], i] = begin
                cell_ends[place[c], i] = stop
            c += 1
            p = q
            if p >= end:
                break
            p += 1  # a delimiter; another cell follows, even if it is empty
        counts[i] = c


@kernel
def trim(data: Any, starts: Any, ends: Any, wanted: Any, begins: Any, sizes: Any) -> None:
    """Write begins and sizes of the wanted texts without blanks and tabs around them; ``NO_VALUE`` if none is left."""
    for i in range(starts.size):
        p = starts[i]
        q = ends[i] if wanted[i] else p
        while p < q and (byte(data, p) == 32 or byte(data, p) == 9):
            p += 1
        while p < q and (byte(data, q - 1) == 32 or byte(data, q - 1) == 9):
            q -= 1
        begins[i] = p
        sizes[i] = q - p if p < q else NO_VALUE
