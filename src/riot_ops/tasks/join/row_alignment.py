"""Alignment of batches that each have one piece of every message, in the same order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from riot_ops.core.order import ordinals
from riot_ops.kernels.arrays.arrow import byte_spans, float_column, int_column
from riot_ops.kernels.text.strings import name_codes

__all__ = ["align_rows", "nan_to_null"]


def align_rows(
    batches: Sequence[pa.RecordBatch], names: Sequence[str], by: Sequence[str], type_field: str, *, timed: bool
) -> tuple[pa.RecordBatch, list[pa.RecordBatch]] | None:
    """Match batches row by row: the batch with the last piece of each message, and the batches in the order of names.

    Returns None unless each batch has pieces of one type, each type occurs once, and row i of all batches belongs to
    one message, with a number above that of row i - 1. With ``timed``, the pieces of a message must have the same time.
    """
    first = batches[0]
    n = first.num_rows
    if len(batches) != len(names) or "seq" not in by or not n or any(b.num_rows != n for b in batches):
        return None
    if any(set(b.schema.names) != set(first.schema.names) for b in batches):
        return None
    if not (np.diff(int_column(first.column("seq"))) > 0).all():
        return None
    for name in (*by, *(("event_time",) if timed else ())):
        if not all(_same(first.column(name), b.column(name)) for b in batches[1:]):
            return None
    types = [_common_name(b.column(type_field), names) for b in batches]
    if sorted(types) != list(range(len(names))):
        return None
    last = _last(batches)
    return None if last is None else (last, [batches[types.index(i)] for i in range(len(names))])


def _same(a: pa.Array, b: pa.Array) -> bool:
    if a.offset == b.offset and [_address(x) for x in a.buffers()] == [_address(x) for x in b.buffers()]:
        return True
    return bool(a.equals(b))


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)


def _common_name(column: pa.Array, names: Sequence[str]) -> int:
    """Return the index of the name that all rows have; -1 if they differ."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        data, starts, ends, valid = byte_spans(column)
        size = int(ends[0] - starts[0])
        if valid.size or (ends - starts != size).any():
            return -1
        text = data[starts[0] : ends[0]].tobytes()
        if data[starts[0] : ends[-1]].tobytes() != text * len(column):
            return -1
        return next((i for i, name in enumerate(names) if name.encode() == text), -1)
    codes = name_codes(column, names)
    return int(codes[0]) if (codes == codes[0]).all() else -1


def _last(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Return the batch whose pieces are the last of every message; None if there is no such batch."""
    rest = list(batches)
    for name in ordinals(batches[0].schema.names):
        places = np.stack([int_column(b.column(name)) for b in rest])
        latest = places == places.max(axis=0)
        if not (latest == latest[:, :1]).all():
            return None
        rest = [b for b, late in zip(rest, latest[:, 0], strict=True) if late]
    return rest[-1]  # for equal ordinals, the later batch


def nan_to_null(column: pa.Array) -> pa.Array:
    """Convert floating numbers to float64, with NaN as null."""
    if not (pa.types.is_floating(column.type) or pa.types.is_null(column.type)):
        return column
    values, _ = float_column(column)
    missing = np.isnan(values)
    if not missing.any():
        return pa.array(values) if column.type != pa.float64() else column
    return pa.array(values, mask=missing)
