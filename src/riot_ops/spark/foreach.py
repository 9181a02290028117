"""A sink as a writer for ``foreach`` of Spark's streaming writer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from riot_ops.core.errors import ConfigError, value_text
from riot_ops.core.sink import Sink, Writer
from riot_ops.spark.data_sinks import rows_to_batches

__all__ = ["foreach_writer"]


def foreach_writer(sink: Sink, schema: pa.Schema, stream: str = "records") -> ForeachWriter:
    """Return a sink as a writer for ``df.writeStream.foreach``, which also Spark's real-time mode takes.

    At least once: each partition sends its rows by itself. Only sinks without a commit can be used, such as
    ``HTTPSink``, ``InfluxSink`` and ``MQTTSink``.

    Parameters
    ----------
    sink : Sink
    schema : pyarrow.Schema
        Fields of the DataFrame.
    stream : str, default "records"
        The name of the stream in templates.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import riot_ops as ro
    >>> sink = ro.connectors.HTTPSink(url="http://127.0.0.1:8080/readings")
    >>> writer = foreach_writer(sink, pa.schema([("device", pa.string()), ("value", pa.float64())]))

    ``df.writeStream.foreach(writer).start()`` then posts the rows of each partition.
    """
    if not isinstance(sink, Sink):
        raise ConfigError(f"sink must be a riot_ops sink, got {value_text(sink)}")
    if sink.in_process or type(sink).commit is not Sink.commit:
        raise ConfigError(
            f"{type(sink).__name__} commits batches in the driver, which foreach does not; "
            "use writeStream.format(...) or flow.start"
        )
    if not isinstance(schema, pa.Schema):
        raise ConfigError(f"schema must be a pyarrow.Schema, got {value_text(schema)}")
    return ForeachWriter(sink.bind({stream: schema}), schema, stream)


class ForeachWriter:
    """Writes the rows of one partition of one epoch."""

    def __init__(self, sink: Sink, schema: pa.Schema, stream: str) -> None:
        self._sink = sink
        self._schema = schema
        self._stream = stream
        self._rows: list[Any] = []
        self._writer: Writer | None = None

    def open(self, partition_id: int, epoch_id: int) -> bool:
        """Begin a partition."""
        self._rows = []
        self._writer = self._sink.writer(epoch_id, partition_id)
        return True

    def process(self, row: Any) -> None:
        """Take a row."""
        self._rows.append(row)
        if len(self._rows) >= HELD_ROWS:
            self._flush()

    def close(self, error: Exception | None) -> None:
        """Send what is left, or discard it after an error."""
        assert self._writer is not None
        if error is not None:
            self._writer.abort()
            return
        self._flush()
        self._writer.finish()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        assert self._writer is not None
        for batch in rows_to_batches(rows, self._schema):
            self._writer.write(self._stream, batch)


#: Rows that are handed to the writer at once.
HELD_ROWS = 1000
