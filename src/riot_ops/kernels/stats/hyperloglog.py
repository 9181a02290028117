"""HyperLogLog registers and their estimate, shared by the sketch and the streaming task.

The sum ``Σ 2^-M[j]`` of the estimate is kept as two integers, so it is exact and depends on the registers only: the
number of empty registers, and ``Σ 2^(R - M[j])`` over the others, with the largest rank ``R = 65 - p``. The latter is
at most ``2^p 2^(R-1) = 2^64``, which is reached only if all registers are 1. A uint64 then holds 0, which is
unambiguous because no register is empty.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import NO_MASK, float_column, readonly
from riot_ops.kernels.arrays.exact import exact_numbers
from riot_ops.kernels.arrays.hashing import NO_SECRET, hash_columns, hash_strings, murmur3_x64_128
from riot_ops.kernels.arrays.keyed_hashing import hash_words_keyed
from riot_ops.kernels.jit import kernel

__all__ = ["alpha", "estimate", "hash_values", "hashable_values", "insert", "linear_counts", "rank"]

U64 = npt.NDArray[np.uint64]


def alpha(precision: int) -> float:
    """Return the constant of the estimate for ``2^precision`` registers."""
    return {4: 0.673, 5: 0.697, 6: 0.709}.get(precision, 0.7213 / (1.0 + 1.079 / (1 << precision)))


@functools.cache
def linear_counts(precision: int) -> npt.NDArray[np.float64]:
    """``m ln(m / V)`` by the number V of empty registers; infinite for V = 0."""
    m = 1 << precision
    with np.errstate(divide="ignore"):
        counts: npt.NDArray[np.float64] = m * np.log(m / np.arange(m + 1))
    return readonly(counts)


@kernel
def rank(h: Any, precision: Any) -> Any:
    """1 + the number of leading zeros of the hash's upper ``64 - precision`` bits."""
    w = h >> np.uint64(precision)
    r = 65 - precision
    for shift in (32, 16, 8, 4, 2, 1):
        if w >> np.uint64(shift) != np.uint64(0):
            r -= shift
            w = w >> np.uint64(shift)
    return r - 1 if w != np.uint64(0) else r


@kernel
def insert(registers: Any, h: Any, precision: Any) -> Any:
    """Add a hash to registers; returns the rank of its register before and after."""
    j = np.int64(h & np.uint64((1 << precision) - 1))
    old = np.int64(registers[j])
    new = rank(h, precision)
    if new > old:
        registers[j] = new
        return old, new
    return old, old


@kernel
def estimate(zeros: Any, weight: Any, precision: Any, constant: Any, linear: Any) -> Any:
    """Estimate the number of distinct values from the two integers that the module describes."""
    m = np.float64(1 << precision)
    full = zeros == 0 and weight == np.uint64(0)
    total = 2.0**64 if full else np.float64(weight)
    raw = constant * m * m / (zeros + total * 0.5 ** (65 - precision))
    if raw <= 2.5 * m and zeros > 0:
        return linear[zeros]
    return raw


def hashable_values(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """``(values, present)``: text, binary (decimals as well), float64, int64 or uint64; NaN is not present.

    A 64-bit integer stands for a number, and in the column of a time for its unit since 1970.
    """
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    dtype = column.type
    if pa.types.is_fixed_size_binary(dtype) or pa.types.is_string_view(dtype) or pa.types.is_binary_view(dtype):
        column, dtype = column.cast(pa.large_binary()), pa.large_binary()
    if pa.types.is_temporal(dtype):
        wide = pa.int32() if dtype.bit_width == 32 else pa.int64()
        column = column.cast(wide).cast(pa.int64())
    elif pa.types.is_boolean(dtype):
        column = column.cast(pa.uint8()).cast(pa.float64())
    elif pa.types.is_decimal(dtype):
        width = pa.binary(dtype.bit_width // 8)
        column = pa.Array.from_buffers(width, len(column), column.buffers(), offset=column.offset).cast(pa.binary())
    elif not (_is_bytes(dtype) or dtype in (pa.int64(), pa.uint64())):
        column = column.cast(pa.float64(), safe=False)
    present = np.asarray(column.is_valid())
    if pa.types.is_floating(column.type):
        present = present & ~np.isnan(np.asarray(column.fill_null(np.nan)))
    return column, readonly(present)


def _is_bytes(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
    )


@kernel
def _hash_words(data: Any, seed: Any, h: Any) -> None:
    for i in range(h.size):
        h[i] = murmur3_x64_128(data, 8 * i, 8 * i + 8, np.uint64(seed))[0]


def _hashed(words: npt.NDArray[Any], secret: U64, seed: int = 0) -> U64:
    h = np.empty(words.size, np.uint64)
    if secret.size:
        other = np.empty(words.size, np.uint64)  # each half is a bijection: the second takes the place of a seed
        h1, h2 = (h, other) if seed == 0 else (other, h)
        hash_words_keyed(readonly(np.ascontiguousarray(words).view(np.uint64)), NO_MASK, secret, h1, h2)
        return h
    _hash_words(readonly(np.ascontiguousarray(words).view(np.uint8)), seed, h)
    return h


def hash_values(column: pa.Array, secret: U64 = NO_SECRET) -> tuple[U64, npt.NDArray[np.bool_]]:
    """``(hashes, present)`` of a column: the first half of MurmurHash3 x64 128, seed 0.

    Text is hashed by its UTF-8 bytes, numbers by the 8 little-endian bytes of the float64 (0.0 for
    -0.0), times by those of the int64. An integer that is no float64 is hashed by the 8 bytes of the integer,
    with seed 1, a decimal by the bytes of its digits as an integer. Nulls and NaN are not present. With the words of
    a secret, the hash of the same bytes is keyed by it.

    >>> import mmh3, struct
    >>> h, present = hash_values(pa.array([21.5, None]))
    >>> int(h[0]) == mmh3.hash64(struct.pack("<d", 21.5), signed=False)[0], present.tolist()
    (True, [True, False])
    """
    if pa.types.is_float64(column.type):  # the most frequent type, without Arrow's compute functions
        floats, _ = float_column(column)
        present = ~np.isnan(floats)
        present.flags.writeable = False
        return _hashed(floats + 0.0, secret), present
    values, present = hashable_values(column)
    if _is_bytes(values.type):
        return (hash_columns([values], len(values), secret) if secret.size else hash_strings(values))[0], present
    numbers = np.asarray(values.fill_null(0))
    if numbers.dtype == np.float64:
        return _hashed(numbers + 0.0, secret), present
    dtype = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    if pa.types.is_temporal(dtype):
        return _hashed(numbers, secret), present
    high, rest = exact_numbers(values)
    h = _hashed(np.where(present, high, 0.0), secret)
    if rest.any():
        h[rest != 0] = _hashed(numbers[rest != 0], secret, 1)
    return h, present
