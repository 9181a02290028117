"""Sorting records by event time: the time of each key, and when a record can be released."""

from __future__ import annotations

from typing import Any

from riot_ops.core.clock import AGREEING, NEVER
from riot_ops.kernels.jit import kernel

__all__ = ["FUTURE", "LATE", "UNTIMED", "advance_times", "release_rows"]

#: Why a record cannot be sorted.
LATE, UNTIMED, FUTURE = 1, 2, 3


@kernel
def advance_times(
    times: Any,
    present: Any,
    slots: Any,
    allowed_lateness: Any,
    ahead: Any,
    newest: Any,
    votes: Any,
    turns: Any,
    now: Any,
    turn: Any,
    status: Any,
) -> None:
    """Write the time of each row's key, its maximum so far, and the status of the row.

    Rows more than ``allowed_lateness`` before that time do not count, nor those more than ``ahead`` after it if that
    is not negative. Such times, and those that far before it and late, are votes against it: the time moves to them
    once there are as many in a row as it has support, at most :data:`AGREEING`.

    ``votes`` is ``(support, votes, largest vote)`` by key; ``turns`` counts how often the time of a key was set back
    in this call, and ``turn`` gets its value at each row.
    """
    behind = max(ahead, allowed_lateness)
    for i in range(slots.size):
        s = slots[i]
        t = times[i]
        far = False
        if not present[i]:
            status[i] = UNTIMED
        elif newest[s] == NEVER:
            newest[s] = t
            votes[s, 0] = 1
        elif ahead >= 0 and (t > newest[s] + ahead or t + behind < newest[s]):
            far = True
            if votes[s, 1] > 0 and t <= votes[s, 2] + ahead and t + behind >= votes[s, 2]:
                votes[s, 1] += 1
                votes[s, 2] = max(votes[s, 2], t)
            else:
                votes[s, 1] = 1
                votes[s, 2] = t
            if votes[s, 1] >= votes[s, 0]:
                far = False
                if votes[s, 2] < newest[s]:
                    turns[s] += 1
                newest[s] = votes[s, 2]
                votes[s, 0] = votes[s, 1]
                votes[s, 1] = 0
        else:
            newest[s] = max(newest[s], t)
            votes[s, 0] = min(votes[s, 0] + 1, AGREEING)
            votes[s, 1] = 0
        if present[i]:
            if t + allowed_lateness < newest[s]:
                status[i] = LATE
            elif far:
                status[i] = FUTURE
        now[i] = newest[s]
        turn[i] = turns[s]


@kernel
def release_rows(
    order: Any, times: Any, born: Any, owner: Any, allowed_lateness: Any, by_key: Any, reached: Any, edges: Any,
    now: Any, turn: Any, out: Any,
) -> None:  # fmt: skip
    """Write the row that releases each record: the first of its key more than ``allowed_lateness`` later, else -1.

    ``order`` sorts the records by the turn of their arrival (``born``) and by time. ``by_key`` has the rows by key,
    those of key k from ``edges[k]`` on, with key times ``now``, which do not decrease within a ``turn``; a later turn
    releases a record, too. ``reached`` is a copy of ``edges``, which is modified.
    """
    for i in order:
        k = owner[i]
        a = reached[k]
        while a < edges[k + 1] and (
            turn[by_key[a]] < born[i] or (turn[by_key[a]] == born[i] and now[by_key[a]] <= times[i] + allowed_lateness)
        ):
            a += 1
        reached[k] = a
        out[i] = by_key[a] if a < edges[k + 1] else -1
