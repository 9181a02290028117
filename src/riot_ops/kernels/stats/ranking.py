"""Rows by tick and key: of each item the last one, and of these the ones with the largest values."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["best", "first_places", "ticks_to_come"]


@kernel
def ticks_to_come(
    times: Any, timed: Any, values: Any, there: Any, origin: Any, every: Any, rows: Any, passed: Any, tick: Any,
    late: Any, good: Any,
) -> Any:  # fmt: skip
    """The tick behind the time of each row; whether it has been; and whether row and item are good to be ranked.

    Before row ``rows[m]`` there come to be ``passed[m + 1]`` ticks. Returns how many rows are not good.
    """
    m = 0
    bad = 0
    known = False
    at = origin
    behind: Any = 0
    for i in range(times.size):
        while m < rows.size and rows[m] <= i:
            m += 1
        if not known or times[i] != at:  # of one tick above, all have one time
            at = times[i]
            behind = (at - origin) // every + 1
            known = True
        tick[i] = behind
        late[i] = timed[i] and behind <= passed[m]
        good[i] = timed[i] and not late[i] and there[i] and values[i] == values[i]
        bad += not good[i]
    return bad


@kernel
def best(
    order: Any, tick: Any, slot: Any, codes: Any, values: Any, passed: Any, k: Any, zeros: Any, seen: Any, used: Any,
    heap: Any, found: Any, ends: Any,
) -> Any:  # fmt: skip
    """Of rows in the order of ticks and slots, of each item the last; up to the tick ``passed`` those that matter.

    These have the k largest values, more where several have the least, and none is 0 unless ``zeros`` count. ``seen``
    has zeros for room, the heap room for k values or for all. ``used`` tells which codes these rows have; ``ends``
    where the rows of each tick and slot end. Returns ``(ticks and slots, rows that matter, all rows)``.
    """
    n = 0
    run = 0
    closed = 0
    low = 0
    while low < order.size:
        row = order[low]
        of, key = tick[row], slot[row]
        high = low + 1
        while high < order.size and tick[order[high]] == of and slot[order[high]] == key:
            high += 1
        run += 1
        open_ = of > passed
        place = high  # from the end on, where they are read from next
        size = 0
        for j in range(high - low):
            row = order[np.uint64(high - 1 - j)]
            c = np.uint64(codes[np.uint64(row)])
            if seen[c] == run:
                continue
            seen[c] = run
            v = values[np.uint64(row)]
            if v == 0 and not zeros and not open_:
                continue
            place -= 1
            order[np.uint64(place)] = row
            if open_:
                continue
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
        for j in range(place, high):
            row = order[np.uint64(j)]
            if open_ or size < k or values[np.uint64(row)] >= heap[0]:
                found[np.uint64(n)] = row
                n += 1
                used[np.uint64(codes[np.uint64(row)])] |= not open_
        if not open_:
            ends[run] = n
            closed = run
        low = high
    return closed, ends[closed], n


@kernel
def first_places(
    ends: Any, order: Any, k: Any, tick: Any, slot: Any, codes: Any, origin: Any, every: Any, rows: Any, ranks: Any,
    times: Any, slots: Any, items: Any,
) -> Any:  # fmt: skip
    """The first k rows of each tick and slot: row, rank, time of the tick, slot and item; returns how many."""
    n = 0
    for r in range(ends.size - 1):
        for j in range(ends[r], min(ends[r + 1], ends[r] + k)):
            row = order[j]
            rows[n] = row
            ranks[n] = j - ends[r] + 1
            times[n] = origin + tick[row] * every
            slots[n] = slot[row]
            items[n] = codes[row]
            n += 1
    return n
