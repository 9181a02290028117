"""A session: one task that the caller feeds by hand, for notebooks, unit tests and edge devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pyarrow as pa

from riot_ops.core.casting import is_key_type, is_text
from riot_ops.core.display import cell_text, html_display, html_table, operator_text, wrapped
from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.operator import NUMBER_REQUIREMENTS, KeyedOperator, Operator, StatelessOperator
from riot_ops.core.order import is_ordinal
from riot_ops.core.overwriting import checked_output_schema
from riot_ops.core.python_values import infer_type
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.ingest.step import RESERVED_TYPES, from_records, ingest_batch
from riot_ops.ingest.tables import SeqOrder, single_batch, with_whole_seq
from riot_ops.kernels.arrays.arrow import concat_batches
from riot_ops.runtime.operator_calls import apply_stateless
from riot_ops.runtime.state import KeyedState

__all__ = ["Session"]

#: Rejected records that a notebook shows, the newest ones.
SHOWN = 5


def _exact_kind(value: Any) -> pa.DataType:
    """Return the type that holds a number or time exactly; float64 for numbers that it holds, and for other values.

    >>> _exact_kind(3), _exact_kind(2**53 + 1), _exact_kind(2**64 - 1)
    (DataType(double), DataType(int64), DataType(uint64))
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) <= 2**53 or not -(2**63) <= value < 2**64:
            return pa.float64()
        return pa.int64() if value < 2**63 else pa.uint64()
    if isinstance(value, (bool, date, time, timedelta)):
        return infer_type([value])
    return pa.float64()


def _family(dtype: pa.DataType) -> object:
    """Return what the types of a field's values have in common: texts and bytes, numbers, or the same kind of type."""
    types = pa.types
    if types.is_integer(dtype) or types.is_floating(dtype):
        return "number"
    return "text" if is_text(dtype) or types.is_binary(dtype) else dtype.id


class Session:
    """A task with its state, one event or batch at a time.

    Attributes
    ----------
    errors : list of dict
        The records that were rejected, as in a dataflow's errors stream.

    Parameters
    ----------
    task : Operator
    ordered : bool, default True
        Whether ``seq`` must not fall in :meth:`push_batch`; False for checks of a task.

    Examples
    --------
    >>> from riot_ops import tasks
    >>> average = tasks.MovingAverage(window=2).session()
    >>> average.push({"value": 1.0}), average.push({"value": 3.0})
    ([], [{'value': 2.0, 'count': 2}])
    >>> average.push({"value": "warm"}), average.errors[0]["reason"]
    ([], 'wrong_type')
    """

    def __init__(self, task: Operator, *, ordered: bool = True) -> None:
        self.task = task
        self.errors: list[dict[str, Any]] = []
        self._requires = task.requires()
        self._kinds = {
            n: pa.float64() for n, requirement in self._requires.items() if requirement in NUMBER_REQUIREMENTS
        } | RESERVED_TYPES
        self._first: dict[str, pa.DataType] = {}  # the types of the first values of the other fields that it reads
        self._dead = RejectedRecords(task.name())
        self._order = SeqOrder() if ordered else None
        self._writes = task.writes() != frozenset()
        self._checked: pa.Schema | None = None  # the last output schema for which nothing is overwritten
        self._state = KeyedState(task) if isinstance(task, KeyedOperator) else None

    def push(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Process one event; returns the output for it.

        A field that the task reads may be left out if it has no value. But if the event also has a field that the
        task does not know, the name may be misspelt: that raises :class:`~riot_ops.core.errors.ConfigError`.
        """
        if not isinstance(event, Mapping):
            raise ConfigError(
                f"push takes one event, a mapping of field to value, got {value_text(event)}; as push({{"
                f"{next(iter(self._requires), 'value')!r}: …}}), and push_batch takes frames and lists of events"
            )
        left_out = [name for name in self._requires if name not in event]
        if left_out and any(
            name not in self._requires and name not in RESERVED_TYPES and not is_ordinal(name) for name in event
        ):
            self.task.check_input(pa.schema([(str(name), pa.null()) for name in event]))
        names = [*event, *left_out]
        schema = pa.schema([(name, self._kind(name, event.get(name))) for name in names])
        return self._process(from_records([event], schema)).to_pylist()  # type: ignore[no-any-return]

    def push_many(self, events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Process events one by one; returns all that the task emits."""
        return [out for event in events for out in self.push(event)]

    def push_batch(self, batch: Any) -> pa.RecordBatch:
        """Process records whose rows are in order.

        A ``seq`` that falls from one row to the next, or to the next batch, raises
        :class:`~riot_ops.core.errors.ConfigError`, as in a source.

        Parameters
        ----------
        batch : record batch or table of Arrow, pandas or Polars frame, or list of dicts
        """
        received = single_batch(batch)
        if self._order is not None and "seq" in received.schema.names:
            self._order.check(with_whole_seq(received).column("seq"))
        return self._process(received)

    def _process(self, received: pa.RecordBatch) -> pa.RecordBatch:
        batch = ingest_batch(received, self._dead)
        schema = self.task.output_schema(batch.schema)
        if self._writes and schema is not self._checked:  # the task caches it
            schema = self._checked = checked_output_schema(self.task, batch.schema)
        if received.num_rows and not batch.num_rows:
            out = pa.RecordBatch.from_pylist([], schema)
        elif self._state is not None:
            self._state.schema = schema
            out = concat_batches(self._state.update(batch, self._dead) or [pa.RecordBatch.from_pylist([], schema)])
        else:
            assert isinstance(self.task, StatelessOperator)
            out = concat_batches(list(apply_stateless(self.task, batch, self._dead)))
        self._collect()
        return out

    def advance(self, time: datetime) -> list[dict[str, Any]]:
        """Advance stream time as a record of that time would; returns the timer output.

        >>> from datetime import UTC, datetime
        >>> from riot_ops import tasks
        >>> minutes = tasks.Window(frame="1min", aggregates={"n": "count"}).session()
        >>> minutes.push({"event_time": datetime(2024, 5, 1, 12, 0, 30, tzinfo=UTC)})
        []
        >>> due = minutes.advance(datetime(2024, 5, 1, 12, 1, tzinfo=UTC))
        >>> [(f"{row['window_end']:%H:%M}", row["n"]) for row in due]
        [('12:01', 1)]
        """
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise ConfigError(f"advance needs a datetime with a time zone, got {time!r}")
        micros = (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        due = None if self._state is None else self._state.advance(micros)
        return [] if due is None else due.to_pylist()

    def flush(self) -> list[dict[str, Any]]:
        """Return the task's output at the end of the stream."""
        out = self.flush_batch()
        return [] if out is None else out.to_pylist()

    def flush_batch(self) -> pa.RecordBatch | None:
        """Return the task's output at the end of the stream as a batch; None if there is none."""
        out = self._state.flush(self._dead) if self._state is not None else None
        self._collect()
        return out

    def snapshot(self) -> bytes:
        """Return the state as bytes, empty for a stateless task."""
        return self._state.snapshot() if self._state is not None else b""

    def restore(self, data: bytes) -> None:
        """Continue from a snapshot of a session of an equal task."""
        if self._state is not None:
            self._state.restore(data)

    def merge(self, data: bytes) -> None:
        """Merge the state of an equal task over other records, from a snapshot of its session.

        This is for sketches: the result equals that of one sketch over all records. Raises
        :class:`~riot_ops.core.errors.StateError` for tasks whose states cannot be merged.

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

    def __repr__(self) -> str:
        return "\n".join([*wrapped(operator_text(self.task, 1000), "  ", "Session of "), f"  {self._counts()}"])

    def _repr_html_(self) -> str:
        rows = [[cell_text(error[name]) for name in ("reason", "message", "raw")] for error in self.errors[-SHOWN:]]
        rejected = html_table(rows, ["rejected", "message", "record"]) if rows else ""
        return html_display(f"Session of {operator_text(self.task, 1000)}", self._counts(), rejected)

    def _counts(self) -> str:
        keys = "no state" if self._state is None else f"keys in state: {self._state.index.size:,}"
        return f"{keys}, records rejected: {len(self.errors):,}"

    def _collect(self) -> None:
        for batch in self._dead.take():
            self.errors.extend(batch.to_pylist())

    def _kind(self, name: str, value: Any) -> pa.DataType:
        """Return the type of a field: the one that the task needs, or that of the value."""
        known = self._kinds.get(name)
        if known is not None and name not in RESERVED_TYPES and self._requires.get(name) != "number":
            # a field keeps the type of its last value, so that one without a value does not change it
            known = self._kinds[name] = known if value is None else _exact_kind(value)
        if known is not None:
            large = isinstance(value, int) and known == pa.float64() and abs(value) > 2**53
            return _exact_kind(value) if large else known  # float64 would round it before the task refuses that
        kind = infer_type([value])
        accepts = {"text": is_text, "key": is_key_type}.get(self._requires.get(name, "any"))
        if accepts is not None and not accepts(kind):
            kind = pa.string()
        if name not in self._requires or pa.types.is_null(kind):
            return kind
        first = self._first.setdefault(name, kind)
        if kind == first:
            return kind
        if self._requires[name] == "key" and pa.types.is_integer(kind) != pa.types.is_integer(first):
            return first  # 1 and 1.0 are one key
        return kind if _family(kind) == _family(first) else first  # the record is rejected then
