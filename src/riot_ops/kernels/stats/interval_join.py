"""Matching of records by key and time: a balanced search tree per key and side, and one heap of the times of removal.

A held record is a node: a row of the arrays ``times``, ``keys``, ``flags``, ``rows`` (its row among those of its side),
``ranks`` and ``children``. The nodes of a key and side form a treap, ordered by time, then by arrival: a node's rank is
not below those of its children, and ranks are random, so that paths are short in expectation for any times. Every node
is in the heap once, in the order in which nodes are removed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.arrays.hashing import fmix64
from riot_ops.kernels.jit import kernel

__all__ = ["DONE", "EXPIRED_FULL", "FULL", "LOOSE", "MATCHED", "PAIRS_FULL", "RIGHT", "join_rows", "load_nodes"]

#: Flags of a node: it has been in a pair; its key has a null, so that it matches nothing; it is of the right side.
MATCHED, LOOSE, RIGHT = 1, 2, 4
#: Why :func:`join_rows` returns: all rows are processed, or an output array is full.
DONE, PAIRS_FULL, EXPIRED_FULL = 0, 1, 2
#: Status of a row whose key and side hold as many rows as they may.
FULL = 1
#: The longest path in a tree, far beyond what random ranks make.
MAX_DEPTH = 1024


@kernel
def _expiry(node: Any, times: Any, flags: Any, before: Any, after: Any) -> Any:
    """Return the last time at which a partner of a node may come."""
    return times[node] + (before if flags[node] & RIGHT else after)


@kernel
def _push(node: Any, heap: Any, size: Any, times: Any, flags: Any, before: Any, after: Any) -> None:
    """Add a node to the heap of ``size`` nodes, in the order of expiry, then of arrival."""
    due = _expiry(node, times, flags, before, after)
    i = size
    while i > 0:
        above = heap[(i - 1) // 2]
        other = _expiry(above, times, flags, before, after)
        if other < due or (other == due and above < node):
            break
        heap[i] = above
        i = (i - 1) // 2
    heap[i] = node


@kernel
def _pop(heap: Any, size: Any, times: Any, flags: Any, before: Any, after: Any) -> None:
    """Remove the first node from the heap of ``size`` nodes."""
    n = size - 1
    last = heap[n]
    due = _expiry(last, times, flags, before, after)
    i = 0
    while 2 * i + 1 < n:
        j = 2 * i + 1
        first = _expiry(heap[j], times, flags, before, after)
        if j + 1 < n:
            second = _expiry(heap[j + 1], times, flags, before, after)
            if second < first or (second == first and heap[j + 1] < heap[j]):
                j += 1
                first = second
        if first > due or (first == due and heap[j] > last):
            break
        heap[i] = heap[j]
        i = j
    heap[i] = last


@kernel
def _insert(node: Any, side: Any, times: Any, keys: Any, ranks: Any, children: Any, roots: Any) -> None:
    """Insert a node into the tree of its key and side, after nodes of the same time."""
    k = keys[node]
    t = times[node]
    below = roots[k, side]
    above = -1
    way = 0
    while below >= 0 and ranks[below] >= ranks[node]:
        above = below
        way = 1 if times[below] <= t else 0
        below = children[below, way]
    if above < 0:
        roots[k, side] = node
    else:
        children[above, way] = node
    low = node  # where the next earlier part of the rest belongs, and the next later one
    low_way = 0
    high = node
    high_way = 1
    while below >= 0:
        if times[below] <= t:
            children[low, low_way] = below
            low = below
            low_way = 1
            below = children[below, 1]
        else:
            children[high, high_way] = below
            high = below
            high_way = 0
            below = children[below, 0]
    children[low, low_way] = -1
    children[high, high_way] = -1


@kernel
def _remove_first(key: Any, side: Any, children: Any, roots: Any) -> None:
    """Remove the earliest node from the tree of a key and side."""
    node = roots[key, side]
    if children[node, 0] < 0:
        roots[key, side] = children[node, 1]
        return
    above = node
    while children[node, 0] >= 0:
        above = node
        node = children[node, 0]
    children[above, 0] = children[node, 1]


@kernel
def _hold(
    node: Any, sizes: Any, secret: Any, before: Any, after: Any, times: Any, keys: Any, flags: Any, rows: Any,
    ranks: Any, children: Any, roots: Any, counts: Any, heap: Any,
) -> None:  # fmt: skip
    """Hold a node whose time, key and flags are given. ``sizes``: nodes, nodes in the heap, rows of either side."""
    side = 1 if flags[node] & RIGHT else 0
    rows[node] = sizes[2 + side]
    ranks[node] = fmix64(np.uint64(node) ^ secret)
    children[node, 0] = -1
    children[node, 1] = -1
    if not flags[node] & LOOSE:
        _insert(node, side, times, keys, ranks, children, roots)
    _push(node, heap, sizes[1], times, flags, before, after)
    counts[keys[node], side] += 1
    sizes[0] = node + 1
    sizes[1] += 1
    sizes[2 + side] += 1


@kernel
def load_nodes(
    new_times: Any, new_keys: Any, new_flags: Any, sizes: Any, secret: Any, before: Any, after: Any, times: Any,
    keys: Any, flags: Any, rows: Any, ranks: Any, children: Any, roots: Any, counts: Any, heap: Any,
) -> None:  # fmt: skip
    """Hold nodes of an earlier run, in their order."""
    for i in range(new_times.size):
        node = sizes[0]
        times[node] = new_times[i]
        keys[node] = new_keys[i]
        flags[node] = new_flags[i]
        _hold(
            node, sizes, secret, before, after, times, keys, flags, rows, ranks, children, roots, counts, heap
        )  # fmt: skip


@kernel
def join_rows(
    first: Any, new_times: Any, new_keys: Any, new_flags: Any, limits: Any, room: Any, outer: Any, stack: Any,
    status: Any, pairs: Any, n: Any, expired: Any, m: Any, sizes: Any, secret: Any, before: Any, after: Any, times: Any,
    keys: Any, flags: Any, rows: Any, ranks: Any, children: Any, roots: Any, counts: Any, heap: Any,
) -> Any:  # fmt: skip
    """Join rows in order, from row ``first`` on; returns why it stops, the row, and the numbers of results.

    Before row i, time passes to ``limits[i]``: nodes whose expiry is before it are removed, and those of a side in
    ``outer`` (a bit each) that have not been in a pair go to ``expired``: key, side, row of its side, and expiry. The
    last limit is after the last row. A pair in ``pairs`` is the row that completes it, the rows of both sides, and the
    later of both times.
    """
    for i in range(first, new_times.size + 1):
        while sizes[1] > 0 and _expiry(heap[0], times, flags, before, after) < limits[i]:
            if m == expired.shape[1]:
                return EXPIRED_FULL, i, n, m
            node = heap[0]
            side = 1 if flags[node] & RIGHT else 0
            if outer & (1 << side) and not flags[node] & MATCHED:
                expired[0, m] = keys[node]
                expired[1, m] = side
                expired[2, m] = rows[node]
                expired[3, m] = _expiry(node, times, flags, before, after)
                m += 1
            _pop(heap, sizes[1], times, flags, before, after)
            sizes[1] -= 1
            counts[keys[node], side] -= 1
            if not flags[node] & LOOSE:
                _remove_first(keys[node], side, children, roots)
        if i == new_times.size:
            break
        k = new_keys[i]
        t = new_times[i]
        right = 1 if new_flags[i] & RIGHT else 0
        if counts[k, right] >= room:
            status[i] = FULL
            continue
        loose = new_flags[i] & LOOSE
        if loose and not outer & (1 << right):
            status[i] = LOOSE  # it can never be in a result
            continue
        node = sizes[0]
        times[node] = t
        keys[node] = k
        flags[node] = new_flags[i]
        begun = n
        top = 0
        low = t - (after if right else before)
        high = t + (before if right else after)
        at = -1 if loose else roots[k, 1 - right]
        while True:
            while at >= 0:
                if times[at] >= low:
                    stack[top] = at
                    top += 1
                    at = children[at, 0]
                else:
                    at = children[at, 1]
            if top == 0:
                break
            top -= 1
            at = stack[top]
            if times[at] > high:
                break
            if n == pairs.shape[1]:
                return PAIRS_FULL, i, begun, m
            flags[at] |= MATCHED
            flags[node] |= MATCHED
            pairs[0, n] = i
            pairs[1 + right, n] = sizes[2 + right]
            pairs[2 - right, n] = rows[at]
            pairs[3, n] = max(t, times[at])
            n += 1
            at = children[at, 1]
        _hold(
            node, sizes, secret, before, after, times, keys, flags, rows, ranks, children, roots, counts, heap
        )  # fmt: skip
    return DONE, new_times.size + 1, n, m
