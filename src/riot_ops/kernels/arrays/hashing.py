"""Hashes of columns: with a secret for keys in memory; MurmurHash3, as ``mmh3`` has it, where they leave a process."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.casting import is_key_type
from riot_ops.kernels.arrays.arrow import NO_MASK, TEXT_OFFSETS, byte_spans, float_column, readonly, valid_mask
from riot_ops.kernels.arrays.byte_masks import low_bits
from riot_ops.kernels.arrays.dictionaries import dictionary_codes, dictionary_values
from riot_ops.kernels.arrays.keyed_hashing import SECRET, combine_keyed, hash_spans_keyed, hash_words_keyed
from riot_ops.kernels.arrays.lazy_rows import AnyRows, Rows
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8

__all__ = ["hash_columns", "hash_keys", "hash_rows", "hash_strings", "murmur3_x64_128"]

U64 = npt.NDArray[np.uint64]

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_N1 = np.uint64(0x52DCE729)
_N2 = np.uint64(0x38495AB5)
_NULL = np.uint64(0x9E3779B97F4A7C15)
_NAN = np.uint64(0x7FF8000000000000)
NO_SECRET = readonly(np.empty(0, np.uint64))


@kernel
def rotl(x: Any, r: Any) -> Any:
    return (x << np.uint64(r)) | (x >> np.uint64(64 - r))


@kernel
def fmix64(k: Any) -> Any:
    k ^= k >> np.uint64(33)
    k *= _M1
    k ^= k >> np.uint64(33)
    k *= _M2
    return k ^ (k >> np.uint64(33))


@kernel
def load_bytes(data: Any, start: Any, n: Any) -> Any:
    """Load n bytes (at most 8) at start as a little-endian number."""
    w = np.uint64(0)
    for i in range(n):
        w |= np.uint64(data[np.uint64(start + i)]) << np.uint64(8 * i)
    return w


@kernel
def last_word(data: Any, end: Any, n: Any) -> Any:
    """Load the n bytes (1 to 8) before end as a little-endian number: by one load of eight where possible."""
    if end >= 8:
        return load8(data, end - 8) >> np.uint64(64 - 8 * n)
    return load_bytes(data, end - n, n)


@kernel
def murmur3_x64_128(data: Any, start: Any, end: Any, seed: Any) -> Any:
    """MurmurHash3 x64 128 of ``data[start:end]`` as two 64-bit halves."""
    n = end - start
    h1 = np.uint64(seed)
    h2 = np.uint64(seed)
    i = start
    while i + 16 <= end:
        k1 = load8(data, i)
        k2 = load8(data, i + 8)
        h1 ^= rotl(k1 * _C1, 31) * _C2
        h1 = (rotl(h1, 27) + h2) * np.uint64(5) + _N1
        h2 ^= rotl(k2 * _C2, 33) * _C1
        h2 = (rotl(h2, 31) + h1) * np.uint64(5) + _N2
        i += 16
    rest = end - i
    if rest > 8:
        h2 ^= rotl(last_word(data, end, rest - 8) * _C2, 33) * _C1
        h1 ^= rotl(load8(data, i) * _C1, 31) * _C2
    elif rest > 0:
        h1 ^= rotl(last_word(data, end, rest) * _C1, 31) * _C2
    h1 ^= np.uint64(n)
    h2 ^= np.uint64(n)
    h1 += h2
    h2 += h1
    h1 = fmix64(h1)
    h2 = fmix64(h2)
    h1 += h2
    h2 += h1
    return h1, h2


@kernel(inline=True)
def _murmur3_short(data: Any, start: Any, n: Any, seed: Any) -> Any:
    """Like :func:`murmur3_x64_128` for at most 15 bytes, where 16 must be readable; without branches on the length."""
    h1 = seed ^ rotl((load8(data, start) & low_bits(8 * n)) * _C1, 31) * _C2 ^ np.uint64(n)
    h2 = seed ^ rotl((load8(data, start + 8) & low_bits(max(8 * n - 64, 0))) * _C2, 33) * _C1 ^ np.uint64(n)
    h1 += h2
    h2 += h1
    h1 = fmix64(h1)
    h2 = fmix64(h2)
    h1 += h2
    return h1, h2 + h1


@kernel
def _hash_spans(data: Any, starts: Any, ends: Any, valid: Any, seed: Any, h1: Any, h2: Any) -> None:
    inside = data.size - 16
    for i in range(h1.size):
        if valid.size > 0 and not valid[i]:
            h1[i] = _NULL
            h2[i] = _NULL
        elif ends[i] - starts[i] < 16 and starts[i] <= inside:
            h1[i], h2[i] = _murmur3_short(data, starts[i], ends[i] - starts[i], seed)
        else:
            h1[i], h2[i] = murmur3_x64_128(data, starts[i], ends[i], seed)


@kernel
def _hash_words(words: Any, valid: Any, h1: Any, h2: Any) -> None:
    """Hash 64-bit values to 128 bits."""
    for i in range(h1.size):
        if valid.size == 0 or valid[i]:
            h1[i] = fmix64(words[i] + _N1)
            h2[i] = fmix64(words[i] ^ _C1)
        else:
            h1[i] = _NULL
            h2[i] = _NULL


@kernel
def _combine(h1: Any, h2: Any, g1: Any, g2: Any) -> None:
    for i in range(h1.size):
        h1[i] = fmix64(rotl(h1[i], 27) * np.uint64(5) + g1[i] + _N1)
        h2[i] = fmix64(rotl(h2[i], 31) * np.uint64(5) + (g2[i] ^ h1[i]))


def hash_strings(column: pa.Array, seed: int = 0) -> tuple[U64, U64]:
    """MurmurHash3 x64 128 of each text or binary value; equals ``mmh3.hash64(v, seed, signed=False)``.

    >>> hash_strings(pa.array(["riot"]))[0].tolist() == [__import__("mmh3").hash64("riot", 0, signed=False)[0]]
    True
    """
    h1, h2 = np.empty(len(column), np.uint64), np.empty(len(column), np.uint64)
    data, starts, ends, valid = byte_spans(column)
    _hash_spans(data, starts, ends, valid, np.uint64(seed), h1, h2)
    return h1, h2


def _hash_column(column: pa.Array, secret: U64) -> tuple[U64, U64]:
    dtype = column.type
    if dtype.id in TEXT_OFFSETS:
        return _hash_texts(column, secret)
    if pa.types.is_null(dtype):
        return _hash_column(pa.nulls(len(column), pa.int64()), secret)
    if pa.types.is_dictionary(dtype):
        if len(column.dictionary) > len(column):
            return _hash_column(dictionary_values(column), secret)
        codes, known = dictionary_codes(column)
        h1, h2 = _hash_column(known, secret)
        null = (_NULL, _NULL) if not secret.size else (secret[10], secret[11])
        return np.append(h1, null[0])[codes], np.append(h2, null[1])[codes]
    column = _hashable(column)
    dtype = column.type
    if dtype.id in TEXT_OFFSETS:
        return _hash_texts(column, secret)
    h1, h2 = np.empty(len(column), np.uint64), np.empty(len(column), np.uint64)
    if pa.types.is_floating(dtype):
        values, valid = float_column(column)
        words = _float_words(values)
    else:
        words, valid = _words(column)
    if secret.size:
        hash_words_keyed(words, valid, secret, h1, h2)
    else:
        _hash_words(words, valid, h1, h2)
    return h1, h2


def _hash_texts(column: pa.Array, secret: U64) -> tuple[U64, U64]:
    h1, h2 = np.empty(len(column), np.uint64), np.empty(len(column), np.uint64)
    data, starts, ends, valid = byte_spans(column)
    if secret.size:
        hash_spans_keyed(data, starts, ends, valid, secret, h1, h2)
    else:
        _hash_spans(data, starts, ends, valid, np.uint64(0), h1, h2)
    return h1, h2


def _hashable(column: pa.Array) -> pa.Array:
    """Return the column, or one of a type that kernels read whose values are equal where those of the column are."""
    dtype = column.type
    if pa.types.is_decimal(dtype):  # 1.0 and 1.00 are one key
        if column.null_count == len(column):
            return pa.nulls(len(column), pa.int64())
        column, dtype = column.cast(pa.decimal256(76, 38)).view(pa.binary(32)), pa.binary(32)
    if pa.types.is_fixed_size_binary(dtype) or pa.types.is_string_view(dtype) or pa.types.is_binary_view(dtype):
        return column.cast(pa.large_binary())
    if not is_key_type(dtype):
        raise TypeError(f"a key cannot be of type {dtype}")
    return column


def _float_words(values: npt.NDArray[np.float64]) -> U64:
    """Return the bits of doubles: -0.0 and 0.0 are one key, and so are all NaN."""
    words = (values + 0.0).view(np.uint64)
    missing = np.isnan(values)
    if missing.any():
        words[missing] = _NAN
    return readonly(words)


def _words(column: pa.Array) -> tuple[U64, npt.NDArray[np.bool_]]:
    """``(words, valid)`` of an integer, temporal or boolean column: 64 bits per value, arbitrary where null."""
    dtype = column.type
    valid = NO_MASK if column.null_count == 0 else readonly(valid_mask(column))
    if pa.types.is_boolean(dtype):
        column = column.cast(pa.int8())
    elif pa.types.is_temporal(dtype):
        column = column.view(pa.int32() if dtype.bit_width == 32 else pa.int64())
    if pa.types.is_int64(column.type):
        buffer = column.buffers()[1]
        if buffer is not None and len(column):
            return readonly(np.frombuffer(buffer, np.uint64, len(column), 8 * column.offset)), valid
    return readonly(np.asarray(column.fill_null(0)).astype(np.int64).view(np.uint64)), valid


def hash_rows(rows: AnyRows, fields: tuple[str, ...]) -> tuple[U64, U64]:
    """Hash some fields of rows like :func:`hash_keys`; a batch remembers the hashes for all lazy rows of it.

    The result must not be modified.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = Rows(rows)
    elif not rows.is_batch:
        if not rows.fields.keys().isdisjoint(fields):
            return hash_rows(rows.materialize(), fields)
        h1, h2 = hash_rows(rows.all_rows, fields)
        return (h1, h2) if rows.rows is None else (h1[rows.rows], h2[rows.rows])
    found = rows.hashes.get(fields)
    if found is None:
        if len(fields) > 1:  # other tasks may be keyed by one of the fields
            h1, h2 = hash_rows(rows, fields[:1])
            found = h1.copy(), h2.copy()
            for name in fields[1:]:
                combine_keyed(*found, *hash_rows(rows, (name,)), SECRET)
        else:
            found = _hash_column(rows.batch.column(fields[0]), SECRET) if fields else hash_keys([], rows.num_rows)
        rows.hashes[fields] = found
    return found


def hash_columns(columns: list[pa.Array], n: int, secret: U64 = NO_SECRET) -> tuple[U64, U64]:
    """Return a 128-bit hash of the key of each of n rows, combined from one hash per column.

    Without a secret it is MurmurHash3, the same in every process and release; anyone can choose keys that collide.

    >>> hash_columns([pa.array([1, 1])], 2)[0].tolist()
    [5201560838066575651, 5201560838066575651]
    """
    if not columns:
        return np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    h1, h2 = _hash_column(columns[0], secret)
    for column in columns[1:]:
        g1, g2 = _hash_column(column, secret)
        if secret.size:
            combine_keyed(h1, h2, g1, g2, secret)
        else:
            _combine(h1, h2, g1, g2)
    return h1, h2


def hash_keys(columns: list[pa.Array], n: int) -> tuple[U64, U64]:
    """Return a 128-bit hash of the key of each of n rows with the secret of this process, to find keys in memory.

    >>> a, b, c = hash_keys([pa.array(["a", "b", "a"])], 3)[0].tolist()
    >>> a == c != b
    True
    """
    return hash_columns(columns, n, SECRET)
