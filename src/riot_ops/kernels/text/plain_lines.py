"""Lines to fields in one pass, of such lines as there are most: plain ASCII, with nothing missing or odd.

Which they are is found on the way; whatever else a line may be is left to the loops of :mod:`riot_ops.kernels.text.fields`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.arrays.masks import WIDTH, equal64, first, ones, strange64
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import byte, trailing_zeros
from riot_ops.kernels.text.plain_values import AT_ONCE, NOTHING, put_values

__all__ = ["DELIMITED", "LOGGED", "SPACED", "plain_lines"]

#: How lines are cut, see :func:`riot_ops.kernels.text.fields.split_lines`.
DELIMITED, SPACED, LOGGED = 0, 1, 2

_U1, _U63, _NOUGHT = np.uint64(1), np.uint64(63), np.uint64(0)


@kernel(inline=True)
def _close(data: Any, p: Any, end: Any) -> Any:
    """The byte that closes the cell of a log that begins at p, 0 where it ends with the next blank."""
    if p >= end:
        return 0
    b = byte(data, p)
    return 34 if b == 34 else (93 if b == 91 else 0)


@kernel(inline=True)
def _cut(data: Any, p: Any, end: Any, delimiters: Any, how: Any, begins: Any, stops: Any) -> Any:
    """How many cells a line has, and where the first of them are, as many as ``stops`` can hold; -1: it is not plain.

    The delimiters of 64 bytes are found without a branch, as the bits of a number, and then gone through: how they lie
    in a line cannot be guessed, how many of its cells are wanted is always the same. Behind these they are counted.
    Where there are runs of blanks each begins before the blanks in front of it.
    """
    cells: Any = 0
    odd = _NOUGHT
    blank = _NOUGHT
    begins[0] = p
    some = p < end
    least = 14 if how == SPACED else 0  # another white space may be there
    while p < end:
        bits = equal64(data, p, delimiters[0])
        for d in range(1, delimiters.size):
            bits |= equal64(data, p, delimiters[d])
        within = first(end - p)
        bits &= within
        odd |= strange64(data, p, least) & within
        if how == SPACED:
            runs = bits
            bits &= ~((runs << _U1) | blank)
            blank = runs >> _U63
        while bits != _NOUGHT and cells < stops.size:
            q = p + np.int64(trailing_zeros(bits))
            bits &= bits - _U1
            c = np.uint64(cells)
            stops[c] = q
            begins[c + _U1] = q + 1
            cells += 1
        cells += np.int64(ones(bits))
        p += WIDTH
    if how != SPACED or (some and byte(data, end - 1) != 32):
        if cells < stops.size:
            stops[np.uint64(cells)] = end
        cells += 1
    return -1 if odd != _NOUGHT else cells


@kernel
def _cut_log(data: Any, p: Any, end: Any, begins: Any, stops: Any) -> Any:
    """The same of a line of a log, with quotes and brackets."""
    cells: Any = 0
    begin = p
    odd = _NOUGHT
    close = _close(data, p, end)
    while p < end:
        within = first(end - p)
        bits = equal64(data, p, 32) & within
        odd |= strange64(data, p, 0) & within
        while bits != _NOUGHT:
            q = p + np.int64(trailing_zeros(bits))
            bits &= bits - _U1
            stop = q
            if close:
                stop -= 1
                if stop <= begin or byte(data, stop) != close:
                    continue  # within quotes or brackets
                begin += 1
            if cells < stops.size:
                begins[np.uint64(cells)] = begin
                stops[np.uint64(cells)] = stop
            cells += 1
            begin = q + 1
            close = _close(data, begin, end)
        p += WIDTH
    stop = end
    if close:
        stop -= 1
        if stop <= begin or byte(data, stop) != close:
            return -1
        begin += 1
    if cells < stops.size:
        begins[np.uint64(cells)] = begin
        stops[np.uint64(cells)] = stop
    return -1 if odd != _NOUGHT else cells + 1


@kernel
def plain_lines(
    data: Any, starts: Any, ends: Any, valid: Any, row: Any, stop: Any, before: Any, k: Any, begins: Any, sizes: Any,
    rows: Any, fine: Any,
    delimiters: Any, how: Any, least: Any, most: Any, trailing: Any, nulls: Any, firsts: Any, lasts: Any,
    cell_begins: Any, cell_stops: Any,
    kinds: Any, columns: Any, units: Any, optional: Any, memo: Any,
    texts: Any, offsets: Any, integers: Any, doubles: Any, flags: Any, present: Any, plain: Any,
) -> Any:  # fmt: skip
    """The fields of the lines from ``row`` to ``stop`` that are plain and of ``least`` to ``most`` cells.

    They are put into rows from k on; returns the row behind them. With ``trailing`` a delimiter may end the line. Of
    the bytes the first is that in place ``before``; :data:`riot_ops.kernels.text.plain_values.ROOM` more than those of the
    lines can be read.

    Field f stands from cell ``firsts[f]`` to ``lasts[f]``. If that is empty, or the first cell a byte of ``nulls`` (of
    none: empty), it is not there. What it is, and where it goes, is as in
    :func:`riot_ops.kernels.text.plain_values.put_values`; ``begins``, ``sizes``, ``rows`` and ``fine`` are room for some
    lines.
    """
    j = 0
    for i in range(row, stop):
        u = np.uint64(i)
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
            while how == SPACED and p < end and byte(data, p) == 32:
                p += 1
            if how == LOGGED:
                cells = _cut_log(data, p, end, cell_begins, cell_stops)
            else:
                cells = _cut(data, p, end, delimiters, how, cell_begins, cell_stops)
            good = cells >= least and cells <= most + spare
        if good:
            v = np.uint64(j)
            for f in range(kinds.size):
                c = np.uint64(firsts[f])
                b = cell_begins[c]
                while how == SPACED and byte(data, b) == 32:
                    b += 1
                n = cell_stops[np.uint64(lasts[f])] - b
                if n <= 0 or (nulls.size > 0 and cell_stops[c] - b == 1 and nulls[data[np.uint64(b)]]):
                    n = NOTHING
                    good = good and optional[f] >= 0
                begins[f, v] = b
                sizes[f, v] = n
            rows[v] = i
            j += int(good)
        plain[u] = good
        if j == AT_ONCE or i == stop - 1:
            before_these = k
            k = put_values(
                data, begins, sizes, j, k, fine, kinds, columns, units, optional, memo,
                texts, offsets, integers, doubles, flags, present,
            )  # fmt: skip
            if k < before_these + j:
                for m in range(j):
                    plain[rows[m]] = fine[m]
            j = 0
    return k
