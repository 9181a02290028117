"""Whether parameters are numbers that one can count or wait with."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from riot_ops.core.errors import ConfigError, short

__all__ = ["check_count", "check_seconds"]

#: Some thirty years: a lock cannot wait for ever longer ones.
MOST_SECONDS = 1e9


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise where a parameter is not a whole number, or too small."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ConfigError(f"{name} must be a whole number >= {least}, got {short(value)}")
    if value < least:
        raise ConfigError(f"{name} must be >= {least}, got {value}")


def check_seconds(name: str, value: Any, zero: bool = False) -> None:
    """Raise where a parameter is not a time that one can wait; it may be zero where that is said."""
    allowed = f"must be {'>=' if zero else '>'} 0 and at most {MOST_SECONDS:g} seconds"
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number:
        raise ConfigError(f"{name} {allowed}, got {short(value)}")
    if not 0 <= float(value) <= MOST_SECONDS or not (value or zero):
        raise ConfigError(f"{name} {allowed}, got {value}")
