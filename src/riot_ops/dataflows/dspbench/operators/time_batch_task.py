"""Base class of the tasks that process all records of one event time together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.arrays.rows import take_rows
from riot_ops.kernels.arrays.timestamps import check_time_field, microseconds
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import NEVER
from riot_ops.task import PooledTask, Requirement, State, StateField, with_field

__all__ = ["Numbers", "TimeBatchTask"]

Numbers = npt.NDArray[np.int64]
#: In place of a batch number: a late record. In place of a closing row: a batch that is still open.
LATE = OPEN = -1


@kernel
def _assign_batches(slots: Any, times: Any, latest: Any, open_batch: Any, batch: Any, closed_at: Any) -> Any:
    """Assign each row to a batch, and write the row that closes each batch; return the number of batches."""
    n = 0
    for i in range(slots.size):
        s = slots[i]
        if times[i] < latest[s]:
            batch[i] = LATE
            continue
        if times[i] > latest[s] or open_batch[s] < 0:
            if open_batch[s] >= 0:
                closed_at[open_batch[s]] = i
            latest[s] = times[i]
            open_batch[s] = n
            closed_at[n] = OPEN
            n += 1
        batch[i] = open_batch[s]
    return n


@kernel
def _single_key_edges(times: Any, edges: Any) -> Any:
    """Write where batches begin in rows of one key; return their number, or -1 if the times decrease."""
    n = 0
    for i in range(times.size):
        if i > 0 and times[i] < times[i - 1]:
            return -1
        if i == 0 or times[i] > times[i - 1]:
            edges[n] = i
            n += 1
    edges[n] = times.size
    return n


@dataclass(frozen=True, kw_only=True)
class TimeBatchTask(PooledTask):
    """A task over *batches*: all records of a key with one event time.

    A batch closes when a record of the key with a later time arrives, and at the end. Its records are then emitted, in
    order.

    Parameters
    ----------
    time : str or None, default None
        Field for the time of the batch, besides ``event_time``; None: no such field.
    partial : bool, default True
        Whether the end of a bounded stream closes the open batch; else the batch is dropped.
    """

    time: str | None = None
    partial: bool = True

    def validate(self) -> None:
        if self.ttl is not None:
            raise ConfigError(f"{self.name()} does not support ttl, got {self.ttl!r}; it only holds open batches")

    def numeric_fields(self) -> tuple[str, ...]:
        """Return the numeric fields that a record must have."""
        return ()

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), "event_time": "any", **dict.fromkeys(self.numeric_fields(), "number")}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        check_time_field(self.name(), schema)

    def with_time_field(self, schema: pa.Schema) -> pa.Schema:
        """Add the time of the batch to a schema."""
        return schema if self.time is None else with_field(schema, schema.field("event_time").with_name(self.time))

    def state_fields(self) -> Mapping[str, StateField]:
        return {"held": StateField("rows", initial=None)}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        wrong = np.zeros(batch.num_rows, np.bool_)

        def reject(rows: npt.NDArray[np.bool_], reason: str, message: str) -> None:
            errors.reject(batch, rows & ~wrong, reason, message)
            wrong[rows] = True

        column = batch.column("event_time")
        if column.null_count:
            reject(np.asarray(column.is_null()), "no_event_time", "a batch needs an event time")
        for name in self.numeric_fields():
            values, _ = float_column(batch.column(name))
            if not np.isfinite(values).all():
                reject(np.isnan(values), "missing", f"{name} is missing")
                reject(np.isinf(values), "not_finite", f"{name} is infinite")
        return batch.filter(pa.array(~wrong)) if wrong.any() else batch

    def update(self, batch: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords) -> pa.RecordBatch:
        closed, edges, rest = self._split_closed(batch, slots, errors, ended=False)
        state["held"][0] = rest if rest.num_rows else None
        return self.results(closed, edges, state)

    def flush_held(
        self, held: pa.RecordBatch, slots: Numbers, state: State, errors: RejectedRecords
    ) -> pa.RecordBatch | None:
        if not self.partial:
            return None
        closed, edges, _ = self._split_closed(held, slots, errors, ended=True)
        state["held"][0] = None
        return self.results(closed, edges, state)

    @abstractmethod
    def results(self, batch: pa.RecordBatch, edges: Numbers, state: State) -> pa.RecordBatch:
        """Compute the results of closed batches; batch i is the rows from ``edges[i]`` to ``edges[i + 1]``."""

    def _split_closed(
        self, pool: pa.RecordBatch, slots: Numbers, errors: RejectedRecords, *, ended: bool
    ) -> tuple[pa.RecordBatch, Numbers, pa.RecordBatch]:
        """Split rows into those of closed batches, in order of closing, with the batch edges, and all other rows."""
        n = pool.num_rows
        keys = int(slots.max()) + 1 if n else 0
        times, _ = microseconds(pool.column("event_time"))
        if keys <= 1 and (found := _single_key_edges(times, edges := np.empty(n + 1, np.int64))) >= 0:
            edges = edges[: found + ended] if found else edges[:1]  # the last batch is open
            return pool.slice(0, edges[-1]), edges, pool.slice(edges[-1])
        batch, closed_at = np.empty(n, np.int64), np.empty(n, np.int64)
        found = _assign_batches(slots, times, np.full(keys, NEVER), np.full(keys, OPEN), batch, closed_at)
        late = batch == LATE
        errors.reject(pool, late, "late", "a later batch has begun")
        closing = np.arange(found) if ended else closed_at[:found]
        at = np.where(late, OPEN, closing[np.maximum(batch, 0)]) if found else batch
        out, rest = np.flatnonzero(at != OPEN), np.flatnonzero((at == OPEN) & ~late)
        if out.size and (np.diff(at[out]) < 0).any():  # batches of several keys
            out = out[np.argsort(at[out], kind="stable")]
        edges = np.append(np.flatnonzero(np.diff(at[out], prepend=np.int64(OPEN - 1))), out.size)
        return _take(pool, out), edges, _take(pool, rest)


def _take(batch: pa.RecordBatch, rows: Numbers) -> pa.RecordBatch:
    """Take rows; consecutive rows are sliced without a copy."""
    if rows.size and rows[-1] - rows[0] == rows.size - 1 and (np.diff(rows) == 1).all():
        return batch.slice(int(rows[0]), rows.size)
    return take_rows(batch, rows)
