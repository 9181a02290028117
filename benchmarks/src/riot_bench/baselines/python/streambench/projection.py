"""Projection in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["cells", "projection"]


def projection(inputs: Mapping[str, Iterable[bytes]], *, column: int = 1) -> dict[str, list[tuple[Any, ...]]]:
    """``values``: value. ``inputs`` has ``lines``."""
    return {"values": [(value,) for value in cells(inputs["lines"], column)]}


def cells(lines: Iterable[bytes], column: int) -> Iterable[str]:
    """Yield a cell of each line that is text; empty if the line has too few cells."""
    for line in lines:
        try:
            found = line.decode().rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            continue
        yield found[column] if column < len(found) else ""
