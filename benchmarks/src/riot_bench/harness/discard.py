"""A sink that discards its records."""

from __future__ import annotations

import pyarrow as pa

from riot_ops.core.sink import Message, Sink, Writer

__all__ = ["DiscardSink"]


class DiscardSink(Sink):
    """Sink that discards its records, like Spark's ``noop`` format."""

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _DiscardWriter()


class _DiscardWriter(Writer):
    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        pass

    def finish(self) -> Message:
        return {}
