"""Columns of numbers into a list of values, which Arrow calls dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import present, readonly, replace_column
from riot_ops.kernels.arrays.rows import taken
from riot_ops.kernels.jit import kernel

__all__ = ["appearing", "coded", "decoded", "followed", "values_of"]


def coded(column: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """``(codes, known)``: the values of a column are those of ``known`` at these places, null at -1.

    >>> codes, known = coded(pa.array(["b", None, "a", "b"]))
    >>> codes.tolist(), known.to_pylist()
    ([0, -1, 1, 0], ['b', 'a'])
    """
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif column.dictionary.null_count:  # which Arrow allows as well
        column = column.dictionary_decode().dictionary_encode()
    indices, known = column.indices, column.dictionary
    if not len(indices):
        return readonly(np.empty(0, np.int32)), known
    stored = np.frombuffer(indices.buffers()[1], indices.type.to_pandas_dtype(), len(indices) + indices.offset)
    codes = stored[indices.offset :].astype(np.int32, copy=False)
    return readonly(np.where(present(indices), codes, np.int32(-1)) if indices.null_count else codes), known


def values_of(column: pa.Array) -> pa.Array:
    """The values themselves of a dictionary column.

    >>> values_of(pa.array(["b", None, "b"]).dictionary_encode()).to_pylist()
    ['b', None, 'b']
    """
    if column.null_count or column.dictionary.null_count:
        return column.dictionary_decode()
    codes, known = coded(column)
    return taken(known, codes.astype(np.int64))


def decoded(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the values themselves in dictionary columns' place.

    >>> decoded(pa.record_batch({"a": pa.array(["x", "x"]).dictionary_encode()})).schema.field("a").type
    DataType(string)
    """
    for name, kind in zip(rows.schema.names, rows.schema.types, strict=True):
        if pa.types.is_dictionary(kind):
            rows = replace_column(rows, name, values_of(rows.column(name)))
    return rows


def taken_coded(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """The values at some rows, as numbers into the list of those that differ.

    >>> taken_coded(pa.array(["a", None, "a"]), np.array([2, 1, 0])).to_pylist()
    ['a', None, 'a']
    """
    codes, known = coded(column if len(column) <= rows.size else column.take(pa.array(rows)))
    codes = codes[rows] if len(column) <= rows.size else codes
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), known, safe=False)


@kernel
def _appear(codes: Any, seen: Any, rows: Any) -> Any:
    n = 0
    for i in range(codes.size):
        c = np.uint64(codes[i])
        if not seen[c]:
            seen[c] = True
            rows[n] = i
            n += 1
            if n == rows.size:
                break
    return n


@kernel
def _follow(codes: Any, slot_of: Any, slots: Any) -> None:
    for i in range(codes.size):
        slots[i] = slot_of[np.uint64(codes[i])]


def followed(codes: npt.NDArray[np.int32], slot_of: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The slot of each of some codes.

    >>> followed(np.array([2, 0], np.int32), np.array([7, 8, 9])).tolist()
    [9, 7]
    """
    slots = np.empty(codes.size, np.int64)
    _follow(readonly(codes), slot_of, slots)
    return slots


def appearing(codes: npt.NDArray[np.int32], known: int) -> npt.NDArray[np.int64]:
    """The first row of each of some codes, from 0 to below ``known``, in order.

    >>> appearing(np.array([2, 2, 0, 1, 2], np.int32), 4).tolist()
    [0, 2, 3]
    """
    rows = np.empty(min(known, codes.size), np.int64)
    return rows[: _appear(readonly(codes), np.zeros(known, np.bool_), rows)]
