"""Types of the parameters of generated streams, with the functions that check their values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

from riot_ops.core.checks import check_count, check_flag, check_positive, check_share, duration_seconds
from riot_ops.core.parameters import Duration

__all__ = [
    "Count",
    "Flag",
    "NonNegative",
    "NonNegativeDuration",
    "Positive",
    "PositiveDuration",
    "Share",
    "check_fields",
]

Count = Annotated[int, check_count]
Share = Annotated[float, check_share]
Positive = Annotated[float, check_positive]
NonNegative = Annotated[float, functools.partial(check_positive, True)]
Flag = Annotated[bool, check_flag]


def _check_durations(zero: bool, /, **options: Any) -> None:
    for name, value in options.items():
        duration_seconds(name, value, zero)


PositiveDuration = Annotated[Duration, functools.partial(_check_durations, False)]
NonNegativeDuration = Annotated[Duration, functools.partial(_check_durations, True)]


def check_fields(owner: Any) -> None:
    """Check the fields of a dataclass by the functions in their types."""
    kind: Any = type(owner)
    for name, check in _checks(kind):
        check(**{name: getattr(owner, name)})


@functools.cache
def _checks(kind: Any) -> list[tuple[str, Callable[..., None]]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(one.name, check) for one in fields(kind) for check in getattr(hints[one.name], "__metadata__", ())]
