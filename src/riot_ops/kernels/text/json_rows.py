"""Lines of JSON objects to fields in one pass.

Who writes lines writes them alike: the names, and all else between the values, are those of an earlier line. So a line
is held against the last two that differed, eight bytes at a time; where its texts end is known from the quotes of 64
bytes at once. A line that is like neither is read byte by byte, and is what those that follow are held against.
Before that a line is held against an earlier one of its length whose quotes are in the same places, all of it at once.
Lines with an error, or with what only Python should read, are left to :mod:`riot_ops.kernels.text.json_fields`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.masks import WIDTH, below64, equal64, first, unusual64
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.escapes import escape
from riot_ops.kernels.text.json_fields import ABSENT, ESCAPED, NESTED, PIECES, PLAIN, TEXT, read_line, scalar
from riot_ops.kernels.text.json_layouts import LONGEST, keep_layout, laid_out, place_of, same_layout
from riot_ops.kernels.text.numbers import byte, load8, trailing_zeros
from riot_ops.kernels.text.plain_values import AT_ONCE, ESCAPES, NOTHING, put_values
from riot_ops.kernels.text.plain_values import TEXT as STRING
from riot_ops.kernels.text.strings import is_utf8

__all__ = ["json_rows", "pattern_room"]

#: Longest line that is read here, in bytes; longest text between its values, in words of eight.
_LONGEST, _WORDS = 1 << 16, 512
_U1, _NOUGHT = np.uint64(1), np.uint64(0)
_NONE = np.uint64(2)
_U6, _U63 = np.uint64(6), np.uint64(63)
#: Of a piece: bytes, the node and the kind of the value behind it, and its first word.
_SIZE, _NODE, _KIND, _FIRST = range(4)
#: After so many lines without a layout it is told whether enough had one; if not, so many lines go without.
_TRIED, _WITHOUT = 1024, 16384


def pattern_room(nodes: int) -> tuple[npt.NDArray[Any], ...]:
    """What :func:`json_rows` keeps between lines: of two patterns words, pieces, kinds of nodes and number of pieces.

    And room for where backslashes and quotes of a line are, by bits.
    """
    words, pieces = np.empty((2, _WORDS), np.uint64), np.empty((2, PIECES, 4), np.int64)
    bits = np.empty((2, _LONGEST // WIDTH + 1), np.uint64)
    return words, pieces, np.zeros((2, nodes), np.int8), np.zeros(2, np.int64), *bits


@kernel(inline=True)
def _next(bits: Any, i: Any, size: Any) -> Any:
    """The place, from i on, of the next bit that is set; the size where there is none."""
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
def _look_again(data: Any, start: Any, end: Any, escapes: Any) -> Any:
    """Where backslashes are; whether there are some, control characters, and others than ASCII."""
    some = _NOUGHT
    control = _NOUGHT
    high = _NOUGHT
    k = np.uint64(0)
    for p in range(start, end, WIDTH):
        within = first(end - p)
        escapes[k] = equal64(data, p, 92) & within
        some |= escapes[k]
        control |= below64(data, p, 32) & within
        high |= ~below64(data, p, 128) & within
        k += _U1
    return some != _NOUGHT, control != _NOUGHT, high != _NOUGHT


@kernel(inline=True)
def _look(data: Any, start: Any, end: Any, escapes: Any, quotes: Any) -> Any:
    """Where quotes are, and what :func:`_look_again` tells."""
    unusual = _NOUGHT
    k = np.uint64(0)
    for p in range(start, end, WIDTH):
        within = first(end - p)
        quotes[k] = equal64(data, p, 34) & within
        unusual |= unusual64(data, p, 32, 92) & within
        k += _U1
    if unusual == _NOUGHT:
        return False, False, False
    return _look_again(data, start, end, escapes)


@kernel
def _escaped(data: Any, start: Any, end: Any, escapes: Any, quotes: Any) -> Any:
    """Take the quotes behind a backslash off the others; False where an escape is none, or for Python."""
    p = start
    while True:
        p = start + _next(escapes, p - start, end - start)
        if p >= end:
            return True
        q = escape(data, p, end)
        if q < 0:
            return False
        i = np.uint64(p + 1 - start)
        quotes[i >> _U6] &= ~(_U1 << (i & _U63))
        p = q


@kernel(inline=True)
def _alike(
    data: Any, start: Any, end: Any, escapes: Any, quotes: Any, some: Any, w: Any, words: Any, pieces: Any,
    open_: Any, afresh: Any, counts: Any, firsts: Any, lasts: Any, kinds: Any, line: Any,
) -> Any:  # fmt: skip
    """Whether a line is like a pattern; then where its values are, and its pieces.

    ``afresh``: the line before was not. Else ``kinds`` has what is open in the pattern already.
    """
    if afresh:
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
            p = start + _next(quotes, p - start, end - start)
            if some and start + _next(escapes, begin - start, end - start) < p:
                kind = ESCAPED
        elif pieces[w, piece, _KIND] == NOTHING:  # the last one
            return p == end
        else:
            if p == end:
                return False
            kind, p = scalar(data, p, end)
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
def _keep(data: Any, found: Any, count: Any, kinds: Any, words: Any, pieces: Any, open_: Any) -> Any:
    """Make a pattern of the pieces of a line; how many it has, 0 where they are too long."""
    k = 0
    for j in range(count):
        p = found[0, j]
        size = found[1, j] - p
        if k + size // 8 + 1 > words.size:
            return 0
        pieces[j, _SIZE] = size
        pieces[j, _NODE] = found[2, j]
        pieces[j, _KIND] = found[3, j] if j < count - 1 else NOTHING
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
def _chosen(
    choices: Any, kinds: Any, optional: Any, firsts: Any, lasts: Any, found: Any, begins: Any, sizes: Any, row: Any
) -> Any:  # fmt: skip
    """Where the fields of a line are, of what was found at nodes; whether it is plain."""
    good = True
    for field in range(kinds.size):
        f = np.uint64(field)
        node = np.uint64(choices[f, 0])
        for a in range(1, choices.shape[1]):
            if found[node] == ABSENT and choices[f, a] >= 0:
                node = np.uint64(choices[f, a])
        what = found[node]
        begin = firsts[node]
        n = lasts[node] - begin
        if what == TEXT or what == PLAIN:
            good = good and (n > 0 or kinds[f] == STRING)
        elif what == ABSENT:
            good = good and optional[f] >= 0
            n = NOTHING
        else:
            good = good and what == ESCAPED and kinds[f] == STRING
            n -= ESCAPES
        begins[f, row] = begin
        sizes[f, row] = n
    return good


@kernel
def json_rows(
    data: Any, starts: Any, ends: Any, valid: Any, row: Any, stop: Any, before: Any, k: Any, begins: Any, sizes: Any,
    rows: Any, fine: Any,
    names: Any, name_starts: Any, name_ends: Any, above: Any, lists: Any, nodes: Any, firsts: Any, lasts: Any,
    found: Any, line: Any, words: Any, pieces: Any, open_: Any, counts: Any, escapes: Any, quotes: Any, plan: Any,
    marks: Any, shapes: Any, choices: Any, kinds: Any, columns: Any, units: Any, optional: Any, memo: Any,
    texts: Any, offsets: Any, integers: Any, doubles: Any, flags: Any, present: Any, plain: Any,
) -> Any:  # fmt: skip
    """The fields of the lines from ``row`` to ``stop`` that are plain, as rows from k on; returns the row behind them.

    Of the bytes the first is that in place ``before``; :data:`riot_ops.kernels.text.plain_values.ROOM` more than those of
    the lines can be read. Field f is at the first of the nodes ``choices[f]`` (-1: no more) at which something stands;
    what it is, and where it goes, is as in :func:`riot_ops.kernels.text.plain_values.put_values`. ``begins``, ``sizes``,
    ``rows`` and ``fine`` are room for some lines.
    """
    last = _NOUGHT  # the pattern that was met or made last
    like = _NONE  # the one that the line before was like
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
            if p < end and byte(data, end - 1) == 10:
                end -= 1
            if p < end and byte(data, end - 1) == 13:
                end -= 1
            some, control, high = _look(data, p, end, escapes, quotes)
            tried = not some and not control and without == 0 and end - p <= LONGEST
            without = max(without - 1, 0)
            good = False
            e = _NOUGHT
            if tried:
                e = place_of(quotes, end - p, plan)
                good = same_layout(data, p, end - p, quotes, e, plan, marks, shapes)
            if good:
                hits += 1
                laid_out(p, e, plan, begins, sizes, v)
                if high:
                    good = is_utf8(data, p, end)
            else:
                count = 0
                if not (control or (some and not _escaped(data, p, end, escapes, quotes))):
                    for w in (last, _U1 - last):
                        if counts[w] > 0 and _alike(
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
                        counts[last] = _keep(data, line, count, found, words[last], pieces[last], open_[last])
                if high and good:
                    good = is_utf8(data, p, end)
                if good:
                    good = _chosen(choices, kinds, optional, firsts, lasts, found, begins, sizes, v)
                if tried:
                    misses += 1
                    if good and count > 0:
                        keep_layout(
                            data, p, end - p, quotes, e, line, count, begins, sizes, v, plan, marks, shapes
                        )  # fmt: skip
                    if misses == _TRIED:
                        without = _WITHOUT if hits < misses else 0
                        hits, misses = 0, 0
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
