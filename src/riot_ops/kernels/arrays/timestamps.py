"""Timestamp columns of any unit as microseconds, and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import EARLIEST, LATEST
from riot_ops.kernels.arrays.arrow import int64_column, numpy_values, readonly, valid_mask

__all__ = ["check_time_field", "from_microseconds", "microseconds", "time_limits"]

_MICROSECONDS = pa.timestamp("us", tz="UTC")
#: In another time zone Python's local time may be up to a day off.
_ZONE_MARGIN = 86_400_000_000


def check_time_field(task: str, schema: pa.Schema, name: str = "event_time") -> None:
    """Raise :class:`ConfigError` unless a field holds timestamps (or nothing but nulls)."""
    dtype = schema.field(name).type
    if not (pa.types.is_timestamp(dtype) or pa.types.is_null(dtype)):
        raise ConfigError(f"{task} needs a timestamp in the field {name!r}, its input has {dtype}")


def microseconds(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """``(times, present)``: microseconds since the epoch (0 where null), and True where not null.

    >>> microseconds(pa.array([1, None], pa.timestamp("ms")))
    (array([1000,    0]), array([ True, False]))
    """
    if not column.null_count and pa.types.is_timestamp(column.type) and column.type.unit == "us":
        return numpy_values(column.view(pa.int64())), readonly(np.ones(len(column), np.bool_))
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        numbers = column.view(pa.int64())
        whole = np.asarray(numbers.fill_null(0) if numbers.null_count else numbers) // 1000  # also before 1970
        return readonly(whole), readonly(valid_mask(column))
    numbers = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None))).cast(pa.int64())
    return numpy_values(numbers.fill_null(0)), readonly(valid_mask(numbers))


def from_microseconds(times: npt.NDArray[np.int64], dtype: pa.DataType = _MICROSECONDS) -> pa.Array:
    """A timestamp column of microseconds since the epoch; ``dtype`` other than a timestamp gives microseconds, UTC."""
    dtype = dtype if pa.types.is_timestamp(dtype) else _MICROSECONDS
    if dtype.unit == "us":
        return int64_column(times, dtype)
    return pa.array(times).cast(pa.timestamp("us", tz=dtype.tz)).cast(dtype, safe=False)


def time_limits(dtype: pa.DataType) -> tuple[int, int]:
    """The first and the last time, in microseconds, that a column of ``dtype`` and Python's ``datetime`` can hold.

    >>> time_limits(pa.timestamp("us", "UTC")) == (EARLIEST, LATEST)
    True
    >>> from_microseconds(np.array(time_limits(pa.timestamp("ns")))).to_pylist()[1].year
    2262
    """
    low, high = EARLIEST, LATEST
    if pa.types.is_timestamp(dtype):
        if dtype.unit == "ns":
            nanoseconds = np.iinfo(np.int64)
            low, high = max(low, -(-(nanoseconds.min + 1) // 1000)), min(high, nanoseconds.max // 1000)
        elif dtype.tz not in (None, "UTC"):
            low, high = low + _ZONE_MARGIN, high - _ZONE_MARGIN
    return low, high
