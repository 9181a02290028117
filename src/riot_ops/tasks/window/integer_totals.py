"""Integer totals: validation and inputs of the ``totals`` parameter, which maps output fields to summed fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.order import ordinals

__all__ = ["INT64_MAX", "addends", "check_summable", "validate_totals"]

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


def addends(batch: pa.RecordBatch, of: str | None) -> npt.NDArray[np.int64]:
    """Return what each row adds to a total: 1, or the field's value; a null adds 0."""
    if of is None:
        return np.ones(batch.num_rows, np.int64)
    column = batch.column(of)
    if pa.types.is_uint64(column.type):  # a value beyond int64 saturates the total like the maximum
        limit = pa.scalar(INT64_MAX, pa.uint64())
        column = pc.if_else(pc.greater(column, limit), limit, column)
    column = column.cast(pa.int64())
    values: npt.NDArray[np.int64] = (column.fill_null(0) if column.null_count else column).to_numpy()
    return values
