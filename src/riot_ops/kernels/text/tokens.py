"""Splitting texts into tokens: runs of bytes between separators."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.byte_masks import WIDTH, equal64, low_bits
from riot_ops.kernels.arrays.hashing import load_bytes
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8, store8, trailing_zeros

__all__ = ["NO_TRIM", "SEPARATOR", "Tokens", "extended", "fill_table", "split_tokens"]

#: The mapped value of bytes between tokens; it does not occur in UTF-8.
SEPARATOR = 255
NO_TRIM = np.empty(0, np.bool_)
_ODD, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_NOUGHT, _ONE, _BYTE, _LAST = np.uint64(0), np.uint64(1), np.uint64(255), np.uint64(63)
#: Maximum number of distinct separators that are searched one by one.
FEW_SEPARATORS = 8
#: Initial bits of the table of distinct tokens; entries per token, so that most are found at the first probe.
INITIAL_BITS, ENTRIES_PER_TOKEN = 12, 4


class Tokens(NamedTuple):
    """The tokens of some texts.

    Attributes
    ----------
    rows, places : arrays of int64, shape (n,)
        The text of each token, and its place in the text.
    codes : array of int32, shape (n,)
        Its index among the tokens of ``text``.
    offsets, text : arrays of int32 and uint8
        Concatenated tokens: all of them, or the distinct ones in order of appearance.
    """

    rows: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int32]
    text: npt.NDArray[np.uint8]


@kernel(inline=True)
def _copy_token(data: Any, p: Any, end: Any, table: Any, kept: Any, trim: Any, out: Any, o: Any) -> Any:
    """Copy the token that begins at p to o; returns its end in ``data``, and in ``out``: o if nothing is left of it.

    ``trim`` flags the bytes that are removed at both ends, except for the first ``kept`` bytes; it may be empty.
    """
    begin = o
    edge = _NOUGHT  # a bit for each of eight bytes that is not part of the token
    while edge == _NOUGHT:
        w = load8(data, p) if p + 8 <= data.size else load_bytes(data, p, data.size - p)
        v = _NOUGHT
        for j in range(8):  # without branches, as ends of tokens cannot be predicted
            b = np.uint64(table[(w >> np.uint64(8 * j)) & _BYTE])
            v |= b << np.uint64(8 * j)
            edge |= np.uint64(b == SEPARATOR) << np.uint64(j)
        if end - p < 8:
            edge |= _ONE << np.uint64(end - p)
        store8(out, o, v)
        size = 8 if edge == _NOUGHT else np.int64(trailing_zeros(edge))
        p += size
        o += size
    return p, _trim(begin, kept, trim, out, o)


@kernel(inline=True)
def _trim(begin: Any, kept: Any, trim: Any, out: Any, o: Any) -> Any:
    """Trim a token in ``out``; returns its end, which is its beginning if nothing is left."""
    if trim.size > 0:
        low = begin + kept
        while o > low and trim[out[np.uint64(o - 1)]]:
            o -= 1
        q = low
        while q < o and trim[out[np.uint64(q)]]:
            q += 1
        for j in range(o - q):
            out[np.uint64(low + j)] = out[np.uint64(q + j)]
        o = begin if q == o else o - (q - low)
    return o


@kernel(inline=True)
def _code(out: Any, begin: Any, end: Any, known: Any, spans: Any, hashes: Any, index: Any, shift: Any) -> Any:
    """Look up the code of a token at the end of ``out``; a new token is entered with the code ``known``."""
    if index.size == 0:
        return known
    size = end - begin
    h = _NOUGHT
    for j in range(0, size, 8):
        h = (h ^ (load8(out, begin + j) & low_bits(8 * (size - j)))) * _ODD
        h ^= h >> _MIX
    h *= _ODD
    at = h >> shift
    while True:
        k = np.int64(index[at])
        if k < 0:
            break
        there = np.int64(spans[np.uint64(k)])
        if hashes[np.uint64(k)] == h and np.int64(spans[np.uint64(k + 1)]) - there == size:
            differs = _NOUGHT
            for j in range(0, size, 8):
                differs |= (load8(out, begin + j) ^ load8(out, there + j)) & low_bits(8 * (size - j))
            if differs == _NOUGHT:
                return k
        at = (at + _ONE) & np.uint64(index.size - 1)
    index[at] = known
    hashes[np.uint64(known)] = h
    return known


@kernel(inline=True)
def _add_token(
    out: Any, o: Any, e: Any, i: Any, place: Any, n: Any, known: Any, rows: Any, places: Any, codes: Any, spans: Any,
    hashes: Any, index: Any, shift: Any,
) -> Any:  # fmt: skip
    """Add token n, ``out[o:e]``; returns the position of the next one and the number of known tokens."""
    k = _code(out, o, e, known, spans, hashes, index, shift)
    u = np.uint64(n)
    rows[u], places[u], codes[u] = i, place, k
    if k != known:
        return o, known
    spans[np.uint64(known + 1)] = e
    return e, known + 1


@kernel
def fill_table(hashes: Any, known: Any, index: Any, shift: Any) -> None:
    """Enter ``known`` tokens into an empty table."""
    for k in range(known):
        at = hashes[np.uint64(k)] >> shift
        while index[at] >= 0:
            at = (at + _ONE) & np.uint64(index.size - 1)
        index[at] = k


@kernel(inline=True)
def _fits(length: Any, n: Any, known: Any, rows: Any, index: Any) -> Any:
    """Whether there is room for all tokens that a text of ``length`` bytes can have."""
    max_tokens = length // 2 + 1
    return n + max_tokens <= rows.size and (index.size == 0 or ENTRIES_PER_TOKEN * (known + max_tokens) <= index.size)


@kernel
def _tokens(
    data: Any, starts: Any, ends: Any, valid: Any, table: Any, prefix: Any, trim: Any, at: Any, rows: Any, places: Any,
    codes: Any, spans: Any, out: Any, hashes: Any, index: Any, shift: Any,
) -> None:  # fmt: skip
    """Copy the tokens of texts while there is room; ``at`` counts texts, tokens, known tokens and bytes.

    ``table`` maps each byte, :data:`SEPARATOR` for separators. ``index`` is an open-addressing table of tokens with
    ``64 - shift`` bits; if it is empty, every token counts as a new one. ``spans`` has where each known token begins in
    ``out``, followed by the end of the last.
    """
    i, n, known, o = at[0], at[1], at[2], at[3]
    while i < starts.size and _fits(ends[i] - starts[i], n, known, rows, index):
        place = 0
        p = starts[i]
        end = p if valid.size > 0 and not valid[i] else ends[i]
        while p < end:
            if table[data[np.uint64(p)]] == SEPARATOR:
                p += 1
                continue
            p, e = _copy_token(data, p, end, table, 0, trim, out, o)
            if e > o:
                o, known = _add_token(out, o, e, i, place, n, known, rows, places, codes, spans, hashes, index, shift)
                n += 1
                place += 1
        i += 1
    at[0], at[1], at[2], at[3] = i, n, known, o


@kernel
def _few_separators(
    data: Any, starts: Any, ends: Any, valid: Any, table: Any, prefix: Any, trim: Any, at: Any, rows: Any, places: Any,
    codes: Any, spans: Any, out: Any, hashes: Any, index: Any, shift: Any,
) -> None:  # fmt: skip
    """Like :func:`_tokens` for unmapped tokens between few separators, the bytes of ``table``: 64 bytes at a time."""
    i, n, known, o = at[0], at[1], at[2], at[3]
    while i < starts.size and _fits(ends[i] - starts[i], n, known, rows, index):
        place = 0
        p = starts[i]
        end = p if valid.size > 0 and not valid[i] else ends[i]
        begin: Any = 0  # of the token that continues, if one does
        continues = _NOUGHT
        while p < end or continues != _NOUGHT:
            separators = ~low_bits(end - p)
            if p + WIDTH <= data.size:
                for j in range(table.size):
                    separators |= equal64(data, p, table[j])
            else:
                for j in range(end - p):
                    for k in range(table.size):
                        if data[np.uint64(p + j)] == table[k]:
                            separators |= _ONE << np.uint64(j)
            after = ~separators << _ONE | continues
            begins = ~separators & ~after
            stops = after & separators
            if continues == _NOUGHT:
                begin = p + np.int64(trailing_zeros(begins))
                begins &= begins - _ONE
            continues = ~separators >> _LAST
            while stops != _NOUGHT:
                size = p + np.int64(trailing_zeros(stops)) - begin
                stops &= stops - _ONE
                for j in range(0, size, 8):
                    q = begin + j
                    store8(out, o + j, load8(data, q) if q + 8 <= data.size else load_bytes(data, q, data.size - q))
                e = _trim(o, 0, trim, out, o + size)
                if e > o:
                    o, known = _add_token(
                        out, o, e, i, place, n, known, rows, places, codes, spans, hashes, index, shift
                    )
                    n += 1
                    place += 1
                begin = p + np.int64(trailing_zeros(begins))
                begins &= begins - _ONE
            p += WIDTH
        i += 1
    at[0], at[1], at[2], at[3] = i, n, known, o


@kernel
def _prefixed(
    data: Any, starts: Any, ends: Any, valid: Any, table: Any, prefix: Any, trim: Any, at: Any, rows: Any, places: Any,
    codes: Any, spans: Any, out: Any, hashes: Any, index: Any, shift: Any,
) -> None:  # fmt: skip
    """Like :func:`_tokens` for tokens that begin with ``prefix``, which is searched first: most texts have few."""
    i, n, known, o = at[0], at[1], at[2], at[3]
    before = i - 1  # the text of the previous token
    place = 0
    stop = ends[-1]
    q = starts[i]
    while q < stop:
        found = _NOUGHT
        if q + WIDTH <= data.size:
            found = equal64(data, q, prefix)
        else:
            for j in range(data.size - q):
                if data[np.uint64(q + j)] == prefix:
                    found |= _ONE << np.uint64(j)
        found &= low_bits(stop - q)
        while found != _NOUGHT:
            p = q + np.int64(trailing_zeros(found))
            found &= found - _ONE
            while ends[i] <= p:
                i += 1
            if (valid.size > 0 and not valid[i]) or (
                p > starts[i] and table[data[np.uint64(p - 1)]] != SEPARATOR  # within a token
            ):
                continue
            if i != before and not _fits(ends[i] - starts[i], n, known, rows, index):
                at[0], at[1], at[2], at[3] = i, n, known, o
                return
            place = place if i == before else 0
            before = i
            _, e = _copy_token(data, p, ends[i], table, 1, trim, out, o)
            if trim.size == 0 or e > o:
                o, known = _add_token(out, o, e, i, place, n, known, rows, places, codes, spans, hashes, index, shift)
                n += 1
                place += 1
        q += WIDTH
    at[0], at[1], at[2], at[3] = starts.size, n, known, o


def split_tokens(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    table: npt.NDArray[np.uint8],
    prefix: int = -1,
    trim: npt.NDArray[np.bool_] = NO_TRIM,
    coded: bool = False,
) -> Tokens:
    """Split consecutive texts of less than 2 GiB into tokens.

    Parameters
    ----------
    table : array of uint8, shape (256,)
        Mapped value of each byte, :data:`SEPARATOR` for separators.
    prefix : int
        The byte that tokens begin with, -1 for any.
    trim : array of bool, shape (256,) or (0,)
        Bytes that are trimmed at both ends, except for the prefix.
    coded : bool
        Whether equal tokens have one code.
    """
    sizes = ends - starts
    size, longest = int(sizes.sum()), int(sizes.max(initial=0))
    at, bits = np.zeros(4, np.int64), INITIAL_BITS if coded else 0
    room = 2 * starts.size + longest // 2 + 1 if prefix >= 0 else (size + starts.size) // 2 + 1
    rows, places, codes = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32)
    spans, hashes, out = np.zeros(1, np.int32), np.empty(0, np.uint64), np.empty(size + 8, np.uint8)
    loop, between = _tokens if prefix < 0 else _prefixed, np.flatnonzero(table == SEPARATOR)
    if (
        prefix < 0
        and between.size <= FEW_SEPARATORS
        and np.count_nonzero(table == np.arange(256)) >= 256 - between.size
    ):
        loop, table = _few_separators, between.astype(np.uint8)
    arguments = data, starts, ends, valid, readonly(table), np.uint8(max(prefix, 0)), readonly(trim), at
    max_tokens = longest // 2 + 1
    while at[0] < starts.size:
        room *= 2 if at[1] + max_tokens > room else 1
        rows, places, codes = (extended(one, room) for one in (rows, places, codes))
        if coded:
            bits = max(bits, int(ENTRIES_PER_TOKEN * (at[2] + max_tokens)).bit_length())
        index, shift = np.full(1 << bits if coded else 0, -1, np.int32), np.uint64(64 - bits)
        distinct = (1 << bits) // ENTRIES_PER_TOKEN if coded else room
        spans, hashes = extended(spans, distinct + 1), extended(hashes, distinct if coded else 0)
        fill_table(hashes, at[2] if coded else 0, index, shift)
        loop(*arguments, rows, places, codes, spans, out, hashes, index, shift)
        bits += 1
    _, n, known, used = at.tolist()
    return Tokens(rows[:n], places[:n], codes[:n], spans[: known + 1], out[:used])


def extended(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return the array extended to at least ``size`` entries."""
    if len(array) >= size:
        return array
    longer = np.empty((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
