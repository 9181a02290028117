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
        if timed and method == "linear":
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
