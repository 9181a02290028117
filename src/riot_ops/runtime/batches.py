"""Batches as one, in order, with the fields that others have."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from riot_ops.core.order import is_sub, subs
from riot_ops.kernels.arrow import int_column
from riot_ops.kernels.ordering import are_sorted, order_of
from riot_ops.kernels.rows import spread, taken

__all__ = [
    "ARRIVAL",
    "EVENT_TIME",
    "aligned",
    "as_others",
    "in_order",
    "is_in_order",
    "merged",
    "merged_in_order",
    "numbered",
]

#: Order by message number, then by the places in what was made of the message: how the records came.
ARRIVAL = ("seq",)
#: Order by event time, ties by arrival.
EVENT_TIME = ("event_time", "seq")


def numbered(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with 0 for the places that records of another input have."""
    for name in names:
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.array(np.zeros(batch.num_rows, np.int64)))
    return batch


def as_others(out: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """What came of no record at hand, with the fields of what does."""
    columns = [
        out.column(f.name).cast(f.type) if f.name in out.schema.names else _missing(out.num_rows, f) for f in schema
    ]
    schema = pa.schema([f.with_nullable(f.nullable or c.null_count > 0) for f, c in zip(schema, columns, strict=True)])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _missing(rows: int, field: pa.Field) -> pa.Array:
    return pa.array(np.zeros(rows, np.int64)) if is_sub(field.name) else pa.nulls(rows, field.type)


def aligned(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Batches that differ in the order of fields or in which may be null, with one schema."""
    schema = batches[0].schema
    if all(b.schema.equals(schema) for b in batches[1:]):
        return list(batches)
    # rows that are left at the end may lack a field that others always have
    schema = pa.schema([f.with_nullable(any(b.schema.field(f.name).nullable for b in batches)) for f in schema])
    return [pa.RecordBatch.from_arrays([b.column(f.name) for f in schema], schema=schema) for b in batches]


def merged(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema, up to the order of fields and nulls, as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(aligned(batches))


def merged_in_order(batches: Sequence[pa.RecordBatch], order: tuple[str, ...] = ARRIVAL) -> pa.RecordBatch:
    """Batches as one, in order; a field that only one of them has values of is spread among nulls, not sorted."""
    if len(batches) == 1:
        return in_order(batches[0], order)
    batches = aligned(batches)
    columns = [
        np.concatenate([int_column(b.column(name)) for b in batches]) for name in _order_fields(batches[0], order)
    ]
    n = sum(b.num_rows for b in batches)
    if are_sorted(columns, n):
        return pa.concat_batches(batches)
    rows = order_of(columns, [b.num_rows for b in batches])
    places = np.empty(n, np.int64)
    places[rows] = np.arange(n)
    own = np.split(places, np.cumsum([b.num_rows for b in batches])[:-1])  # where the rows of each go
    rising = [are_sorted([one], one.size) for one in own]
    made = []
    for i, field in enumerate(batches[0].schema):
        parts = [b.column(i) for b in batches]
        full = [k for k, part in enumerate(parts) if part.null_count < len(part)]
        if not full:
            made.append(pa.nulls(n, field.type))
        elif len(full) == 1 and rising[full[0]]:
            made.append(spread(parts[full[0]], own[full[0]], n))
        else:
            made.append(taken(pa.concat_arrays(parts), rows))
    return pa.RecordBatch.from_arrays(made, schema=batches[0].schema)


def in_order(batch: pa.RecordBatch, order: tuple[str, ...] = ARRIVAL) -> pa.RecordBatch:
    """The rows sorted (stably) by the fields of the order that the batch has, and by their places in messages."""
    if is_in_order(batch, order):
        return batch
    columns = [int_column(batch.column(name)) for name in _order_fields(batch, order)]
    return batch.take(pa.array(np.lexsort(columns[::-1])))


def is_in_order(batch: pa.RecordBatch, order: tuple[str, ...]) -> bool:
    """Whether the rows are so."""
    columns = [int_column(batch.column(name)) for name in _order_fields(batch, order)]
    return not columns or are_sorted(columns, batch.num_rows)


def _order_fields(batch: pa.RecordBatch, order: tuple[str, ...]) -> tuple[str, ...]:
    return _ordering(tuple(batch.schema.names), order)


@functools.lru_cache(maxsize=1024)
def _ordering(names: tuple[str, ...], order: tuple[str, ...]) -> tuple[str, ...]:
    return (*(name for name in order if name in names), *subs(names))
