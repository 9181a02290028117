"""Event times as integers, whatever their Arrow type."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.kernels.arrays.arrow import present, readonly, words

__all__ = ["check_time_field", "from_microseconds", "microseconds"]

_MICROSECONDS = pa.timestamp("us", tz="UTC")


def check_time_field(task: str, schema: pa.Schema, name: str = "event_time") -> None:
    """Raise unless a field holds timestamps (or nothing but nulls)."""
    kind = schema.field(name).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_null(kind)):
        raise ConfigError(f"{task} needs a timestamp in the field {name!r}, its input has {kind}")


def microseconds(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """``(times, present)``: microseconds since the epoch (0 where null), and where there is a time.

    >>> microseconds(pa.array([1, None], pa.timestamp("ms")))
    (array([1000,    0]), array([ True, False]))
    """
    if not column.null_count and pa.types.is_timestamp(column.type) and column.type.unit == "us":
        return readonly(column.view(pa.int64()).to_numpy()), readonly(np.ones(len(column), np.bool_))
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    numbers = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None))).cast(pa.int64())
    return readonly(numbers.fill_null(0).to_numpy(zero_copy_only=False)), readonly(present(numbers))


def from_microseconds(times: npt.NDArray[np.int64], kind: pa.DataType = _MICROSECONDS) -> pa.Array:
    """Times as a column of a timestamp type."""
    kind = kind if pa.types.is_timestamp(kind) else _MICROSECONDS
    if kind.unit == "us":
        return words(times, kind)
    return pa.array(times).cast(pa.timestamp("us", tz=kind.tz)).cast(kind, safe=False)
