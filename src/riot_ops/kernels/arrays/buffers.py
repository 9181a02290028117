"""Arrow columns over NumPy arrays, without copying."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.schema import TIMESTAMP

__all__ = ["nullable_floats", "text_column", "timestamp_column"]


def timestamp_column(micros: npt.NDArray[np.int64]) -> pa.Array:
    """Return a timestamp column over microseconds."""
    return pa.Array.from_buffers(TIMESTAMP, len(micros), [None, pa.py_buffer(micros)], 0)


def text_column(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], dtype: pa.DataType | None = None
) -> pa.Array:
    """Return a text column over concatenated bytes and their offsets."""
    return pa.Array.from_buffers(
        dtype or pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0
    )


def nullable_floats(values: npt.NDArray[np.float64]) -> pa.Array:
    """Return a float64 column over values, null where NaN."""
    missing = np.isnan(values)
    if not missing.any():
        return pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(values)], 0)
    bitmap = np.packbits(~missing, bitorder="little")
    return pa.Array.from_buffers(pa.float64(), len(values), [pa.py_buffer(bitmap), pa.py_buffer(values)], -1)
