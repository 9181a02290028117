"""Interval join by its definition: each record is compared with all earlier ones."""

from __future__ import annotations

from typing import Any

#: Time, key, side ("left" or "right") and number of a record.
Record = tuple[int | None, Any, str, int]


def interval_join(
    records: list[Record], before: int, after: int, how: str, lateness: int = 0, max_held: int = 10**9
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, str]]]:
    """Return pairs of numbers, numbers of records without a partner with their last time, and rejected numbers."""
    now: int | None = None
    held: list[list[Any]] = []  # record, whether it has had a partner, whether it is still held
    pairs, alone, rejected = [], [], []
    outer = {"inner": (), "left": ("left",), "full": ("left", "right")}[how]

    def last(record: Record) -> int:
        assert record[0] is not None
        return record[0] + (after if record[2] == "left" else before)

    def expire(limit: float) -> None:
        for one in held:
            if one[2] and last(one[0]) < limit:
                one[2] = False
                if not one[1] and one[0][2] in outer:
                    alone.append((one[0][3], last(one[0])))

    for record in records:
        time, key, side, number = record
        if time is None:
            rejected.append((number, "no_event_time"))
            continue
        now = time if now is None else max(now, time)
        expire(now - lateness)
        if time + lateness < now:
            rejected.append((number, "late"))
            continue
        if sum(one[2] and one[0][1] == key and one[0][2] == side for one in held) >= max_held:
            rejected.append((number, "full"))
            continue
        if key is None and side not in outer:
            continue
        mine = [record, False, True]
        for one in sorted(held, key=lambda one: (one[0][0], one[0][3])):
            (left, right) = (record, one[0]) if side == "left" else (one[0], record)
            near = one[2] and one[0][2] != side and one[0][1] == key and key is not None
            if near and -before <= right[0] - left[0] <= after:
                pairs.append((left[3], right[3]))
                mine[1] = one[1] = True
        held.append(mine)
    expire(float("inf"))
    return pairs, sorted(alone), rejected
