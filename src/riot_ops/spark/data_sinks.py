"""The sinks of this library as named data sinks of Spark, for DataFrames without a dataflow."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import WriterCommitMessage

from riot_ops.core.errors import ConfigError
from riot_ops.core.sink import Sink
from riot_ops.spark.dataframe_transform import to_utc
from riot_ops.spark.features import ARROW_STREAM_WRITERS, DataSourceStreamArrowWriter, to_arrow_schema
from riot_ops.spark.options import arguments, text_option
from riot_ops.spark.sink import batch_number

__all__ = ["STREAM", "batch_writer", "rows_to_batches", "stream_writer"]

#: Options for the adapter rather than for the sink, and for Spark.
OWN = ("stream", "runId", "checkpointLocation", "queryName")
#: The stream that records belong to, for names such as those of tables and topics.
STREAM = "records"
#: What a batch write extends: for Arrow batches where PySpark has them, else for rows.
_BATCH_WRITER: Any = getattr(datasource, "DataSourceArrowWriter", datasource.DataSourceWriter)
_BATCH_ARROW = hasattr(datasource, "DataSourceArrowWriter")


@dataclass
class _Written(WriterCommitMessage):
    message: dict[str, Any]


def batch_writer(
    name: str, make: Callable[..., Sink], options: Mapping[str, str], schema: Any, overwrite: bool
) -> _BatchWriter:
    """Return the writer of ``df.write`` for a sink that ``make`` creates from options."""
    if overwrite:
        raise ConfigError(f"{name} adds records: write with mode('append')")
    return _BatchWriter(*_open_sink(name, make, options, schema, uuid.uuid4().hex), arrow=_BATCH_ARROW)


def stream_writer(name: str, make: Callable[..., Sink], options: Mapping[str, str], schema: Any) -> _StreamWriter:
    """Return the writer of ``df.writeStream`` for a sink that ``make`` creates from options."""
    run = text_option(options, "runId") or uuid.uuid4().hex
    return _StreamWriter(*_open_sink(name, make, options, schema, run), arrow=ARROW_STREAM_WRITERS)


def _open_sink(
    name: str, make: Callable[..., Sink], options: Mapping[str, str], schema: Any, run: str
) -> tuple[Sink, str, pa.Schema]:
    stream = text_option(options, "stream") or STREAM
    fields = to_arrow_schema(schema)
    bound = make(**arguments(name, make, options, OWN)).bind({stream: fields})
    bound.identify(run)
    bound.begin(False)
    return bound, stream, fields


class _Writing:
    """Writes the rows of one task with a writer of the sink."""

    def __init__(self, sink: Sink, stream: str, fields: pa.Schema, arrow: bool) -> None:
        self._sink = sink
        self._stream = stream
        self._fields = fields
        self._arrow = arrow

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        writer = self._sink.writer(batch_number(), context.partitionId())
        try:
            for batch in iterator if self._arrow else rows_to_batches(iterator, self._fields):
                if batch.num_rows:
                    writer.write(self._stream, _cast(to_utc(batch), self._fields))
            return _Written(writer.finish())
        except BaseException:
            writer.abort()
            raise

    def _messages(self, messages: Sequence[WriterCommitMessage | None]) -> list[dict[str, Any]]:
        return [one.message for one in messages if isinstance(one, _Written)]


class _BatchWriter(_Writing, _BATCH_WRITER):  # type: ignore[misc]
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._sink.commit(0, self._messages(messages))
        self._sink.sync(0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._sink.abort(0)


class _StreamWriter(_Writing, DataSourceStreamArrowWriter):
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.commit(batchId, self._messages(messages))
        self._sink.sync(batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.abort(batchId)


#: Rows of one batch where Spark gives rows.
BATCH_ROWS = 10_000


def rows_to_batches(rows: Iterable[Any], fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Make batches of Spark's rows, whose times are in the zone of this machine."""
    held: list[Mapping[str, Any]] = []
    for row in rows:
        held.append({name: _utc(value, fields.field(name).type) for name, value in row.asDict(True).items()})
        if len(held) == BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(held, fields)
            held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, fields)


def _utc(value: Any, dtype: pa.DataType) -> Any:
    if isinstance(value, dt.datetime) and pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return value.astimezone(dt.UTC)
    return value


def _cast(batch: pa.RecordBatch, fields: pa.Schema) -> pa.RecordBatch:
    return batch if batch.schema.equals(fields) else batch.select(fields.names).cast(fields)
