"""Compensated sums and means over windows of a number of records."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["NEVER", "neumaier_add", "slide", "tumble"]

#: The newest time of a key that has none yet.
NEVER = np.iinfo(np.int64).min


@kernel
def neumaier_add(total: Any, rest: Any, x: Any) -> Any:
    """Add x to a compensated sum (Neumaier); returns the total and the sum of rounding errors."""
    t = total + x
    if abs(total) >= abs(x):
        rest += (total - t) + x
    else:
        rest += (x - t) + total
    return t, rest


@kernel
def tumble(
    values: Any, slots: Any, total: Any, rest: Any, n: Any, window: Any, scale: Any, rows: Any, means: Any
) -> Any:
    """Write the means of full tumbling windows and the rows that filled them; returns their number."""
    out = 0
    for i in range(values.size):
        if np.isnan(values[i]):
            continue
        s = slots[i]
        total[s], rest[s] = neumaier_add(total[s], rest[s], values[i] * scale)
        n[s] += 1
        if n[s] == window:
            rows[out] = i
            means[out] = (total[s] + rest[s]) / (window * scale)
            out += 1
            total[s] = 0.0
            rest[s] = 0.0
            n[s] = 0
    return out


@kernel
def slide(
    values: Any, slots: Any, ring: Any, total: Any, rest: Any, n: Any, window: Any, min_count: Any, scale: Any,
    mean: Any, rows: Any, out: Any, counts: Any,
) -> Any:  # fmt: skip
    """Write sums of scaled readings, or means, over sliding windows that end at each reading; returns how many.

    Windows of fewer than ``min_count`` readings are left out; ``counts`` gets the number of readings of each.

    Readings are divided into blocks of the window's length. A window is the tail of one block and the head of the next:
    where the current block has not overwritten it, the ring holds the sums over the tails of the last block. So nothing
    is ever subtracted, and rounding errors do not accumulate.
    """
    found = 0
    for i in range(values.size):
        if np.isnan(values[i]):
            continue
        s = np.uint64(slots[i])
        place = np.int64(np.uint64(n[s]) % np.uint64(window))
        x = values[i] * scale
        t, c = neumaier_add(total[s], rest[s], x)
        ring[s, np.uint64(place)] = x
        n[s] += 1
        if n[s] >= min_count:
            # the first block has no tail before it
            tail = ring[s, np.uint64(place + 1)] if place + 1 < window else 0.0
            k = np.uint64(found)
            rows[k] = i
            counts[k] = min(n[s], window)
            value = t + (c + tail)
            out[k] = value / (counts[k] * scale) if mean else value
            found += 1
        if place + 1 == window:
            t = 0.0
            c = 0.0
            for j in range(window - 1, -1, -1):
                t, c = neumaier_add(t, c, ring[s, np.uint64(j)])
                ring[s, np.uint64(j)] = t + c
            t = 0.0
            c = 0.0
        total[s] = t
        rest[s] = c
    return found
