"""The rows of each run that matter to a ranking: of each item the last one, and those with the largest values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrow import readonly
from riot_ops.kernels.jit import kernel

__all__ = ["largest_within", "latest_within"]

Numbers = npt.NDArray[np.int64]


@kernel
def _latest(edges: Any, order: Any, codes: Any, seen: Any, found: Any, ends: Any) -> Any:
    """Each run's last row of each item, in order; returns how many there are. ``seen`` has zeros for room."""
    n = 0
    ends[0] = 0
    for r in range(edges.size - 1):
        low, high = edges[r], edges[r + 1]
        place = high  # from the end on, then moved up to what is there
        for j in range(high - low):
            row = order[np.uint64(high - 1 - j)]
            c = np.uint64(codes[np.uint64(row)])
            if seen[c] != r + 1:
                seen[c] = r + 1
                place -= 1
                found[np.uint64(place)] = row
        for j in range(place, high):
            found[np.uint64(n)] = found[np.uint64(j)]
            n += 1
        ends[r + 1] = n
    return n


def latest_within(edges: Numbers, order: Numbers, codes: npt.NDArray[np.int32], known: int) -> tuple[Numbers, Numbers]:
    """``(edges, order)`` of the rows of each run behind which no row has the same code; codes are below ``known``.

    >>> edges, order = latest_within(np.array([0, 3, 4]), np.arange(4), np.array([1, 0, 1, 1], np.int32), 2)
    >>> edges.tolist(), order.tolist()
    ([0, 2, 3], [1, 2, 3])
    """
    found, ends = np.empty(order.size, np.int64), np.empty(edges.size, np.int64)
    n = _latest(readonly(edges), readonly(order), readonly(codes), np.zeros(known, np.int64), found, ends)
    return ends, found[:n]


@kernel
def _largest(edges: Any, order: Any, values: Any, k: Any, heap: Any, found: Any, ends: Any) -> Any:
    """Each run's rows with no more than k - 1 larger values; returns how many there are.

    The heap has the k largest values so far, of which the least is at the root.
    """
    n = 0
    ends[0] = 0
    for r in range(edges.size - 1):
        low, high = edges[r], edges[r + 1]
        size = 0
        for j in range(low, high):
            v = values[np.uint64(order[np.uint64(j)])]
            if size < k:
                p = size
                size += 1
                while p > 0 and heap[np.uint64((p - 1) >> 1)] > v:
                    heap[np.uint64(p)] = heap[np.uint64((p - 1) >> 1)]
                    p = (p - 1) >> 1
                heap[np.uint64(p)] = v
            elif v > heap[0]:
                p = 0
                while 2 * p + 1 < k:
                    child = 2 * p + 1
                    if child + 1 < k and heap[np.uint64(child + 1)] < heap[np.uint64(child)]:
                        child += 1
                    if heap[np.uint64(child)] >= v:
                        break
                    heap[np.uint64(p)] = heap[np.uint64(child)]
                    p = child
                heap[np.uint64(p)] = v
        for j in range(low, high):
            row = order[np.uint64(j)]
            if size < k or values[np.uint64(row)] >= heap[0]:
                found[np.uint64(n)] = row
                n += 1
        ends[r + 1] = n
    return n


def largest_within(edges: Numbers, order: Numbers, values: npt.NDArray[np.float64], k: int) -> tuple[Numbers, Numbers]:
    """``(edges, order)`` of the rows of each run that have its k largest values, more where several have the least.

    O(n log k). Values are no NaN.

    >>> edges, order = largest_within(np.array([0, 3, 4]), np.arange(4), np.array([1.0, 7.0, 7.0, 2.0]), 1)
    >>> edges.tolist(), order.tolist()
    ([0, 2, 3], [1, 2, 3])
    """
    longest = int(np.diff(edges).max(initial=0))
    found, ends, heap = np.empty(order.size, np.int64), np.empty(edges.size, np.int64), np.empty(min(k, longest))
    n = _largest(readonly(edges), readonly(order), readonly(values), k, heap, found, ends)
    return ends, found[:n]
