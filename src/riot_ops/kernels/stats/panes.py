"""Which pane of which key a record falls into, and which windows are full.

A window of time of length ``size`` begins at each multiple of ``every``; as panes of that length do not overlap, each
record is added up once, and a window is made of the ``k = size / every`` panes before its end. Panes are numbered from
the epoch: pane p is ``[p every, (p + 1) every)``, and the window that ends behind it is number ``p + 1``.

Of a key the state holds a ring of panes: pane p at place ``p mod room``. A batch works on *groups* instead: the panes
that its records fall into, and those of the state whose windows are due. So nothing of the state is overwritten before
the batch is done, and what adds up records knows nothing of time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = ["FUTURE", "LATE", "NONE", "UNTIMED", "count_off", "fall", "full_windows", "keep", "load_due"]

#: The pane of an empty place.
NONE = np.iinfo(np.int64).min
#: Why a record falls into no pane.
LATE, UNTIMED, FUTURE = 1, 2, 3


@kernel
def fall(
    times: Any,
    present: Any,
    slots: Any,
    locals_: Any,
    tick_rows: Any,
    tick_times: Any,
    now: Any,
    every: Any,
    panes: Any,
    delay: Any,
    reach: Any,
    start: Any,
    ring: Any,
    held: Any,
    groups: Any,
    bad: Any,
    group_slots: Any,
    group_panes: Any,
    group_from: Any,
) -> Any:
    """Put rows from ``start`` on into groups; returns how many groups there are, and the row reached.

    That is the end, or a row that comes behind the end of a window that its pane is a part of, and that was open at
    ``start``: what such a window says must be taken before the row is added.

    ``held[l, q]`` is the group that is at place q of the ring of the key with number l in the batch, -1 for none.
    ``lookback`` is how far a time may be beyond stream time: those beyond are ``FUTURE``. ``group_from`` is the place in
    the state, counted through all rings, that a group goes on with, or -1.
    """
    room = held.shape[1]
    n = 0
    j = 0
    closed = NONE if now == NONE else (now - delay) // every
    known = closed
    p = 0
    q = 0
    low = 1  # of pane p
    high = 0
    for i in range(start, times.size):
        if j < tick_rows.size and tick_rows[j] <= i:
            while j < tick_rows.size and tick_rows[j] <= i:
                now = tick_times[j]
                j += 1
            closed = (now - delay) // every
        groups[i] = -1
        if not present[i]:
            bad[i] = UNTIMED
            continue
        t = times[i]
        if t < low or t >= high:
            p = t // every
            q = p % room
            low = p * every
            high = low + every
        if closed == NONE or t >= now + reach:
            bad[i] = FUTURE
            continue
        if p + panes <= closed:
            bad[i] = LATE
            continue
        if p < closed and closed > known:
            return n, i
        g = held[locals_[i], q]
        if g < 0 or group_panes[g] != p:
            s = slots[i]
            g = n
            n += 1
            group_slots[g] = s
            group_panes[g] = p
            group_from[g] = s * room + q if ring[s, q] == p else -1
            held[locals_[i], q] = g
        groups[i] = g
    return n, times.size


@kernel
def load_due(
    ring: Any, taken: Any, size: Any, closed: Any, n: Any, group_slots: Any, group_panes: Any, group_from: Any
) -> Any:
    """Make groups of the panes of the state before ``closed`` that are none yet; returns how many groups there are.

    ``taken`` says of each place of the rings whether a group goes on with it. With room for no groups it counts.
    """
    room = ring.shape[1]
    count = group_slots.size == 0
    for s in range(size):
        for q in range(room):
            p = ring[s, q]
            if p != NONE and p < closed and not taken[s * room + q]:
                if not count:
                    group_slots[n] = s
                    group_panes[n] = p
                    group_from[n] = s * room + q
                n += 1
    return n


@kernel
def full_windows(
    order: Any,
    group_slots: Any,
    group_panes: Any,
    panes: Any,
    before: Any,
    closed: Any,
    ends: Any,
    first: Any,
    last: Any,
) -> Any:
    """The windows with records whose ends are in ``(before, closed]``; returns how many.

    ``order`` brings groups in order of key and pane. Window w has the groups ``order[first[w]:last[w]]``. With room
    for no windows it counts.
    """
    n = 0
    count = ends.size == 0
    a = 0
    while a < order.size:
        s = group_slots[order[a]]
        b = a
        while b < order.size and group_slots[order[b]] == s:
            b += 1
        lo = a
        end = group_panes[order[a]] + 1
        if before != NONE and end <= before:
            end = before + 1
        while end <= closed:
            while lo < b and group_panes[order[lo]] < end - panes:
                lo += 1
            if lo == b:
                break
            if group_panes[order[lo]] >= end:
                end = group_panes[order[lo]] + 1
                continue
            hi = lo
            while hi < b and group_panes[order[hi]] < end:
                hi += 1
            if not count:
                ends[n] = end
                first[n] = lo
                last[n] = hi
            n += 1
            end += 1
        a = b
    return n


@kernel
def keep(
    group_slots: Any,
    group_panes: Any,
    group_from: Any,
    n: Any,
    panes: Any,
    closed: Any,
    ring: Any,
    groups: Any,
    places: Any,
) -> Any:
    """Bring the rings up to date; returns how many groups stay, with their places in the state."""
    room = ring.shape[1]
    kept = 0
    for g in range(n):
        if group_from[g] >= 0:
            ring[group_from[g] // room, group_from[g] % room] = NONE
    for g in range(n):
        p = group_panes[g]
        if closed == NONE or p + panes > closed:
            s = group_slots[g]
            q = p % room
            ring[s, q] = p
            groups[kept] = g
            places[kept] = s * room + q
            kept += 1
    return kept


@kernel
def count_off(
    slots: Any,
    locals_: Any,
    window: Any,
    filled: Any,
    held: Any,
    groups: Any,
    group_slots: Any,
    group_from: Any,
    full_rows: Any,
    full_groups: Any,
) -> Any:
    """Put rows into windows by their number; returns how many groups there are, and how many of them got full.

    ``filled`` is the state: how many records the open window of each key has. ``held[l]`` is the group of the key
    with number l in the batch, -1 for none; behind the call it is the one that stays open.
    """
    n = 0
    full = 0
    for i in range(slots.size):
        s = slots[i]
        a = locals_[i]
        g = held[a]
        if g < 0:
            g = n
            n += 1
            group_slots[g] = s
            group_from[g] = s if filled[s] > 0 else -1
            held[a] = g
        groups[i] = g
        filled[s] += 1
        if filled[s] == window:
            full_rows[full] = i
            full_groups[full] = g
            full += 1
            filled[s] = 0
            held[a] = -1
    return n, full
