"""Grep in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["grep"]


def grep(
    inputs: Mapping[str, Iterable[bytes]], *, text: str = "ihiza", invert: bool = False
) -> dict[str, list[tuple[Any, ...]]]:
    """``matches``: payload. ``inputs`` has ``lines``."""
    part = text.encode()
    return {"matches": [(line,) for line in inputs["lines"] if (part in line) != invert]}
