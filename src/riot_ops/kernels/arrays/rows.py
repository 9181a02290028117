"""Taking, filtering, repeating and interleaving rows, faster than Arrow: numbers by NumPy, texts by a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import (
    FLOAT64,
    INT64,
    boolean_column,
    int_column,
    numpy_values,
    pack_bits,
    readonly,
    valid_mask,
)
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8, store8

__all__ = ["filter_rows", "interleave", "repeat", "repeat_values", "scatter", "take", "take_or_null", "take_rows"]

#: Types whose values are consecutive bytes with 32-bit offsets.
TEXT_TYPES = (pa.string().id, pa.binary().id)
#: Bytes that are copied at a time, also beyond the end of a text: most texts are no longer.
COPY_BYTES = 16
#: If more than this share of rows pass, a filter by Arrow, which copies runs, is faster than taking row by row.
FILTER_SHARE = 0.75


@kernel
def _text_offsets(offsets: Any, rows: Any, out: Any) -> Any:
    """Write the offsets of the texts of some rows; returns the end, which may exceed what the offsets can hold."""
    o: Any = 0
    out[0] = 0
    for k in range(rows.size):
        row = np.uint64(rows[k])
        o += np.int64(offsets[row + np.uint64(1)]) - np.int64(offsets[row])
        out[np.uint64(k + 1)] = o
    return o


@kernel
def _copy_texts(data: Any, offsets: Any, rows: Any, positions: Any, out: Any) -> None:
    """Copy the texts of some rows to their positions; ``out`` has two spare words at the end."""
    safe = data.size - COPY_BYTES
    for k in range(rows.size):
        start = np.int64(offsets[np.uint64(rows[k])])
        o = np.int64(positions[np.uint64(k)])
        size = np.int64(positions[np.uint64(k + 1)]) - o
        if start + size <= safe:
            for j in range(0, size, COPY_BYTES):  # the next text overwrites what is written past this one
                store8(out, o + j, load8(data, start + j))
                store8(out, o + j + 8, load8(data, start + j + 8))
        else:
            for j in range(size):
                out[np.uint64(o + j)] = data[np.uint64(start + j)]


def _take_text(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Take rows of a text column; None if they exceed what a column can hold."""
    _, begins, text = column.buffers()
    offsets = readonly(np.frombuffer(begins, np.int32, len(column) + 1, 4 * column.offset))
    data = np.frombuffer(text, np.uint8) if text is not None and text.size else np.empty(0, np.uint8)
    if data.size < rows.size:  # a table of few texts: pad it, so that the last texts are copied by words as well
        data = np.concatenate([data, np.zeros(COPY_BYTES, np.uint8)])
    rows, positions = readonly(rows), np.empty(rows.size + 1, np.int32)
    total = int(_text_offsets(offsets, rows, positions))
    if total > np.iinfo(np.int32).max:
        return None
    out = np.empty(total + COPY_BYTES, np.uint8)
    _copy_texts(readonly(data), offsets, rows, positions, out)
    bits = pack_bits(valid_mask(column)[rows]) if column.null_count else None
    buffers = [bits, pa.py_buffer(positions), pa.py_buffer(out)[:total]]
    return pa.Array.from_buffers(column.type, rows.size, buffers, -1 if column.null_count else 0)


def filter_rows(rows: pa.RecordBatch, passes: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Filter a batch; columns of nothing but nulls are not read.

    >>> filter_rows(pa.record_batch({"a": [1, 2], "b": pa.nulls(2)}), np.array([False, True])).to_pylist()
    [{'a': 2, 'b': None}]
    """
    n = int(np.count_nonzero(passes))
    if n <= FILTER_SHARE * rows.num_rows or not rows.num_columns:
        return take_rows(rows, np.flatnonzero(passes))
    mask = boolean_column(passes)
    columns = [pa.nulls(n, c.type) if _is_all_null(c) else c.filter(mask) for c in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _is_all_null(column: pa.Array) -> bool:
    """Whether all values are null, so that ``pa.nulls`` can make any number of them."""
    return column.null_count == len(column) and not isinstance(column.type, pa.BaseExtensionType)


def take(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Take rows of a column, like :meth:`pyarrow.Array.take`.

    >>> take(pa.array([True, False]), np.array([1, 1, 0])).to_pylist()
    [False, False, True]
    """
    if _is_all_null(column):
        return pa.nulls(rows.size, column.type)
    if pa.types.is_boolean(column.type) and not column.null_count:  # Arrow would copy bit by bit
        return boolean_column(numpy_values(column)[rows])
    dtype = column.type
    if _is_64_bit(dtype):  # NumPy is faster, much faster if there are nulls
        words = _int64_values(column)[rows]
        bits = pack_bits(valid_mask(column)[rows]) if column.null_count else None
        return pa.Array.from_buffers(dtype, rows.size, [bits, pa.py_buffer(words)], -1 if column.null_count else 0)
    if dtype.id in TEXT_TYPES and len(column) and (texts := _take_text(column, rows)) is not None:
        return texts
    return column.take(pa.array(rows))


def take_or_null(column: pa.Array, rows: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pa.Array:
    """Like :func:`take`, but null where not ``known``.

    >>> take_or_null(pa.array(["a", "b"]), np.array([1, -1]), np.array([True, False])).to_pylist()
    ['b', None]
    """
    return take(column, rows) if known.all() else column.take(pa.array(rows, mask=~known))


def take_rows(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Take rows of a batch."""
    if not batch.num_columns:
        return batch.take(pa.array(rows))
    return pa.RecordBatch.from_arrays([take(column, rows) for column in batch.columns], schema=batch.schema)


@kernel
def _repeat(values: Any, times: Any, out: Any) -> None:
    k = 0
    for i in range(values.size):
        value = values[i]
        for j in range(k, k + times[i]):
            out[np.uint64(j)] = value
        k += times[i]


def repeat_values(values: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Repeat each value ``times[i]`` times, like :func:`numpy.repeat` but faster.

    >>> repeat_values(np.array([7, 8]), np.array([2, 1])).tolist()
    [7, 7, 8]
    """
    out = np.empty(int(times.sum()), np.int64)
    _repeat(readonly(values), readonly(times), out)
    return out


def repeat(column: pa.Array, times: npt.NDArray[np.int64]) -> pa.Array:
    """Repeat each value of a column ``times[i]`` times.

    >>> repeat(pa.array(["a", "b", "c"]), np.array([2, 0, 1])).to_pylist()
    ['a', 'a', 'c']
    """
    dtype = column.type
    if _is_all_null(column):
        return pa.nulls(int(times.sum()), dtype)
    if column.null_count or not (
        pa.types.is_int64(dtype) or pa.types.is_timestamp(dtype) or pa.types.is_boolean(dtype)
    ):
        return take(column, np.repeat(np.arange(len(column)), times))
    if pa.types.is_boolean(dtype):
        return boolean_column(np.repeat(numpy_values(column), times))
    values = repeat_values(int_column(column), times)
    return pa.Array.from_buffers(dtype, values.size, [None, pa.py_buffer(values)], 0)


def scatter(column: pa.Array, positions: npt.NDArray[np.int64], n: int) -> pa.Array:
    """Spread the values of a column over n rows: value i at ``positions[i]``, which ascend, nulls elsewhere.

    >>> scatter(pa.array(["a", "bc"]), np.array([1, 3]), 5).to_pylist()
    [None, 'a', None, 'bc', None]
    """
    if _is_all_null(column):
        return pa.nulls(n, column.type)
    present = np.zeros(n, np.bool_)
    present[positions] = True
    bitmap = pa.py_buffer(np.packbits(present, bitorder="little"))
    dtype = column.type
    if not column.null_count and len(column) and pa.types.is_string(dtype):
        _, starts, data = column.buffers()
        ends = np.frombuffer(starts, np.int32, len(column) + 1, 4 * column.offset)
        offsets = np.zeros(n + 1, np.int32)
        offsets[positions + 1] = np.diff(ends)
        offsets[0] = ends[0]
        np.cumsum(offsets, out=offsets)
        return pa.Array.from_buffers(dtype, n, [bitmap, pa.py_buffer(offsets), data], n - positions.size)
    if not column.null_count and _is_64_bit(dtype):
        words = np.zeros(n, np.int64)
        words[positions] = _int64_values(column)
        return pa.Array.from_buffers(dtype, n, [bitmap, pa.py_buffer(words)], n - positions.size)
    rows = np.zeros(n, np.int64)
    rows[positions] = np.arange(positions.size)
    return column.take(pa.array(rows, mask=~present))


@kernel
def _interleave(first: Any, second: Any, of_second: Any, out: Any) -> None:
    """Merge the rows of two columns; 0 in place of those of an empty column."""
    a = 0
    b = 0
    for k in range(out.size):
        if of_second[np.uint64(k)]:
            out[np.uint64(k)] = second[np.uint64(b)] if second.size > 0 else 0
            b += 1
        else:
            out[np.uint64(k)] = first[np.uint64(a)] if first.size > 0 else 0
            a += 1


def interleave(first: pa.RecordBatch, second: pa.RecordBatch, of_second: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Merge two batches of one schema; row i is the next of the second batch where ``of_second[i]``, else of the first.

    A field that is all null in one of the batches is scattered among nulls.

    >>> both = np.array([False, True, False])
    >>> interleave(pa.record_batch({"n": [1, 5]}), pa.record_batch({"n": [3]}), both).to_pylist()
    [{'n': 1}, {'n': 3}, {'n': 5}]
    """
    n = of_second.size
    no_words = readonly(np.empty(0, np.int64))
    bits: dict[bool, pa.Buffer] = {}  # by whether the first batch lacks the values
    rows: npt.NDArray[np.int64] | None = None
    columns = []
    for a, b, field in zip(first.columns, second.columns, first.schema, strict=True):
        lacks = _is_all_null(a), _is_all_null(b)
        if all(lacks):
            columns.append(pa.nulls(n, field.type))
        elif _is_64_bit(field.type) and all(one or not c.null_count for one, c in zip(lacks, (a, b), strict=True)):
            words = np.empty(n, np.int64)
            parts = [no_words if one else _int64_values(c) for one, c in zip(lacks, (a, b), strict=True)]
            _interleave(parts[0], parts[1], readonly(of_second), words)
            there = None
            if any(lacks):
                there = bits.get(lacks[0]) or pack_bits(of_second if lacks[0] else ~of_second)
                bits[lacks[0]] = there
            nulls = len(a) * lacks[0] + len(b) * lacks[1]
            columns.append(pa.Array.from_buffers(field.type, n, [there, pa.py_buffer(words)], nulls))
        elif any(lacks):
            columns.append(scatter(b if lacks[0] else a, np.flatnonzero(of_second == lacks[0]), n))
        else:
            if rows is None:
                rows = np.empty(n, np.int64)
                rows[~of_second], rows[of_second] = np.arange(len(a)), np.arange(len(a), n)
            columns.append(take(pa.concat_arrays([a, b]), rows))
    return pa.RecordBatch.from_arrays(columns, schema=first.schema)


def _is_64_bit(dtype: pa.DataType) -> bool:
    """Whether values are of 64 bits, and int64, float64 or timestamps."""
    return dtype.id in (INT64, FLOAT64) or pa.types.is_timestamp(dtype)


def _int64_values(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the stored 64-bit values of a column as int64."""
    if not len(column):
        return readonly(np.empty(0, np.int64))
    return readonly(np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset))
