"""Counting the words of texts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.byte_masks import WIDTH, equal64, low_bits
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8, store8, trailing_zeros
from riot_ops.kernels.text.tokens import extended, fill_table

__all__ = ["WordCounts", "count_words"]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SMALL, _A, _ZERO, _UNDERSCORE, _NO = (np.uint8(n) for n in (32, 97, 48, 95, 0))
_LETTERS, _DIGITS = np.uint8(26), np.uint8(10)
#: Initial bits of the table of words; entries per word, so that most are found at the first probe.
INITIAL_BITS, ENTRIES_PER_WORD = 14, 4
_NOUGHT, _ONE, _LAST = np.uint64(0), np.uint64(1), np.uint64(63)


class WordCounts(NamedTuple):
    """Entries: the distinct words of each text, optionally preceded by one for the whole text.

    Attributes
    ----------
    counts : array of int64, shape (n,)
        Occurrences of the word; for a whole text, its number of words.
    codes : array of int32, shape (n,)
        The code of the word; 0 for a whole text.
    entries, different : arrays of int64, shape (texts,)
        Number of entries, and of distinct words, of each text.
    offsets, text : arrays of int32 and uint8
        The distinct words of all texts, concatenated in order of appearance.
    """

    counts: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int32]
    entries: npt.NDArray[np.int64]
    different: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int32]
    text: npt.NDArray[np.uint8]


@kernel(inline=True)
def _map(data: Any, start: Any, length: Any, bit: Any, mapped: Any) -> None:
    """Map bytes: letters, digits and underscores to themselves, letters with ``bit`` set; all others to 0.

    Arithmetic on bytes instead of a table, so that the compiler can vectorize it.
    """
    for j in range(length):
        b = data[start + j]
        letter = np.uint8((b | _SMALL) - _A) < _LETTERS
        inside = letter | (np.uint8(b - _ZERO) < _DIGITS) | (b == _UNDERSCORE)
        mapped[j] = (b | (bit if letter else _NO)) if inside else _NO


@kernel(inline=True)
def _is_word(mapped: Any, begin: Any, size: Any, text: Any, offsets: Any, k: Any) -> Any:
    """Whether a word of 16 bytes or more, whose first 16 bytes agree with word k, is word k."""
    at = np.int64(offsets[k])
    if np.int64(offsets[k + _ONE]) - at != size:
        return False
    for i in range(16, size, 8):
        if (load8(mapped, begin + i) ^ load8(text, at + i)) & low_bits(8 * (size - i)) != _NOUGHT:
            return False
    return True


@kernel
def _count(
    data: Any, starts: Any, ends: Any, valid: Any, bit: Any, with_whole: Any, table: Any, shift: Any, at_: Any,
    heads: Any, hashes: Any, last: Any, mapped: Any, counts: Any, codes: Any, entries: Any, different: Any,
    offsets: Any, text: Any,
) -> None:  # fmt: skip
    """Write the entries of texts while there is room in the table.

    ``at_`` counts texts, entries, words and bytes of words. ``table`` is an open-addressing table of words with
    ``64 - shift`` bits, at most a quarter full. ``heads`` has the first 16 bytes of each word, ``hashes`` its hash, and
    ``last`` its last entry, which shows whether it occurred in this text before. ``mapped`` is scratch space for the
    mapped bytes of a text, and twice :data:`WIDTH` more.
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
        if ENTRIES_PER_WORD * (known + np.int64(length) // 2 + 1) > table.size:
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
        begin: Any = 0  # of the word that continues, if one does
        continues = _NOUGHT
        for q in range(0, np.int64(length) + 1, WIDTH):
            inside = ~equal64(mapped, q, 0)
            after = inside << _ONE | continues
            begins = inside & ~after
            stops = after & ~inside
            if continues == _NOUGHT:
                begin = q + np.int64(trailing_zeros(begins))
                begins &= begins - _ONE
            continues = inside >> _LAST
            while stops != _NOUGHT:
                size = q + np.int64(trailing_zeros(stops)) - begin
                stops &= stops - _ONE
                w = load8(mapped, begin) & low_bits(8 * size)
                v = load8(mapped, begin + 8) & low_bits(max(8 * size - 64, 0))
                h = (w * _ODD ^ v) * _ODD
                for j in range(16, size, 8):
                    h = (h ^ (load8(mapped, begin + j) & low_bits(8 * (size - j)))) * _ODD
                at = h >> shift
                k = np.int64(table[at])
                while k >= 0 and not (
                    (heads[np.uint64(k), 0] == w) & (heads[np.uint64(k), 1] == v)
                    and (size < 16 or _is_word(mapped, begin, size, text, offsets, np.uint64(k)))
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
                # without branches, as repeated words cannot be predicted: the old count is read in any case
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


def count_words(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    lowercase: bool,
    with_whole: bool,
) -> WordCounts:
    """Count the distinct words of each text, in order of appearance.

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
    inputs: tuple[Any, ...] = (data, starts, ends, valid, _SMALL if lowercase else _NO, with_whole)
    outputs: tuple[Any, ...] = (mapped, counts, codes, entries, different)
    at = np.zeros(4, np.int64)
    bits = INITIAL_BITS
    while True:
        bits = max(bits, int(ENTRIES_PER_WORD * (at[2] + longest // 2 + 1)).bit_length())
        table, shift, words = np.full(1 << bits, -1, np.int32), np.uint64(64 - bits), (1 << bits) // ENTRIES_PER_WORD
        heads, hashes, last, offsets = (extended(a, words + (a is offsets)) for a in (heads, hashes, last, offsets))
        fill_table(hashes, at[2], table, shift)
        _count(*(*inputs, table, shift, at, heads, hashes, last, *outputs, offsets, text))
        if at[0] == starts.size:
            break
        bits += 1
    _, n, known, used = at.tolist()
    return WordCounts(counts[:n], codes[:n], entries, different, offsets[: known + 1], text[:used])
