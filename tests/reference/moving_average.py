"""Moving averages, one reading at a time, from lists of all readings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def mean(values: list[float]) -> float:
    return math.fsum(v / len(values) for v in values)


def by_count(events: Iterable[Event], window: int, mode: str = "tumbling") -> list[Event]:
    history: dict[Any, list[float]] = {}
    out = []
    for event in events:
        if missing(event["value"]):
            continue
        values = history.setdefault(event["key"], [])
        values.append(event["value"])
        n = len(values)
        if mode == "growing" or (n >= window and (mode == "sliding" or n % window == 0)):
            out.append({**event, "value": mean(values[-window:]), "count": min(n, window)})
    return out
