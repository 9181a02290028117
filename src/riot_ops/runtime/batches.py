"""Record batches: concatenated, merged in order, and brought to a common schema."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.order import is_ordinal, ordinals
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.exact import is_untyped, with_type
from riot_ops.kernels.arrays.lazy_rows import Rows, materialize, take_columns
from riot_ops.kernels.arrays.ordering import are_sorted, merged_order
from riot_ops.kernels.arrays.rows import interleave, scatter, take

__all__ = [
    "ARRIVAL",
    "EVENT_TIME",
    "ORDERS",
    "concatenate",
    "conform_to",
    "in_order",
    "merge_sorted",
    "sort_rows",
    "unify_schemas",
    "with_ordinals",
]

#: Order by message number, then by ordinals: the order of arrival.
ARRIVAL = ("seq",)
#: Order by event time, ties by arrival.
EVENT_TIME = ("event_time", "seq")
#: By the word for it in options.
ORDERS = {"arrival": ARRIVAL, "event_time": EVENT_TIME}

Keys = list[npt.NDArray[np.int64]]


def with_ordinals(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the batch with ordinals of 0 where it lacks those of another input."""
    for name in names:
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.array(np.zeros(batch.num_rows, np.int64)))
    return batch


def conform_to(out: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return output that no record caused, with the schema of the output for records."""
    if out.schema.equals(schema):
        return out
    own = set(out.schema.names)
    columns = [_as(out.column(f.name), f.type) if f.name in own else _missing(out.num_rows, f) for f in schema]
    schema = pa.schema([f.with_nullable(f.nullable or c.null_count > 0) for f, c in zip(schema, columns, strict=True)])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    exact = is_untyped(column.type) or (pa.types.is_floating(column.type) and not pa.types.is_floating(kind))
    return with_type(column, kind) if exact else column.cast(kind)


def _missing(rows: int, field: pa.Field) -> pa.Array:
    return pa.array(np.zeros(rows, np.int64)) if is_ordinal(field.name) else pa.nulls(rows, field.type)


def unify_schemas(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Give one schema to batches that differ in the order or nullability of fields."""
    schema = batches[0].schema
    if all(b.schema.equals(schema) for b in batches[1:]):
        return list(batches)
    # rows that are emitted at the end may lack a field that others always have
    schema = pa.schema([f.with_nullable(any(b.schema.field(f.name).nullable for b in batches)) for f in schema])
    return [pa.RecordBatch.from_arrays([b.column(f.name) for f in schema], schema=schema) for b in batches]


def concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches whose schemas differ at most in the order and nullability of fields."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(unify_schemas(batches))


def merge_sorted(batches: Sequence[pa.RecordBatch], order: tuple[str, ...] = ARRIVAL) -> pa.RecordBatch:
    """Merge batches in order; a field that only one of them has values for is spread among nulls, not sorted."""
    if len(batches) == 1:
        return sort_rows(batches[0], order)
    runs = _runs(unify_schemas(batches), order)
    if len(runs) == 1:
        return runs[0][0]
    if len(runs) == 2:
        (first, before), (second, after) = runs
        return interleave(first, second, merged_order(before, after))
    rows = np.lexsort([np.concatenate(parts) for parts in zip(*(keys for _, keys in runs), strict=True)][::-1])
    targets = np.empty(rows.size, np.int64)
    targets[rows] = np.arange(rows.size)
    own = np.split(targets, np.cumsum([run.num_rows for run, _ in runs])[:-1])  # target rows of each run
    made = []
    for i, field in enumerate(runs[0][0].schema):
        parts = [run.column(i) for run, _ in runs]
        full = [k for k, part in enumerate(parts) if part.null_count < len(part)]
        if not full:
            made.append(pa.nulls(rows.size, field.type))
        elif len(full) == 1:
            made.append(scatter(parts[full[0]], own[full[0]], rows.size))
        else:
            made.append(take(pa.concat_arrays(parts), rows))
    return pa.RecordBatch.from_arrays(made, schema=runs[0][0].schema)


def _runs(batches: Sequence[pa.RecordBatch], order: tuple[str, ...]) -> list[tuple[pa.RecordBatch, Keys]]:
    """Return sorted runs with their sort keys: consecutive batches that are in order together form one run."""
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
    names = _ordering(tuple(batch.schema.names), order)
    if "event_time" in names and not pa.types.is_timestamp(batch.schema.field("event_time").type):
        names = tuple(name for name in names if name != "event_time")  # such as a text that a task parses later
    return [int_column(batch.column(name)) for name in names]


def _sorted(batch: pa.RecordBatch, keys: Keys) -> pa.RecordBatch:
    return take_columns(batch, np.lexsort(keys[::-1]))


def sort_rows(batch: pa.RecordBatch, order: tuple[str, ...] = ARRIVAL) -> pa.RecordBatch:
    """Sort the rows (stably) by the fields of ``order`` that the batch has, then by ordinals."""
    keys = _keys(batch, order)
    return batch if not keys or are_sorted(keys, batch.num_rows) else _sorted(batch, keys)


def in_order(batches: Sequence[Any], order: tuple[str, ...] = ARRIVAL) -> Rows:
    """Return the rows of batches or lazy rows in order; what is found about rows stays known to their other readers."""
    if len(batches) > 1:
        return Rows(merge_sorted([materialize(b) for b in batches], order), ordered=True)
    rows: Rows = batches[0]
    if rows.fields and not rows.fields.keys().isdisjoint(_ordering(tuple(rows.names), order)):
        rows = Rows(rows.materialize())
    every = rows if rows.is_batch else rows.all_rows
    if every.ordered is None:
        keys = _keys(every.batch, order)
        every.ordered = not keys or are_sorted(keys, every.num_rows)
    return rows if every.ordered else Rows(sort_rows(rows.materialize(), order), ordered=True)


@functools.lru_cache(maxsize=1024)
def _ordering(names: tuple[str, ...], order: tuple[str, ...]) -> tuple[str, ...]:
    return (*(name for name in order if name in names), *ordinals(names))
