"""The range filter, one record at a time."""

from __future__ import annotations

from typing import Any


def passes(value: float | None, bounds: tuple[float, float] | None) -> bool:
    return value is None or bounds is None or bounds[0] <= value <= bounds[1]


def long(row: dict[str, Any], bounds: dict[str, tuple[float, float]], on_error: str) -> list[dict[str, Any]]:
    if passes(row["value"], bounds.get(row["obs_type"])):
        return [row]
    return [] if on_error == "drop" else [{**row, "value": None}]


def wide(row: dict[str, Any], bounds: dict[str, tuple[float, float]], on_error: str) -> list[dict[str, Any]]:
    bad = [name for name, pair in bounds.items() if not passes(row[name], pair)]
    if not bad:
        return [row]
    return [] if on_error == "drop" else [{**row, **dict.fromkeys(bad)}]
