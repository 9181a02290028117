"""A sink that discards its records, for tests."""

from __future__ import annotations

import pyarrow as pa

from riot_ops.core.sink import Message, Sink, Writer


class DiscardSink(Sink):
    """Sink that discards its records."""

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _DiscardWriter()


class _DiscardWriter(Writer):
    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        pass

    def finish(self) -> Message:
        return {}
