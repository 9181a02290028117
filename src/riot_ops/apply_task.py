"""Applying a task to one frame."""

from __future__ import annotations

from typing import Literal, TypeVar

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError, value_text
from riot_ops.task import Task

__all__ = ["apply"]

F = TypeVar("F")


def apply(
    task: Task,
    df: F,
    *,
    on_error: Literal["column", "drop"] = "column",
    order: Literal["auto", "arrival", "event_time"] = "auto",
    partitions: int | None = None,
    buffering: Buffering | str | None = None,
    streaming: bool | None = None,
) -> F:
    """Apply a task to a pandas or Polars frame, an Arrow table, or a Spark ``DataFrame``, batch or streaming.

    The result is of the same kind. See :meth:`riot_ops.tasks.Task.transform` for the options.

    >>> import pyarrow as pa
    >>> from riot_ops import tasks
    >>> apply(tasks.RunningCount(by="word"), pa.table({"word": ["so", "it", "so"]}), on_error="drop").to_pydict()
    {'word': ['so', 'it', 'so'], 'count': [1, 1, 2]}
    """
    if not isinstance(task, Task):
        raise ConfigError(f"apply takes a task and a frame, got {value_text(task)} as the task")
    result: F = task.transform(
        df, on_error=on_error, order=order, partitions=partitions, buffering=buffering, streaming=streaming
    )
    return result
