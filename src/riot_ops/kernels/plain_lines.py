"""Lines to fields in one pass, of such lines as there are most: plain ASCII, with nothing missing or odd.

Which they are is found on the way; whatever else a line may be is left to the loops of :mod:`riot_ops.kernels.fields`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.masks import WIDTH, below64, equal64, first, ones
from riot_ops.kernels.numbers import byte, trailing_zeros
from riot_ops.kernels.plain_values import AT_ONCE, NOTHING, put_values

__all__ = ["DELIMITED", "LOGGED", "SPACED", "plain_lines"]

#: How lines are cut, see :func:`riot_ops.kernels.fields.split_lines`.
DELIMITED, SPACED, LOGGED = 0, 1, 2

_U1, _NOUGHT = np.uint64(1), np.uint64(0)


@kernel(inline=True)
def _close(data: Any, p: Any, end: Any) -> Any:
    """The byte that closes the cell of a log that begins at p, 0 where it ends with the next blank."""
    if p >= end:
        return 0
    b = byte(data, p)
    return 34 if b == 34 else (93 if b == 91 else 0)


@kernel(inline=True)
def _cut(data: Any, p: Any, end: Any, delimiters: Any, how: Any, place: Any, begins: Any, stops: Any) -> Any:
    """How many cells a line has, and where those are that are wanted; -1 where it is not plain.

    The delimiters of 64 bytes are found without a branch, as the bits of a number, and then gone through: how they lie
    in a line cannot be guessed, how many there are can. Behind the last cell that is wanted they are counted.
    """
    cells: Any = 0
    begin = p
    odd = _NOUGHT
    close = _close(data, p, end) if how == LOGGED else 0
    while p < end:
        bits = equal64(data, p, delimiters[0])
        for d in range(1, delimiters.size):
            bits |= equal64(data, p, delimiters[d])
        within = first(end - p)
        bits &= within
        odd |= ~below64(data, p, 128) & within
        if how == SPACED:  # another white space may be there
            odd |= below64(data, p, 14) & within
        while bits != _NOUGHT:
            q = p + np.int64(trailing_zeros(bits))
            if how == DELIMITED and cells >= place.size:
                cells += np.int64(ones(bits))
                break
            bits &= bits - _U1
            stop = q
            if close:
                stop -= 1
                if stop <= begin or byte(data, stop) != close:
                    continue  # within quotes or brackets
                begin += 1
            if how != SPACED or q > begin:
                if cells < place.size and place[np.uint64(cells)] >= 0:
                    c = np.uint64(place[np.uint64(cells)])
                    begins[c] = begin
                    stops[c] = stop
                cells += 1
            begin = q + 1
            if how == LOGGED:
                close = _close(data, begin, end)
        p += WIDTH
    if how != SPACED or end > begin:
        stop = end
        if close:
            stop -= 1
            if stop <= begin or byte(data, stop) != close:
                return -1
            begin += 1
        if cells < place.size and place[cells] >= 0:
            begins[place[cells]] = begin
            stops[place[cells]] = stop
        cells += 1
    return -1 if odd != _NOUGHT else cells


@kernel
def plain_lines(
    data: Any, starts: Any, ends: Any, valid: Any, row: Any, stop: Any, before: Any, k: Any, begins: Any, sizes: Any,
    rows: Any, fine: Any,
    delimiters: Any, how: Any, least: Any, most: Any, trailing: Any, nulls: Any, place: Any, firsts: Any, lasts: Any,
    cell_begins: Any, cell_stops: Any,
    kinds: Any, columns: Any, units: Any, optional: Any, memo: Any,
    texts: Any, offsets: Any, integers: Any, doubles: Any, flags: Any, present: Any, plain: Any,
) -> Any:  # fmt: skip
    """The fields of the lines from ``row`` to ``stop`` that are plain and of ``least`` to ``most`` cells.

    They are put into rows from k on; returns the row behind them. With ``trailing`` a delimiter may end the line. Of
    the bytes the first is that in place ``before``; :data:`riot_ops.kernels.plain_values.ROOM` more than those of the
    lines can be read.

    Field f stands from cell ``firsts[f]`` to ``lasts[f]`` of those that are wanted (``place``). If that is empty, or
    the first cell a byte of ``nulls``, it is not there. What it is, and where it goes, is as in
    :func:`riot_ops.kernels.plain_values.put_values`; ``begins``, ``sizes``, ``rows`` and ``fine`` are room for some
    lines.
    """
    j = 0
    for i in range(row, stop):
        u = np.uint64(i)
        plain[u] = False
        good = valid.size == 0 or bool(valid[u])
        if good:
            p = starts[u] - before
            end = ends[u] - before
            if p < end and byte(data, end - 1) == 10:
                end -= 1
            if p < end and byte(data, end - 1) == 13:
                end -= 1
            spare = 0
            if trailing and p < end:
                for d in range(delimiters.size):
                    spare |= int(byte(data, end - 1) == delimiters[d])
            cells = _cut(data, p, end, delimiters, how, place, cell_begins, cell_stops)
            good = cells >= least and cells <= most + spare
        if good:
            v = np.uint64(j)
            for f in range(kinds.size):
                b = cell_begins[firsts[f]]
                n = cell_stops[lasts[f]] - b
                if n <= 0 or (cell_stops[firsts[f]] - b == 1 and nulls[data[np.uint64(b)]]):
                    n = NOTHING
                    good = good and optional[f] >= 0
                begins[f, v] = b
                sizes[f, v] = n
            rows[v] = i
            j += int(good)
        if j == AT_ONCE or i == stop - 1:
            k = put_values(
                data, begins, sizes, j, k, fine, kinds, columns, units, optional, memo,
                texts, offsets, integers, doubles, flags, present,
            )  # fmt: skip
            for m in range(j):
                plain[rows[m]] = fine[m]
            j = 0
    return k
