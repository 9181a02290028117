"""Call methods of operators, which users may have written, and check their results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.operator import FilterOperator, Operator, StatelessOperator

__all__ = ["check_batch", "checked_batches", "checked_mask"]


def checked_batches(task: StatelessOperator, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[pa.RecordBatch]:
    """Yield the output batches of a task for a batch; :class:`ConfigError` if it returns anything else."""
    for result in task.batches(batch, dead):
        yield check_batch(task, "apply", result)


def checked_mask(task: FilterOperator, batch: pa.RecordBatch, dead: DeadLetters) -> npt.NDArray[np.bool_] | None:
    """The result of :meth:`FilterOperator.passes`; :class:`ConfigError` unless it is None or one bool per row."""
    passes = task.passes(batch, dead)
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
