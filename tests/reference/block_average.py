"""Block averages, one reading at a time, from lists of all readings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def mean(values: list[float]) -> float:
    return math.fsum(v / len(values) for v in values)


def by_count(events: Iterable[Event], window: int, sliding: bool = False) -> list[Event]:
    history: dict[Any, list[float]] = {}
    out = []
    for event in events:
        if missing(event["value"]):
            continue
        values = history.setdefault(event["key"], [])
        values.append(event["value"])
        n = len(values)
        if n >= window and (sliding or n % window == 0):
            out.append({**event, "value": mean(values[-window:]), "count": window})
    return out


def by_time(events: Iterable[Event], duration: int, lateness: int) -> tuple[list[Event], list[Event], list[Event]]:
    """``(results, late, still open)``; times are numbers."""
    windows: dict[Any, dict[int, list[Event]]] = {}
    latest: dict[Any, int] = {}
    out, late = [], []
    for event in events:
        key, time = event["key"], event["time"]
        mark = latest[key] - lateness if key in latest else -math.inf
        start = math.floor(time / duration) * duration
        if not missing(event["value"]) and start + duration <= mark:
            late.append(event)
            continue
        windows.setdefault(key, {})
        latest[key] = max(latest.get(key, time), time)
        closed = [b for b in sorted(windows[key]) if b + duration <= latest[key] - lateness]
        for place, begin in enumerate(closed):
            out.append(_result(windows[key].pop(begin), begin + duration, event, place))
        if not missing(event["value"]):
            windows[key].setdefault(start, []).append(event)
    left = [
        _result(members, begin + duration, members[-1], 2**63 - 1)
        for opened in windows.values()
        for begin, members in sorted(opened.items())
    ]
    return out, late, left


def _result(members: list[Event], end: int, closer: Event, place: int) -> Event:
    return {
        **closer,
        "value": mean([m["value"] for m in members]),
        "count": len(members),
        "time": end,
        "sub_2" if "sub" in closer else "sub": place,
    }
