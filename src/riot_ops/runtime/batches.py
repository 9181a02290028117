"""Batches as one, in order, with the fields that others have."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.order import is_ordinal, ordinals
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.ordering import are_sorted, merged_order
from riot_ops.kernels.arrays.rows import interleaved, spread, taken

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

Keys = list[npt.NDArray[np.int64]]


def numbered(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with 0 for the places that records of another input have."""
    for name in names:
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.array(np.zeros(batch.num_rows, np.int64)))
    return batch


def as_others(out: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """What came of no record at hand, with the fields of what does."""
    if out.schema.equals(schema):
        return out
    own = set(out.schema.names)
    columns = [_as(out.column(f.name), f.type) if f.name in own else _missing(out.num_rows, f) for f in schema]
    schema = pa.schema([f.with_nullable(f.nullable or c.null_count > 0) for f, c in zip(schema, columns, strict=True)])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _missing(rows: int, field: pa.Field) -> pa.Array:
    return pa.array(np.zeros(rows, np.int64)) if is_ordinal(field.name) else pa.nulls(rows, field.type)


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
    runs = _runs(aligned(batches), order)
    if len(runs) == 1:
        return runs[0][0]
    if len(runs) == 2:
        (first, before), (second, behind) = runs
        return interleaved(first, second, merged_order(before, behind))
    rows = np.lexsort([np.concatenate(parts) for parts in zip(*(keys for _, keys in runs), strict=True)][::-1])
    places = np.empty(rows.size, np.int64)
    places[rows] = np.arange(rows.size)
    own = np.split(places, np.cumsum([run.num_rows for run, _ in runs])[:-1])  # where the rows of each go
    made = []
    for i, field in enumerate(runs[0][0].schema):
        parts = [run.column(i) for run, _ in runs]
        full = [k for k, part in enumerate(parts) if part.null_count < len(part)]
        if not full:
            made.append(pa.nulls(rows.size, field.type))
        elif len(full) == 1:
            made.append(spread(parts[full[0]], own[full[0]], rows.size))
        else:
            made.append(taken(pa.concat_arrays(parts), rows))
    return pa.RecordBatch.from_arrays(made, schema=runs[0][0].schema)


def _runs(batches: Sequence[pa.RecordBatch], order: tuple[str, ...]) -> list[tuple[pa.RecordBatch, Keys]]:
    """What is in order, as long as it goes through several batches, and by what; a batch that is not is sorted."""
    runs: list[list[tuple[pa.RecordBatch, Keys]]] = []
    last: list[int] = []
    for batch in [b for b in batches if b.num_rows] or batches[:1]:
        keys = _keys(batch, order)
        if not are_sorted(keys, batch.num_rows):
            batch = _sorted(batch, keys)
            keys = _keys(batch, order)
        if not runs or [int(key[0]) for key in keys] < last:
            runs.append([])
        runs[-1].append((batch, keys))
        last = [int(key[-1]) for key in keys] if batch.num_rows else []
    return [run[0] if len(run) == 1 else _joined(run) for run in runs]


def _joined(run: list[tuple[pa.RecordBatch, Keys]]) -> tuple[pa.RecordBatch, Keys]:
    batches, keys = zip(*run, strict=True)
    return pa.concat_batches(batches), [np.concatenate(parts) for parts in zip(*keys, strict=True)]


def _keys(batch: pa.RecordBatch, order: tuple[str, ...]) -> Keys:
    return [int_column(batch.column(name)) for name in _ordering(tuple(batch.schema.names), order)]


def _sorted(batch: pa.RecordBatch, keys: Keys) -> pa.RecordBatch:
    return batch.take(pa.array(np.lexsort(keys[::-1])))


def in_order(batch: pa.RecordBatch, order: tuple[str, ...] = ARRIVAL) -> pa.RecordBatch:
    """The rows sorted (stably) by the fields of the order that the batch has, and by their places in messages."""
    keys = _keys(batch, order)
    return batch if not keys or are_sorted(keys, batch.num_rows) else _sorted(batch, keys)


def is_in_order(batch: pa.RecordBatch, order: tuple[str, ...]) -> bool:
    """Whether the rows are so."""
    keys = _keys(batch, order)
    return not keys or are_sorted(keys, batch.num_rows)


@functools.lru_cache(maxsize=1024)
def _ordering(names: tuple[str, ...], order: tuple[str, ...]) -> tuple[str, ...]:
    return (*(name for name in order if name in names), *ordinals(names))
