"""Collection of records into lists, one record at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def accumulate(events: Iterable[Event], size: int, groups: list[str], by: list[str]) -> tuple[list[Event], list[Event]]:
    """Return ``(emitted, left)``: the emitted lists, and the records that remain."""
    held: dict[Any, list[Event]] = {}
    blocks: dict[Any, int] = {}
    out: list[Event] = []
    for event in events:
        key = tuple(event[name] for name in by)
        rows = held.setdefault(key, [])
        rows.append(event)
        if len(rows) == size:
            out += _block(rows, groups, blocks.get(key, 0))
            blocks[key] = blocks.get(key, 0) + 1
            rows.clear()
    left = [row for key, rows in held.items() for row in _block(rows, groups, blocks.get(key, 0))]
    return out, left


def _block(rows: list[Event], groups: list[str], number: int) -> list[Event]:
    def order(row: Event, names: list[str]) -> list[tuple[bool, Any]]:
        """Return a sort key: missing values are equal and come last; text is compared by its UTF-8 bytes."""
        values = [row[name] for name in names]
        return [(v is None, "" if v is None else v.encode() if isinstance(v, str) else v) for v in values]

    sets: list[Event] = []
    for row in sorted(rows, key=lambda row: order(row, [*groups, "event_time"])):
        if not sets or order(sets[-1], groups) != order(row, groups):
            fresh = {"event_time": rows[-1]["event_time"], **{name: row[name] for name in groups}, "batch_id": number}
            sets.append({**fresh, "times": []})
        for name, value in row.items():
            if name == "event_time":
                sets[-1]["times"].append(value)
            elif name not in groups:
                sets[-1].setdefault(name, []).append(value)
    return sets
