"""Texts to their different words, each with how often it is there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrow import readonly
from riot_ops.kernels.jit import kernel

__all__ = ["WordCounts", "word_counts"]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_BYTE = np.uint64(8)
_NOUGHT = np.uint64(0)


class WordCounts(NamedTuple):
    """Entries: words, and where asked for, ahead of those of a text, the text as a whole.

    Attributes
    ----------
    rows, places : arrays of int64, shape (n,)
        Text of each entry, and its place in it.
    counts : array of int64, shape (n,)
        How often the word is there; of a whole text, how many words there are.
    different : array of int64, shape (texts,)
        How many different words each text has.
    offsets, text : arrays of int32 and uint8
        The words end to end; a whole text has none.
    whole : array of bool, shape (n,)
        Which entries are whole texts.
    """

    rows: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    different: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int32]
    text: npt.NDArray[np.uint8]
    whole: npt.NDArray[np.bool_]


@kernel
def _count(
    data: Any, starts: Any, ends: Any, valid: Any, table: Any, with_whole: Any, found: Any, shift: Any, tails: Any,
    rows: Any, places: Any, counts: Any, different: Any, offsets: Any, text: Any, whole: Any,
) -> Any:  # fmt: skip
    """Fill in the entries; returns how many there are, and of how many bytes.

    ``found`` is an open-addressing table of entries, of ``64 - shift`` bits: those of an earlier text are as good as
    free. ``tails`` is room for the last eight bytes, which is all of most, of the words of a text.
    """
    n = 0
    o = 0
    offsets[0] = 0
    for i in range(starts.size):
        different[i] = 0
        if valid.size > 0 and not valid[i]:
            continue
        head = n
        if with_whole:
            rows[n] = i
            places[n] = 0
            counts[n] = 0
            whole[n] = True
            n += 1
            offsets[n] = o
        first = n
        p = starts[i]
        end = ends[i]
        while p < end:
            b = table[data[np.uint64(p)]]
            if b == 0:
                p += 1
                continue
            h = _NOUGHT
            tail = _NOUGHT
            begin = o
            while b != 0:
                text[np.uint64(o)] = b
                o += 1
                tail = tail << _BYTE | np.uint64(b)
                if (o - begin) & 7 == 0:
                    h = (h ^ tail) * _ODD
                p += 1
                if p >= end:
                    break
                b = table[data[np.uint64(p)]]
            size = o - begin
            at = np.int64(((h ^ tail) * _ODD) >> shift)
            known = -1
            while found[at] >= first:
                k = found[at]
                if tails[k - first] == tail and offsets[k + 1] - offsets[k] == size:
                    same = True
                    for j in range(size - 8):
                        if text[np.uint64(offsets[k] + j)] != text[np.uint64(begin + j)]:
                            same = False
                            break
                    if same:
                        known = k
                        break
                at += 1
                if at == found.size:
                    at = np.int64(0)
            if with_whole:
                counts[head] += 1
            if known >= 0:
                counts[known] += 1
                o = begin
                continue
            found[at] = n
            tails[n - first] = tail
            rows[n] = i
            places[n] = n - head
            counts[n] = 1
            whole[n] = False
            n += 1
            offsets[n] = o
        different[i] = n - first
    return n, o


def word_counts(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    table: npt.NDArray[np.uint8],
    with_whole: bool,
) -> WordCounts:
    """The different words of each text in the order in which they come first.

    ``table`` has for each byte what it becomes, 0 between words. The texts together must hold less than 2 GiB.
    """
    sizes = ends - starts
    room = int(sizes.sum() + starts.size) // 2 + 1 + with_whole * starts.size
    longest = int(sizes.max(initial=0)) // 2 + 1
    bits = (2 * longest).bit_length()
    found, tails = np.full(1 << bits, -1, np.int64), np.empty(longest, np.uint64)
    rows, places, counts = (np.empty(room, np.int64) for _ in range(3))
    different, whole = np.empty(starts.size, np.int64), np.empty(room, np.bool_)
    offsets, text = np.empty(room + 1, np.int32), np.empty(int(sizes.sum()), np.uint8)
    given: tuple[Any, ...] = (
        data,
        starts,
        ends,
        valid,
        readonly(table),
        with_whole,
        found,
        np.uint64(64 - bits),
        tails,
    )
    made: tuple[Any, ...] = (rows, places, counts, different, offsets, text, whole)
    n, used = _count(*(*given, *made))
    return WordCounts(rows[:n], places[:n], counts[:n], different, offsets[: n + 1], text[:used], whole[:n])
