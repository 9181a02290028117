"""Which of 64 bytes in a row are what is looked for, as the bits of a number."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["WIDTH", "below64", "equal64", "first", "ones", "strange64", "unusual64"]

#: Bytes that one look takes in; all of them must be there.
WIDTH = 64

_U1, _NOUGHT = np.uint64(1), np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel(numba="riot_ops.kernels.vectors.equal64")
def equal64(data: Any, at: Any, value: Any) -> Any:
    """A bit for each of the 64 bytes at a place, the first the lowest: whether it is that value."""
    bits = _NOUGHT
    for k in range(64):
        if data[np.uint64(at + k)] == value:
            bits |= _U1 << np.uint64(k)
    return bits


@kernel(numba="riot_ops.kernels.vectors.below64")
def below64(data: Any, at: Any, value: Any) -> Any:
    """The same, whether it is below that value."""
    bits = _NOUGHT
    for k in range(64):
        if data[np.uint64(at + k)] < value:
            bits |= _U1 << np.uint64(k)
    return bits


@kernel(numba="riot_ops.kernels.vectors.strange64")
def strange64(data: Any, at: Any, least: Any) -> Any:
    """The same, whether it is below the least (at most 127) or above 127: one look for both."""
    return below64(data, at, least) | ~below64(data, at, 128)


@kernel(numba="riot_ops.kernels.vectors.unusual64")
def unusual64(data: Any, at: Any, least: Any, value: Any) -> Any:
    """The same, whether it is below the least (at most 127), above 127, or that value: one look for three."""
    return strange64(data, at, least) | equal64(data, at, value)


@kernel(numba="riot_ops.kernels.vectors.ones")
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
