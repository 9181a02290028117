"""Records that a task rejects, with reason and original text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.schema import ERRORS, TIMESTAMP

__all__ = ["DeadLetters"]


class DeadLetters:
    """Collects the records that a task rejects, with reason and original text."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.count = 0
        self._batches: list[pa.RecordBatch] = []

    def reject(
        self,
        batch: pa.RecordBatch,
        rows: npt.NDArray[Any],
        reason: str,
        message: str | Sequence[str],
        raw: pa.Array | None = None,
    ) -> None:
        """Reject rows (a mask or indices) of a batch.

        Parameters
        ----------
        reason : str
            Short stable code, such as ``malformed``.
        message : str or sequence of str
            What was wrong, for all rows or for each.
        raw : array, optional
            Original text of *all* rows of the batch; by default the whole record as JSON.
        """
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        if index.size == 0:
            return
        n = int(index.size)
        picked = batch.take(pa.array(index))
        texts = _records_as_json(picked) if raw is None else _as_text(raw.take(pa.array(index)))
        names = picked.schema.names
        self.count += n
        self._batches.append(
            pa.RecordBatch.from_arrays(
                [
                    picked.column("seq") if "seq" in names else pa.nulls(n, pa.int64()),
                    picked.column("event_time").cast(TIMESTAMP) if "event_time" in names else pa.nulls(n, TIMESTAMP),
                    pa.array([self.task] * n, pa.string()),
                    pa.array([reason] * n, pa.string()),
                    pa.array([message] * n if isinstance(message, str) else list(message), pa.string()),
                    texts,
                ],
                schema=ERRORS,
            )
        )

    def take(self) -> list[pa.RecordBatch]:
        """The collected batches; the collector is empty afterwards."""
        batches, self._batches = self._batches, []
        return batches


def _as_text(column: pa.Array) -> pa.Array:
    """Text of a column that may hold invalid UTF-8, without losing a byte."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array(
            [None if v is None else v.decode("utf-8", "backslashreplace") for v in column.to_pylist()], pa.string()
        )
    return column.cast(pa.string())


def _records_as_json(batch: pa.RecordBatch) -> pa.Array:
    def plain(value: Any) -> str:
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)

    return pa.array([json.dumps(row, default=plain, ensure_ascii=False) for row in batch.to_pylist()], pa.string())
