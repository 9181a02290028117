"""Rows grouped by the bucket of their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.kernels.jit import kernel

__all__ = ["group_by_bucket"]


@kernel
def _group_by_bucket(h1: Any, n: Any, rows: Any, starts: Any, place: Any) -> None:
    """Group row numbers by bucket (a stable counting sort); ``place`` has one element per bucket."""
    for i in range(h1.size):
        starts[h1[i] % n + np.uint64(1)] += 1
    for b in range(1, starts.size):
        starts[b] += starts[b - 1]
    for b in range(place.size):
        place[b] = starts[b]
    for i in range(h1.size):
        b = h1[i] % n
        rows[place[b]] = i
        place[b] += 1


def group_by_bucket(
    columns: Sequence[pa.Array], size: int, buckets: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return ``(rows, starts)``: the row numbers by bucket; those of bucket b begin at ``starts[b]``.

    >>> rows, starts = group_by_bucket([pa.array(["a", "b", "a"])], 3, 1)
    >>> rows.tolist(), starts.tolist()
    ([0, 1, 2], [0, 3])
    """
    h1, _ = hash_columns(list(columns), size)
    rows, starts = np.empty(size, np.int64), np.zeros(buckets + 1, np.int64)
    # the low bits choose the slot in a bucket's hash table, the high ones the bucket
    _group_by_bucket(h1 >> np.uint64(32), np.uint64(buckets), rows, starts, np.empty(buckets, np.int64))
    return rows, starts
