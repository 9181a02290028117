"""Word count in plain Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from riot_bench.baselines.python.rows import new_rows

__all__ = ["word_count"]


def word_count(
    inputs: Mapping[str, Iterable[bytes]], *, lowercase: bool = False, unicode: bool = False, emit: str = "each"
) -> dict[str, list[tuple[Any, ...]]]:
    """``counts``: word, count. ``inputs`` has ``lines``; ``emit="update"`` gives each word once, at the end."""
    find = re.compile(r"\w+" if unicode else r"[A-Za-z0-9_]+").findall
    counts: dict[str, int] = {}
    found = new_rows()
    for line in inputs["lines"]:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            continue
        for word in find(text.lower() if lowercase else text):
            counts[word] = count = counts.get(word, 0) + 1
            found.append((word, count))
    return {"counts": found if emit == "each" else list(counts.items())}
