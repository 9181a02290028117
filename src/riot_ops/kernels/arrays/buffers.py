"""Arrow columns over NumPy buffers, without copying."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.schema import TIMESTAMP

__all__ = ["null_bitmap", "text_column", "timestamps"]


def timestamps(micros: npt.NDArray[np.int64]) -> pa.Array:
    """Microseconds as a timestamp column, not copied."""
    return pa.Array.from_buffers(TIMESTAMP, len(micros), [None, pa.py_buffer(micros)], 0)


def text_column(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], kind: pa.DataType | None = None
) -> pa.Array:
    """A text column over bytes written end to end, not copied."""
    return pa.Array.from_buffers(
        kind or pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0
    )


def null_bitmap(values: npt.NDArray[np.float64]) -> pa.Array:
    """A float column with null where NaN; the values are not copied."""
    missing = np.isnan(values)
    if not missing.any():
        return pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(values)], 0)
    bits = np.packbits(~missing, bitorder="little")
    return pa.Array.from_buffers(pa.float64(), len(values), [pa.py_buffer(bits), pa.py_buffer(values)], -1)
