"""The fast path for lines of JSON objects: to fields in one pass.

Most lines of a stream have the same names and the same text between values as an earlier line. First a line is looked
up among layouts (:mod:`riot_ops.kernels.text.json_layouts`). Otherwise it is compared with the last two distinct
patterns, eight bytes at a time; the ends of its strings are known from the positions of quotes, found 64 bytes at a
time. A line that matches neither is read byte by byte and becomes a pattern. Lines with errors, or with features that
are left to Python, go to :mod:`riot_ops.kernels.text.json_fields`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.byte_masks import WIDTH, below64, equal64, low_bits, outside_or_equal64
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.fast_values import BATCH_LINES, ESCAPES, GOOD, NO_VALUE, write_values
from riot_ops.kernels.text.fast_values import TEXT as STRING
from riot_ops.kernels.text.json_escapes import escape_end
from riot_ops.kernels.text.json_fields import ABSENT, ESCAPED, NESTED, PIECES, PLAIN, TEXT, read_line, scalar_end
from riot_ops.kernels.text.json_layouts import MAX_LINE, apply_layout, layout_slot, matches_layout, store_layout
from riot_ops.kernels.text.line_fields import line_end
from riot_ops.kernels.text.numbers import load8, trailing_zeros
from riot_ops.kernels.text.strings import is_utf8

__all__ = ["new_patterns", "parse_json_lines"]

#: Maximum bytes of a line; maximum text between the values of a pattern, in words of eight bytes.
_LONGEST, _WORDS = 1 << 16, 512
_U1, _NOUGHT = np.uint64(1), np.uint64(0)
_NONE = np.uint64(2)
_U6, _U63 = np.uint64(6), np.uint64(63)
#: Columns of a piece: its bytes, the node and kind of the value after it, and its first word.
_SIZE, _NODE, _KIND, _FIRST = range(4)
#: After this many misses the hit rate of layouts is checked; if it is too low, this many lines skip the lookup.
_TRIED, _WITHOUT = 1024, 16384


def new_patterns(nodes: int) -> tuple[npt.NDArray[Any], ...]:
    """Allocate what :func:`parse_json_lines` keeps between lines.

    Two patterns (words, pieces, kinds of nodes, number of pieces), and bitmaps of the backslashes and quotes of a line.
    """
    words, pieces = np.empty((2, _WORDS), np.uint64), np.empty((2, PIECES, 4), np.int64)
    bits = np.empty((2, _LONGEST // WIDTH + 1), np.uint64)
    return words, pieces, np.zeros((2, nodes), np.int8), np.zeros(2, np.int64), *bits


@kernel(inline=True)
def _next_bit(bits: Any, i: Any, size: Any) -> Any:
    """Return the position of the next bit set from i on; ``size`` if there is none."""
    u = np.uint64(i)
    k = np.int64(u >> _U6)
    word = bits[np.uint64(k)] >> (u & _U63)
    if word != _NOUGHT:
        return i + np.int64(trailing_zeros(word))
    k += 1
    while k * WIDTH < size:
        if bits[np.uint64(k)] != _NOUGHT:
            return k * WIDTH + np.int64(trailing_zeros(bits[np.uint64(k)]))
        k += 1
    return size


@kernel
def _scan_unusual(data: Any, start: Any, end: Any, escapes: Any) -> Any:
    """Write the positions of backslashes; returns whether there are any, control characters, and non-ASCII bytes."""
    some = _NOUGHT
    control = _NOUGHT
    high = _NOUGHT
    k = np.uint64(0)
    for p in range(start, end, WIDTH):
        within = low_bits(end - p)
        escapes[k] = equal64(data, p, 92) & within
        some |= escapes[k]
        control |= below64(data, p, 32) & within
        high |= ~below64(data, p, 128) & within
        k += _U1
    return some != _NOUGHT, control != _NOUGHT, high != _NOUGHT


@kernel(inline=True)
def _scan(data: Any, start: Any, end: Any, escapes: Any, quotes: Any) -> Any:
    """Write the positions of quotes; returns what :func:`_scan_unusual` does."""
    unusual = _NOUGHT
    k = np.uint64(0)
    for p in range(start, end, WIDTH):
        within = low_bits(end - p)
        quotes[k] = equal64(data, p, 34) & within
        unusual |= outside_or_equal64(data, p, 32, 92) & within
        k += _U1
    if unusual == _NOUGHT:
        return False, False, False
    return _scan_unusual(data, start, end, escapes)


@kernel
def _clear_escaped_quotes(data: Any, start: Any, end: Any, escapes: Any, quotes: Any) -> Any:
    """Clear escaped quotes; returns False if an escape is invalid or left to Python."""
    p = start
    while True:
        p = start + _next_bit(escapes, p - start, end - start)
        if p >= end:
            return True
        q = escape_end(data, p, end)
        if q < 0:
            return False
        i = np.uint64(p + 1 - start)
        quotes[i >> _U6] &= ~(_U1 << (i & _U63))
        p = q


@kernel(inline=True)
def _matches(
    data: Any, start: Any, end: Any, escapes: Any, quotes: Any, some: Any, w: Any, words: Any, pieces: Any,
    open_: Any, reset: Any, counts: Any, firsts: Any, lasts: Any, kinds: Any, line: Any,
) -> Any:  # fmt: skip
    """Whether a line matches pattern w; writes the spans of its values and its pieces.

    Unless ``reset``, the line before matched the same pattern, and ``kinds`` already has its open containers.
    """
    if reset:
        for n in range(kinds.size):
            kinds[n] = open_[w, n]
    p = start
    for j in range(counts[w]):
        piece = np.uint64(j)
        size = pieces[w, piece, _SIZE]
        line[0, piece] = p
        if end - p < size:
            return False
        k = np.uint64(pieces[w, piece, _FIRST])
        while size > 8:
            if load8(data, p) != words[w, k]:
                return False
            p += 8
            k += _U1
            size -= 8
        if size > 0 and load8(data, p) << np.uint64(64 - 8 * size) != words[w, k]:
            return False
        p += size
        begin = p
        kind = TEXT
        if pieces[w, piece, _KIND] == TEXT:
            p = start + _next_bit(quotes, p - start, end - start)
            if some and start + _next_bit(escapes, begin - start, end - start) < p:
                kind = ESCAPED
        elif pieces[w, piece, _KIND] == NO_VALUE:  # the last piece
            return p == end
        else:
            if p == end:
                return False
            kind, p = scalar_end(data, p, end)
            if p < 0:
                return False
        line[1, piece] = begin
        line[3, piece] = kind
        node = pieces[w, piece, _NODE]
        if node > 0:
            firsts[np.uint64(node)] = begin
            lasts[np.uint64(node)] = p
            kinds[np.uint64(node)] = kind
    return False


@kernel
def _make_pattern(data: Any, found: Any, count: Any, kinds: Any, words: Any, pieces: Any, open_: Any) -> Any:
    """Make a pattern of the pieces of a line; returns their number, 0 if they are too long."""
    k = 0
    for j in range(count):
        p = found[0, j]
        size = found[1, j] - p
        if k + size // 8 + 1 > words.size:
            return 0
        pieces[j, _SIZE] = size
        pieces[j, _NODE] = found[2, j]
        pieces[j, _KIND] = found[3, j] if j < count - 1 else NO_VALUE
        pieces[j, _FIRST] = k
        while size > 8:
            words[k] = load8(data, p)
            p += 8
            size -= 8
            k += 1
        if size > 0:
            words[k] = load8(data, p) << np.uint64(64 - 8 * size)
            k += 1
    for n in range(kinds.size):
        open_[n] = NESTED if kinds[n] == NESTED else ABSENT
    return count


@kernel(inline=True)
def _choose_fields(
    choices: Any, quoted: Any, wrapper: Any, kinds: Any, optional: Any, firsts: Any, lasts: Any, found: Any,
    begins: Any, sizes: Any, row: Any,
) -> Any:  # fmt: skip
    """Choose the spans of the fields from the values found at nodes; returns whether the line is plain."""
    good = True
    way = np.uint64(wrapper > 0 and found[wrapper] == NESTED)
    for field in range(kinds.size):
        f = np.uint64(field)
        node = np.uint64(choices[way, f, 0])
        for a in range(1, choices.shape[2]):
            if found[node] == ABSENT and choices[way, f, a] >= 0:
                node = np.uint64(choices[way, f, a])
        what = found[node]
        begin = firsts[node]
        n = lasts[node] - begin
        if what == TEXT or what == PLAIN:
            good = good and (n > 0 or kinds[f] == STRING) and (what == TEXT or not quoted[f])
        elif what == ABSENT:
            good = good and optional[f] >= 0
            n = NO_VALUE
        else:
            good = good and what == ESCAPED and kinds[f] == STRING
            n -= ESCAPES
        begins[f, row] = begin
        sizes[f, row] = n
    return good


@kernel
def parse_json_lines(
    data: Any, starts: Any, ends: Any, valid: Any, row: Any, stop: Any, before: Any, k: Any, begins: Any, sizes: Any,
    rows: Any, fine: Any,
    names: Any, name_starts: Any, name_ends: Any, above: Any, lists: Any, nodes: Any, firsts: Any, lasts: Any,
    found: Any, line: Any, words: Any, pieces: Any, open_: Any, counts: Any, escapes: Any, quotes: Any, plan: Any,
    marks: Any, shapes: Any, choices: Any, quoted: Any, wrapper: Any, kinds: Any, columns: Any, units: Any,
    optional: Any, memo: Any,
    texts: Any, offsets: Any, integers: Any, doubles: Any, flags: Any, present: Any, plain: Any,
) -> Any:  # fmt: skip
    """Parse the plain lines from ``row`` to ``stop`` into rows from k on; returns the row after the last.

    The first byte of ``data`` is the one at position ``before``; :data:`riot_ops.kernels.text.fast_values.ROOM` bytes
    after the lines must be readable. Field f is the value of the first of the nodes ``choices[0, f]`` (-1: no more)
    that is present, or of ``choices[1, f]`` in lines that have the node ``wrapper`` (0: no such node); ``quoted`` flags
    the fields that must be strings. Its type and its column are as in
    :func:`riot_ops.kernels.text.fast_values.write_values`. ``begins``, ``sizes``, ``rows`` and ``fine`` are scratch
    space for some lines.
    """
    last = _NOUGHT  # the pattern matched or made last
    like = _NONE  # the pattern that the line before matched
    hits, misses, without = 0, 0, 0
    j = 0
    for i in range(row, stop):
        u = np.uint64(i)
        v = np.uint64(j)
        plain[u] = False
        p = starts[u] - before
        end = ends[u] - before
        good = (valid.size == 0 or bool(valid[u])) and end - p <= _LONGEST
        if good:
            end = line_end(data, p, end)
            some, control, high = _scan(data, p, end, escapes, quotes)
            tried = not some and not control and without == 0 and end - p <= MAX_LINE
            without = max(without - 1, 0)
            good = False
            e = _NOUGHT
            if tried:
                e = layout_slot(quotes, end - p, plan)
                good = matches_layout(data, p, end - p, quotes, e, plan, marks, shapes)
            if good:
                hits += 1
                apply_layout(p, e, plan, begins, sizes, v)
                if high:
                    good = is_utf8(data, p, end)
            else:
                count = 0
                if not (control or (some and not _clear_escaped_quotes(data, p, end, escapes, quotes))):
                    for w in (last, _U1 - last):
                        if counts[w] > 0 and _matches(
                            data, p, end, escapes, quotes, some, w, words, pieces, open_, w != like, counts, firsts,
                            lasts, found, line,
                        ):  # fmt: skip
                            good = True
                            last = w
                            like = w
                            count = counts[w]
                            break
                        like = _NONE
                if not good:
                    like = _NONE
                    good, count = read_line(
                        data, p, end, names, name_starts, name_ends, above, lists, nodes, firsts, lasts, found, line
                    )
                    if good and count > 0:
                        last = _U1 - last
                        counts[last] = _make_pattern(data, line, count, found, words[last], pieces[last], open_[last])
                if high and good:
                    good = is_utf8(data, p, end)
                if good:
                    good = _choose_fields(
                        choices, quoted, wrapper, kinds, optional, firsts, lasts, found, begins, sizes, v
                    )  # fmt: skip
                if tried:
                    misses += 1
                    if good and count > 0:
                        store_layout(
                            data, p, end - p, quotes, e, line, count, begins, sizes, v, plan, marks, shapes
                        )  # fmt: skip
                    if misses == _TRIED:
                        without = _WITHOUT if hits < misses else 0
                        hits, misses = 0, 0
        rows[v] = i
        j += int(good)
        if j == BATCH_LINES or i == stop - 1:
            k = write_values(
                data, begins, sizes, j, k, fine, kinds, columns, units, optional, memo,
                texts, offsets, integers, doubles, flags, present,
            )  # fmt: skip
            for m in range(j):
                plain[rows[m]] = fine[m] == GOOD
            j = 0
    return k
