"""Session windows: which session of which key a record belongs to.

A session is a run of records of a key, each less than ``gap`` after the one before. It ends ``gap`` after its last
record; a record between two sessions merges them. Ends are checked when stream time passes a multiple of ``period``.
A session that has ended takes no record: one before its end is late, so that sessions of a key never overlap.

As with :mod:`riot_ops.kernels.stats.panes`, a batch works on groups, and the state of a key has room for all sessions
that can be open at once.
"""

from __future__ import annotations

from typing import Any

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.panes import FUTURE, LATE, NONE, OUT_OF_RANGE, UNTIMED

__all__ = ["assign_sessions", "load_ended_sessions", "store_open_sessions"]


@kernel
def assign_sessions(
    times: Any,
    present: Any,
    slots: Any,
    locals_: Any,
    tick_rows: Any,
    tick_times: Any,
    now: Any,
    gap: Any,
    period: Any,
    allowed_lateness: Any,
    reach: Any,
    limit: Any,
    begins: Any,
    lasts: Any,
    ended: Any,
    seen: Any,
    held: Any,
    groups: Any,
    bad: Any,
    group_slots: Any,
    group_begins: Any,
    group_lasts: Any,
    group_from: Any,
    merge_rows: Any,
    merge_into: Any,
    merge_from: Any,
    row_begins: Any,
    row_lasts: Any,
) -> Any:
    """Assign rows to groups; returns the number of groups and the number of merges.

    The session of a row after ``limit`` would end at no time.

    ``begins`` and ``lasts`` are the state: first and last time of the sessions of each key, :data:`NONE` for none;
    ``ended`` is the latest end of the sessions of each key that have ended.
    ``held[l, q]`` is the group at place q of the key with number l in the batch; ``seen[l]`` says whether its sessions
    have been loaded into groups. Before row ``merge_rows[m]``, group ``merge_from[m]`` is merged into
    ``merge_into[m]``; its last time is :data:`NONE` from then on. ``row_begins`` and ``row_lasts`` get the times of
    each row's session after the row.
    """
    room = held.shape[1]
    n = 0
    m = 0
    j = 0
    closed = NONE if now == NONE else (now - allowed_lateness) // period * period
    for i in range(times.size):
        while j < tick_rows.size and tick_rows[j] <= i:
            now = tick_times[j]
            closed = (now - allowed_lateness) // period * period
            j += 1
        groups[i] = -1
        if not present[i]:
            bad[i] = UNTIMED
            continue
        t = times[i]
        a = locals_[i]
        s = slots[i]
        if not seen[a]:
            seen[a] = True
            for q in range(room):
                if lasts[s, q] != NONE:
                    group_slots[n] = s
                    group_begins[n] = begins[s, q]
                    group_lasts[n] = lasts[s, q]
                    group_from[n] = s * room + q
                    held[a, q] = n
                    n += 1
        if closed == NONE or t >= now + reach:
            bad[i] = FUTURE
            continue
        mine = -1
        place = -1  # the first free one
        merging = False
        for q in range(room):
            g = held[a, q]
            if g >= 0 and group_lasts[g] + gap <= closed:
                held[a, q] = -1
                ended[s] = max(ended[s], group_lasts[g] + gap)
                g = -1
            if g < 0:
                if place < 0:
                    place = q
            elif t > group_begins[g] - gap and t < group_lasts[g] + gap:
                if mine < 0:
                    mine = g
                else:
                    merging = True
        if (mine < 0 or t < group_begins[mine]) and t < ended[s]:  # an open session begins after those that have ended
            bad[i] = LATE
            continue
        if t > limit:
            bad[i] = OUT_OF_RANGE
            continue
        if merging:
            mine = -1
            at = -1  # its place
            for q in range(room):
                g = held[a, q]
                if g < 0 or t <= group_begins[g] - gap or t >= group_lasts[g] + gap:
                    continue
                if mine < 0:
                    mine = g
                    at = q
                    continue
                if group_begins[g] < group_begins[mine]:  # the later one is merged into the earlier one
                    mine, g = g, mine
                    held[a, at] = -1
                    at = q
                else:
                    held[a, q] = -1
                merge_rows[m] = i
                merge_into[m] = mine
                merge_from[m] = g
                m += 1
                group_lasts[mine] = group_lasts[g]
                group_lasts[g] = NONE
        if mine < 0:
            if t + gap <= closed:
                bad[i] = LATE
                continue
            if place < 0:  # no free place: more sessions than can be open within the time limits
                bad[i] = FUTURE
                continue
            mine = n
            n += 1
            group_slots[mine] = s
            group_begins[mine] = t
            group_lasts[mine] = t
            group_from[mine] = -1
            held[a, place] = mine
        group_begins[mine] = min(group_begins[mine], t)
        group_lasts[mine] = max(group_lasts[mine], t)
        groups[i] = mine
        row_begins[i] = group_begins[mine]
        row_lasts[i] = group_lasts[mine]
    return n, m


@kernel
def load_ended_sessions(
    begins: Any,
    lasts: Any,
    taken: Any,
    size: Any,
    gap: Any,
    closed: Any,
    n: Any,
    group_slots: Any,
    group_begins: Any,
    group_lasts: Any,
    group_from: Any,
) -> Any:
    """Make groups of the ended sessions of the state that have none yet; returns the number of groups.

    ``taken`` flags the places of the state that have a group. With empty group arrays it only counts.
    """
    room = lasts.shape[1]
    count = group_slots.size == 0
    for s in range(size):
        for q in range(room):
            if lasts[s, q] != NONE and not taken[s * room + q] and lasts[s, q] + gap <= closed:
                if not count:
                    group_slots[n] = s
                    group_begins[n] = begins[s, q]
                    group_lasts[n] = lasts[s, q]
                    group_from[n] = s * room + q
                n += 1
    return n


@kernel
def store_open_sessions(
    group_slots: Any,
    group_begins: Any,
    group_lasts: Any,
    group_from: Any,
    n: Any,
    gap: Any,
    closed: Any,
    begins: Any,
    lasts: Any,
    ended: Any,
    groups: Any,
    places: Any,
) -> Any:
    """Store open sessions in the state; returns their number, and writes the groups and their places in the state.

    Of the other sessions of a key it stores the latest end.
    """
    room = lasts.shape[1]
    kept = 0
    for g in range(n):
        if group_from[g] >= 0:
            lasts[group_from[g] // room, group_from[g] % room] = NONE
    for g in range(n):
        if group_lasts[g] == NONE:
            continue
        s = group_slots[g]
        if closed != NONE and group_lasts[g] + gap <= closed:
            ended[s] = max(ended[s], group_lasts[g] + gap)
        else:
            q = 0
            while lasts[s, q] != NONE:
                q += 1
            begins[s, q] = group_begins[g]
            lasts[s, q] = group_lasts[g]
            groups[kept] = g
            places[kept] = s * room + q
            kept += 1
    return kept
