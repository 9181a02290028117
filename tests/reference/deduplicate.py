"""Deduplication over plain dicts and sets."""

from __future__ import annotations

from typing import Any


def identity(values: tuple[Any, ...]) -> tuple[str, ...]:
    """Return a comparable key: null and NaN are equal to themselves, 0.0 to -0.0."""
    return tuple(repr(v + 0.0) if isinstance(v, float) else repr(v) for v in values)


def exact(rows: list[dict[str, Any]], by: tuple[str, ...], ttl: int | None = None) -> list[int]:
    """Return the numbers of the rows that pass; a key not seen for longer than ``ttl`` (of ``row["t"]``) is new."""
    last: dict[Any, int] = {}
    passed = []
    for number, row in enumerate(rows):
        key = identity(tuple(row[name] for name in by))
        if key not in last or (ttl is not None and row["t"] - last[key] > ttl):
            passed.append(number)
            last[key] = row.get("t", 0)
        else:
            last[key] = max(last[key], row.get("t", 0))
    return passed


class RecentKeys:
    """Two alternating sets: the filters without false positives."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.now: set[Any] = set()
        self.old: set[Any] = set()

    def is_new(self, value: Any) -> bool:
        new = value not in self.now and value not in self.old
        if value not in self.now:
            if len(self.now) == self.capacity:
                self.old, self.now = self.now, set()
            self.now.add(value)
        return new
