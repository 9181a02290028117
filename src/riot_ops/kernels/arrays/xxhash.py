"""XXH64 of integers, equal to Spark's ``xxhash64``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["SPARK_SEED", "xxh64"]

U64 = npt.NDArray[np.uint64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_EIGHT = np.uint64(8)
#: The seed of Spark: its ``xxhash64(a, b)`` is ``xxh64(b, xxh64(a, SPARK_SEED))``.
SPARK_SEED = np.uint64(42)


def xxh64(numbers: npt.NDArray[np.int64], seed: np.uint64) -> U64:
    """XXH64 of the eight little-endian bytes of each number.

    >>> [f"{int(h):016x}" for h in xxh64(np.array([0, -1]), np.uint64(0))]
    ['34c96acdcadb1bbb', '85d136adb773c6c9']
    """
    with np.errstate(over="ignore"):
        x = numbers.astype(np.int64).view(np.uint64)
        h = (seed + _P5 + _EIGHT) ^ (_rotate_left(x * _P2, 31) * _P1)
        h = _rotate_left(h, 27) * _P1 + _P4
        h = (h ^ (h >> np.uint64(33))) * _P2
        h = (h ^ (h >> np.uint64(29))) * _P3
        mixed: U64 = h ^ (h >> np.uint64(32))
        return mixed


def _rotate_left(x: U64, bits: int) -> U64:
    rotated: U64 = (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))
    return rotated
