"""Texts to their different words, each with how often it is there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.masks import WIDTH, equal64, first
from riot_ops.kernels.numbers import load8, store8, trailing_zeros

__all__ = ["WordCounts", "word_counts"]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SMALL, _A, _ZERO, _UNDERSCORE, _NO = (np.uint8(n) for n in (32, 97, 48, 95, 0))
_LETTERS, _DIGITS = np.uint8(26), np.uint8(10)
_NOUGHT, _ONE, _LAST = np.uint64(0), np.uint64(1), np.uint64(63)


class WordCounts(NamedTuple):
    """Entries: words, and where asked for, ahead of those of a text, the text as a whole.

    Attributes
    ----------
    places : array of int64, shape (n,)
        The place of each entry in its text; whole texts have the first.
    counts : array of int64, shape (n,)
        How often the word is there; of a whole text, how many words there are.
    entries, different : arrays of int64, shape (texts,)
        How many entries each text has, and how many different words.
    offsets, text : arrays of int32 and uint8
        The words end to end; a whole text has none.
    """

    places: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
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
def _known(mapped: Any, begin: Any, size: Any, text: Any, at: Any) -> Any:
    """Whether a word of more than eight bytes, of which the first are known to agree, is the one at a place."""
    for i in range(8, size, 8):
        if (load8(mapped, begin + i) ^ load8(text, at + i)) & first(8 * (size - i)) != _NOUGHT:
            return False
    return True


@kernel
def _count(
    data: Any, starts: Any, ends: Any, valid: Any, bit: Any, with_whole: Any, found: Any, shift: Any, heads: Any,
    mapped: Any, places: Any, counts: Any, entries: Any, different: Any, offsets: Any, text: Any,
) -> Any:  # fmt: skip
    """Fill in the entries; returns how many there are, and of how many bytes.

    ``found`` is an open-addressing table of entries, of ``64 - shift`` bits: those of an earlier text are as good as
    free. ``heads`` is room for the first eight bytes of the words of a text, ``mapped`` for what its bytes become, and
    :data:`WIDTH` more twice.
    """
    n = 0
    o = 0
    offsets[0] = 0
    for i in range(starts.size):
        different[i] = 0
        entries[i] = 0
        if valid.size > 0 and not valid[i]:
            continue
        head = n
        if with_whole:
            places[n] = 0
            n += 1
            offsets[n] = o
        before = n
        length = np.uint64(ends[i] - starts[i])
        p = np.uint64(starts[i])
        _map(data, p, length, bit, mapped)
        for j in range(length, length + np.uint64(WIDTH)):
            mapped[j] = 0
        total = 0
        begin: Any = -1  # of the word that goes on
        carry = _NOUGHT
        for q in range(0, np.int64(length) + 1, WIDTH):
            inside = ~equal64(mapped, q, 0)
            edges = inside ^ (inside << _ONE | carry)
            carry = inside >> _LAST
            while edges != _NOUGHT:
                end = q + np.int64(trailing_zeros(edges))
                edges &= edges - _ONE
                if begin < 0:
                    begin = end
                    continue
                size = end - begin
                w = load8(mapped, begin) & first(8 * size)
                h = w * _ODD
                for j in range(8, size, 8):
                    h = (h ^ (load8(mapped, begin + j) & first(8 * (size - j)))) * _ODD
                at = h >> shift
                k = found[at]
                while k >= before and not (
                    heads[np.uint64(k - before)] == w
                    and offsets[np.uint64(k + 1)] - offsets[np.uint64(k)] == size
                    and (size <= 8 or _known(mapped, begin, size, text, np.int64(offsets[np.uint64(k)])))
                ):
                    at = at + _ONE if at + _ONE < np.uint64(found.size) else _NOUGHT
                    k = found[at]
                total += 1
                if k >= before:
                    counts[np.uint64(k)] += 1
                else:
                    u = np.uint64(n)
                    found[at] = n
                    heads[np.uint64(n - before)] = w
                    for j in range(0, size, 8):
                        store8(text, o + j, load8(mapped, begin + j))
                    o += size
                    places[u] = n - head
                    counts[u] = 1
                    n += 1
                    offsets[np.uint64(n)] = o
                begin = -1
        if with_whole:
            counts[np.uint64(head)] = total
        entries[i] = n - head
        different[i] = n - before
    return n, o


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
    room = int(sizes.sum() + starts.size) // 2 + 1 + with_whole * starts.size
    longest = int(sizes.max(initial=0)) // 2 + 1
    bits = (2 * longest).bit_length()
    found, heads = np.full(1 << bits, -1, np.int64), np.empty(longest, np.uint64)
    mapped = np.empty(int(sizes.max(initial=0)) + 2 * WIDTH, np.uint8)
    places, counts = np.empty(room, np.int64), np.empty(room, np.int64)
    entries, different = np.empty(starts.size, np.int64), np.empty(starts.size, np.int64)
    offsets, text = np.empty(room + 1, np.int32), np.empty(int(sizes.sum()) + 8, np.uint8)
    given: tuple[Any, ...] = (
        data,
        starts,
        ends,
        valid,
        _SMALL if lowercase else _NO,
        with_whole,
        found,
        np.uint64(64 - bits),
        heads,
        mapped,
    )
    made: tuple[Any, ...] = (places, counts, entries, different, offsets, text)
    n, used = _count(*(*given, *made))
    return WordCounts(places[:n], counts[:n], entries, different, offsets[: n + 1], text[:used])
