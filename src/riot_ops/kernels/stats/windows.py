"""Means and sums over windows, compensated."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["NEVER", "add", "slide", "tumble"]

#: The newest time of a key without any.
NEVER = np.iinfo(np.int64).min


@kernel
def add(total: Any, rest: Any, x: Any) -> Any:
    """Neumaier's step: the sum of total and x, and what rounding has taken from it so far."""
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
    """Means of full windows and the rows that filled them; returns how many."""
    out = 0
    for i in range(values.size):
        if np.isnan(values[i]):
            continue
        s = slots[i]
        total[s], rest[s] = add(total[s], rest[s], values[i] * scale)
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
    values: Any, slots: Any, ring: Any, total: Any, rest: Any, n: Any, window: Any, least: Any, scale: Any, mean: Any,
    rows: Any, out: Any, counts: Any,
) -> Any:  # fmt: skip
    """Sums of scaled readings, or means of readings, over windows that end at every reading, of at least ``least``.

    Otherwise as :func:`tumble`; ``counts`` gets how many readings they are.

    Readings come in blocks of the window's length. A window is the tail of one block and the head
    of the next: the ring holds sums over tails of the last block where the current one has not
    overwritten them, so that nothing is ever subtracted and no error can build up.
    """
    found = 0
    for i in range(values.size):
        if np.isnan(values[i]):
            continue
        s = np.uint64(slots[i])
        place = np.int64(np.uint64(n[s]) % np.uint64(window))
        x = values[i] * scale
        t, c = add(total[s], rest[s], x)
        ring[s, np.uint64(place)] = x
        n[s] += 1
        if n[s] >= least:
            # in the first block there is no tail yet: 0
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
                t, c = add(t, c, ring[s, np.uint64(j)])
                ring[s, np.uint64(j)] = t + c
            t = 0.0
            c = 0.0
        total[s] = t
        rest[s] = c
    return found
