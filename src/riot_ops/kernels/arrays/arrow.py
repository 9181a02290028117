"""Arrow columns as NumPy arrays, without copying where Arrow's layout allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8, store8

__all__ = [
    "PIECE_BYTES",
    "bits_of",
    "byte_spans",
    "count_column",
    "float_column",
    "int_column",
    "joined",
    "masked",
    "pieces",
    "present",
    "readonly",
    "size_of",
    "strings_from_spans",
    "text_pieces",
    "text_sizes",
    "truth_column",
    "truths",
    "words",
]

#: Text that is worked on at a time: far from the 2 GiB that an Arrow array of text holds.
PIECE_BYTES = 1 << 26

#: What is looked for first.
FLOAT64, INT64 = pa.float64().id, pa.int64().id

NO_MASK = np.empty(0, np.bool_)
NO_MASK.flags.writeable = False


def readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array marked read-only, so that kernels see one argument type whatever its origin."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def present(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Where a column is not null, at a tenth of the cost of a column of truth values.

    >>> present(pa.array([1, None, 3])[1:]).tolist()
    [False, True]
    """
    bits = column.buffers()[0] if column.null_count else None
    if bits is None:  # nothing is null, or all of a kind that keeps no bits
        return np.full(len(column), not column.null_count) if _keeps_bits(column) else np.asarray(column.is_valid())
    at = column.offset
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=at + len(column), bitorder="little")[at:].view(np.bool_)


def _keeps_bits(column: pa.Array) -> bool:
    kind = column.type
    return not (pa.types.is_union(kind) or pa.types.is_run_end_encoded(kind))


def truths(column: pa.Array) -> npt.NDArray[np.int8]:
    """A column of truth values as 1 and 0, -1 where null.

    >>> truths(pa.array([True, None, False])[1:]).tolist()
    [-1, 0]
    """
    if pa.types.is_null(column.type):
        return np.full(len(column), -1, np.int8)
    at = column.offset
    bits = np.frombuffer(column.buffers()[1], np.uint8) if len(column) else np.zeros(0, np.uint8)
    values = np.unpackbits(bits, count=at + len(column), bitorder="little")[at:].view(np.int8)
    return np.where(present(column), values, np.int8(-1)) if column.null_count else values


def truth_column(values: npt.NDArray[np.bool_]) -> pa.Array:
    """A column of truth values, such as a filter takes, at a tenth of the cost of ``pa.array``.

    >>> truth_column(np.array([True, False])).to_pylist()
    [True, False]
    """
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, bits_of(values)], 0)


def masked(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> pa.Array:
    """A column of int64 or float64 with nulls where something is missing, over the memory of the values.

    >>> masked(np.array([1.5, 2.0]), np.array([False, True])).to_pylist()
    [1.5, None]
    """
    nulls = int(np.count_nonzero(missing))
    if not nulls:
        return pa.array(values)
    kind = pa.float64() if values.dtype == np.float64 else pa.int64()
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, values.size, [bits_of(~missing), data], nulls)


def words(values: npt.NDArray[np.int64], kind: pa.DataType | None = None) -> pa.Array:
    """Whole numbers as a column of them or of another type of 64 bits, such as times, over their memory.

    >>> words(np.array([1]), pa.timestamp("us")).to_pylist()
    [datetime.datetime(1970, 1, 1, 0, 0, 0, 1)]
    """
    kind = pa.int64() if kind is None else kind
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


def bits_of(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Truth values as Arrow keeps them."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    """True where not null; of size 0 where nothing is null."""
    return readonly(present(column)) if column.null_count else NO_MASK


def byte_spans(
    column: pa.Array,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """``(data, starts, ends, valid)`` of a string or binary column."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not (wide or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise TypeError(f"expected text or binary, got {kind}")
    _, offsets_buffer, data_buffer = column.buffers()
    dtype = np.int64 if wide else np.int32
    if offsets_buffer is None or len(column) == 0:
        empty = readonly(np.empty(0, np.int64))
        return readonly(np.zeros(0, np.uint8)), empty, empty, NO_MASK
    offsets = np.frombuffer(offsets_buffer, dtype, len(column) + 1, column.offset * dtype().itemsize)
    bounds: npt.NDArray[np.int64] = offsets.astype(np.int64)
    bounds.flags.writeable = False  # and so are parts of it
    data = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(0, np.uint8)
    )
    return readonly(data), bounds[:-1], bounds[1:], _valid(column)


def float_column(column: pa.Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """``(values, valid)`` with NaN where null; integers and booleans are converted."""
    kind = column.type
    if kind.id == FLOAT64:
        if not column.null_count:
            return readonly(column.to_numpy()), NO_MASK
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    valid = _valid(column)
    if column.null_count == len(column):
        return readonly(np.full(len(column), np.nan)), valid
    if valid.size and column.type.id in (FLOAT64, INT64):  # Arrow would go value by value
        dtype = np.float64 if column.type.id == FLOAT64 else np.int64
        stored = np.frombuffer(column.buffers()[1], dtype, len(column), 8 * column.offset)
        return readonly(np.where(valid, stored, np.nan)), valid
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype != np.float64:
        values = values.astype(np.float64)
    return readonly(values), valid


def int_column(column: pa.Array) -> npt.NDArray[np.int64]:
    """A non-null integer or timestamp column as int64."""
    if column.type.id == INT64 and not column.null_count:
        return readonly(column.to_numpy())
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    elif not pa.types.is_int64(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(0)
    return readonly(column.to_numpy(zero_copy_only=False))


def count_column(column: pa.Array) -> npt.NDArray[np.int64]:
    """A column of numbers that count something as int64, 0 where there is none; parts of one are cut off.

    >>> count_column(pa.array([2.0, None, 3.5])).tolist()
    [2, 0, 3]
    """
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return int_column(column)
    values, _ = float_column(column)
    return readonly(np.where(np.isfinite(values), values, 0.0).astype(np.int64))


@kernel
def _span_offsets(starts: Any, lengths: Any, times: Any, offsets: Any) -> Any:
    """Offsets of spans that are each repeated, of no bytes where the start is negative; ``(total, nulls)``.

    The total may be past what offsets can hold.
    """
    o = 0
    k = 1
    nulls = 0
    offsets[0] = 0
    for i in range(starts.size):
        size = lengths[i]
        if starts[i] < 0:
            size = 0
            nulls += 1
        for _ in range(times):
            o += size
            offsets[np.uint64(k)] = o
            k += 1
    return o, nulls


@kernel
def _copy_spans(data: Any, starts: Any, times: Any, offsets: Any, out: Any) -> None:
    """Copy spans to their offsets, each repeated; 8 bytes behind the last in out are for use."""
    room = data.size - 8
    for i in range(starts.size):
        start = starts[i]
        o = np.int64(offsets[np.uint64(i * times)])
        size = np.int64(offsets[np.uint64(i * times + 1)]) - o
        for _ in range(times):
            if start + size <= room:
                # whole words; what they write past the span is written again by the next
                for j in range(0, size, 8):
                    store8(out, o + j, load8(data, start + j))
            else:
                for j in range(size):
                    out[np.uint64(o + j)] = data[np.uint64(start + j)]
            o += size


def strings_from_spans(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    *,
    times: int = 1,
    kind: pa.DataType | None = None,
) -> pa.Array:
    """A text column copied from spans of a byte array (which must hold valid UTF-8 for text).

    Each is repeated so many times; null where the start is negative.
    """
    offsets = np.empty(starts.size * times + 1, np.int32)
    total, nulls = _span_offsets(readonly(starts), readonly(lengths), times, offsets)
    if total > np.iinfo(np.int32).max:
        raise ValueError(f"a batch holds {total} bytes of text, more than 2 GiB: use smaller batches")
    out = np.empty(total + 8, np.uint8)
    _copy_spans(readonly(data), readonly(starts), times, offsets, out)
    bitmap = None
    if nulls:
        bitmap = pa.py_buffer(np.packbits(np.repeat(starts >= 0, times), bitorder="little"))
    return pa.Array.from_buffers(
        kind or pa.string(),
        starts.size * times,
        [bitmap, pa.py_buffer(offsets), pa.py_buffer(out)[: int(total)]],
        nulls * times,
    )


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches as one; where types differ (such as null and text), as a type that fits all."""
    if len(batches) == 1:
        return batches[0]
    if all(b.schema.equals(batches[0].schema) for b in batches):
        return pa.concat_batches(batches)
    tables = [pa.Table.from_batches([b]) for b in batches]
    table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    return pa.RecordBatch.from_arrays(
        [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.columns], schema=table.schema
    )


def text_sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each value of a text or binary column, 0 of a null; a dictionary is not decoded.

    >>> text_sizes(pa.array(["ü", None, "abc"])).tolist()
    [2, 0, 3]
    """
    if pa.types.is_dictionary(column.type):
        sizes = np.append(text_sizes(column.dictionary), 0)
        found: npt.NDArray[np.int64] = sizes[
            column.indices.cast(pa.int64()).fill_null(len(sizes) - 1).to_numpy(zero_copy_only=False)
        ]
        return found
    _, starts, ends, valid = byte_spans(column)
    return ends - starts if not valid.size else np.where(valid, ends - starts, 0)


def size_of(batch: pa.RecordBatch) -> int:
    """Bytes that the records of a batch are: of words and views that it shares with others, only what they use.

    Arrow counts these whole for each slice. Of a dictionary each index counts as a word of the usual length.

    >>> batch = pa.record_batch({"word": pa.array(["abcd", "efgh"] * 100).dictionary_encode()})
    >>> size_of(batch), size_of(batch.slice(0, 1))  # an index of 4 bytes, and a word with an offset of 4
    (2400, 12)
    """
    if not any(types.is_dictionary(kind) or _is_view(kind) for kind in batch.schema.types):
        return int(batch.nbytes)
    return sum(map(_size, batch.columns))


def _size(column: pa.Array) -> int:
    if types.is_dictionary(column.type):
        words = column.dictionary
        return int(column.indices.nbytes + len(column) * _size(words) // max(1, len(words)))
    if not _is_view(column.type):
        return int(column.nbytes)
    known, views = column.buffers()[:2]
    if views is None:  # there is none in an array of no records
        return 0
    # a view is sixteen bytes, of which the first four tell the length; up to twelve more hold the text itself
    lengths = np.frombuffer(views, np.int32)[4 * column.offset : 4 * (column.offset + len(column)) : 4]
    apart = lengths[(lengths > 12) & present(column)]
    return 16 * len(column) + int(apart.sum(dtype=np.int64)) + (0 if known is None else (len(column) + 7) // 8)


def _is_view(kind: pa.DataType) -> bool:
    return bool(types.is_string_view(kind) or types.is_binary_view(kind))


def pieces(sizes: npt.NDArray[np.int64], most: int = PIECE_BYTES) -> list[tuple[int, int]]:
    """Ranges of rows, at least one, that hold no more than ``most`` together or are of one row.

    >>> pieces(np.array([3, 3, 9, 1, 1, 1]), 6)
    [(0, 2), (2, 3), (3, 6)]
    """
    total = np.cumsum(sizes)
    found: list[tuple[int, int]] = []
    start = before = 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(total, before + most, side="right")))
        found.append((start, stop))
        start, before = stop, int(total[stop - 1])
    return found or [(0, 0)]


def text_pieces(column: pa.Array, most: int = PIECE_BYTES) -> list[tuple[int, int]]:
    """The same of a column of text, without a look at each where all together are few.

    >>> text_pieces(pa.array(["abc", "def"])), text_pieces(pa.array(["abc", "def"]), 4)
    ([(0, 2)], [(0, 1), (1, 2)])
    """
    if not pa.types.is_dictionary(column.type) and column.nbytes <= most:
        return [(0, len(column))]
    return pieces(text_sizes(column), most)


def replace_column(batch: pa.RecordBatch, name: str, values: Any, valid: Any = None) -> pa.RecordBatch:
    """The batch with a float64 column set; NaN is written as null (or where not ``valid``)."""
    if isinstance(values, np.ndarray):
        mask = np.isnan(values) if valid is None else ~valid
        values = masked(values.astype(np.float64, copy=False), mask)
    position = batch.schema.get_field_index(name)
    column = pa.field(name, values.type)
    if position < 0:
        return batch.append_column(column, values)
    return batch.set_column(position, column, values)


def with_field(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    """The schema with a field set."""
    position = schema.get_field_index(field.name)
    return schema.append(field) if position < 0 else schema.set(position, field)
