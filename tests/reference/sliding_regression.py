"""Sliding regression in exact fractions, from a list of all readings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

Event = dict[str, Any]


def regress(events: Iterable[Event], window: int, horizon: int, flag_warm_up: int) -> list[Event]:
    history: dict[Any, list[Fraction]] = {}
    out = []
    for event in events:
        if event["value"] is None or math.isnan(event["value"]):
            continue
        readings = history.setdefault(event["key"], [])
        readings.append(Fraction(event["value"]))
        if len(readings) < flag_warm_up:
            continue
        first = len(readings) - window + 1  # item numbers count from 1
        x = [Fraction(first + i) for i in range(window)]
        y = readings[-window:]
        sx, sy = sum(x), sum(y)
        sxx, sxy = sum(a * a for a in x), sum(a * b for a, b in zip(x, y, strict=True))
        slope = (window * sxy - sx * sy) / (window * sxx - sx * sx)
        intercept = (sy - slope * sx) / window
        ahead = [intercept + slope * (len(readings) + h) for h in range(1, horizon + 1)]
        out.append({**event, "value": float(sum(ahead) / horizon), "predictions": [float(p) for p in ahead]})
    return out
