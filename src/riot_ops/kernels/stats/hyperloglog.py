"""HyperLogLog registers and their estimate, shared by the sketch and the streaming task.

The sum ``Σ 2^-M[j]`` of the estimate is kept as two integers, so that it is exact and depends on
the registers alone: the number of empty registers, and ``Σ 2^(R - M[j])`` over the others, with
``R = 65 - p`` the largest rank. The latter is at most ``2^p 2^(R-1) = 2^64``, and that only if all
registers are 1: in a uint64 it is then 0, which is no other case as no register is empty.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.hashing import hash_strings, murmur3_x64_128
from riot_ops.kernels.jit import kernel

__all__ = ["alpha", "content", "countable", "estimate", "hash_content", "insert", "linear_counts", "rank"]

U64 = npt.NDArray[np.uint64]


def alpha(precision: int) -> float:
    """The constant of the estimate for ``2^precision`` registers."""
    return {4: 0.673, 5: 0.697, 6: 0.709}.get(precision, 0.7213 / (1.0 + 1.079 / (1 << precision)))


@functools.cache
def linear_counts(precision: int) -> npt.NDArray[np.float64]:
    """``m ln(m / V)`` by the number V of empty registers (infinite for none)."""
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
    """Add a hash to registers; returns the register's rank before and now."""
    j = np.int64(h & np.uint64((1 << precision) - 1))
    old = np.int64(registers[j])
    new = rank(h, precision)
    if new > old:
        registers[j] = new
        return old, new
    return old, old


@kernel
def estimate(zeros: Any, weight: Any, precision: Any, constant: Any, linear: Any) -> Any:
    """Number of distinct values, from the two integers of the module's description."""
    m = np.float64(1 << precision)
    full = zeros == 0 and weight == np.uint64(0)
    total = 2.0**64 if full else np.float64(weight)
    raw = constant * m * m / (zeros + total * 0.5 ** (65 - precision))
    if raw <= 2.5 * m and zeros > 0:
        return linear[zeros]
    return raw


def countable(kind: pa.DataType) -> bool:
    """Whether distinct values of a type can be counted."""
    return not (pa.types.is_nested(kind) or pa.types.is_interval(kind) or pa.types.is_union(kind))


def content(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """``(values, present)``: text, binary, float64 or (for times) int64, and where there is a value."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_temporal(kind):
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        column = column.cast(wide).cast(pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.uint8()).cast(pa.float64())
    elif not _is_bytes(kind):
        column = column.cast(pa.float64(), safe=False)
    present = np.asarray(column.is_valid())
    if pa.types.is_floating(column.type):
        present = present & ~np.isnan(np.asarray(column.fill_null(np.nan)))
    return column, readonly(present)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


@kernel
def _hash_words(data: Any, h: Any) -> None:
    for i in range(h.size):
        h[i] = murmur3_x64_128(data, 8 * i, 8 * i + 8, np.uint64(0))[0]


def hash_content(column: pa.Array) -> tuple[U64, npt.NDArray[np.bool_]]:
    """``(hashes, present)``: the first half of MurmurHash3 x64 128, seed 0.

    Text is hashed by its UTF-8 bytes, numbers by the 8 little-endian bytes of the float64 (0.0 for
    -0.0), times by those of the int64. A null or NaN is not present.

    >>> import mmh3, struct
    >>> h, present = hash_content(pa.array([21.5, None]))
    >>> int(h[0]) == mmh3.hash64(struct.pack("<d", 21.5), signed=False)[0], present.tolist()
    (True, [True, False])
    """
    values, present = content(column)
    if _is_bytes(values.type):
        return hash_strings(values)[0], present
    numbers = np.asarray(values.fill_null(0))
    words = numbers + 0.0 if numbers.dtype == np.float64 else numbers
    h = np.empty(len(column), np.uint64)
    _hash_words(readonly(np.ascontiguousarray(words).view(np.uint8)), h)
    return h, present
