"""64 bytes in a row: which of them are what is looked for, as the bits of a number; and a copy of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = [
    "WIDTH",
    "below64",
    "copy64",
    "equal64",
    "first",
    "ones",
    "reversed_bytes",
    "same64",
    "strange64",
    "unusual64",
]

#: Bytes that one look takes in; all of them must be there.
WIDTH = 64

_U1, _NOUGHT = np.uint64(1), np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ODD_BYTES, _ODD_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


@kernel(numba="riot_ops.kernels.arrays.vectors.equal64")
def equal64(data: Any, at: Any, value: Any) -> Any:
    """A bit for each of the 64 bytes at a place, the first the lowest: whether it is that value."""
    bits = _NOUGHT
    for k in range(64):
        if data[np.uint64(at + k)] == value:
            bits |= _U1 << np.uint64(k)
    return bits


@kernel(numba="riot_ops.kernels.arrays.vectors.below64")
def below64(data: Any, at: Any, value: Any) -> Any:
    """The same, whether it is below that value."""
    bits = _NOUGHT
    for k in range(64):
        if data[np.uint64(at + k)] < value:
            bits |= _U1 << np.uint64(k)
    return bits


@kernel(numba="riot_ops.kernels.arrays.vectors.strange64")
def strange64(data: Any, at: Any, least: Any) -> Any:
    """The same, whether it is below the least (at most 127) or above 127: one look for both."""
    return below64(data, at, least) | ~below64(data, at, 128)


@kernel(numba="riot_ops.kernels.arrays.vectors.unusual64")
def unusual64(data: Any, at: Any, least: Any, value: Any) -> Any:
    """The same, whether it is below the least (at most 127), above 127, or that value: one look for three."""
    return strange64(data, at, least) | equal64(data, at, value)


@kernel(numba="riot_ops.kernels.arrays.vectors.same64")
def same64(data: Any, at: Any, other: Any, there: Any) -> Any:
    """A bit for each of the 64 bytes at a place: whether it is that of another array from a place on."""
    bits = _NOUGHT
    for k in range(64):
        if data[np.uint64(at + k)] == other[np.uint64(there + k)]:
            bits |= _U1 << np.uint64(k)
    return bits


@kernel(numba="riot_ops.kernels.arrays.vectors.copy64")
def copy64(data: Any, at: Any, out: Any, to: Any) -> None:
    """Copy the 64 bytes at a place to a place of another array."""
    for k in range(64):
        out[np.uint64(to + k)] = data[np.uint64(at + k)]


@kernel(numba="riot_ops.kernels.arrays.vectors.ones")
def ones(word: Any) -> Any:
    """The number of bits that are set."""
    n = _NOUGHT
    while word != _NOUGHT:
        word &= word - _U1
        n += _U1
    return n


@kernel
def first(n: Any) -> Any:
    """The n lowest bits, all where n is 64 or more."""
    return _ALL if n >= 64 else ~(_ALL << np.uint64(n))


@kernel
def reversed_bytes(w: Any) -> Any:
    """The eight bytes of a number the other way round: as numbers these are in the order of the bytes as text."""
    w = ((w >> np.uint64(8)) & _ODD_BYTES) | ((w & _ODD_BYTES) << np.uint64(8))
    w = ((w >> np.uint64(16)) & _ODD_PAIRS) | ((w & _ODD_PAIRS) << np.uint64(16))
    return (w >> np.uint64(32)) | (w << np.uint64(32))
