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
    """``figures``: count, min, max, sum, mean. ``inputs`` has ``lines``.

    ``emit="update"`` gives the final values only.
    """
    place = FIELDS.index(field)
    count, minimum, maximum = 0, float("inf"), -float("inf")
    total = Fraction(0)
    found: list[tuple[Any, ...]] = []
    for line in inputs["lines"]:
        try:
            cells = line.decode().split(",")
            value = float(cells[place])
        except (IndexError, ValueError):
            continue
        if len(cells) != len(FIELDS) or not isfinite(value):
            continue
        count, minimum, maximum = count + 1, min(minimum, value), max(maximum, value)
        total += int(value) if value.is_integer() else Fraction(value)
        rounded = float(total)
        found.append((count, minimum, maximum, rounded, rounded / count))
    return {"figures": found if emit == "each" else found[-1:]}
