"""Dictionary columns: codes and the values that they refer to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import readonly, replace_column, valid_mask
from riot_ops.kernels.arrays.rows import take
from riot_ops.kernels.jit import kernel

__all__ = ["decode_dictionaries", "dictionary_codes", "dictionary_values", "first_occurrences", "slots_of_codes"]


def dictionary_codes(column: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """``(codes, known)`` of a column: value i is ``known[codes[i]]``, null where the code is -1.

    >>> codes, known = dictionary_codes(pa.array(["b", None, "a", "b"]))
    >>> codes.tolist(), known.to_pylist()
    ([0, -1, 1, 0], ['b', 'a'])
    """
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif column.dictionary.null_count:  # Arrow allows nulls in both places
        column = column.dictionary_decode().dictionary_encode()
    indices, known = column.indices, column.dictionary
    if not len(indices):
        return readonly(np.empty(0, np.int32)), known
    stored = np.frombuffer(indices.buffers()[1], indices.type.to_pandas_dtype(), len(indices) + indices.offset)
    codes = stored[indices.offset :].astype(np.int32, copy=False)
    return readonly(np.where(valid_mask(indices), codes, np.int32(-1)) if indices.null_count else codes), known


def dictionary_values(column: pa.Array) -> pa.Array:
    """Decode a dictionary column.

    >>> dictionary_values(pa.array(["b", None, "b"]).dictionary_encode()).to_pylist()
    ['b', None, 'b']
    """
    if column.null_count or column.dictionary.null_count:
        return column.dictionary_decode()
    codes, known = dictionary_codes(column)
    return take(known, codes.astype(np.int64))


def decode_dictionaries(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Decode the dictionary columns of a batch.

    >>> decode_dictionaries(pa.record_batch({"a": pa.array(["x", "x"]).dictionary_encode()})).schema.field("a").type
    DataType(string)
    """
    for name, dtype in zip(rows.schema.names, rows.schema.types, strict=True):
        if pa.types.is_dictionary(dtype):
            rows = replace_column(rows, name, dictionary_values(rows.column(name)))
    return rows


def take_encoded(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Take rows of a column as a dictionary column.

    >>> take_encoded(pa.array(["a", None, "a"]), np.array([2, 1, 0])).to_pylist()
    ['a', None, 'a']
    """
    codes, known = dictionary_codes(column if len(column) <= rows.size else column.take(pa.array(rows)))
    codes = codes[rows] if len(column) <= rows.size else codes
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), known, safe=False)


@kernel
def _first_rows(codes: Any, seen: Any, rows: Any) -> Any:
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
def _look_up(codes: Any, slot_of: Any, slots: Any) -> None:
    for i in range(codes.size):
        slots[i] = slot_of[np.uint64(codes[i])]


def slots_of_codes(codes: npt.NDArray[np.int32], slot_of: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Look up the slot of each code.

    >>> slots_of_codes(np.array([2, 0], np.int32), np.array([7, 8, 9])).tolist()
    [9, 7]
    """
    slots = np.empty(codes.size, np.int64)
    _look_up(readonly(codes), slot_of, slots)
    return slots


def first_occurrences(codes: npt.NDArray[np.int32], known: int) -> npt.NDArray[np.int64]:
    """Return the row at which each code first occurs, in ascending order; codes are from 0 to below ``known``.

    >>> first_occurrences(np.array([2, 2, 0, 1, 2], np.int32), 4).tolist()
    [0, 2, 3]
    """
    rows = np.empty(min(known, codes.size), np.int64)
    return rows[: _first_rows(readonly(codes), np.zeros(known, np.bool_), rows)]
