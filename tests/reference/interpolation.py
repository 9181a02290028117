"""Interpolation, one record at a time, from a list of all readings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def gap(value: float | None) -> bool:
    return value is None or math.isnan(value)


def interpolate(
    events: Iterable[Event], window: int, method: str, fields: list[str] | None, timed: bool
) -> list[Event]:
    history: dict[Any, list[tuple[float, float]]] = {}
    count: dict[Any, int] = {}
    out = []
    for event in events:
        y = event["value"]
        out.append({**event, "value": None if gap(y) else y, "interpolated": False})
        if fields is not None and event["obs_type"] not in fields:
            continue
        key = event["key"]
        x = count.get(key, 0)
        count[key] = x + 1
        if timed and method != "mean":
            if event["time"] is None:
                continue
            x = event["time"]
        readings = history.setdefault(key, [])
        if not gap(y):
            readings.append((x, y))
        elif readings:
            if method == "mean":
                last = [v for _, v in readings[-window:]]
                guess = math.fsum(last) / len(last)
            else:
                (x1, y1), (x2, y2) = (readings * 2)[-2:]
                guess = y2 if x1 == x2 else y2 + (y2 - y1) * (x - x2) / (x2 - x1)
            out[-1] |= {"value": guess, "interpolated": True}
    return out


def on_lines(events: Iterable[Event], max_gap: int, fields: list[str] | None, timed: bool) -> list[Event]:
    """The records in the order in which they come out: those of a gap with the reading that ends it."""
    out, held, last, count, broken = [], {}, {}, {}, set()
    for event in events:
        key, y = event["key"], event["value"]
        row = {**event, "value": None if gap(y) else y, "interpolated": False}
        wanted = fields is None or event["obs_type"] in fields
        place = count.get(key, 0)
        count[key] = place + wanted
        if timed:
            place, wanted = event["time"], wanted and event["time"] is not None
        waiting = held.setdefault(key, [])
        opens = wanted and gap(y)
        if wanted and not opens:
            for t, one, fill in waiting:
                if fill and last[key][0] != place and min(last[key][0], place) <= t <= max(last[key][0], place):
                    (t1, y1), (t2, y2) = last[key], (place, y)
                    one |= {"value": y1 + (y2 - y1) * (t - t1) / (t2 - t1), "interpolated": True}
            out += [one for _, one, _ in waiting] + [row]
            held[key], last[key] = [], (place, y)
            broken.discard(key)
        elif waiting and len(waiting) == max_gap:
            out += [one for _, one, _ in waiting] + [row]
            held[key] = []
            broken.add(key)
        elif waiting or (opens and key in last and key not in broken):
            waiting.append((place, row, opens))
        else:
            out.append(row)
    return out + [one for waiting in held.values() for _, one, _ in waiting]
