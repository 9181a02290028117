"""Distinct count in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from riot_bench.baselines.python.streambench.projection import cells

__all__ = ["distinct"]


def distinct(inputs: Mapping[str, Iterable[bytes]], *, column: int = 0) -> dict[str, list[tuple[Any, ...]]]:
    """``sizes``: value, count. ``inputs`` has ``lines``."""
    seen: set[str] = set()
    found: list[tuple[Any, ...]] = []
    for value in cells(inputs["lines"], column):
        if value not in seen:
            seen.add(value)
            found.append((value, len(seen)))
    return {"sizes": found}
