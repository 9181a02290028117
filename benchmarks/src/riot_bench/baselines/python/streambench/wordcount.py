"""The word count of StreamBench in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["wordcount"]


def wordcount(inputs: Mapping[str, Iterable[bytes]], *, emit: str = "each") -> dict[str, list[tuple[Any, ...]]]:
    """``counts``: word, count. ``inputs`` has ``lines``; ``emit="update"`` gives each word once, at the end."""
    counts: dict[str, int] = {}
    found: list[tuple[Any, ...]] = []
    for line in inputs["lines"]:
        try:
            line.decode()
        except UnicodeDecodeError:
            continue
        for part in line.split():
            word = part.decode()
            counts[word] = count = counts.get(word, 0) + 1
            found.append((word, count))
    return {"counts": found if emit == "each" else list(counts.items())}
