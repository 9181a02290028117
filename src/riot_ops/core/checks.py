"""Checks of numbers and flags that callers pass as options; each raises :class:`ConfigError` with the option's name."""

from __future__ import annotations

import ipaddress
import math
from datetime import timedelta
from numbers import Integral, Real
from typing import Any

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.parameters import duration

__all__ = [
    "check_count",
    "check_encoding",
    "check_flag",
    "check_positive",
    "check_seconds",
    "check_share",
    "check_transform_options",
    "duration_seconds",
    "is_loopback",
    "is_number",
    "stream_length",
]

#: About 30 years; the locks of Python cannot wait much longer.
MAX_SECONDS = 1e9


def check_count(minimum: int = 1, maximum: int | None = None, /, **options: Any) -> None:
    """Raise unless each option is a whole number within the bounds.

    >>> check_count(houses=40, every=2.5)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: every must be a whole number >= 1, got 2.5
    """
    allowed = f">= {minimum}" if maximum is None else f"from {minimum:,} to {maximum:,}"
    for name, value in options.items():
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or value < minimum or (maximum is not None and value > maximum):
            raise ConfigError(f"{name} must be a whole number {allowed}, got {_shown(value)}")


def check_encoding(encoding: Any, *, of_lines: bool = False, name: str = "encoding") -> None:
    """Raise unless an option names an encoding of text that Python knows; ``of_lines``: whose line break is one byte.

    >>> check_encoding("latin1")
    >>> check_encoding("latin0")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: encoding must be one of text such as "utf-8" or "latin-1", got 'latin0' (str)
    """
    try:
        "".encode(encoding)
    except (LookupError, TypeError, ValueError):
        raise ConfigError(f'{name} must be one of text such as "utf-8" or "latin-1", got {_shown(encoding)}') from None
    try:
        one_byte = b"\n".decode(encoding) == "\n"
    except ValueError:
        one_byte = False
    if of_lines and not one_byte:
        raise ConfigError(f"{name} must have the line break of ASCII, to find lines by it, got {_shown(encoding)}")


def check_seconds(name: str, value: Any, zero: bool = False) -> None:
    """Raise unless the option is a number of seconds that a lock can wait; ``zero`` also allows 0.

    >>> check_seconds("grace", -1)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: grace must be > 0 and at most 1e+09 seconds, got -1
    """
    allowed = f"must be {'>=' if zero else '>'} 0 and at most {MAX_SECONDS:g} seconds"
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 <= float(value) <= MAX_SECONDS or not (value or zero):
        raise ConfigError(f"{name} {allowed}, got {_shown(value)}")


def duration_seconds(name: str, value: Any, zero: bool = False) -> float:
    """Return the seconds of a duration that a lock can wait; ``zero`` also allows 0.

    >>> duration_seconds("epoch", "1min")
    60.0
    >>> duration_seconds("epoch", 60)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: epoch must be a timedelta or a text such as '10s' or '1h30m', got 60
    """
    if not isinstance(value, str | timedelta):
        raise ConfigError(f"{name} must be a timedelta or a text such as '10s' or '1h30m', got {_shown(value)}")
    try:
        seconds = (duration(value) if isinstance(value, str) else value).total_seconds()
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    check_seconds(name, seconds, zero)
    return seconds


def check_share(**options: Any) -> None:
    """Raise unless each option is a number from 0 to 1.

    >>> check_share(late=2)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: late must be from 0 to 1, got 2
    """
    for name, value in options.items():
        if not is_number(value) or not 0 <= value <= 1:
            raise ConfigError(f"{name} must be from 0 to 1, got {_shown(value)}")


def check_positive(or_zero: bool = False, /, **options: Any) -> None:
    """Raise unless each option is a finite number above 0; ``or_zero`` also allows 0.

    >>> check_positive(rate=0)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: rate must be a finite number > 0, got 0
    """
    allowed = ">= 0" if or_zero else "> 0"
    for name, value in options.items():
        if not is_number(value) or not 0 <= value < math.inf or not (value or or_zero):
            raise ConfigError(f"{name} must be a finite number {allowed}, got {_shown(value)}")


def check_flag(**options: Any) -> None:
    """Raise unless each option is True or False.

    >>> check_flag(dirt="no")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: dirt must be True or False, got 'no' (str)
    """
    for name, value in options.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be True or False, got {_shown(value)}")


def stream_length(duration: Any, messages: int | None) -> timedelta | None:
    """Return the length of a stream in event time; it cannot be combined with a length in messages.

    >>> str(stream_length("7d", None))
    '7 days, 0:00:00'
    >>> stream_length("0s", None)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: duration must be > 0 and at most 1e+09 seconds, got 0.0
    """
    if duration is None:
        return None
    if messages is not None:
        raise ConfigError(f"duration and messages cannot be given together; got {duration!r} and {messages!r}")
    return timedelta(seconds=duration_seconds("duration", duration))


def is_number(value: Any) -> bool:
    """Whether the value is an int or a float; a bool is not.

    >>> is_number(1), is_number(True), is_number("1")
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, Real) else value_text(value)


def check_transform_options(on_error: str, order: str, partitions: int | None) -> None:
    """Check the options that transforms of frames and of Spark's DataFrames share."""
    if on_error not in ("column", "drop"):
        raise ConfigError(f"on_error must be 'column' or 'drop', got {on_error!r}")
    if order not in ("auto", "arrival", "event_time"):
        raise ConfigError(f"order must be 'auto', 'arrival' or 'event_time', got {order!r}")
    if partitions is not None:
        check_count(partitions=partitions)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means the machine itself.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "10.0.0.1", "a")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
