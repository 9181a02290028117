"""Text columns: matching names, searching substrings, checking encodings."""

from __future__ import annotations

import functools
from codecs import BOM_UTF8
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.arrays.arrow import byte_spans, readonly
from riot_ops.kernels.arrays.byte_masks import WIDTH, below64, equal64, low_bits
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import HIGH, byte, load8, trailing_zeros

__all__ = [
    "contains",
    "equal_bytes",
    "equal_to",
    "equal_words",
    "is_utf8",
    "name_codes",
    "name_table",
    "non_ascii",
    "non_utf8",
    "span_codes",
    "without_marks",
]

_NOUGHT, _ONE = np.uint64(0), np.uint64(1)

#: Text types with 32-bit offsets.
_TEXT_TYPES = (pa.string().id, pa.binary().id)

Table = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def without_marks(texts: pa.Array) -> pa.Array:
    r"""Return a column of texts without the UTF-8 byte order marks at their beginning.

    >>> without_marks(pa.array([b"\xef\xbb\xbfa", b"b"])).to_pylist()
    [b'a', b'b']
    """
    data, starts, ends, _ = byte_spans(texts)
    rows = np.flatnonzero(ends - starts >= len(BOM_UTF8))
    rows = rows[data[starts[rows]] == BOM_UTF8[0]]
    rows = rows[[data[start : start + len(BOM_UTF8)].tobytes() == BOM_UTF8 for start in starts[rows]]]
    if not rows.size:
        return texts
    plain = texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts
    marked = np.zeros(len(texts), np.bool_)
    marked[rows] = True
    cut = [data[start + len(BOM_UTF8) : end].tobytes() for start, end in zip(starts[rows], ends[rows], strict=True)]
    return pc.replace_with_mask(plain, pa.array(marked), pa.array(cut, pa.large_binary()).cast(plain.type))


@kernel
def equal_bytes(a: Any, start: Any, end: Any, b: Any, b_start: Any, b_end: Any) -> Any:
    """Whether ``a[start:end]`` equals ``b[b_start:b_end]``."""
    if end - start != b_end - b_start:
        return False
    for i in range(end - start):
        if a[start + i] != b[b_start + i]:
            return False
    return True


@kernel
def equal_words(data: Any, a: Any, b: Any, size: Any) -> Any:
    """Whether ``size`` bytes at a equal those at b; compares eight at a time if they are readable."""
    if max(a, b) + size > data.size - 8:
        return equal_bytes(data, a, a + size, data, b, b + size)
    while size > 8:
        if load8(data, a) != load8(data, b):
            return False
        a += 8
        b += 8
        size -= 8
    differ = load8(data, a) ^ load8(data, b)
    return size == 0 or differ << np.uint64(64 - 8 * size) == _NOUGHT


@kernel
def _first_word(data: Any, start: Any, end: Any) -> Any:
    """Return the first eight bytes of a text as a number; a shorter text fills the high bytes."""
    size = min(end - start, 8)
    if size == 0:
        return _NOUGHT
    if start + 8 <= data.size:
        return load8(data, start) << np.uint64(64 - 8 * size)
    w = _NOUGHT
    for i in range(size):
        w |= np.uint64(data[start + i]) << np.uint64(8 * (8 - size + i))
    return w


@kernel
def _first_words(names: Any, name_starts: Any, name_ends: Any, words: Any) -> None:
    for j in range(words.size):
        words[j] = _first_word(names, name_starts[j], name_ends[j])


@kernel
def _span_codes(
    data: Any, starts: Any, ends: Any, valid: Any, names: Any, name_starts: Any, name_ends: Any, words: Any, out: Any
) -> None:
    n = name_starts.size
    if n == 1 and name_ends[0] - name_starts[0] <= 8:  # without branches, as the processor cannot predict matches
        for i in range(out.size):
            same = _first_word(data, starts[i], ends[i]) == words[0]
            same &= ends[i] - starts[i] == name_ends[0] - name_starts[0]
            out[i] = int(same & (valid.size == 0 or bool(valid[i]))) - 1
        return
    guess = 0  # names mostly occur in turn: try the next one first
    for i in range(out.size):
        out[i] = -1
        if valid.size > 0 and not valid[i]:
            continue
        w = _first_word(data, starts[i], ends[i])
        size = ends[i] - starts[i]
        for j in range(n):
            c = guess + j
            if c >= n:
                c -= n
            if words[c] != w or name_ends[c] - name_starts[c] != size:
                continue
            if size <= 8 or equal_bytes(data, starts[i], ends[i], names, name_starts[c], name_ends[c]):
                out[i] = c
                guess = c + 1 if c + 1 < n else 0
                break


def span_codes(
    data: Any, starts: Any, ends: Any, valid: Any, names: Any, name_starts: Any, name_ends: Any, out: Any
) -> None:
    """Write the index of each text among the names, -1 if it is none of them or not valid."""
    words = np.empty(name_starts.size, np.uint64)
    _first_words(names, name_starts, name_ends, words)
    _span_codes(data, starts, ends, valid, names, name_starts, name_ends, words, out)


@kernel
def _contains(data: Any, starts: Any, ends: Any, valid: Any, part: Any, out: Any) -> None:
    """Search ``part``: its first and last byte at 64 positions at once, then all of it where both match.

    The texts are consecutive, so the search runs across their ends; the text of a match is looked up afterwards.
    """
    out[:] = False
    last = part.size - 1
    i, p, stop = 0, starts[0], ends[-1] - last
    while p < stop:
        if p + last + WIDTH <= data.size:
            found = equal64(data, p, part[0]) & equal64(data, p + last, part[last]) & low_bits(stop - p)
        else:
            found = _NOUGHT
            for k in range(min(WIDTH, stop - p)):
                if data[p + k] == part[0] and data[p + k + last] == part[last]:
                    found |= _ONE << np.uint64(k)
        following = p + WIDTH
        while found != _NOUGHT:
            q = p + np.int64(trailing_zeros(found))
            found &= found - _ONE
            while ends[i] <= q:
                i += 1
            if q + part.size > ends[i] or not (valid.size == 0 or valid[i]):
                continue
            if equal_bytes(data, q, q + part.size, part, 0, part.size):
                out[i] = True
                found &= ~low_bits(ends[i] - p)
                following = max(following, ends[i])
        p = following


def contains(column: pa.Array, part: str) -> npt.NDArray[np.bool_]:
    """Return which values of a text column contain ``part``; False for nulls.

    >>> contains(pa.array(["a,b", None, "abb", "b"]), "ab").tolist()
    [False, False, True, False]
    """
    if not part:
        return np.asarray(column.is_valid())
    out = np.empty(len(column), np.bool_)
    if out.size:
        _contains(*byte_spans(column), readonly(np.frombuffer(part.encode(), np.uint8)), out)
    return out


def name_table(names: Sequence[str]) -> Table:
    """Return the concatenated UTF-8 bytes of the names, with their starts and ends."""
    return _name_table(tuple(names))


@functools.lru_cache(maxsize=256)
def _name_table(names: tuple[str, ...]) -> Table:
    encoded = [name.encode() for name in names]
    ends = np.cumsum([len(e) for e in encoded], dtype=np.int64) if encoded else np.empty(0, np.int64)
    starts = ends - np.array([len(e) for e in encoded], np.int64)
    return readonly(np.frombuffer(b"".join(encoded), np.uint8)), readonly(starts), readonly(ends)


def name_codes(column: pa.Array, names: Sequence[str]) -> npt.NDArray[np.int32]:
    """Return the index of each value of a text column among the names; -1 for null and unknown values.

    Examples
    --------
    >>> name_codes(pa.array(["light", "dust", None, "noise"]), ["dust", "light"]).tolist()
    [1, 0, -1, -1]
    """
    if pa.types.is_null(column.type):
        return np.full(len(column), -1, np.int32)
    if pa.types.is_dictionary(column.type):
        codes = np.append(name_codes(column.dictionary, names), np.int32(-1))
        places = column.indices.cast(pa.int64()).fill_null(len(codes) - 1).to_numpy(zero_copy_only=False)
        decoded: npt.NDArray[np.int32] = codes[places]
        return decoded
    out = np.empty(len(column), np.int32)
    span_codes(*byte_spans(column), *name_table(names), out)
    return out


@kernel
def _equal_to(data: Any, offsets: Any, word: Any, size: Any, out: Any) -> None:
    """Compare texts with one of up to eight bytes, which must be readable in each; without branches."""
    rest = np.uint64(64 - 8 * size)
    for i in range(out.size):
        u = np.uint64(i)
        start = np.int64(offsets[u])
        same = (load8(data, start) << rest) == word
        out[u] = same & (np.int64(offsets[u + np.uint64(1)]) - start == size)


def equal_to(column: pa.Array, name: str) -> npt.NDArray[np.bool_]:
    """Return which values of a text column equal ``name``; False for nulls.

    >>> equal_to(pa.array(["light", "dust", None]), "dust").tolist()
    [False, True, False]
    """
    size, rows = len(name.encode()), len(column)
    if not 0 < size <= 8 or column.null_count or not rows or column.type.id not in _TEXT_TYPES:
        return name_codes(column, [name]) >= 0
    _, begins, text = column.buffers()
    offsets = readonly(np.frombuffer(begins, np.int32, rows + 1, 4 * column.offset))
    data = readonly(np.frombuffer(text, np.uint8) if text is not None and text.size else np.empty(0, np.uint8))
    inside = int(np.searchsorted(offsets[:-1], data.size - 7))  # eight bytes of the last texts are not readable
    out = np.empty(rows, np.bool_)
    word = np.uint64(int.from_bytes(name.encode().rjust(8, b"\0"), "little"))
    _equal_to(data, offsets, word, size, out[:inside])
    out[inside:] = name_codes(column.slice(inside), [name]) >= 0
    return out


@kernel
def _ascii(data: Any, p: Any, end: Any) -> Any:
    """Whether all bytes are ASCII."""
    while p + WIDTH <= end:
        if ~below64(data, p, 128) != _NOUGHT:
            return False
        p += WIDTH
    while p < end:
        if data[np.uint64(p)] >= 128:
            return False
        p += 1
    return True


@kernel
def _not_ascii(data: Any, starts: Any, ends: Any, out: Any) -> None:
    for i in range(out.size):
        p = starts[i]
        seen = _NOUGHT
        while p + 8 <= ends[i]:
            seen |= load8(data, p)
            p += 8
        while p < ends[i]:
            seen |= np.uint64(data[np.uint64(p)])
            p += 1
        out[i] = seen & HIGH != _NOUGHT


def non_ascii(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values of a text or binary column have non-ASCII bytes.

    >>> non_ascii(pa.array(["a", None, "naïve"])).tolist()
    [False, False, True]
    """
    data, starts, ends, _ = byte_spans(column)
    out = np.zeros(len(column), np.bool_)
    if starts.size and not _ascii(data, starts[0], ends[-1]):
        _not_ascii(data, starts, ends, out)
    return out


@kernel
def is_utf8(data: Any, p: Any, end: Any) -> Any:
    """Whether bytes are valid UTF-8; as in Python, surrogates are not."""
    while p < end:
        if p + 8 <= end and load8(data, p) & HIGH == _NOUGHT:
            p += 8
            continue
        b = byte(data, p)
        if b < 0x80:
            p += 1
            continue
        size = 2 if b < 0xE0 else (3 if b < 0xF0 else 4)
        if b < 0xC2 or b > 0xF4 or end - p < size:
            return False
        low = 0xA0 if b == 0xE0 else (0x90 if b == 0xF0 else 0x80)
        high = 0x9F if b == 0xED else (0x8F if b == 0xF4 else 0xBF)
        if byte(data, p + 1) < low or byte(data, p + 1) > high:
            return False
        for i in range(p + 2, p + size):
            if byte(data, i) & 0xC0 != 0x80:
                return False
        p += size
    return True


@kernel
def _not_utf8(data: Any, starts: Any, ends: Any, valid: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = (valid.size == 0 or valid[i]) and not is_utf8(data, starts[i], ends[i])


def non_utf8(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values of a text or binary column are not valid UTF-8.

    >>> non_utf8(pa.array(["ü".encode(), bytes([0xC3]), None], pa.binary())).tolist()
    [False, True, False]
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    invalid = np.zeros(len(column), np.bool_)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        data, starts, ends, valid = byte_spans(column)
        if starts.size and not _ascii(data, starts[0], ends[-1]):
            _not_utf8(data, starts, ends, valid, invalid)
    return invalid
