"""The column in which ``transform`` passes on the rows that a task rejects.

Later tasks leave such rows unchanged: they bypass the task, in a DataFrame as in blocks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError
from riot_ops.core.operator import Operator, StatelessOperator
from riot_ops.core.order import ordinals, result_fields
from riot_ops.core.overwriting import checked_output_schema
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import ERRORS
from riot_ops.ingest.step import declared_schema, ingest_batch

__all__ = [
    "ERROR_COLUMN",
    "AcceptedFilter",
    "RejectedFilter",
    "accepted_rows",
    "apply_to_accepted",
    "drop_error_column",
    "passed_through",
    "rejected_rows",
    "result_schema",
    "to_rejected_records",
]

#: JSON text with the task, the reason, the message and the raw record; null in rows that were not rejected.
ERROR_COLUMN = "_error"

_log = logging.getLogger("riot_ops")


def drop_error_column(schema: pa.Schema) -> pa.Schema:
    """Return the fields of a DataFrame that a task sees."""
    if ERROR_COLUMN not in schema.names:
        return schema
    position = schema.get_field_index(ERROR_COLUMN)
    if position < 0 or not pa.types.is_string(schema.field(position).type):
        kind = schema.field(position).type if position >= 0 else "there more than once"
        raise ConfigError(
            f"the column {ERROR_COLUMN!r} holds the texts of rejected rows, but here it is {kind}; rename it"
        )
    return schema.remove(position)


@dataclass(frozen=True, kw_only=True)
class AcceptedFilter(StatelessOperator):
    """Keeps the rows that no task has rejected, and drops the column of errors."""

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        return drop_error_column(schema)

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return batch.filter(pc.is_null(batch.column(ERROR_COLUMN))).drop_columns([ERROR_COLUMN])


@dataclass(frozen=True, kw_only=True)
class RejectedFilter(StatelessOperator):
    """Keeps the rows that a task has rejected."""

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return batch.filter(pc.is_valid(batch.column(ERROR_COLUMN)))


def result_schema(task: Operator, schema: pa.Schema, errors: bool) -> pa.Schema:
    """Return the schema of a task's result on a DataFrame, with or without the column of errors."""
    schema = declared_schema(schema, "the DataFrame")
    out = checked_output_schema(task, drop_error_column(schema))
    if ERROR_COLUMN in out.names:
        raise ConfigError(f"{task.name()} must not write the field {ERROR_COLUMN!r}, which is for rejected rows")
    names = out.names
    if "seq" not in schema.names:  # without it ordinals order nothing
        names = [n for n in result_fields(names, frozenset(ordinals(schema.names))) if n != "seq"]
    result = pa.schema([out.field(name).with_nullable(True) for name in names])
    return result.append(pa.field(ERROR_COLUMN, pa.string())) if errors else result


def apply_to_accepted(
    run: Callable[[pa.RecordBatch, RejectedRecords], Iterable[pa.RecordBatch]],
    batch: pa.RecordBatch,
    errors: RejectedRecords,
    result: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run a task over the rows that no task has rejected; the others bypass it.

    Without a ``result`` the rows keep the schema of the task's output.
    """
    bad = None
    if ERROR_COLUMN in batch.schema.names:
        bad = RejectedFilter().apply(batch, errors)
        batch = AcceptedFilter().apply(batch, errors)
    for out in run(ingest_batch(batch, errors), errors):
        if result is None:
            result = out.schema if bad is None else out.schema.append(pa.field(ERROR_COLUMN, pa.string()))
        if bad is not None:
            yield from passed_through(bad, result)
            bad = None
        yield from accepted_rows(out, result)
        yield from rejected_rows(errors.take(), result)


# -- rows of a result's schema ---------------------------------------------------------------------


def accepted_rows(batch: pa.RecordBatch, result: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the output of a task with the schema of the result."""
    if batch.num_rows:
        yield _filled(batch, result)


def passed_through(batch: pa.RecordBatch, result: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows that an earlier task rejected, with those of their fields that the result has."""
    if not batch.num_rows:
        return
    if ERROR_COLUMN not in result.names:
        _log.warning("%d records that an earlier task rejected were dropped", batch.num_rows)
        return
    # a field of the same name but another type is another field, unless it is a narrower integer
    names = set(result.names)
    same = [f.name for f in batch.schema if f.name in names and _alike(f.type, result.field(f.name).type)]
    yield _filled(batch.select(same), result)


def to_rejected_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records that an earlier task rejected, parsed from their texts."""
    rows = []
    for row in batch.select([n for n in ("seq", "event_time", ERROR_COLUMN) if n in batch.schema.names]).to_pylist():
        text = row.pop(ERROR_COLUMN)
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):  # a text of the user
            fields = {"message": text}
        texts = {k: v if v is None or isinstance(v, str) else json.dumps(v) for k, v in fields.items()}
        rows.append({**row, **texts, "task": texts.get("task") or "", "reason": texts.get("reason") or "rejected"})
    return pa.RecordBatch.from_pylist(rows, schema=ERRORS)


def _alike(kind: pa.DataType, other: pa.DataType) -> bool:
    return bool(kind == other or (pa.types.is_integer(kind) and other == pa.int64()))


def rejected_rows(batches: Iterable[pa.RecordBatch], result: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rejected records with the schema of the result, or log that they are dropped."""
    for errors in batches:
        if ERROR_COLUMN not in result.names:
            _log.warning(
                "%s rejected %d records, first: %s",
                errors.column("task")[0],
                errors.num_rows,
                errors.column("message")[0],
            )
            continue
        texts = [
            json.dumps({k: row[k] for k in ("task", "reason", "message", "raw")}, ensure_ascii=False)
            for row in errors.to_pylist()
        ]
        fields = errors.select(["seq", "event_time"]).append_column(ERROR_COLUMN, pa.array(texts, pa.string()))
        yield _filled(fields, result)


def _filled(batch: pa.RecordBatch, result: pa.Schema) -> pa.RecordBatch:
    names, n = batch.schema.names, batch.num_rows
    return pa.RecordBatch.from_arrays(
        [batch.column(f.name).cast(f.type) if f.name in names else pa.nulls(n, f.type) for f in result], schema=result
    )
