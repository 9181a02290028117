"""What the numbers that a generator takes may be."""

from __future__ import annotations

import math
from typing import Any

from riot_ops.core.errors import ConfigError

__all__ = ["check_count", "check_days", "check_flag", "check_positive", "check_share", "is_number"]


def check_count(least: int = 1, most: int | None = None, /, **given: Any) -> None:
    """Raise unless each is a whole number within the bounds.

    >>> check_count(houses=40, every=2.5)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: every must be a whole number >= 1, got 2.5
    """
    allowed = f">= {least}" if most is None else f"from {least:,} to {most:,}"
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least or (most or value) < value:
            raise ConfigError(f"{name} must be a whole number {allowed}, got {value!r}")


def check_share(**given: Any) -> None:
    """Raise unless each is a share.

    >>> check_share(late=2)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: late must be from 0 to 1, got 2
    """
    for name, value in given.items():
        if not is_number(value) or not 0 <= value <= 1:
            raise ConfigError(f"{name} must be from 0 to 1, got {value!r}")


def check_positive(or_zero: bool = False, /, **given: Any) -> None:
    """Raise unless each is a finite number above 0, or of 0 if that is allowed.

    >>> check_positive(rate=0)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: rate must be a finite number > 0, got 0
    """
    allowed = ">= 0" if or_zero else "> 0"
    for name, value in given.items():
        if not is_number(value) or not 0 <= value < math.inf or not (value or or_zero):
            raise ConfigError(f"{name} must be a finite number {allowed}, got {value!r}")


def check_flag(**given: Any) -> None:
    """Raise unless each is true or false.

    >>> check_flag(dirt="no")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: dirt must be True or False, got 'no'
    """
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be True or False, got {value!r}")


def check_days(days: float | None, messages: int | None) -> None:
    """Raise where the length of a stream in days is none, or given beside one in messages.

    >>> check_days(0, None)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: days must be > 0, and not be given together with messages; got 0
    """
    if days is not None and (messages is not None or not is_number(days) or not 0 < days < 36500):
        raise ConfigError(f"days must be > 0, and not be given together with messages; got {days!r}")


def is_number(value: Any) -> bool:
    """Whether it is a number, as True is not.

    >>> is_number(1), is_number(True), is_number("1")
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)
