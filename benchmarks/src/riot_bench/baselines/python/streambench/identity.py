"""Identity in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["identity"]


def identity(inputs: Mapping[str, Iterable[bytes]]) -> dict[str, list[tuple[Any, ...]]]:
    """``records``: payload. ``inputs`` has ``lines``."""
    return {"records": [(line,) for line in inputs["lines"]]}
