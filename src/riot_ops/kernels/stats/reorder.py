"""Sorting records by event time: the time of each key, and when a record can be released."""

from __future__ import annotations

from typing import Any

from riot_ops.core.clock import NEVER
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
    now: Any,
    status: Any,
) -> None:
    """Write the time of each row's key, its maximum so far, and the status of the row.

    Rows more than ``allowed_lateness`` before that time do not count, nor those more than ``ahead`` after it if that
    is not negative.
    """
    for i in range(slots.size):
        s = slots[i]
        now[i] = newest[s]
        if not present[i]:
            status[i] = UNTIMED
        elif newest[s] == NEVER:
            newest[s] = times[i]
        elif times[i] + allowed_lateness < newest[s]:
            status[i] = LATE
        elif ahead >= 0 and times[i] > newest[s] + ahead:
            status[i] = FUTURE
        elif times[i] > newest[s]:
            newest[s] = times[i]
        now[i] = newest[s]


@kernel
def release_rows(
    order: Any, times: Any, owner: Any, allowed_lateness: Any, by_key: Any, reached: Any, edges: Any, now: Any,
    out: Any,
) -> None:  # fmt: skip
    """Write the row that releases each record: the first of its key more than ``allowed_lateness`` later, else -1.

    ``order`` sorts the records by time. ``by_key`` has the rows by key, those of key k from ``edges[k]`` on, with key
    times ``now``, which do not decrease. ``reached`` is a copy of ``edges``, which is modified.
    """
    for i in order:
        k = owner[i]
        a = reached[k]
        while a < edges[k + 1] and now[by_key[a]] <= times[i] + allowed_lateness:
            a += 1
        reached[k] = a
        out[i] = by_key[a] if a < edges[k + 1] else -1
