"""Sample in plain Python, with the hash of the package xxhash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from xxhash import xxh64_intdigest

__all__ = ["hash_of", "sample"]


def hash_of(number: int, seed: int) -> int:
    """Return XXH64 of a number as eight little-endian bytes."""
    digest: int = xxh64_intdigest(number.to_bytes(8, "little", signed=True), seed)
    return digest


def sample(
    inputs: Mapping[str, Iterable[bytes]], *, share: float = 0.1, seed: int = 0
) -> dict[str, list[tuple[Any, ...]]]:
    """``records``: payload. ``inputs`` has ``lines``."""
    below, begin = share * 2.0**64, hash_of(seed, 42)
    kept = (n for n in enumerate(inputs["lines"]) if xxh64_intdigest(n[0].to_bytes(8, "little"), begin) < below)
    return {"records": [(line,) for _, line in kept]}
