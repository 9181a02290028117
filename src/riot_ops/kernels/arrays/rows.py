"""Some rows of columns and batches, faster than Arrow takes them: NumPy copies numbers, a loop texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.kernels.arrays.arrow import FLOAT64, INT64, bits_of, int_column, present, readonly, truth_column
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8, store8

__all__ = ["filtered", "interleaved", "repeated", "repeated_words", "spread", "taken", "taken_or_null", "taken_rows"]

#: Kinds whose values lie in one run of bytes with 32-bit offsets.
TEXTS = (pa.string().id, pa.binary().id)
#: Bytes that are read and written at once, and so maybe behind a text: most texts are no longer.
WORDS = 16
#: From so large a share on, Arrow copies the rows that pass in runs faster than they are copied one by one.
MOST = 0.75


@kernel
def _offsets_of(offsets: Any, rows: Any, out: Any) -> Any:
    """Where the texts of some rows lie, one behind the other; returns the end, which may be past what offsets hold."""
    o: Any = 0
    out[0] = 0
    for k in range(rows.size):
        row = np.uint64(rows[k])
        o += np.int64(offsets[row + np.uint64(1)]) - np.int64(offsets[row])
        out[np.uint64(k + 1)] = o
    return o


@kernel
def _copy_texts(data: Any, offsets: Any, rows: Any, places: Any, out: Any) -> None:
    """Copy the texts of some rows to their places; behind the last, two words are for use."""
    room = data.size - WORDS
    for k in range(rows.size):
        start = np.int64(offsets[np.uint64(rows[k])])
        o = np.int64(places[np.uint64(k)])
        size = np.int64(places[np.uint64(k + 1)]) - o
        if start + size <= room:
            for j in range(0, size, WORDS):  # what is past the text is written again by the next
                store8(out, o + j, load8(data, start + j))
                store8(out, o + j + 8, load8(data, start + j + 8))
        else:
            for j in range(size):
                out[np.uint64(o + j)] = data[np.uint64(start + j)]


def _taken_text(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """The values of a text column at some rows; None where they are more than a column can hold."""
    _, begins, text = column.buffers()
    offsets = readonly(np.frombuffer(begins, np.int32, len(column) + 1, 4 * column.offset))
    data = np.frombuffer(text, np.uint8) if text is not None and text.size else np.empty(0, np.uint8)
    if data.size < rows.size:  # a table of few texts: the last of them are copied by words, too
        data = np.concatenate([data, np.zeros(WORDS, np.uint8)])
    rows, places = readonly(rows), np.empty(rows.size + 1, np.int32)
    total = int(_offsets_of(offsets, rows, places))
    if total > np.iinfo(np.int32).max:
        return None
    out = np.empty(total + WORDS, np.uint8)
    _copy_texts(readonly(data), offsets, rows, places, out)
    bits = bits_of(present(column)[rows]) if column.null_count else None
    buffers = [bits, pa.py_buffer(places), pa.py_buffer(out)[:total]]
    return pa.Array.from_buffers(column.type, rows.size, buffers, -1 if column.null_count else 0)


def filtered(rows: pa.RecordBatch, passes: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows that pass; of columns of nothing but nulls no row is looked at.

    >>> filtered(pa.record_batch({"a": [1, 2], "b": pa.nulls(2)}), np.array([False, True])).to_pylist()
    [{'a': 2, 'b': None}]
    """
    n = int(np.count_nonzero(passes))
    if n <= MOST * rows.num_rows or not rows.num_columns:
        return taken_rows(rows, np.flatnonzero(passes))
    mask = truth_column(passes)
    columns = [pa.nulls(n, c.type) if _is_nothing(c) else c.filter(mask) for c in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _is_nothing(column: pa.Array) -> bool:
    """Whether all is null, of a kind whose nulls need nothing but their number."""
    return column.null_count == len(column) and not isinstance(column.type, pa.BaseExtensionType)


def taken(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """The values at some rows, as :meth:`pyarrow.Array.take` gives them.

    >>> taken(pa.array([True, False]), np.array([1, 1, 0])).to_pylist()
    [False, False, True]
    """
    if _is_nothing(column):
        return pa.nulls(rows.size, column.type)
    if pa.types.is_boolean(column.type) and not column.null_count:  # Arrow would go bit by bit
        return truth_column(column.to_numpy(zero_copy_only=False)[rows])
    kind = column.type
    if _is_of_words(kind):  # NumPy is faster, with nulls by far
        words = _words(column)[rows]
        bits = bits_of(present(column)[rows]) if column.null_count else None
        return pa.Array.from_buffers(kind, rows.size, [bits, pa.py_buffer(words)], -1 if column.null_count else 0)
    if kind.id in TEXTS and len(column) and (texts := _taken_text(column, rows)) is not None:
        return texts
    return column.take(pa.array(rows))


def taken_or_null(column: pa.Array, rows: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pa.Array:
    """The same, but null where a row is not known.

    >>> taken_or_null(pa.array(["a", "b"]), np.array([1, -1]), np.array([True, False])).to_pylist()
    ['b', None]
    """
    return taken(column, rows) if known.all() else column.take(pa.array(rows, mask=~known))


def taken_rows(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The same of a batch."""
    if not batch.num_columns:
        return batch.take(pa.array(rows))
    return pa.RecordBatch.from_arrays([taken(column, rows) for column in batch.columns], schema=batch.schema)


@kernel
def _repeat(values: Any, times: Any, out: Any) -> None:
    k = 0
    for i in range(values.size):
        value = values[i]
        for j in range(k, k + times[i]):
            out[np.uint64(j)] = value
        k += times[i]


def repeated_words(values: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Whole numbers, each so many times, as :func:`numpy.repeat` gives them, in less time.

    >>> repeated_words(np.array([7, 8]), np.array([2, 1])).tolist()
    [7, 7, 8]
    """
    out = np.empty(int(times.sum()), np.int64)
    _repeat(readonly(values), readonly(times), out)
    return out


def repeated(column: pa.Array, times: npt.NDArray[np.int64]) -> pa.Array:
    """The values of a column, each so many times.

    >>> repeated(pa.array(["a", "b", "c"]), np.array([2, 0, 1])).to_pylist()
    ['a', 'a', 'c']
    """
    kind = column.type
    if _is_nothing(column):
        return pa.nulls(int(times.sum()), kind)
    if column.null_count or not (pa.types.is_int64(kind) or pa.types.is_timestamp(kind) or pa.types.is_boolean(kind)):
        return taken(column, np.repeat(np.arange(len(column)), times))
    if pa.types.is_boolean(kind):
        return truth_column(np.repeat(column.to_numpy(zero_copy_only=False), times))
    values = repeated_words(int_column(column), times)
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)], 0)


def spread(column: pa.Array, places: npt.NDArray[np.int64], n: int) -> pa.Array:
    """A column of n rows that has the values of another one at some places, in order, and nulls between them.

    >>> spread(pa.array(["a", "bc"]), np.array([1, 3]), 5).to_pylist()
    [None, 'a', None, 'bc', None]
    """
    if _is_nothing(column):
        return pa.nulls(n, column.type)
    present = np.zeros(n, np.bool_)
    present[places] = True
    bitmap = pa.py_buffer(np.packbits(present, bitorder="little"))
    kind = column.type
    if not column.null_count and len(column) and pa.types.is_string(kind):
        _, starts, data = column.buffers()
        ends = np.frombuffer(starts, np.int32, len(column) + 1, 4 * column.offset)
        offsets = np.zeros(n + 1, np.int32)
        offsets[places + 1] = np.diff(ends)
        offsets[0] = ends[0]
        np.cumsum(offsets, out=offsets)
        return pa.Array.from_buffers(kind, n, [bitmap, pa.py_buffer(offsets), data], n - places.size)
    if not column.null_count and _is_of_words(kind):
        words = np.zeros(n, np.int64)
        words[places] = _words(column)
        return pa.Array.from_buffers(kind, n, [bitmap, pa.py_buffer(words)], n - places.size)
    rows = np.zeros(n, np.int64)
    rows[places] = np.arange(places.size)
    return column.take(pa.array(rows, mask=~present))


@kernel
def _interleave(first: Any, second: Any, of_second: Any, out: Any) -> None:
    """The rows of two columns as one, 0 of a column without rows."""
    a = 0
    b = 0
    for k in range(out.size):
        if of_second[np.uint64(k)]:
            out[np.uint64(k)] = second[np.uint64(b)] if second.size > 0 else 0
            b += 1
        else:
            out[np.uint64(k)] = first[np.uint64(a)] if first.size > 0 else 0
            a += 1


def interleaved(first: pa.RecordBatch, second: pa.RecordBatch, of_second: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Two batches of one schema as one, whose rows are of the second where it says so.

    Numbers are copied to where they belong; a field that only one of them has values of is spread among nulls.

    >>> both = np.array([False, True, False])
    >>> interleaved(pa.record_batch({"n": [1, 5]}), pa.record_batch({"n": [3]}), both).to_pylist()
    [{'n': 1}, {'n': 3}, {'n': 5}]
    """
    n = of_second.size
    no_words = readonly(np.empty(0, np.int64))
    bits: dict[bool, pa.Buffer] = {}  # by whether it is the first that lacks values
    rows: npt.NDArray[np.int64] | None = None
    columns = []
    for a, b, field in zip(first.columns, second.columns, first.schema, strict=True):
        lacks = _is_nothing(a), _is_nothing(b)
        if all(lacks):
            columns.append(pa.nulls(n, field.type))
        elif _is_of_words(field.type) and all(one or not c.null_count for one, c in zip(lacks, (a, b), strict=True)):
            words = np.empty(n, np.int64)
            parts = [no_words if one else _words(c) for one, c in zip(lacks, (a, b), strict=True)]
            _interleave(parts[0], parts[1], readonly(of_second), words)
            there = None
            if any(lacks):
                there = bits.get(lacks[0]) or bits_of(of_second if lacks[0] else ~of_second)
                bits[lacks[0]] = there
            nulls = len(a) * lacks[0] + len(b) * lacks[1]
            columns.append(pa.Array.from_buffers(field.type, n, [there, pa.py_buffer(words)], nulls))
        elif any(lacks):
            columns.append(spread(b if lacks[0] else a, np.flatnonzero(of_second == lacks[0]), n))
        else:
            if rows is None:
                rows = np.empty(n, np.int64)
                rows[~of_second], rows[of_second] = np.arange(len(a)), np.arange(len(a), n)
            columns.append(taken(pa.concat_arrays([a, b]), rows))
    return pa.RecordBatch.from_arrays(columns, schema=first.schema)


def _is_of_words(kind: pa.DataType) -> bool:
    """Whether values are of 64 bits each."""
    return kind.id in (INT64, FLOAT64) or pa.types.is_timestamp(kind)


def _words(column: pa.Array) -> npt.NDArray[np.int64]:
    """The values of such a column, as they are kept."""
    if not len(column):
        return readonly(np.empty(0, np.int64))
    return readonly(np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset))
