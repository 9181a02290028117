"""Variance in exact fractions, from a list of all readings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any


def variances(events: Iterable[dict[str, Any]], ddof: int) -> list[float | None]:
    history: dict[Any, list[Fraction]] = {}
    out: list[float | None] = []
    for event in events:
        readings = history.setdefault(event["key"], [])
        if event["value"] is not None and not math.isnan(event["value"]):
            readings.append(Fraction(event["value"]))
        n = len(readings)
        if n <= ddof:
            out.append(None)
            continue
        mean = sum(readings) / n
        out.append(float(sum((x - mean) ** 2 for x in readings) / (n - ddof)))
    return out
