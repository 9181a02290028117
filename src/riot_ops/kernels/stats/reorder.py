"""Records in the order of their event times: how far time is, and when each may go."""

from __future__ import annotations

from typing import Any

from riot_ops.core.clock import NEVER
from riot_ops.kernels.jit import kernel

__all__ = ["FUTURE", "LATE", "UNTIMED", "move", "release"]

#: Why a record cannot be put in order.
LATE, UNTIMED, FUTURE = 1, 2, 3


@kernel
def move(times: Any, present: Any, slots: Any, delay: Any, ahead: Any, newest: Any, now: Any, status: Any) -> None:
    """The largest time of each row's key so far; rows that are more than ``delay`` behind it do not count.

    Nor do those that are more than ``ahead`` beyond it, if that is not negative.
    """
    for i in range(slots.size):
        s = slots[i]
        now[i] = newest[s]
        if not present[i]:
            status[i] = UNTIMED
        elif newest[s] == NEVER:
            newest[s] = times[i]
        elif times[i] + delay < newest[s]:
            status[i] = LATE
        elif ahead >= 0 and times[i] > newest[s] + ahead:
            status[i] = FUTURE
        elif times[i] > newest[s]:
            newest[s] = times[i]
        now[i] = newest[s]


@kernel
def release(
    order: Any, times: Any, owner: Any, delay: Any, by_key: Any, reached: Any, edges: Any, now: Any, out: Any
) -> None:  # fmt: skip
    """The row that lets each record go: the first of its key whose time is more than ``delay`` beyond; -1: none does.

    ``order`` has the records by time, ``by_key`` the rows key by key, those of key k from ``edges[k]`` on, at the times
    ``now``, which do not fall. ``reached`` is a copy of ``edges``, which is used up.
    """
    for i in order:
        k = owner[i]
        a = reached[k]
        while a < edges[k + 1] and now[by_key[a]] <= times[i] + delay:
            a += 1
        reached[k] = a
        out[i] = by_key[a] if a < edges[k + 1] else -1
