"""Pieces of messages that fit row by row: each batch has one piece of each message, in one order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from riot_ops.core.order import ordinals
from riot_ops.kernels.arrays.arrow import byte_spans, float_column, int_column
from riot_ops.kernels.text.strings import code_of

__all__ = ["number_column", "side_by_side"]


def side_by_side(
    batches: Sequence[pa.RecordBatch], names: Sequence[str], by: Sequence[str], kind: str, *, timed: bool
) -> tuple[pa.RecordBatch, list[pa.RecordBatch]] | None:
    """The batch whose pieces come last in each message, and the batches in the order of names; None if they do not fit.

    They do where each batch has pieces of one kind, each kind is there once, and row i of all is of one message, whose
    number is greater than that of row i - 1. With ``timed`` the pieces of a message must have one time.
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
    kinds = [_one_kind(b.column(kind), names) for b in batches]
    if sorted(kinds) != list(range(len(names))):
        return None
    last = _last(batches)
    return None if last is None else (last, [batches[kinds.index(i)] for i in range(len(names))])


def _same(a: pa.Array, b: pa.Array) -> bool:
    if a.offset == b.offset and [_address(x) for x in a.buffers()] == [_address(x) for x in b.buffers()]:
        return True
    return bool(a.equals(b))


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)


def _one_kind(column: pa.Array, names: Sequence[str]) -> int:
    """The place of the one name that all rows have, -1 where there are several."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        data, starts, ends, valid = byte_spans(column)
        size = int(ends[0] - starts[0])
        if valid.size or (ends - starts != size).any():
            return -1
        text = data[starts[0] : ends[0]].tobytes()
        if data[starts[0] : ends[-1]].tobytes() != text * len(column):
            return -1
        return next((i for i, name in enumerate(names) if name.encode() == text), -1)
    codes = code_of(column, names)
    return int(codes[0]) if (codes == codes[0]).all() else -1


def _last(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The batch that comes last in each message; None where that is not one."""
    rest = list(batches)
    for name in ordinals(batches[0].schema.names):
        places = np.stack([int_column(b.column(name)) for b in rest])
        latest = places == places.max(axis=0)
        if not (latest == latest[:, :1]).all():
            return None
        rest = [b for b, late in zip(rest, latest[:, 0], strict=True) if late]
    return rest[-1]  # of equal places the later batch


def number_column(column: pa.Array) -> pa.Array:
    """Numbers as float64, null where NaN."""
    values, _ = float_column(column)
    missing = np.isnan(values)
    if not missing.any():
        return pa.array(values) if column.type != pa.float64() else column
    return pa.array(values, mask=missing)
