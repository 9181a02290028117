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


def reject_inexact(task: Operator, rows: AnyRows, dead: DeadLetters) -> AnyRows:
    """Reject the records with an integer or a decimal that float64 cannot hold in a field that the task reads as such.

    Columns of other types are not looked at. Returns the other records.
    """
    for name in task.float64_fields:
        if rows.schema.field(name).type.id in _NARROW:
            continue
        bad = inexact_rows(rows.column(name))
        if bad is not None:
            batch = materialize(rows)
            dead.reject(batch, bad, "out_of_range", f"{name} has a number that float64 cannot hold")
            rows = select(batch, ~bad)
    return rows


def apply_stateless(task: StatelessOperator, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[pa.RecordBatch]:
    """Yield the output of a task without state for a batch, without the records whose numbers it would round."""
    return checked_batches(task, materialize(reject_inexact(task, batch, dead)), dead)
