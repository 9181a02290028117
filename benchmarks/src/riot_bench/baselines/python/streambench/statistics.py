"""Statistics in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import isfinite
from typing import Any

from riot_ops.streams.streambench.packets import FIELDS

__all__ = ["statistics"]


def statistics(
    inputs: Mapping[str, Iterable[bytes]], *, field: str = "v4_pkts", emit: str = "each"
) -> dict[str, list[tuple[Any, ...]]]:
    """``figures``: count, min, max, sum, mean. ``inputs`` has ``lines``; with ``emit="update"`` those at the end."""
    place = FIELDS.index(field)
    count, least, most = 0, float("inf"), -float("inf")
    total = Fraction(0)
    found: list[tuple[Any, ...]] = []
    for line in inputs["lines"]:
        try:
            value = float(line.decode().split(",")[place])
        except (IndexError, ValueError):
            continue
        if not isfinite(value):
            continue
        count, least, most = count + 1, min(least, value), max(most, value)
        total += int(value) if value.is_integer() else Fraction(value)
        rounded = float(total)
        found.append((count, least, most, rounded, rounded / count))
    return {"figures": found if emit == "each" else found[-1:]}
