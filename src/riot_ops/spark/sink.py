"""riot_ops sinks as a Spark data sink.

Each stage writes the records that end in a sink itself. Spark's writer receives the messages of these
writers, and commits them when the micro-batch is complete.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from riot_ops.core.sink import FanOutWriter, Sink
from riot_ops.measure.metrics import Summary
from riot_ops.spark.blocks import SINK_STAGE

__all__ = ["NEWEST", "STAGE_WRITERS", "SinkCommitter", "SinkRoutes", "batch_number", "part_number"]

#: Maximum number of buckets or splits of a stage: stage n numbers its writers from n times this.
STAGE_WRITERS = 100_000
#: File with the newest records of each stream, beside the counts of micro-batches.
NEWEST = "newest.msgpack"


@dataclass(frozen=True)
class SinkRoutes:
    """The sinks of a query, the streams that end in them, and the ordinals of results, for the stages."""

    routes: Mapping[str, Sequence[str]]
    sinks: Mapping[str, Sink]
    ordinals: frozenset[str] | None = None
    #: Number of the micro-batch that Spark calls 0.
    base: int = 0

    def writer(self, stage: int, place: int) -> FanOutWriter:
        """Return a writer for one bucket or split of a stage in the current micro-batch."""
        batch, number = self.base + batch_number(), stage * STAGE_WRITERS + place
        return FanOutWriter(self.routes, self.sinks, batch, number, self.ordinals, sampling=True)


def batch_number() -> int:
    """Return the number of the micro-batch that runs in this task."""
    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty("streaming.sql.batchId") or 0)


def part_number() -> int:
    """Return the number of the partition that this task processes."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


@dataclass
class _StageMessages(WriterCommitMessage):
    messages: list[dict[str, Any]]


class SinkCommitter:
    """Commits the writers of the stages on behalf of Spark.

    ``metrics`` is the folder for counts and latency of each micro-batch, if any. ``note`` is a file that is touched
    when a micro-batch has been committed. ``base`` is the number of the micro-batch that Spark calls 0.
    """

    def __init__(self, sinks: Mapping[str, Sink], metrics: str | None, note: Path | None = None, base: int = 0) -> None:
        self._base = base
        self._sinks = sinks
        self._metrics = metrics
        self._note = note

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Collect the messages of the stages' writers, from Arrow batches or, before Spark 4.1, from rows."""
        return _StageMessages(
            [
                msgspec.msgpack.decode(row["payload"]) | {"stamp": (row["first_us"], row["last_us"], row["rows"])}
                for rows in iterator
                for row in (rows.to_pylist() if isinstance(rows, pa.RecordBatch) else [rows])
                if row["stage"] == SINK_STAGE
            ]
        )

    @staticmethod
    def stage_messages(messages: Sequence[WriterCommitMessage | None]) -> list[dict[str, Any]]:
        """Return the messages of all writers of a micro-batch."""
        return [message for m in messages if isinstance(m, _StageMessages) for message in m.messages]

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Make a micro-batch visible in all sinks."""
        written, batch_id = self.stage_messages(messages), self._base + batch_id
        for name, sink in self._sinks.items():
            sink.commit(batch_id, [m["sinks"][name] for m in written])
            sink.sync(batch_id)  # Spark counts the micro-batch as committed after this
        if self._metrics is not None:
            _write_metrics(Path(self._metrics), batch_id, written)
            _write_newest(Path(self._metrics), written)
        if self._note is not None:
            self._note.touch()

    def abort(self, batch_id: int) -> None:
        """Discard a micro-batch that failed. Tasks that still run may leave files, which the next start removes."""
        for sink in self._sinks.values():
            sink.abort(self._base + batch_id)


def _write_metrics(folder: Path, batch_id: int, written: list[dict[str, Any]]) -> None:
    """Write the counts and the latency of a micro-batch for the process that started the query."""
    total = Summary()
    for message in written:
        total.count(message["rows"], message["reasons"], message["steps"])
        first_us, last_us, n = message["stamp"]
        total.latency.add(first_us, last_us, time.time() * 1e6, n)  # until now, as the commit makes records visible
    folder.mkdir(parents=True, exist_ok=True)
    counted = {"rows": total.rows, "reasons": total.reasons, "steps": total.steps, "latency": total.latency.blocks()}
    _replace(folder / f"{batch_id}.json", json.dumps(counted).encode())


def _write_newest(folder: Path, written: list[dict[str, Any]]) -> None:
    """Write the newest records of each stream, as pieces of Arrow IPC, for the process that started the query."""
    found: dict[str, list[bytes]] = {}
    for message in written:
        for stream, data in message.get("newest", {}).items():
            found.setdefault(stream, []).append(data)
    if found:
        path = folder / NEWEST
        before = msgspec.msgpack.decode(path.read_bytes()) if path.exists() else {}
        _replace(path, msgspec.msgpack.encode(before | found))


def _replace(path: Path, data: bytes) -> None:
    """Write a file that another process reads at any time."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)
