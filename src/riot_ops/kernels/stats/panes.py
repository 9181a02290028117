"""Time windows by panes: which pane of which key a record falls into, and which windows are complete.

A time window of length ``size`` begins at each multiple of ``every``. Panes of length ``every`` do not overlap, so each
record is added once, and a window consists of the ``k = size / every`` panes before its end. Panes are numbered from
the epoch: pane p is ``[p every, (p + 1) every)``, and the window that ends with it is number ``p + 1``.

The state of a key holds a ring of panes: pane p at place ``p mod room``. A batch works on *groups* instead: the panes
that its records fall into, and those of the state whose windows are due. So the state is not overwritten before the
batch is finished, and the accumulators know nothing of time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel

__all__ = [
    "FUTURE",
    "LATE",
    "NONE",
    "OUT_OF_RANGE",
    "UNTIMED",
    "assign_count_windows",
    "assign_panes",
    "full_windows",
    "load_due_panes",
    "store_open_panes",
]

#: In place of the pane of an empty ring place.
NONE = np.iinfo(np.int64).min
#: Why a record is rejected.
LATE, UNTIMED, FUTURE, OUT_OF_RANGE = 1, 2, 3, 4


@kernel
def assign_panes(
    times: Any,
    present: Any,
    slots: Any,
    locals_: Any,
    tick_rows: Any,
    tick_times: Any,
    now: Any,
    every: Any,
    panes: Any,
    allowed_lateness: Any,
    reach: Any,
    first: Any,
    last: Any,
    start: Any,
    ring: Any,
    held: Any,
    groups: Any,
    bad: Any,
    group_slots: Any,
    group_panes: Any,
    group_from: Any,
) -> Any:
    """Assign rows from ``start`` on to groups; returns the number of groups and the row reached.

    It stops at a late row whose pane belongs to a window that was open at ``start`` and has ended since: the result of
    this window must be read before the row is added.

    ``held[l, q]`` is the group at place q of the ring of the key with number l in the batch, -1 for none.
    Rows ``reach`` or more after stream time are :data:`FUTURE`, rows of panes before ``first`` or after ``last``
    :data:`OUT_OF_RANGE`: a window of theirs has no time. ``group_from`` is the place in the state, counted
    through all rings, from which a group continues, -1 if it is new.
    """
    room = held.shape[1]
    n = 0
    j = 0
    closed = NONE if now == NONE else (now - allowed_lateness) // every
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
            closed = (now - allowed_lateness) // every
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
        if p < closed and closed > known and first <= p <= last:
            return n, i
        g = held[locals_[i], q]
        if g < 0 or group_panes[g] != p:
            if p < first or p > last:  # such a pane never has a group
                bad[i] = OUT_OF_RANGE
                continue
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
def load_due_panes(
    ring: Any, taken: Any, size: Any, closed: Any, n: Any, group_slots: Any, group_panes: Any, group_from: Any
) -> Any:
    """Make groups of the panes of the state before ``closed`` that have none yet; returns the number of groups.

    ``taken`` flags the ring places from which a group continues. With empty group arrays it only counts.
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
    """List the windows with records whose ends are in ``(before, closed]``; returns their number.

    ``order`` sorts groups by key and pane. Window w consists of the groups ``order[first[w]:last[w]]``. With an empty
    ``ends`` it only counts.
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
def store_open_panes(
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
    """Store open groups in the rings; returns their number, and writes the groups and their places in the state."""
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
def assign_count_windows(
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
    """Assign rows to windows of ``window`` records; returns the number of groups and the number of full ones.

    ``filled`` is the state: the number of records in the open window of each key. ``held[l]`` is the group of the key
    with number l in the batch, -1 for none; after the call, the one that is still open.
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
