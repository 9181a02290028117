"""The contract of sinks, and those in the user's process: memory, functions, console.

Output is written in numbered batches. The output of a writer stays invisible until the commit of the batch. A second
commit of the same batch, as after a crash between commit and checkpoint, replaces the first: files are written
effectively once.
"""

from __future__ import annotations

import array
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import escape_control
from riot_ops.core.order import result_fields

__all__ = [
    "CallbackSink",
    "ConsoleSink",
    "MemorySink",
    "Sink",
    "Writer",
    "align_schemas",
    "result_batch",
]

#: While a writer samples, records of a stream that it keeps, and the minimum time between two samples.
SAMPLE_ROWS, SAMPLE_SECONDS = 64, 0.25
_ROWS = pa.py_buffer(array.array("i", range(SAMPLE_ROWS)))  # pa.array would import pandas, which takes long

T = TypeVar("T", pa.RecordBatch, pa.Table)

#: The result of a writer for the commit, possibly in another process: plain values and bytes.
Message = dict[str, Any]


class Writer(ABC):
    """Writes the records of one partition of one batch."""

    @abstractmethod
    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        """Add records of a stream."""

    @abstractmethod
    def finish(self) -> Message:
        """Make the records durable, but not yet visible; called once, after the last write."""

    def abort(self) -> None:
        """Discard the records that were written."""


class Sink(ABC):
    """The end of streams. Instances are picklable; writers are created in the process that holds the records.

    Examples
    --------
    >>> import riot_ops as ro
    >>> class Counter(ro.Sink):
    ...     # Counts the rows of each stream once they are committed
    ...     def __init__(self):
    ...         self.rows = {}
    ...     def writer(self, batch_id, partition):
    ...         return CounterWriter()
    ...     def commit(self, batch_id, messages):
    ...         for message in messages:
    ...             for stream, rows in message.items():
    ...                 self.rows[stream] = self.rows.get(stream, 0) + rows
    >>> class CounterWriter:
    ...     def __init__(self):
    ...         self.rows = {}
    ...     def write(self, stream, batch):
    ...         self.rows[stream] = self.rows.get(stream, 0) + batch.num_rows
    ...     def finish(self):
    ...         return self.rows
    ...     def abort(self):
    ...         self.rows = {}
    >>> flow, sink = ro.Dataflow("readings"), Counter()
    >>> _ = flow.sink("all", flow.source("readings", schema={"value": "double"}))
    >>> _ = flow.run([{"value": 1.0}, {"value": 2.0}], sinks=sink)
    >>> sink.rows
    {'readings': 2}
    """

    #: Whether it must run in the process that started the dataflow, because it shows or stores objects there.
    in_process: ClassVar[bool] = False
    #: Whether a commit is final, as that of a broker's transaction. A run in process then writes its checkpoint before
    #: the commit, and continues from it only if :meth:`last_committed` says that the commit took place.
    transactional: bool = False

    @abstractmethod
    def writer(self, batch_id: int, partition: int) -> Writer:
        """Create a writer for one partition of a batch."""

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        """Make a batch visible; may be called again for the same batch after a crash."""

    def last_committed(self) -> int | None:
        """Return the number of the last batch that this run has committed; None if there is none.

        Only a transactional sink needs it.
        """
        return None

    def abort(self, batch_id: int) -> None:
        """Discard what writers have finished of a batch that failed; :meth:`recover` removes what this leaves."""

    def sync(self, batch_id: int) -> None:
        """Flush a committed batch to disk: the next checkpoint relies on it after a power failure."""

    def bind(self, schemas: Mapping[str, pa.Schema]) -> Sink:
        """Return the sink for a run in which these streams end in it; ConfigError if it cannot hold one of them."""
        return self

    def folders(self) -> list[Path]:
        """Return the folders that no other run may use at the same time."""
        return []

    def worker_folders(self) -> list[Path]:
        """Return the folders of this machine that the workers of a cluster must see; by default all its folders."""
        return self.folders()

    def table(self, stream: str) -> pa.Table:
        """Return all committed records of a stream; KeyError if this sink cannot return them."""
        raise KeyError(
            f"the records of {stream!r} are in a {type(self).__name__}, which cannot return them; "
            "use a MemorySink or Parquet files (out=)"
        )

    def identify(self, run: str) -> None:
        """Get the identity of the run, before any call of ``begin``, ``recover`` or ``resume``.

        A run that continues from its checkpoint keeps its identity, and each new run has another one.
        """

    def begin(self, overwrite: bool) -> None:
        """Start a new run: remove the output of an earlier one if ``overwrite``, or raise if there is any."""

    def recover(self, batch_id: int) -> None:
        """Remove the output from this batch on: it will be written again, possibly with other records."""

    def resume(self, batch_id: int) -> None:
        """Continue with this batch; if it was committed before, the same records come again.

        By default it is removed, as by :meth:`recover`. A sink that recognises a batch may pass over it instead.
        """
        self.recover(batch_id)

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        """End a run: make streams without records readable as well."""


# -- in process ------------------------------------------------------------------------------------


class CallbackSink(Sink):
    """Calls a function ``f(stream, batch)`` with each batch, in the user's process.

    At least once: after a crash a batch may be passed again.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("warm")
    >>> _ = flow.sink("warm", flow.source("readings", schema={"value": "double"}).filter("value > 20"))
    >>> sink = ro.CallbackSink(lambda stream, batch: print(stream, batch["value"].to_pylist()))
    >>> _ = flow.run([{"value": 19.5}, {"value": 24.0}], sinks=sink)
    filter [24.0]
    """

    in_process = True

    def __init__(self, function: Callable[[str, pa.RecordBatch], None]) -> None:
        self.function = function

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _CallbackWriter(self.function)


class _CallbackWriter(Writer):
    def __init__(self, function: Callable[[str, pa.RecordBatch], None]) -> None:
        self._function = function

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self._function(stream, batch)

    def finish(self) -> Message:
        return {}


class MemorySink(CallbackSink):
    """Keeps all records in memory; for notebooks, tests and small data.

    Examples
    --------
    >>> sink = MemorySink()
    >>> sink.writer(0, 0).write("out", pa.RecordBatch.from_pydict({"value": [1.0]}))
    >>> sink.table("out").to_pylist()
    [{'value': 1.0}]
    """

    def __init__(self) -> None:
        super().__init__(self._keep)
        self._batches: dict[str, list[pa.RecordBatch]] = {}

    def _keep(self, stream: str, batch: pa.RecordBatch) -> None:
        self._batches.setdefault(stream, []).append(batch)

    def table(self, stream: str) -> pa.Table:
        """Return all records of a stream."""
        batches = align_schemas(self._batches.get(stream, []))
        return pa.Table.from_batches(batches) if batches else pa.table({})


class ConsoleSink(CallbackSink):
    """Prints the first records of each batch, a line each; control characters are escaped.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("warm")
    >>> _ = flow.sink("warm", flow.source("readings", schema={"value": "double"}).filter("value > 20"))
    >>> _ = flow.run([{"value": 19.5}, {"value": 24.0}], sinks=ro.ConsoleSink(max_rows=5))
    filter: seq=1 value=24.0
    """

    def __init__(self, max_rows: int = 10, write: Callable[[str], None] = print) -> None:
        super().__init__(self._show)
        self._max_rows = max_rows
        self._write = write

    def _show(self, stream: str, batch: pa.RecordBatch) -> None:
        for row in batch.slice(0, self._max_rows).to_pylist():
            self._write(escape_control(f"{stream}: " + " ".join(f"{k}={v}" for k, v in row.items())))
        if batch.num_rows > self._max_rows:
            self._write(f"{stream}: … {batch.num_rows - self._max_rows} more")


def result_batch(batch: pa.RecordBatch, ordinals: Set[str] | None) -> pa.RecordBatch:
    """Return the batch without ordinals other than those in ``ordinals``; with all if that is None."""
    names = result_fields(batch.schema.names, ordinals)
    return batch if len(names) == batch.num_columns else batch.select(names)


def align_schemas(pieces: Sequence[T], schema: pa.Schema | None = None) -> list[T]:
    """Select and cast the fields of a schema in batches or tables; by default the schema of the first."""
    return [
        p if p.schema.equals(target) else p.select(target.names).cast(target)
        for p in pieces
        for target in [schema or pieces[0].schema]
    ]


class FanOutWriter(Writer):
    """Writes each stream to all its sinks, without ordinals other than those in ``ordinals``, and counts records.

    While ``sampling``, ``newest`` has copies of the last records of each stream, at most :data:`SAMPLE_ROWS` and not
    older than :data:`SAMPLE_SECONDS` when a batch was written.
    """

    def __init__(
        self,
        routes: Mapping[str, Iterable[str]],
        sinks: Mapping[str, Sink],
        batch_id: int,
        partition: int,
        ordinals: Set[str] | None = None,
        *,
        sampling: bool = False,
    ) -> None:
        self.sampling = sampling
        self.newest: dict[str, pa.RecordBatch] = {}
        self._sampled_at: dict[str, float] = {}
        self._ordinals = ordinals
        self._fields: dict[str, tuple[Sequence[str], list[str]]] = {}  # of the last batch by stream, and those kept
        self._routes = {stream: list(names) for stream, names in routes.items()}
        self._writers = {name: sink.writer(batch_id, partition) for name, sink in sinks.items()}
        self.rows: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.steps: dict[str, tuple[int, int]] = {}

    def count(self, steps: Mapping[str, tuple[int, int]]) -> None:
        """Add the numbers of records that each step has read and rejected."""
        for step, (read, rejected) in steps.items():
            total, total_rejected = self.steps.get(step, (0, 0))
            self.steps[step] = total + read, total_rejected + rejected

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self.rows[stream] = self.rows.get(stream, 0) + batch.num_rows
        if stream == "errors":
            found = pc.binary_join_element_wise(batch.column("task"), batch.column("reason"), ": ").value_counts()
            for reason, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
                self.reasons[reason] = self.reasons.get(reason, 0) + count
        if self.sampling:
            self._sample(stream, batch)
        if targets := self._routes.get(stream):
            names = batch.schema.names
            known, kept = self._fields.get(stream, ((), []))
            if names != known:
                kept = result_fields(names, self._ordinals)
                self._fields[stream] = names, kept
            result = batch if len(kept) == len(names) else batch.select(kept)
            for name in targets:
                self._writers[name].write(stream, result)

    def finish(self) -> Message:
        return {
            "sinks": {name: writer.finish() for name, writer in self._writers.items()},
            "rows": self.rows,
            "reasons": self.reasons,
            "steps": self.steps,
        }

    def abort(self) -> None:
        for writer in self._writers.values():
            writer.abort()

    def _sample(self, stream: str, batch: pa.RecordBatch) -> None:
        now = time.monotonic()
        if batch.num_rows and now - self._sampled_at.get(stream, -math.inf) >= SAMPLE_SECONDS:
            self._sampled_at[stream] = now
            last = result_batch(batch.slice(max(0, batch.num_rows - SAMPLE_ROWS)), self._ordinals)
            # a copy, as a slice would hold the whole batch
            rows = pa.Array.from_buffers(pa.int32(), last.num_rows, [None, _ROWS])
            self.newest[stream] = last.take(rows)
