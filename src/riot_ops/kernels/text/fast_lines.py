"""The fast path for delimited lines: plain lines to fields in one pass.

Whether a line is plain is found on the way; all others are left to :mod:`riot_ops.kernels.text.line_fields`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.arrays.byte_masks import WIDTH, equal64, low_bits, outside64, popcount
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.access_log import METHOD, REFERRER, SIZE, cut_words, end_of_size
from riot_ops.kernels.text.fast_values import BATCH_LINES, GOOD, NO_VALUE, write_values
from riot_ops.kernels.text.line_fields import line_end
from riot_ops.kernels.text.numbers import byte, trailing_zeros
from riot_ops.kernels.text.strings import is_utf8

__all__ = ["ACCESS", "DELIMITED", "LOGGED", "SPACED", "parse_lines"]

#: How lines are split, see :func:`riot_ops.kernels.text.line_fields.split_lines`; ``ACCESS``: into the parts of
#: :mod:`riot_ops.kernels.text.access_log`.
DELIMITED, SPACED, LOGGED, ACCESS = 0, 1, 2, 3

_U1, _U63, _NOUGHT = np.uint64(1), np.uint64(63), np.uint64(0)


@kernel(inline=True)
def _close(data: Any, p: Any, end: Any) -> Any:
    """Return the byte that closes the cell of a log line that begins at p; 0 if it ends at the next blank."""
    if p >= end:
        return 0
    b = byte(data, p)
    return 34 if b == 34 else (93 if b == 91 else 0)


@kernel
def _is_text(data: Any, start: Any, end: Any, low: Any) -> Any:
    """Whether a line is UTF-8, without characters below ``low``."""
    for p in range(start, end if low else start):
        if byte(data, p) < low:
            return False
    return is_utf8(data, start, end)


@kernel(inline=True)
def _split(data: Any, p: Any, end: Any, delimiters: Any, how: Any, begins: Any, stops: Any) -> Any:
    """Write the spans of the first cells, as many as ``stops`` holds; returns the number of cells, -1 if not plain.

    Delimiters are found 64 bytes at a time, as a mask, whose bits are then visited: positions of delimiters cannot be
    predicted by the processor, the number of wanted cells can. Further cells are only counted. With runs of blanks, a
    cell begins at the blanks before it.
    """
    cells: Any = 0
    odd = _NOUGHT
    blank = _NOUGHT
    begins[0] = start = p
    low = 14 if how == SPACED else 0  # other white space may occur
    while p < end:
        bits = equal64(data, p, delimiters[0])
        for d in range(1, delimiters.size):
            bits |= equal64(data, p, delimiters[d])
        within = low_bits(end - p)
        bits &= within
        odd |= outside64(data, p, low) & within
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
        cells += np.int64(popcount(bits))
        p += WIDTH
    if how != SPACED or (start < end and byte(data, end - 1) != 32):
        if cells < stops.size:
            stops[np.uint64(cells)] = end
        cells += 1
    return -1 if odd != _NOUGHT and not _is_text(data, start, end, low) else cells


@kernel
def _split_log(data: Any, p: Any, end: Any, begins: Any, stops: Any) -> Any:
    """Like :func:`_split` for a log line, with quotes and brackets."""
    cells: Any = 0
    begin = start = p
    odd = _NOUGHT
    close = _close(data, p, end)
    while p < end:
        within = low_bits(end - p)
        bits = equal64(data, p, 32) & within
        odd |= outside64(data, p, 0) & within
        while bits != _NOUGHT:
            q = p + np.int64(trailing_zeros(bits))
            bits &= bits - _U1
            stop = q
            if close:
                stop -= 1
                if stop <= begin or byte(data, stop) != close:
                    continue  # within quotes or brackets
                if close == 34 and byte(data, stop - 1) == 92:
                    return -1  # perhaps an escaped quote
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
        if stop <= begin or byte(data, stop) != close or (close == 34 and byte(data, stop - 1) == 92):
            return -1
        begin += 1
    if cells < stops.size:
        begins[np.uint64(cells)] = begin
        stops[np.uint64(cells)] = stop
    return -1 if odd != _NOUGHT and not is_utf8(data, start, end) else cells + 1


@kernel
def _cut_access(data: Any, p: Any, end: Any, words: Any, begins: Any, stops: Any) -> Any:
    """Write the spans of the parts of a plain line of an access log, as ``cut_access_logs`` does.

    The parts from the method on are written if ``words``. Returns the number of parts, -1 if the line is not plain.
    """
    cells = _split_log(data, p, end, begins, stops)
    good = cells >= REFERRER and begins[0] == p and stops[0] > p and begins[1] == stops[0] + 1 and stops[1] > begins[1]
    good = good and begins[2] == stops[1] + 1 and stops[2] > begins[2]
    good = good and byte(data, begins[3] - 1) == 91 and begins[4] == stops[3] + 3 and byte(data, begins[4] - 1) == 34
    good = good and end_of_size(data, stops[4], end) == stops[SIZE]
    # the first bracket closes the time, even if no blank follows
    good = good and equal64(data, begins[3], 93) & low_bits(stops[3] - begins[3]) == _NOUGHT
    if not good:
        return -1
    quoted = True
    for part in range(1, SIZE + 3):
        quoted = quoted and (part < REFERRER or (part < cells and byte(data, begins[part] - 1) == 34))
        if not quoted:
            stops[part] = begins[part] = p
        elif part != 4 and stops[part] - begins[part] == 1 and byte(data, begins[part]) == 45:
            stops[part] = begins[part]
    if words:
        cut_words(data, begins, stops)
    return stops.size


@kernel
def parse_lines(
    data: Any, starts: Any, ends: Any, valid: Any, row: Any, stop: Any, before: Any, k: Any, begins: Any, sizes: Any,
    rows: Any, fine: Any,
    delimiters: Any, how: Any, min_cells: Any, max_cells: Any, trailing: Any, nulls: Any, firsts: Any, lasts: Any,
    cell_begins: Any, cell_stops: Any,
    kinds: Any, columns: Any, units: Any, optional: Any, memo: Any,
    texts: Any, offsets: Any, integers: Any, doubles: Any, flags: Any, present: Any, plain: Any,
) -> Any:  # fmt: skip
    """Parse the plain lines from ``row`` to ``stop`` with ``min_cells`` to ``max_cells`` cells into rows from k on.

    Returns the row after the last. With ``trailing``, a delimiter may end the line. The first byte of ``data`` is the
    one at position ``before``; :data:`riot_ops.kernels.text.fast_values.ROOM` bytes after the lines must be readable.

    Field f extends from cell ``firsts[f]`` to ``lasts[f]``. It is missing if it is empty, or if its first cell is a
    single byte flagged in ``nulls``. Its type and its column are as in
    :func:`riot_ops.kernels.text.fast_values.write_values`; ``begins``, ``sizes``, ``rows`` and ``fine`` are scratch
    space for some lines.
    """
    j = 0
    words = False
    for f in range(firsts.size):
        words |= firsts[f] >= METHOD
    for i in range(row, stop):
        u = np.uint64(i)
        good = valid.size == 0 or bool(valid[u])
        if good:
            p = starts[u] - before
            end = line_end(data, p, ends[u] - before)
            spare = 0
            if trailing and p < end:
                for d in range(delimiters.size):
                    spare |= int(byte(data, end - 1) == delimiters[d])
            while how == SPACED and p < end and byte(data, p) == 32:
                p += 1
            if how == LOGGED:
                cells = _split_log(data, p, end, cell_begins, cell_stops)
            elif how == ACCESS:
                cells = _cut_access(data, p, end, words, cell_begins, cell_stops)
            else:
                cells = _split(data, p, end, delimiters, how, cell_begins, cell_stops)
            good = cells >= min_cells and cells <= max_cells + spare
        if good:
            v = np.uint64(j)
            for f in range(kinds.size):
                c = np.uint64(firsts[f])
                b = cell_begins[c]
                while how == SPACED and byte(data, b) == 32:
                    b += 1
                n = cell_stops[np.uint64(lasts[f])] - b
                if n <= 0 or (nulls.size > 0 and cell_stops[c] - b == 1 and nulls[data[np.uint64(b)]]):
                    n = NO_VALUE
                    good = good and optional[f] >= 0
                begins[f, v] = b
                sizes[f, v] = n
            rows[v] = i
            j += int(good)
        plain[u] = good
        if j == BATCH_LINES or i == stop - 1:
            before_these = k
            k = write_values(
                data, begins, sizes, j, k, fine, kinds, columns, units, optional, memo,
                texts, offsets, integers, doubles, flags, present,
            )  # fmt: skip
            if k < before_these + j:
                for m in range(j):
                    plain[rows[m]] = fine[m] == GOOD
            j = 0
    return k
