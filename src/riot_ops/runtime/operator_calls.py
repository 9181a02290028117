"""Call methods of operators, which users may have written, and check their input and their results.

One rule for all tasks that compute in float64: they do not see records whose numbers they would round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.operator import FilterOperator, Operator, StatelessOperator
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.exact import inexact_rows
from riot_ops.kernels.arrays.lazy_rows import AnyRows, materialize, select

__all__ = ["apply_stateless", "check_batch", "checked_mask", "inexact_fields", "reject_inexact"]

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


def reject_inexact(rows: AnyRows, fields: tuple[str, ...], errors: RejectedRecords) -> AnyRows:
    """Reject the records with an integer or a decimal that float64 cannot hold in one of the fields; return the others.

    Columns of other types are not looked at.
    """
    for name in fields:
        bad = inexact_rows(rows.column(name))
        if bad is not None:
            batch = materialize(rows)
            errors.reject(batch, bad, "out_of_range", f"{name} has a number that float64 cannot hold")
            rows = select(batch, ~bad)
    return rows


def apply_stateless(
    task: StatelessOperator, batch: pa.RecordBatch, errors: RejectedRecords
) -> Iterator[pa.RecordBatch]:
    """Yield the output of a task without state for a batch, without the records whose numbers it would round."""
    if fields := task.float64_fields and inexact_fields(task, batch.schema):
        batch = materialize(reject_inexact(batch, fields, errors))
    for result in task.batches(batch, errors):
        yield result if isinstance(result, pa.RecordBatch) else check_batch(task, "apply", result)


def checked_mask(task: FilterOperator, batch: pa.RecordBatch, errors: RejectedRecords) -> npt.NDArray[np.bool_] | None:
    """The result of :meth:`FilterOperator.passes`; :class:`ConfigError` unless it is None or one bool per row."""
    passes = task.passes(batch, errors)
    if passes is None or (getattr(passes, "dtype", None) == np.bool_ and passes.shape == (batch.num_rows,)):
        return passes
    raise ConfigError(
        f"{type(task).__name__}.passes must return {batch.num_rows} bools, one per row, got {value_text(passes)}"
    )


def check_batch(task: Operator, method: str, result: Any) -> pa.RecordBatch:
    """Return the result of a task's method; :class:`ConfigError` unless it is a record batch."""
    if isinstance(result, pa.RecordBatch):
        return result
    raise ConfigError(
        f"{type(task).__name__}.{method} returned {'None' if result is None else f'a {type(result).__name__}'}; "
        "it must return a pyarrow.RecordBatch, without rows if there is no output"
    )
