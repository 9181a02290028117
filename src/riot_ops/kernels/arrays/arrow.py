"""Arrow columns as NumPy arrays and back, without copying where Arrow's layout allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from riot_ops.kernels.jit import kernel
from riot_ops.kernels.text.numbers import load8, store8

__all__ = [
    "CHUNK_BYTES",
    "batch_bytes",
    "boolean_column",
    "byte_spans",
    "check_text_bytes",
    "chunk_ranges",
    "concat_batches",
    "count_column",
    "float_column",
    "int64_column",
    "int_column",
    "nullable_column",
    "numpy_values",
    "pack_bits",
    "readonly",
    "strings_from_spans",
    "text_chunk_ranges",
    "text_lengths",
    "truth_codes",
    "valid_mask",
]

#: Bytes of text that are processed at a time, far below the 2 GiB that an Arrow text array can hold.
CHUNK_BYTES = 1 << 26
#: Bytes of text that offsets of 32 bits can address.
MAX_TEXT_BYTES = (1 << 31) - 1

#: Ids of the most frequent types: comparing ids is faster than calling ``pa.types.is_…``.
FLOAT64, INT64, BOOL = pa.float64().id, pa.int64().id, pa.bool_().id

#: Ids of the types of numbers.
NUMBERS = frozenset(
    dtype.id
    for dtype in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    )
)

#: Types of the offsets of text and binary columns, by the id of the column's type.
TEXT_OFFSETS: dict[int, np.dtype[Any]] = {
    **dict.fromkeys((pa.string().id, pa.binary().id), np.dtype(np.int32)),
    **dict.fromkeys((pa.large_string().id, pa.large_binary().id), np.dtype(np.int64)),
}

#: Ids of the types whose columns refer to memory that they may share with others.
SHARED_TYPES = frozenset(
    dtype.id for dtype in (pa.dictionary(pa.int32(), pa.string()), pa.string_view(), pa.binary_view())
)

NO_MASK = np.empty(0, np.bool_)
NO_BYTES, NO_NUMBERS = np.empty(0, np.uint8), np.empty(0, np.int64)
NO_MASK.flags.writeable = NO_BYTES.flags.writeable = NO_NUMBERS.flags.writeable = False


def readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array marked read-only, so that kernels see one argument type for any origin."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def numpy_values(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return a column as a read-only NumPy array, over its own memory where it holds numbers without nulls.

    Unlike ``column.to_numpy()``, it does not import pandas for numbers and booleans.

    >>> numpy_values(pa.array([1, 2, 3])[1:]).tolist()
    [2, 3]
    """
    if column.__class__ is pa.ChunkedArray:  # a call less than isinstance
        column = column.combine_chunks()
    kind = column.type.id
    if not column.null_count:
        if kind in NUMBERS:
            found: npt.NDArray[Any] = np.from_dlpack(column)  # a third of the cost of np.frombuffer and the flag
            return found if found.size else readonly(found)
        if kind == BOOL and len(column):
            bits = np.frombuffer(column.buffers()[1], np.uint8)
            end = column.offset + len(column)
            return readonly(np.unpackbits(bits, count=end, bitorder="little")[column.offset :].view(np.bool_))
    return readonly(column.to_numpy(zero_copy_only=False))


def valid_mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return where a column is not null; a tenth of the cost of ``column.is_valid()``.

    >>> valid_mask(pa.array([1, None, 3])[1:]).tolist()
    [False, True]
    """
    bits = column.buffers()[0] if column.null_count else None
    if bits is None:  # nothing is null, everything is, or the type has no validity bitmap
        return np.full(len(column), not column.null_count) if _has_bitmap(column) else np.asarray(column.is_valid())
    at = column.offset
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=at + len(column), bitorder="little")[at:].view(np.bool_)


def _has_bitmap(column: pa.Array) -> bool:
    return not (types.is_union(column.type) or types.is_run_end_encoded(column.type))


def truth_codes(column: pa.Array) -> npt.NDArray[np.int8]:
    """Return a boolean column as 1 and 0, -1 where null.

    >>> truth_codes(pa.array([True, None, False])[1:]).tolist()
    [-1, 0]
    """
    if column.null_count == len(column):
        return np.full(len(column), -1, np.int8)
    at = column.offset
    bits = np.frombuffer(column.buffers()[1], np.uint8) if len(column) else np.zeros(0, np.uint8)
    values = np.unpackbits(bits, count=at + len(column), bitorder="little")[at:].view(np.int8)
    return np.where(valid_mask(column), values, np.int8(-1)) if column.null_count else values


def boolean_column(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Return a boolean column, such as a filter mask; a tenth of the cost of ``pa.array``.

    >>> boolean_column(np.array([True, False])).to_pylist()
    [True, False]
    """
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pack_bits(values)], 0)


def nullable_column(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> pa.Array:
    """Return an int64 or float64 column over the memory of ``values``, null where ``missing``.

    >>> nullable_column(np.array([1.5, 2.0]), np.array([False, True])).to_pylist()
    [1.5, None]
    """
    nulls = int(np.count_nonzero(missing)) if missing.size else 0
    dtype = pa.float64() if values.dtype == np.float64 else pa.int64()
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(dtype, values.size, [pack_bits(~missing) if nulls else None, data], nulls)


def int64_column(values: npt.NDArray[np.int64], dtype: pa.DataType | None = None) -> pa.Array:
    """Return a column over the memory of ``values``: int64, or another 64-bit type such as a timestamp.

    >>> int64_column(np.array([1]), pa.timestamp("us")).to_pylist()
    [datetime.datetime(1970, 1, 1, 0, 0, 0, 1)]
    """
    dtype = pa.int64() if dtype is None else dtype
    return pa.Array.from_buffers(dtype, values.size, [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


def pack_bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Pack booleans into an Arrow bitmap."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    """True where not null; of size 0 if the column has no nulls."""
    return readonly(valid_mask(column)) if column.null_count else NO_MASK


def byte_spans(
    column: pa.Array,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """``(data, starts, ends, valid)`` of a string or binary column."""
    offset_type = TEXT_OFFSETS.get(column.type.id)
    if offset_type is None and pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
        offset_type = TEXT_OFFSETS.get(column.type.id)
    if offset_type is None:
        raise TypeError(f"expected text or binary, got {column.type}")
    n = len(column)
    _, offsets_buffer, data_buffer = column.buffers()
    if offsets_buffer is None or n == 0:
        return NO_BYTES, NO_NUMBERS, NO_NUMBERS, NO_MASK
    offsets = np.frombuffer(offsets_buffer, offset_type, n + 1, column.offset * offset_type.itemsize)
    bounds: npt.NDArray[np.int64] = offsets.astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else NO_BYTES
    data.flags.writeable = bounds.flags.writeable = False  # slices inherit the flag
    return data, bounds[:-1], bounds[1:], _valid(column) if column.null_count else NO_MASK


def float_column(column: pa.Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """``(values, valid)`` with NaN where null; integers and booleans are converted."""
    dtype = column.type
    if dtype.id == FLOAT64:
        if not column.null_count:
            return numpy_values(column), NO_MASK
    elif pa.types.is_boolean(dtype):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(dtype):
        column = column.cast(pa.float64())
    valid = _valid(column)
    if column.null_count == len(column):
        return readonly(np.full(len(column), np.nan)), valid
    if valid.size and column.type.id in (FLOAT64, INT64):  # Arrow would convert value by value
        stored_type = np.float64 if column.type.id == FLOAT64 else np.int64
        stored = np.frombuffer(column.buffers()[1], stored_type, len(column), 8 * column.offset)
        return readonly(np.where(valid, stored, np.nan)), valid
    values = numpy_values(column)
    if values.dtype != np.float64:
        values = values.astype(np.float64)
    return readonly(values), valid


def int_column(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return a non-null integer or timestamp column as int64."""
    if column.type.id == INT64 and not column.null_count:
        return numpy_values(column)
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    elif not pa.types.is_int64(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(0)
    return numpy_values(column)


def count_column(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return a column of counts as int64: 0 where null or not finite, fractions truncated, values beyond int64 clipped.

    >>> count_column(pa.array([2.0, None, 3.5])).tolist()
    [2, 0, 3]
    """
    if pa.types.is_null(column.type) or (pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type)):
        return int_column(column)
    values, _ = float_column(column)
    largest = 2.0**63 - 1024
    return readonly(np.where(np.isfinite(values), np.clip(values, -largest, largest), 0.0).astype(np.int64))


@kernel
def _span_offsets(starts: Any, lengths: Any, times: Any, offsets: Any) -> Any:
    """Write the offsets of spans that are each repeated ``times`` times; returns ``(total bytes, nulls)``.

    A negative start is a null. The total may exceed what the offsets can hold.
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
    """Copy each span ``times`` times to its offsets; ``out`` has 8 spare bytes at the end."""
    safe = data.size - 8
    for i in range(starts.size):
        start = starts[i]
        o = np.int64(offsets[np.uint64(i * times)])
        size = np.int64(offsets[np.uint64(i * times + 1)]) - o
        for _ in range(times):
            if start + size <= safe:
                # whole words; the next span overwrites what they write past this one
                for j in range(0, size, 8):
                    store8(out, o + j, load8(data, start + j))
            else:
                for j in range(size):
                    out[np.uint64(o + j)] = data[np.uint64(start + j)]
            o += size


def check_text_bytes(total: int) -> None:
    """Raise if the offsets of a text column, of 32 bits, cannot address so many bytes."""
    if total > MAX_TEXT_BYTES:
        raise ValueError(f"a batch holds {total} bytes of text, more than 2 GiB: use smaller batches")


def strings_from_spans(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    *,
    times: int = 1,
    dtype: pa.DataType | None = None,
) -> pa.Array:
    """Return a text column copied from spans of a byte array, which must be valid UTF-8 unless ``dtype`` is binary.

    Each span is repeated ``times`` times; a negative start is a null.
    """
    offsets = np.empty(starts.size * times + 1, np.int32)
    total, nulls = _span_offsets(readonly(starts), readonly(lengths), times, offsets)
    check_text_bytes(total)
    out = np.empty(total + 8, np.uint8)
    _copy_spans(readonly(data), readonly(starts), times, offsets, out)
    bitmap = None
    if nulls:
        bitmap = pa.py_buffer(np.packbits(np.repeat(starts >= 0, times), bitorder="little"))
    return pa.Array.from_buffers(
        dtype or pa.string(),
        starts.size * times,
        [bitmap, pa.py_buffer(offsets), pa.py_buffer(out)[: int(total)]],
        nulls * times,
    )


def concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches; where types differ (such as null and text), fields get a common type."""
    if len(batches) == 1:
        return batches[0]
    if all(b.schema.equals(batches[0].schema) for b in batches):
        return pa.concat_batches(batches)
    tables = [pa.Table.from_batches([b]) for b in batches]
    table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    return pa.RecordBatch.from_arrays(
        [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.columns], schema=table.schema
    )


def text_lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of each value of a text or binary column, 0 for a null; dictionary columns are not decoded.

    >>> text_lengths(pa.array(["ü", None, "abc"])).tolist()
    [2, 0, 3]
    """
    if pa.types.is_dictionary(column.type):
        sizes = np.append(text_lengths(column.dictionary), 0)
        found: npt.NDArray[np.int64] = sizes[numpy_values(column.indices.cast(pa.int64()).fill_null(len(sizes) - 1))]
        return found
    _, starts, ends, valid = byte_spans(column)
    return ends - starts if not valid.size else np.where(valid, ends - starts, 0)


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes that the rows of a batch take up; of dictionaries and string views, only the part that they use.

    Arrow counts shared dictionaries and view buffers in full for each slice. A dictionary index counts as a word of
    average length.

    >>> batch = pa.record_batch({"word": pa.array(["abcd", "efgh"] * 100).dictionary_encode()})
    >>> batch_bytes(batch), batch_bytes(batch.slice(0, 1))  # an index of 4 bytes, and a word with an offset of 4
    (2400, 12)
    """
    if SHARED_TYPES.isdisjoint([dtype.id for dtype in batch.schema.types]):
        return int(batch.nbytes)
    return sum(map(_size, batch.columns))


def _size(column: pa.Array) -> int:
    if types.is_dictionary(column.type):
        words = column.dictionary
        return int(column.indices.nbytes + len(column) * _size(words) // max(1, len(words)))
    if not _is_view(column.type):
        return int(column.nbytes)
    known, views = column.buffers()[:2]
    if views is None:  # an empty array has no buffer
        return 0
    # a view is 16 bytes: 4 for the length, and 12 that hold the text itself if it is no longer
    lengths = np.frombuffer(views, np.int32)[4 * column.offset : 4 * (column.offset + len(column)) : 4]
    apart = lengths[(lengths > 12) & valid_mask(column)]
    return 16 * len(column) + int(apart.sum(dtype=np.int64)) + (0 if known is None else (len(column) + 7) // 8)


def _is_view(dtype: pa.DataType) -> bool:
    return bool(types.is_string_view(dtype) or types.is_binary_view(dtype))


def chunk_ranges(sizes: npt.NDArray[np.int64], max_bytes: int = CHUNK_BYTES) -> list[tuple[int, int]]:
    """Split rows into ranges whose sizes sum to at most ``max_bytes``; a larger row has a range of its own.

    There is at least one range.

    >>> chunk_ranges(np.array([3, 3, 9, 1, 1, 1]), 6)
    [(0, 2), (2, 3), (3, 6)]
    """
    if int(sizes.sum()) <= max_bytes:
        return [(0, len(sizes))]
    total = np.cumsum(sizes)
    found: list[tuple[int, int]] = []
    start = before = 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(total, before + max_bytes, side="right")))
        found.append((start, stop))
        start, before = stop, int(total[stop - 1])
    return found


def text_chunk_ranges(column: pa.Array, max_bytes: int = CHUNK_BYTES) -> list[tuple[int, int]]:
    """Like :func:`chunk_ranges` for a text column; a small column is not measured value by value.

    >>> text_chunk_ranges(pa.array(["abc", "def"])), text_chunk_ranges(pa.array(["abc", "def"]), 4)
    ([(0, 2)], [(0, 1), (1, 2)])
    """
    if not pa.types.is_dictionary(column.type) and column.nbytes <= max_bytes:
        return [(0, len(column))]
    return chunk_ranges(text_lengths(column), max_bytes)


def replace_column(batch: pa.RecordBatch, name: str, values: Any, valid: Any = None) -> pa.RecordBatch:
    """Set a column of a batch: an Arrow array, or a NumPy array as float64, null where NaN or not ``valid``.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from riot_ops.task import replace_column
    >>> batch = pa.RecordBatch.from_pydict({"value": [1.0, 2.0]})
    >>> replace_column(batch, "value", np.array([3.0, np.nan])).to_pydict()
    {'value': [3.0, None]}
    """
    if isinstance(values, np.ndarray):
        mask = np.isnan(values) if valid is None else ~valid
        values = nullable_column(values.astype(np.float64, copy=False), mask)
    position = batch.schema.get_field_index(name)
    column = pa.field(name, values.type)
    if position < 0:
        return batch.append_column(column, values)
    return batch.set_column(position, column, values)


def with_field(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    """Set a field of a schema: replace the field of that name or append it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from riot_ops.task import with_field
    >>> with_field(pa.schema([("value", pa.float64())]), pa.field("label", pa.string())).names
    ['value', 'label']
    """
    position = schema.get_field_index(field.name)
    return schema.append(field) if position < 0 else schema.set(position, field)
