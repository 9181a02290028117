"""Two values with one hash of MurmurHash3 x64 128, found by inverting the step that takes in 16 bytes."""

from __future__ import annotations

import struct

_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_N1, _N2 = 0x52DCE729, 0x38495AB5
_WORD = 2**64


def _rotl(x: int, r: int) -> int:
    return (x << r | x >> (64 - r)) % _WORD


def _step(h1: int, h2: int, block: bytes) -> tuple[int, int]:
    k1, k2 = struct.unpack("<QQ", block)
    h1 ^= _rotl(k1 * _C1 % _WORD, 31) * _C2 % _WORD
    h1 = ((_rotl(h1, 27) + h2) * 5 + _N1) % _WORD
    h2 ^= _rotl(k2 * _C2 % _WORD, 33) * _C1 % _WORD
    return h1, ((_rotl(h2, 31) + h1) * 5 + _N2) % _WORD


def _block_between(before: tuple[int, int], after: tuple[int, int]) -> bytes:
    """The 16 bytes that lead from one state of the hash to another."""
    five, c1, c2 = (pow(x, -1, _WORD) for x in (5, _C1, _C2))
    (h1, h2), (t1, t2) = before, after
    m1 = _rotl(((t1 - _N1) * five - h2) % _WORD, 64 - 27) ^ h1
    m2 = _rotl(((t2 - _N2) * five - t1) % _WORD, 64 - 31) ^ h2
    k1 = _rotl(m1 * c2 % _WORD, 64 - 31) * c1 % _WORD
    k2 = _rotl(m2 * c1 % _WORD, 64 - 33) * c2 % _WORD
    return struct.pack("<QQ", k1, k2)


def colliding_values(count: int = 2) -> list[bytes]:
    """Different values of 32 bytes with one hash."""
    target = _step(*_step(0, 0, bytes(16)), bytes(16))
    firsts = [i.to_bytes(16, "little") for i in range(count)]
    return [first + _block_between(_step(0, 0, first), target) for first in firsts]
