"""Sample in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

try:
    from xxhash import xxh64_intdigest
except ImportError:  # the results are the same, the time is not
    xxh64_intdigest = None

__all__ = ["HASHED_BY", "hash_of", "sample", "xxh64"]

#: What computes the hash, for the descriptions of measures.
HASHED_BY = "the hash in Python, as xxhash is not installed" if xxh64_intdigest is None else "the hash of xxhash"

WORD = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def xxh64(number: int, seed: int) -> int:
    """Return XXH64 of a number as eight little-endian bytes."""
    h = (seed + P5 + 8) & WORD
    x = (number & WORD) * P2 & WORD
    h ^= (x << 31 | x >> 33) * P1 & WORD
    h = (h << 27 | h >> 37) & WORD
    h = (h * P1 + P4) & WORD
    h = (h ^ h >> 33) * P2 & WORD
    h = (h ^ h >> 29) * P3 & WORD
    return h ^ h >> 32


def hash_of(number: int, seed: int) -> int:
    """Return :func:`xxh64` of a number from the package xxhash, which is written in C, if it is installed."""
    if xxh64_intdigest is None:
        return xxh64(number, seed)
    digest: int = xxh64_intdigest((number & WORD).to_bytes(8, "little"), seed)
    return digest


def sample(
    inputs: Mapping[str, Iterable[bytes]], *, share: float = 0.1, seed: int = 0
) -> dict[str, list[tuple[Any, ...]]]:
    """``records``: payload. ``inputs`` has ``lines``."""
    below, begin = share * 2.0**64, xxh64(seed, 42)
    if xxh64_intdigest is None:
        return {"records": [(line,) for number, line in enumerate(inputs["lines"]) if xxh64(number, begin) < below]}
    kept = (n for n in enumerate(inputs["lines"]) if xxh64_intdigest(n[0].to_bytes(8, "little"), begin) < below)
    return {"records": [(line,) for _, line in kept]}
