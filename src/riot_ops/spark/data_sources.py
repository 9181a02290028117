"""The streams, sources and sinks of this library as named data sources of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from riot_ops import connectors, streams
from riot_ops.core.errors import ConfigError
from riot_ops.core.sink import Sink
from riot_ops.core.source import Offset, Source, Split
from riot_ops.ingest.step import REJECTED
from riot_ops.spark.data_sinks import STREAM, batch_writer, stream_writer
from riot_ops.spark.features import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow, require
from riot_ops.spark.options import arguments, count_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the streams, sources and sinks of this library as data sources of a session.

    Afterwards these formats can be read and written without a dataflow, by ``spark.read``, ``spark.readStream``,
    ``df.write`` and ``df.writeStream``, in SQL and in declarative pipelines:

    - read: ``riot_city``, ``riot_taxi``, ``riot_fit``, ``riot_grid`` (generated), ``riot_replay`` (files in the wire
      format), and the sources of :mod:`riot_ops.connectors`, such as ``riot_mqtt``;
    - written: the sinks of :mod:`riot_ops.connectors`, such as ``riot_mqtt``, ``riot_http``, ``riot_influx``,
      ``riot_postgres`` and ``riot_delta``.

    Options are named like the parameters of the function or class, in any case and with or without underscores; names
    are separated by commas, and ``passwordEnv`` names the environment variable with a password. For reading,
    ``maxRows`` limits a micro-batch, and ``partitions`` sets the number of tasks. For writing, ``stream`` is the name
    that templates such as ``{stream}`` get, and ``runId`` the identity of a streaming query with its checkpoint, see
    ``docs/howto/spark.md``.

    Examples
    --------
    >>> from riot_ops.spark import register, transform
    >>> from riot_ops import tasks as t
    >>> register(spark)
    >>> raw = spark.read.format("riot_city").option("sensors", 5).option("messages", 100).load()
    >>> observations = transform(t.ParseSenML(schema="city"), raw)
    >>> observations.select("sensor_id").distinct().count()
    5
    """
    for name in sorted({*SOURCES, *CONNECTED}):
        spark.dataSource.register(_format(name))


#: Options for Spark rather than for the source.
OWN = ("maxRows", "partitions")

SOURCES: dict[str, Callable[..., Source]] = {
    "riot_city": streams.city,
    "riot_taxi": streams.taxi,
    "riot_fit": streams.fit,
    "riot_grid": streams.grid,
    "riot_replay": streams.replay,
}
#: By format, the source and the sink of :mod:`riot_ops.connectors`; one that this version lacks is left out.
CONNECTED: dict[str, tuple[str | None, str | None]] = {
    name: (source if source in connectors.__all__ else None, sink if sink in connectors.__all__ else None)
    for name, source, sink in (
        ("riot_delta", "DeltaSource", "DeltaSink"),
        ("riot_http", None, "HTTPSink"),
        ("riot_iceberg", "IcebergSource", "IcebergSink"),
        ("riot_influx", None, "InfluxSink"),
        ("riot_kafka", "KafkaSource", "KafkaSink"),
        ("riot_mqtt", "MQTTSource", "MQTTSink"),
        ("riot_postgres", None, "PostgresSink"),
    )
}


def _source_of(name: str) -> Callable[..., Source]:
    """Return what creates the source of a format."""
    if name in SOURCES:
        return SOURCES[name]
    source, _ = CONNECTED[name]
    if source is None:
        raise ConfigError(f"{name} can be written only")
    make: Callable[..., Source] = getattr(connectors, source)
    return make


def _sink_of(name: str) -> Callable[..., Sink]:
    """Return what creates the sink of a format."""
    sink = CONNECTED.get(name, (None, None))[1]
    if sink is None:
        raise ConfigError(f"{name} can be read only")
    if name == "riot_delta":
        return delta_table
    make: Callable[..., Sink] = getattr(connectors, sink)
    return make


def delta_table(
    path: str,
    partition_by: tuple[str, ...] = (),
    on_new_field: Literal["refuse", "add"] = "refuse",
    compression: str = "snappy",
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Sink:
    """Return the sink of one Delta table at a path or address."""
    table = path if "://" in path else str(Path(path).absolute())
    return connectors.DeltaSink(
        table,
        tables={STREAM: table},
        partition_by=partition_by,
        on_new_field=on_new_field,
        compression=compression,
        properties=properties,
        storage_options=storage_options,
    )


def _format(name_of_format: str) -> type[DataSource]:
    class RiotFormat(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_format

        def schema(self) -> Any:
            return from_arrow_schema(self._source().schema)

        def reader(self, schema: Any) -> DataSourceReader:
            return _Rows(self._source(), count_option(self.options, "partitions") or 2)

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            limit = count_option(self.options, "maxRows")
            if limit is not None:
                require("limits of streaming sources")
            return _Stream(self._source(), count_option(self.options, "partitions") or 2, limit)

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return batch_writer(name_of_format, _sink_of(name_of_format), self.options, schema, overwrite)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return stream_writer(name_of_format, _sink_of(name_of_format), self.options, schema)

        def _source(self) -> Source:
            make = _source_of(name_of_format)
            return make(**arguments(name_of_format, make, self.options, OWN)).carried()

    return RiotFormat


class _Part(InputPartition):
    def __init__(self, split: Split) -> None:
        self.split = split


def _read(source: Source, split: Split) -> Iterator[pa.RecordBatch]:
    """Read a split as rows of Spark, which have no errors stream: a record that cannot be read has null fields."""
    for batch in source.read(split):
        yield batch.select(source.schema.names) if REJECTED in batch.schema.names else batch


class _Rows(DataSourceReader):
    """All records of a bounded source."""

    def __init__(self, source: Source, splits: int) -> None:
        self._source = source
        self._splits = splits

    def partitions(self) -> list[InputPartition]:
        start = self._source.initial()
        end = self._source.latest(start)
        if not self._source.finished(end):
            raise ConfigError("this source does not end by itself: give messages or duration, or use spark.readStream")
        return [_Part(s) for s in self._source.splits(start, end, self._splits)] or [_Part({})]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        return _read(self._source, partition.split) if partition.split else iter(())


class _Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, source: Source, splits: int, limit: int | None) -> None:
        self._source = source
        self._splits = splits
        self._limit = limit
        self._planned: Offset | None = None  # end of the last planned micro-batch

    def initialOffset(self) -> Offset:
        return self._source.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        if start is None:  # before Spark 4.2
            start = self._source.initial() if self._planned is None else self._planned
        self._planned = self._source.latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else self._limit)
        return self._planned

    def prepareForTriggerAvailableNow(self) -> None:
        pass  # latest() of a bounded source stops at its end

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._planned = end  # before Spark 4.2 that of the last run, when a query continues
        return [] if start == end else [_Part(s) for s in self._source.splits(start, end, self._splits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        return _read(self._source, partition.split)

    def commit(self, end: Offset) -> None:
        self._source.commit(end)

    def stop(self) -> None:
        self._source.close()
