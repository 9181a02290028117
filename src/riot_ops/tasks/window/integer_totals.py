"""Integer totals: checks of the ``totals`` parameter, which maps output fields to summed fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.order import ordinals

__all__ = ["INT64_MAX", "check_summable", "validate_totals"]

INT64_MAX = int(np.iinfo(np.int64).max)


def validate_totals(totals: Any, reserved: Iterable[str]) -> dict[str, str | None]:
    """Check the summed field of each output field, and return a copy; no output may have a ``reserved`` name."""
    if not isinstance(totals, Mapping) or not totals:
        raise ConfigError(
            f"totals must be a dict of output field to field (or None: records), got {value_text(totals)}"
        )
    for name, of in totals.items():
        if not isinstance(name, str) or name in ("seq", "event_time", *reserved) or ordinals([name]):
            raise ConfigError(f"totals: {name!r} cannot be the name of a total")
        if not isinstance(of, str | None):
            raise ConfigError(f"totals: {name!r} must be the total of a field or None, got {value_text(of)}")
    return dict(totals)


def check_summable(task: str, totals: Mapping[str, str | None], schema: pa.Schema) -> None:
    """Raise unless every summed field holds integers or booleans."""
    for of in totals.values():
        dtype = pa.null() if of is None else schema.field(of).type
        if not (pa.types.is_integer(dtype) or pa.types.is_boolean(dtype) or pa.types.is_null(dtype)):
            raise ConfigError(f"{task} sums integers and booleans; the field {of!r} has the type {dtype}")
