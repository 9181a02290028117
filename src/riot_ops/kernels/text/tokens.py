"""Text to tokens: runs of bytes of one class."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.hashing import word
from riot_ops.kernels.arrays.masks import WIDTH, equal64, first
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8, store8, trailing_zeros

__all__ = ["BETWEEN", "NO_TRIM", "Tokens", "tokens"]

#: What a byte becomes that stands between tokens: no text in UTF-8 has it.
BETWEEN = 255
NO_TRIM = np.empty(0, np.bool_)
_ODD, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_NOUGHT, _ONE, _BYTE, _LAST = np.uint64(0), np.uint64(1), np.uint64(255), np.uint64(63)
#: Kinds of bytes between tokens that are looked for one by one.
FEW = 8
#: Bits of the table of different tokens at first; places for each, so that few are not at the first one looked at.
FEWEST_BITS, PLACES = 12, 4


class Tokens(NamedTuple):
    """The tokens of some texts.

    Attributes
    ----------
    rows, places : arrays of int64, shape (n,)
        The text of each token, and its place there.
    codes : array of int32, shape (n,)
        Its number among those that are end to end.
    offsets, text : arrays of int32 and uint8
        Tokens end to end: all, or those that differ in the order in which each comes first.
    """

    rows: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int32]
    text: npt.NDArray[np.uint8]


@kernel(inline=True)
def _copied(data: Any, p: Any, end: Any, table: Any, kept: Any, trim: Any, out: Any, o: Any) -> Any:
    """Copy the token that begins at p to o; returns where it ends, and where in out: at o where nothing is left of it.

    ``trim`` has which bytes are taken off at both ends, but for the ``kept`` first ones, or is empty.
    """
    begin = o
    edge = _NOUGHT  # of eight bytes a bit for each that is none of the token's
    while edge == _NOUGHT:
        w = load8(data, p) if p + 8 <= data.size else word(data, p, data.size - p)
        v = _NOUGHT
        for j in range(8):  # no branch, as nobody can foretell where a token ends
            b = np.uint64(table[(w >> np.uint64(8 * j)) & _BYTE])
            v |= b << np.uint64(8 * j)
            edge |= np.uint64(b == BETWEEN) << np.uint64(j)
        if end - p < 8:
            edge |= _ONE << np.uint64(end - p)
        store8(out, o, v)
        size = 8 if edge == _NOUGHT else np.int64(trailing_zeros(edge))
        p += size
        o += size
    return p, _trimmed(begin, kept, trim, out, o)


@kernel(inline=True)
def _trimmed(begin: Any, kept: Any, trim: Any, out: Any, o: Any) -> Any:
    """Take off what is to be trimmed of a token in out; returns where it ends, at its begin where nothing is left."""
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
def _number(out: Any, begin: Any, end: Any, known: Any, spans: Any, hashes: Any, index: Any, shift: Any) -> Any:
    """The number of a token in out, behind the ``known`` ones; theirs, of one that is new, which is entered."""
    if index.size == 0:
        return known
    size = end - begin
    h = _NOUGHT
    for j in range(0, size, 8):
        h = (h ^ (load8(out, begin + j) & first(8 * (size - j)))) * _ODD
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
                differs |= (load8(out, begin + j) ^ load8(out, there + j)) & first(8 * (size - j))
            if differs == _NOUGHT:
                return k
        at = (at + _ONE) & np.uint64(index.size - 1)
    index[at] = known
    hashes[np.uint64(known)] = h
    return known


@kernel(inline=True)
def _entered(
    out: Any, o: Any, e: Any, i: Any, place: Any, n: Any, known: Any, rows: Any, places: Any, codes: Any, spans: Any,
    hashes: Any, index: Any, shift: Any,
) -> Any:  # fmt: skip
    """Enter token n, which is from o to e in out; returns where the next one goes, and how many are known."""
    k = _number(out, o, e, known, spans, hashes, index, shift)
    u = np.uint64(n)
    rows[u], places[u], codes[u] = i, place, k
    if k != known:
        return o, known
    spans[np.uint64(known + 1)] = e
    return e, known + 1


@kernel
def _enter(hashes: Any, known: Any, index: Any, shift: Any) -> None:
    """Put tokens, of which there are so many, into an empty table."""
    for k in range(known):
        at = hashes[np.uint64(k)] >> shift
        while index[at] >= 0:
            at = (at + _ONE) & np.uint64(index.size - 1)
        index[at] = k


@kernel(inline=True)
def _fits(length: Any, n: Any, known: Any, rows: Any, index: Any) -> Any:
    """Whether there is room for all tokens that a text of so many bytes may have."""
    most = length // 2 + 1
    return n + most <= rows.size and (index.size == 0 or PLACES * (known + most) <= index.size)


@kernel
def _tokens(
    data: Any, starts: Any, ends: Any, valid: Any, table: Any, prefix: Any, trim: Any, at: Any, rows: Any, places: Any,
    codes: Any, spans: Any, out: Any, hashes: Any, index: Any, shift: Any,
) -> None:  # fmt: skip
    """Copy the tokens of texts, as long as there is room; ``at`` has how many texts, tokens, known ones, and bytes.

    ``table`` has for each byte what it becomes, :data:`BETWEEN` where it stands between tokens. ``index`` is an
    open-addressing table of tokens, of ``64 - shift`` bits, or empty: then each is taken for a new one. ``spans`` has
    where each known token begins in ``out``, and one more: where the last ends.
    """
    i, n, known, o = at[0], at[1], at[2], at[3]
    while i < starts.size and _fits(ends[i] - starts[i], n, known, rows, index):
        place = 0
        p = starts[i]
        end = p if valid.size > 0 and not valid[i] else ends[i]
        while p < end:
            if table[data[np.uint64(p)]] == BETWEEN:
                p += 1
                continue
            p, e = _copied(data, p, end, table, 0, trim, out, o)
            if e > o:
                o, known = _entered(out, o, e, i, place, n, known, rows, places, codes, spans, hashes, index, shift)
                n += 1
                place += 1
        i += 1
    at[0], at[1], at[2], at[3] = i, n, known, o


@kernel
def _between(
    data: Any, starts: Any, ends: Any, valid: Any, table: Any, prefix: Any, trim: Any, at: Any, rows: Any, places: Any,
    codes: Any, spans: Any, out: Any, hashes: Any, index: Any, shift: Any,
) -> None:  # fmt: skip
    """The same of tokens that stay as they are, between the few bytes of the table: 64 are looked at at once."""
    i, n, known, o = at[0], at[1], at[2], at[3]
    while i < starts.size and _fits(ends[i] - starts[i], n, known, rows, index):
        place = 0
        p = starts[i]
        end = p if valid.size > 0 and not valid[i] else ends[i]
        begin: Any = 0  # of the token that goes on, if one does
        goes_on = _NOUGHT
        while p < end or goes_on != _NOUGHT:
            apart = ~first(end - p)
            if p + WIDTH <= data.size:
                for j in range(table.size):
                    apart |= equal64(data, p, table[j])
            else:
                for j in range(end - p):
                    for k in range(table.size):
                        if data[np.uint64(p + j)] == table[k]:
                            apart |= _ONE << np.uint64(j)
            behind = ~apart << _ONE | goes_on
            begins = ~apart & ~behind
            stops = behind & apart
            if goes_on == _NOUGHT:
                begin = p + np.int64(trailing_zeros(begins))
                begins &= begins - _ONE
            goes_on = ~apart >> _LAST
            while stops != _NOUGHT:
                size = p + np.int64(trailing_zeros(stops)) - begin
                stops &= stops - _ONE
                for j in range(0, size, 8):
                    q = begin + j
                    store8(out, o + j, load8(data, q) if q + 8 <= data.size else word(data, q, data.size - q))
                e = _trimmed(o, 0, trim, out, o + size)
                if e > o:
                    o, known = _entered(out, o, e, i, place, n, known, rows, places, codes, spans, hashes, index, shift)
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
    """The same of tokens that begin with a byte: most texts have few such, so these alone are looked for."""
    i, n, known, o = at[0], at[1], at[2], at[3]
    before = i - 1  # the text of the token before
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
        found &= first(stop - q)
        while found != _NOUGHT:
            p = q + np.int64(trailing_zeros(found))
            found &= found - _ONE
            while ends[i] <= p:
                i += 1
            if (valid.size > 0 and not valid[i]) or (
                p > starts[i] and table[data[np.uint64(p - 1)]] != BETWEEN  # within a token
            ):
                continue
            if i != before and not _fits(ends[i] - starts[i], n, known, rows, index):
                at[0], at[1], at[2], at[3] = i, n, known, o
                return
            place = place if i == before else 0
            before = i
            _, e = _copied(data, p, ends[i], table, 1, trim, out, o)
            if trim.size == 0 or e > o:
                o, known = _entered(out, o, e, i, place, n, known, rows, places, codes, spans, hashes, index, shift)
                n += 1
                place += 1
        q += WIDTH
    at[0], at[1], at[2], at[3] = starts.size, n, known, o


def tokens(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    table: npt.NDArray[np.uint8],
    prefix: int = -1,
    trim: npt.NDArray[np.bool_] = NO_TRIM,
    coded: bool = False,
) -> Tokens:
    """The tokens of texts, which lie end to end and hold less than 2 GiB.

    Parameters
    ----------
    table : array of uint8, shape (256,)
        What each byte becomes, :data:`BETWEEN` where it stands between tokens.
    prefix : int
        The byte that a token must begin with, -1 for any.
    trim : array of bool, shape (256,) or (0,)
        Bytes that are taken off at both ends, but for the prefix.
    coded : bool
        Whether tokens that are the same have one number.
    """
    sizes = ends - starts
    size, longest = int(sizes.sum()), int(sizes.max(initial=0))
    at, bits = np.zeros(4, np.int64), FEWEST_BITS if coded else 0
    room = 2 * starts.size + longest // 2 + 1 if prefix >= 0 else (size + starts.size) // 2 + 1
    rows, places, codes = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32)
    spans, hashes, out = np.zeros(1, np.int32), np.empty(0, np.uint64), np.empty(size + 8, np.uint8)
    loop, between = _tokens if prefix < 0 else _prefixed, np.flatnonzero(table == BETWEEN)
    if prefix < 0 and between.size <= FEW and np.count_nonzero(table == np.arange(256)) >= 256 - between.size:
        loop, table = _between, between.astype(np.uint8)
    given = data, starts, ends, valid, readonly(table), np.uint8(max(prefix, 0)), readonly(trim), at
    most = longest // 2 + 1
    while at[0] < starts.size:
        room *= 2 if at[1] + most > room else 1
        rows, places, codes = (_longer(one, room) for one in (rows, places, codes))
        if coded:
            bits = max(bits, int(PLACES * (at[2] + most)).bit_length())
        index, shift = np.full(1 << bits if coded else 0, -1, np.int32), np.uint64(64 - bits)
        different = (1 << bits) // PLACES if coded else room
        spans, hashes = _longer(spans, different + 1), _longer(hashes, different if coded else 0)
        _enter(hashes, at[2] if coded else 0, index, shift)
        loop(*given, rows, places, codes, spans, out, hashes, index, shift)
        bits += 1
    _, n, known, used = at.tolist()
    return Tokens(rows[:n], places[:n], codes[:n], spans[: known + 1], out[:used])


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array with room for so many."""
    if len(array) >= size:
        return array
    longer = np.empty(size, array.dtype)
    longer[: len(array)] = array
    return longer
