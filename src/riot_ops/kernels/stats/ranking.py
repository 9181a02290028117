"""Top k by tick and key: the last row of each item, and of these the rows with the largest values."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["next_ticks", "select_candidates", "top_rows"]


@kernel
def next_ticks(
    times: Any, timed: Any, values: Any, there: Any, origin: Any, every: Any, rows: Any, passed: Any, tick: Any,
    late: Any, good: Any,
) -> Any:  # fmt: skip
    """Write the next tick after each row's time, whether it is late, and whether it can be ranked.

    Tick ``passed[m + 1]`` has passed from row ``rows[m]`` on. Returns the number of rows that cannot be ranked.
    """
    m = 0
    bad = 0
    known = False
    at = origin
    next_tick: Any = 0
    for i in range(times.size):
        while m < rows.size and rows[m] <= i:
            m += 1
        if not known or times[i] != at:  # rows emitted by one tick of an earlier step share a time
            at = times[i]
            next_tick = (at - origin) // every + 1
            known = True
        tick[i] = next_tick
        late[i] = timed[i] and next_tick <= passed[m]
        good[i] = timed[i] and not late[i] and there[i] and values[i] == values[i]
        bad += not good[i]
    return bad


@kernel
def select_candidates(
    order: Any, tick: Any, slot: Any, codes: Any, values: Any, passed: Any, k: Any, zeros: Any, seen: Any, used: Any,
    heap: Any, found: Any, ends: Any,
) -> Any:  # fmt: skip
    """Keep the last row of each item, of rows in the order of ticks and slots; up to tick ``passed``, only candidates.

    Candidates have one of the k largest values of their tick and slot, including ties with the smallest of these;
    zeros are left out unless ``zeros``. Rows of later ticks are all kept. ``seen`` is zeroed scratch space, ``heap``
    has room for k values. ``used`` flags the codes of candidates; ``ends`` is where the candidates of each tick and
    slot end. Returns ``(ticks and slots, candidates, all rows kept)``.
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
        place = high  # kept rows move to the end of the run, in order
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
def top_rows(
    ends: Any, order: Any, k: Any, tick: Any, slot: Any, codes: Any, origin: Any, every: Any, rows: Any, ranks: Any,
    times: Any, slots: Any, items: Any,
) -> Any:  # fmt: skip
    """Write row, rank, tick time, slot and item of the first k rows of each tick and slot; returns their number."""
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
