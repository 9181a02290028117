"""Operations on 64 consecutive bytes: comparisons, which give a 64-bit mask, and copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = [
    "WIDTH",
    "below64",
    "byteswap",
    "copy64",
    "equal64",
    "low_bits",
    "match64",
    "outside64",
    "outside_or_equal64",
    "popcount",
]

#: Bytes per operation; all of them must be readable.
WIDTH = 64

_U1, _NOUGHT = np.uint64(1), np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ODD_BYTES, _ODD_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


@kernel(numba="riot_ops.kernels.arrays.simd.equal64")
def equal64(data: Any, at: Any, value: Any) -> Any:
    """Return a mask of the 64 bytes at ``at`` that equal ``value``; the lowest bit is the first byte."""
    bits = _NOUGHT
    for k in range(64):
        if data[np.uint64(at + k)] == value:
            bits |= _U1 << np.uint64(k)
    return bits


@kernel(numba="riot_ops.kernels.arrays.simd.below64")
def below64(data: Any, at: Any, value: Any) -> Any:
    """Return a mask of the 64 bytes at ``at`` that are below ``value``."""
    bits = _NOUGHT
    for k in range(64):
        if data[np.uint64(at + k)] < value:
            bits |= _U1 << np.uint64(k)
    return bits


@kernel(numba="riot_ops.kernels.arrays.simd.outside64")
def outside64(data: Any, at: Any, low: Any) -> Any:
    """Return a mask of the 64 bytes that are below ``low`` (at most 127) or above 127, by one comparison."""
    return below64(data, at, low) | ~below64(data, at, 128)


@kernel(numba="riot_ops.kernels.arrays.simd.outside_or_equal64")
def outside_or_equal64(data: Any, at: Any, low: Any, value: Any) -> Any:
    """Return a mask of the 64 bytes that are below ``low`` (at most 127), above 127, or equal to ``value``."""
    return outside64(data, at, low) | equal64(data, at, value)


@kernel(numba="riot_ops.kernels.arrays.simd.match64")
def match64(data: Any, at: Any, other: Any, there: Any) -> Any:
    """Return a mask of the 64 bytes at ``at`` that equal those of ``other`` at ``there``."""
    bits = _NOUGHT
    for k in range(64):
        if data[np.uint64(at + k)] == other[np.uint64(there + k)]:
            bits |= _U1 << np.uint64(k)
    return bits


@kernel(numba="riot_ops.kernels.arrays.simd.copy64")
def copy64(data: Any, at: Any, out: Any, to: Any) -> None:
    """Copy the 64 bytes at ``at`` to position ``to`` of ``out``."""
    for k in range(64):
        out[np.uint64(to + k)] = data[np.uint64(at + k)]


@kernel(numba="riot_ops.kernels.arrays.simd.popcount")
def popcount(word: Any) -> Any:
    """Return the number of bits set."""
    n = _NOUGHT
    while word != _NOUGHT:
        word &= word - _U1
        n += _U1
    return n


@kernel
def low_bits(n: Any) -> Any:
    """Return a mask of the n lowest bits; all bits if n is 64 or more."""
    return _ALL if n >= 64 else ~(_ALL << np.uint64(n))


@kernel
def byteswap(w: Any) -> Any:
    """Reverse the bytes of a word, so that words compare as the texts that they hold."""
    w = ((w >> np.uint64(8)) & _ODD_BYTES) | ((w & _ODD_BYTES) << np.uint64(8))
    w = ((w >> np.uint64(16)) & _ODD_PAIRS) | ((w & _ODD_PAIRS) << np.uint64(16))
    return (w >> np.uint64(32)) | (w << np.uint64(32))
