"""Hashes of keys with a secret, so that no sender of keys can choose them to collide.

The secret is drawn once per process and never leaves it: these hashes only find keys in memory. Hashes that leave a
process, such as those that choose a bucket, are in :mod:`riot_ops.kernels.arrays.hashing`.

Words of 64 bits, and texts of up to 15 bytes, are mixed by a bijection of 128 bits: two of them never have the same
hash. Longer texts are hashed by SipHash-1-3 with 128 bits [1]_.

References
----------
.. [1] J.-P. Aumasson, D. J. Bernstein, *SipHash: a fast short-input PRF*, INDOCRYPT 2012.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.byte_masks import low_bits
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8

__all__ = ["SECRET", "combine_keyed", "hash_spans_keyed", "hash_words_keyed", "new_secret", "siphash_1_3_128"]

#: Words of a secret: 10 for mixing, 6 of them odd factors; 2 for nulls; 2 for SipHash; 2 for combining.
WORDS = 16
_FACTORS = slice(2, 8)


def new_secret(seed: bytes | None = None) -> npt.NDArray[np.uint64]:
    """Draw a secret from the operating system, or derive it from 128 bytes.

    >>> new_secret().size
    16
    """
    words = np.frombuffer(secrets.token_bytes(8 * WORDS) if seed is None else seed, np.uint64).copy()
    words[_FACTORS] |= np.uint64(1)
    words.flags.writeable = False
    return words


#: The secret of this process.
SECRET = new_secret()


@kernel(inline=True)
def _rotl(x: Any, r: Any) -> Any:
    return (x << np.uint64(r)) | (x >> np.uint64(64 - r))


@kernel(inline=True)
def _mix(x: Any, a: Any, b: Any) -> Any:
    """Apply the finaliser of MurmurHash3 with secret factors: a bijection."""
    x ^= x >> np.uint64(33)
    x *= a
    x ^= x >> np.uint64(33)
    x *= b
    return x ^ (x >> np.uint64(33))


@kernel(inline=True)
def _mix_pair(a: Any, b: Any, secret: Any) -> Any:
    """Mix 128 bits: a bijection."""
    a = _rotl((a ^ secret[0]) * secret[2], 31) * secret[3]
    b = _rotl((b ^ secret[1]) * secret[4], 33) * secret[5]
    a += b
    b += a
    a = _mix(a ^ secret[8], secret[6], secret[3])
    b = _mix(b ^ secret[9], secret[7], secret[5])
    a += b
    return a, b + a


@kernel(inline=True)
def _sip_round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v2 += v3
    v1 = _rotl(v1, 13) ^ v0
    v3 = _rotl(v3, 16) ^ v2
    v0 = _rotl(v0, 32)
    v2 += v1
    v0 += v3
    v1 = _rotl(v1, 17) ^ v2
    v3 = _rotl(v3, 21) ^ v0
    return v0, v1, _rotl(v2, 32), v3


@kernel
def _tail(data: Any, start: Any, end: Any, n: Any) -> Any:
    """Return the bytes from start to end, at most 7, below the lowest byte of the length."""
    w = np.uint64(n) << np.uint64(56)
    for i in range(end - start):
        w |= np.uint64(data[np.uint64(start + i)]) << np.uint64(8 * i)
    return w


@kernel
def siphash_1_3_128(data: Any, start: Any, end: Any, k0: Any, k1: Any) -> Any:
    """SipHash-1-3 with 128 bits of ``data[start:end]`` as two 64-bit halves."""
    v0 = k0 ^ np.uint64(0x736F6D6570736575)
    v1 = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = k0 ^ np.uint64(0x6C7967656E657261)
    v3 = k1 ^ np.uint64(0x7465646279746573)
    i = start
    while i + 8 <= end:
        m = load8(data, i)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3 ^ m)
        v0 ^= m
        i += 8
    m = _tail(data, i, end, end - start)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3 ^ m)
    v0, v1, v2, v3 = _sip_round(v0 ^ m, v1, v2 ^ np.uint64(0xEE), v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _sip_round(v0, v1 ^ np.uint64(0xDD), v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@kernel
def _short(data: Any, start: Any, n: Any) -> Any:
    """Up to 15 bytes as two words, the length in the highest byte."""
    a = np.uint64(0)
    b = np.uint64(n) << np.uint64(56)
    for i in range(min(n, 8)):
        a |= np.uint64(data[np.uint64(start + i)]) << np.uint64(8 * i)
    for i in range(8, n):
        b |= np.uint64(data[np.uint64(start + i)]) << np.uint64(8 * i - 64)
    return a, b


@kernel
def hash_spans_keyed(data: Any, starts: Any, ends: Any, valid: Any, secret: Any, h1: Any, h2: Any) -> None:
    """Hash texts to 128 bits."""
    inside = data.size - 16
    for i in range(h1.size):
        n = ends[i] - starts[i]
        if valid.size > 0 and not valid[i]:
            h1[i] = secret[10]
            h2[i] = secret[11]
        elif n > 15:
            h1[i], h2[i] = siphash_1_3_128(data, starts[i], ends[i], secret[12], secret[13])
        elif starts[i] <= inside:  # without branches on the length
            a = load8(data, starts[i]) & low_bits(8 * n)
            b = (load8(data, starts[i] + 8) & low_bits(max(8 * n - 64, 0))) | (np.uint64(n) << np.uint64(56))
            h1[i], h2[i] = _mix_pair(a, b, secret)
        else:
            a, b = _short(data, starts[i], n)
            h1[i], h2[i] = _mix_pair(a, b, secret)


@kernel
def hash_words_keyed(words: Any, valid: Any, secret: Any, h1: Any, h2: Any) -> None:
    """Hash 64-bit values to 128 bits."""
    for i in range(h1.size):
        if valid.size == 0 or valid[i]:
            h1[i] = _mix(words[i] ^ secret[0], secret[2], secret[6])
            h2[i] = _mix(words[i] ^ secret[1], secret[4], secret[7])
        else:
            h1[i] = secret[10]
            h2[i] = secret[11]


@kernel
def combine_keyed(h1: Any, h2: Any, g1: Any, g2: Any, secret: Any) -> None:
    """Combine the hashes of columns, in order, to the hash of their rows: into ``h1`` and ``h2``."""
    for i in range(h1.size):
        a = _mix(h1[i] ^ secret[14], secret[6], secret[2])
        h1[i] = a ^ g1[i]
        h2[i] = _mix((h2[i] + a) ^ secret[15], secret[7], secret[4]) ^ g2[i]
