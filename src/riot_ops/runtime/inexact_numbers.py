"""Rejection of the records whose numbers a task would round: one rule for all tasks that compute in float64."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.operator import Operator, StatelessOperator
from riot_ops.core.output_checks import checked_batches
from riot_ops.kernels.arrays.exact import inexact_rows
from riot_ops.kernels.arrays.lazy_rows import AnyRows, materialize, select

__all__ = ["apply_stateless", "reject_inexact"]

#: Types whose numbers float64 holds, by id: comparing ids costs less than anything else.
_NARROW = frozenset(
    dtype.id
    for dtype in (
        *(pa.float64(), pa.float32(), pa.float16(), pa.bool_(), pa.null()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()),
    )
)


def inexact_fields(task: Operator, schema: pa.Schema) -> tuple[str, ...]:
    """Return the fields of a schema that the task reads as float64, and that may have a number float64 cannot hold."""
    return tuple(name for name in task.float64_fields if schema.field(name).type.id not in _NARROW)


def reject_inexact(rows: AnyRows, fields: tuple[str, ...], dead: DeadLetters) -> AnyRows:
    """Reject the records with an integer or a decimal that float64 cannot hold in one of the fields; return the others.

    Columns of other types are not looked at.
    """
    for name in fields:
        bad = inexact_rows(rows.column(name))
        if bad is not None:
            batch = materialize(rows)
            dead.reject(batch, bad, "out_of_range", f"{name} has a number that float64 cannot hold")
            rows = select(batch, ~bad)
    return rows


def apply_stateless(task: StatelessOperator, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[pa.RecordBatch]:
    """Yield the output of a task without state for a batch, without the records whose numbers it would round."""
    if fields := task.float64_fields and inexact_fields(task, batch.schema):
        batch = materialize(reject_inexact(batch, fields, dead))
    return checked_batches(task, batch, dead)
