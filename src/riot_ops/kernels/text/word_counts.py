"""Texts to their different words, each with how often it is there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.masks import WIDTH, equal64, first
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8, store8, trailing_zeros

__all__ = ["WordCounts", "word_counts"]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SMALL, _A, _ZERO, _UNDERSCORE, _NO = (np.uint8(n) for n in (32, 97, 48, 95, 0))
_LETTERS, _DIGITS = np.uint8(26), np.uint8(10)
#: Bits of the table of words at first; places for each word, so that few words are not at the first one looked at.
FEWEST_BITS, PLACES = 14, 4
_NOUGHT, _ONE, _LAST = np.uint64(0), np.uint64(1), np.uint64(63)


class WordCounts(NamedTuple):
    """Entries: words, and where asked for, ahead of those of a text, the text as a whole.

    Attributes
    ----------
    counts : array of int64, shape (n,)
        How often the word is there; of a whole text, how many words there are.
    codes : array of int32, shape (n,)
        The number of the word; of a whole text 0.
    entries, different : arrays of int64, shape (texts,)
        How many entries each text has, and how many different words.
    offsets, text : arrays of int32 and uint8
        The different words of all texts end to end, in the order in which each comes first.
    """

    counts: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int32]
    entries: npt.NDArray[np.int64]
    different: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int32]
    text: npt.NDArray[np.uint8]


@kernel(inline=True)
def _map(data: Any, start: Any, length: Any, bit: Any, mapped: Any) -> None:
    """What bytes become: letters, digits and underscores themselves, letters with that bit; all others 0.

    Arithmetic of bytes, of which the processor does many at once, and no table.
    """
    for j in range(length):
        b = data[start + j]
        letter = np.uint8((b | _SMALL) - _A) < _LETTERS
        inside = letter | (np.uint8(b - _ZERO) < _DIGITS) | (b == _UNDERSCORE)
        mapped[j] = (b | (bit if letter else _NO)) if inside else _NO


@kernel(inline=True)
def _known(mapped: Any, begin: Any, size: Any, text: Any, offsets: Any, k: Any) -> Any:
    """Whether a word of 16 bytes or more, of which the first 16 are known to agree, is word k."""
    at = np.int64(offsets[k])
    if np.int64(offsets[k + _ONE]) - at != size:
        return False
    for i in range(16, size, 8):
        if (load8(mapped, begin + i) ^ load8(text, at + i)) & first(8 * (size - i)) != _NOUGHT:
            return False
    return True


@kernel
def _enter(hashes: Any, known: Any, table: Any, shift: Any) -> None:
    """Put words, of which there are so many, into an empty table."""
    for k in range(known):
        at = hashes[np.uint64(k)] >> shift
        while table[at] >= 0:
            at = (at + _ONE) & np.uint64(table.size - 1)
        table[at] = k


@kernel
def _count(
    data: Any, starts: Any, ends: Any, valid: Any, bit: Any, with_whole: Any, table: Any, shift: Any, at_: Any,
    heads: Any, hashes: Any, last: Any, mapped: Any, counts: Any, codes: Any, entries: Any, different: Any,
    offsets: Any, text: Any,
) -> None:  # fmt: skip
    """Fill in the entries of texts, as long as there is room in the table.

    ``at_`` has how many texts, entries, words and bytes of words there are. ``table`` is an open-addressing table of
    words, of ``64 - shift`` bits, which is kept three quarters empty. Of each word there are its first 16 bytes, its
    hash and its last entry, by which one sees whether it was in this text. ``mapped`` is room for what the bytes of a
    text become, and :data:`WIDTH` more twice.
    """
    i, n, known, o = at_[0], at_[1], at_[2], at_[3]
    low = np.uint64(table.size - 1)
    offsets[0] = 0
    while i < starts.size:
        different[i] = 0
        entries[i] = 0
        if valid.size > 0 and not valid[i]:
            i += 1
            continue
        length = np.uint64(ends[i] - starts[i])
        if PLACES * (known + np.int64(length) // 2 + 1) > table.size:
            break
        head = n
        if with_whole:
            codes[n] = 0
            n += 1
        before = n
        _map(data, np.uint64(starts[i]), length, bit, mapped)
        for j in range(length, length + np.uint64(WIDTH)):
            mapped[j] = 0
        total = 0
        begin: Any = 0  # of the word that goes on, if one does
        goes_on = _NOUGHT
        for q in range(0, np.int64(length) + 1, WIDTH):
            inside = ~equal64(mapped, q, 0)
            behind = inside << _ONE | goes_on
            begins = inside & ~behind
            stops = behind & ~inside
            if goes_on == _NOUGHT:
                begin = q + np.int64(trailing_zeros(begins))
                begins &= begins - _ONE
            goes_on = inside >> _LAST
            while stops != _NOUGHT:
                size = q + np.int64(trailing_zeros(stops)) - begin
                stops &= stops - _ONE
                w = load8(mapped, begin) & first(8 * size)
                v = load8(mapped, begin + 8) & first(max(8 * size - 64, 0))
                h = (w * _ODD ^ v) * _ODD
                for j in range(16, size, 8):
                    h = (h ^ (load8(mapped, begin + j) & first(8 * (size - j)))) * _ODD
                at = h >> shift
                k = np.int64(table[at])
                while k >= 0 and not (
                    (heads[np.uint64(k), 0] == w) & (heads[np.uint64(k), 1] == v)
                    and (size < 16 or _known(mapped, begin, size, text, offsets, np.uint64(k)))
                ):
                    at = (at + _ONE) & low
                    k = np.int64(table[at])
                total += 1
                if k < 0:
                    k = known
                    known += 1
                    table[at] = k
                    heads[np.uint64(k), 0] = w
                    heads[np.uint64(k), 1] = v
                    hashes[np.uint64(k)] = h
                    last[np.uint64(k)] = -1
                    for j in range(0, size, 8):
                        store8(text, o + j, load8(mapped, begin + j))
                    o += size
                    offsets[np.uint64(known)] = o
                # no branch, as nobody can foretell which words come again: what is there is read in any case
                e = last[np.uint64(k)]
                again = e >= before
                e = e if again else n
                u = np.uint64(e)
                last[np.uint64(k)] = e
                codes[u] = k
                times = counts[u]
                counts[u] = (times if again else 0) + 1
                n += not again
                begin = q + np.int64(trailing_zeros(begins))
                begins &= begins - _ONE
        if with_whole:
            counts[np.uint64(head)] = total
        entries[i] = n - head
        different[i] = n - before
        i += 1
    at_[0], at_[1], at_[2], at_[3] = i, n, known, o


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    return np.concatenate([array, np.empty((size - len(array), *array.shape[1:]), array.dtype)])


def word_counts(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    lowercase: bool,
    with_whole: bool,
) -> WordCounts:
    """The different words of each text in the order in which they come first.

    A word is a run of ASCII letters, digits and underscores. The texts together must hold less than 2 GiB.
    """
    sizes = ends - starts
    longest, size = int(sizes.max(initial=0)), int(sizes.sum())
    room = (size + starts.size) // 2 + 1 + with_whole * starts.size
    heads, hashes, last = np.empty((0, 2), np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64)
    offsets = np.empty(1, np.int32)
    mapped = np.empty(longest + 2 * WIDTH, np.uint8)
    counts, codes = np.empty(room, np.int64), np.empty(room, np.int32)
    entries, different = np.empty(starts.size, np.int64), np.empty(starts.size, np.int64)
    text = np.empty(size + 8, np.uint8)
    given: tuple[Any, ...] = (data, starts, ends, valid, _SMALL if lowercase else _NO, with_whole)
    made: tuple[Any, ...] = (mapped, counts, codes, entries, different)
    at = np.zeros(4, np.int64)
    bits = FEWEST_BITS
    while True:
        bits = max(bits, int(PLACES * (at[2] + longest // 2 + 1)).bit_length())
        table, shift, words = np.full(1 << bits, -1, np.int32), np.uint64(64 - bits), (1 << bits) // PLACES
        heads, hashes, last, offsets = (_longer(a, words + (a is offsets)) for a in (heads, hashes, last, offsets))
        _enter(hashes, at[2], table, shift)
        _count(*(*given, table, shift, at, heads, hashes, last, *made, offsets, text))
        if at[0] == starts.size:
            break
        bits += 1
    _, n, known, used = at.tolist()
    return WordCounts(counts[:n], codes[:n], entries, different, offsets[: known + 1], text[:used])
