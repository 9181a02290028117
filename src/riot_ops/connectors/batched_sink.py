"""The base of sinks that send records to a server in batches, as they come."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping

import pyarrow as pa

from riot_ops.core.sink import Message, Sink, Writer, align_schemas

__all__ = ["BatchedSink"]


class BatchedSink(Sink):
    """Sends records when ``batch_size`` of a stream are there, and the rest at the end of the epoch or micro-batch.

    It waits for the server: a slow one slows the source, and no more than ``batch_size`` records per stream wait here.
    """

    batch_size: int
    #: Identity of the run, part of the identity of what is sent.
    run: str = ""

    def bind(self, schemas: Mapping[str, pa.Schema]) -> BatchedSink:
        for stream, schema in schemas.items():
            self.check_stream(stream, schema)
        return copy.copy(self)

    def check_stream(self, stream: str, schema: pa.Schema) -> None:
        """Raise a ConfigError unless the records of a stream can be sent."""

    def identify(self, run: str) -> None:
        object.__setattr__(self, "run", run)

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _BatchedWriter(self, batch_id, partition)

    @abstractmethod
    def send_batch(self, stream: str, batch: pa.RecordBatch, label: str) -> None:
        """Send records; return when the server has accepted them.

        Parameters
        ----------
        stream : str
        batch : pyarrow.RecordBatch
        label : str
            Of batch, writer and place in it: equal where the same records are sent again.
        """


class _BatchedWriter(Writer):
    def __init__(self, sink: BatchedSink, batch_id: int, partition: int) -> None:
        self._sink = sink
        self._label = f"{batch_id:06d}-{partition:05d}"
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._sent: dict[str, int] = {}

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        size = self._sink.batch_size
        while batch.num_rows:
            room = size - self._rows.get(stream, 0)
            part, batch = batch.slice(0, room), batch.slice(room)
            self._held.setdefault(stream, []).append(part)
            self._rows[stream] = self._rows.get(stream, 0) + part.num_rows
            if self._rows[stream] >= size:
                self._send(stream)

    def _send(self, stream: str) -> None:
        table = pa.Table.from_batches(align_schemas(self._held.pop(stream))).combine_chunks()
        self._rows[stream] = 0
        for batch in table.to_batches():
            place = self._sent[stream] = self._sent.get(stream, -1) + 1
            self._sink.send_batch(stream, batch, f"{self._label}-{stream}-{place}")

    def finish(self) -> Message:
        for stream in list(self._held):
            self._send(stream)
        return {}

    def abort(self) -> None:
        self._held.clear()
