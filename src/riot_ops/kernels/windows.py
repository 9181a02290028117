"""Means over windows, with compensated sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["NEVER", "slide", "tumble", "tumble_time"]

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
    values: Any, slots: Any, ring: Any, total: Any, rest: Any, n: Any, window: Any, scale: Any, rows: Any, means: Any
) -> Any:
    """As :func:`tumble` for windows that end at every reading.

    Readings come in blocks of the window's length. A window is the tail of one block and the head
    of the next: the ring holds sums over tails of the last block where the current one has not
    overwritten them, so that nothing is ever subtracted and no error can build up.
    """
    out = 0
    for i in range(values.size):
        if np.isnan(values[i]):
            continue
        s = slots[i]
        place = n[s] % window
        x = values[i] * scale
        total[s], rest[s] = add(total[s], rest[s], x)
        ring[s, place] = x
        n[s] += 1
        if n[s] >= window:
            tail = ring[s, place + 1] if place + 1 < window else 0.0
            rows[out] = i
            means[out] = (total[s] + (rest[s] + tail)) / (window * scale)
            out += 1
        if place + 1 == window:
            t = 0.0
            c = 0.0
            for j in range(window - 1, -1, -1):
                t, c = add(t, c, ring[s, j])
                ring[s, j] = t + c
            total[s] = 0.0
            rest[s] = 0.0
    return out


@kernel
def tumble_time(
    values: Any,
    times: Any,
    timed: Any,
    slots: Any,
    total: Any,
    rest: Any,
    n: Any,
    newest: Any,
    duration: Any,
    lateness: Any,
    scale: Any,
    bad: Any,
    start: Any,
    rows: Any,
    means: Any,
    counts: Any,
    ends: Any,
    places: Any,
) -> Any:
    """Means of windows of event time that rows from ``start`` on close.

    ``places`` numbers the windows that one row closes. ``bad`` is set to 1 for late rows and 2 for
    rows without time. Returns the number of results and the row reached: one before which the space
    for results ran out, or the end.
    """
    room = n.shape[1]
    out = 0
    for i in range(start, values.size):
        if out + room > rows.size:
            return out, i
        missing = np.isnan(values[i])
        if not timed[i]:
            if not missing:
                bad[i] = 2
            continue
        s = slots[i]
        t = times[i]
        known = newest[s] != NEVER
        if known and not missing and (t // duration + 1) * duration <= newest[s] - lateness:
            bad[i] = 1
            continue
        if known and t > newest[s]:
            w = (newest[s] - lateness) // duration
            final = newest[s] // duration
            place = 0
            while w <= final and (w + 1) * duration <= t - lateness:
                p = w % room
                if n[s, p] > 0:
                    rows[out] = i
                    means[out] = (total[s, p] + rest[s, p]) / (n[s, p] * scale)
                    counts[out] = n[s, p]
                    ends[out] = (w + 1) * duration
                    places[out] = place
                    place += 1
                    out += 1
                    total[s, p] = 0.0
                    rest[s, p] = 0.0
                    n[s, p] = 0
                w += 1
        if not known or t > newest[s]:
            newest[s] = t
        if not missing:
            p = (t // duration) % room
            total[s, p], rest[s, p] = add(total[s, p], rest[s, p], values[i] * scale)
            n[s, p] += 1
    return out, values.size
