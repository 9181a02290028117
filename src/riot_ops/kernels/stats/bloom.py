"""Setting and testing the bits of Bloom filters by double hashing."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["contains_hashes", "insert_hashes"]

_SIX = np.uint64(6)
_LOW = np.uint64(63)
_ONE = np.uint64(1)


@kernel
def insert_hashes(h1: Any, h2: Any, valid: Any, slots: Any, m: Any, k: Any, bits: Any, count: Any) -> None:
    """Insert the value with hashes ``h1[i], h2[i]`` into the filter ``bits[slots[i]]`` of m bits.

    Its bits are ``((h1 + j h2) mod 2^64) mod m`` for j = 0 … k - 1.
    """
    size = np.uint64(m)
    for i in range(h1.size):
        if valid.size > 0 and not valid[i]:
            continue
        s = slots[i]
        g = h1[i]
        for _ in range(k):
            b = g % size
            bits[s, b >> _SIX] |= _ONE << (b & _LOW)
            g += h2[i]
        count[s] += 1


@kernel
def contains_hashes(h1: Any, h2: Any, valid: Any, m: Any, k: Any, words: Any, out: Any) -> None:
    """Test whether all bits of each value are set; false for nulls."""
    size = np.uint64(m)
    for i in range(h1.size):
        out[i] = False
        if valid.size > 0 and not valid[i]:
            continue
        g = h1[i]
        found = True
        for _ in range(k):
            b = g % size
            if (words[b >> _SIX] >> (b & _LOW)) & _ONE == np.uint64(0):
                found = False
                break
            g += h2[i]
        out[i] = found
