"""One running task, fed by hand: for notebooks, unit tests and edge boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from riot_ops.dead_letters import DeadLetters
from riot_ops.errors import RecordError
from riot_ops.kernels.arrow import joined
from riot_ops.state import KeyedState
from riot_ops.task import KeyedTask, StatelessTask, Task, applied

__all__ = ["Session"]


class Session:
    """A task with its state, one event or batch at a time.

    Attributes
    ----------
    errors : list of dict
        The records that were rejected, as in a dataflow's errors stream.

    Examples
    --------
    >>> from riot_ops import tasks
    >>> average = tasks.BlockAverage(window=2).session()
    >>> average.push({"value": 1.0}), average.push({"value": 3.0})
    ([], [{'value': 2.0, 'count': 2}])
    >>> average.push({"value": "warm"}), average.errors[0]["reason"]
    ([], 'wrong_type')
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.errors: list[dict[str, Any]] = []
        self._dead = DeadLetters(task.name())
        self._state = KeyedState(task) if isinstance(task, KeyedTask) else None

    def push(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Process one event; returns what the task emits for it."""
        try:
            batch = self._batch([event])
        except RecordError as error:
            self.errors.append(
                {
                    "seq": event.get("seq"),
                    "event_time": event.get("event_time"),
                    "task": self.task.name(),
                    "reason": error.reason,
                    "message": str(error),
                    "raw": repr(dict(event)),
                }
            )
            return []
        return self.push_batch(batch).to_pylist()  # type: ignore[no-any-return]

    def push_many(self, events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Process events one after the other; returns all that the task emits."""
        return [out for event in events for out in self.push(event)]

    def push_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Process a batch whose rows are in order."""
        self.task.output_schema(batch.schema)
        if self._state is not None:
            out = self._state.update(batch, self._dead)
        else:
            assert isinstance(self.task, StatelessTask)
            out = joined(list(applied(self.task, batch, self._dead)))
        self._collect()
        return out

    def flush(self) -> list[dict[str, Any]]:
        """What the task has left at the end of the stream."""
        out = self._state.flush(self._dead) if self._state is not None else None
        self._collect()
        return [] if out is None else out.to_pylist()

    def snapshot(self) -> bytes:
        """The state as bytes (empty for a stateless task)."""
        return self._state.snapshot() if self._state is not None else b""

    def restore(self, data: bytes) -> None:
        """Continue from a snapshot of a session of an equal task."""
        if self._state is not None:
            self._state.restore(data)

    def merge(self, data: bytes) -> None:
        """Add what an equal task has seen elsewhere, from a snapshot of its session.

        For sketches: they then say what one of them would over all records. Raises
        :class:`~riot_ops.errors.StateError` for tasks whose states cannot be merged.

        >>> from riot_ops import tasks
        >>> here, there = tasks.DistinctCount().session(), tasks.DistinctCount().session()
        >>> _ = here.push_many({"value": v} for v in (1.0, 2.0)), there.push_many({"value": v} for v in (2.0, 3.0))
        >>> here.merge(there.snapshot())
        >>> here.push({"value": 1.0})
        [{'value': 3.0}]
        """
        if self._state is None:
            return
        other = KeyedState(self._state.task)
        other.restore(data, " to merge")
        self._state.merge(other)

    def _collect(self) -> None:
        for batch in self._dead.take():
            self.errors.extend(batch.to_pylist())

    def _batch(self, events: list[Mapping[str, Any]]) -> pa.RecordBatch:
        requires = self.task.requires()
        names = list(dict.fromkeys([*events[0], *requires]))
        columns = []
        for name in names:
            values = [event.get(name) for event in events]
            wanted = requires.get(name, "any")
            try:
                column = pa.array(values, pa.float64()) if wanted == "number" else pa.array(values)
                if wanted == "text" and not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
                    if not pa.types.is_null(column.type):
                        raise pa.ArrowTypeError(f"got {column.type}")
                    column = column.cast(pa.string())
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise RecordError(f"{name} = {values[0]!r} is not a {wanted}: {error}", reason="wrong_type") from None
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=names)
