"""What the methods of operators return, checked: they may be anybody's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, short
from riot_ops.core.operator import FilterOperator, Operator, StatelessOperator

__all__ = ["applied", "as_batch", "passing"]


def applied(task: StatelessOperator, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[pa.RecordBatch]:
    """What a task makes of a batch, at least one; :class:`ConfigError` where that is no batch."""
    for made in task.batches(batch, dead):
        yield as_batch(task, "apply", made)


def passing(task: FilterOperator, batch: pa.RecordBatch, dead: DeadLetters) -> npt.NDArray[np.bool_] | None:
    """What :meth:`FilterOperator.passes` says; :class:`ConfigError` where that is not one truth value per row."""
    passes = task.passes(batch, dead)
    if passes is None or (getattr(passes, "dtype", None) == np.bool_ and passes.shape == (batch.num_rows,)):
        return passes
    raise ConfigError(
        f"{type(task).__name__}.passes must return {batch.num_rows} bools, one per row, got {short(passes)}"
    )


def as_batch(task: Operator, method: str, made: Any) -> pa.RecordBatch:
    """What a method of a task returned, where it is a batch."""
    if isinstance(made, pa.RecordBatch):
        return made
    raise ConfigError(
        f"{type(task).__name__}.{method} returned {'None' if made is None else f'a {type(made).__name__}'}; "
        "it must return a pyarrow.RecordBatch, without rows where there is no output"
    )
