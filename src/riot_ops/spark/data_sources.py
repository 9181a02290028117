"""The streams of this library as named data sources of Spark."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from riot_ops import streams
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.source import Offset, Source, Split
from riot_ops.ingest.step import REJECTED
from riot_ops.spark.features import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the streams of this library as data sources of a session.

    Afterwards ``spark.readStream.format(...)`` and ``spark.read.format(...)`` know ``riot_city``,
    ``riot_taxi``, ``riot_fit``, ``riot_grid`` (generated) and ``riot_replay`` (files in the wire
    format, from the option ``path``). Options are named like the parameters of the functions in
    :mod:`riot_ops.streams`, in any case; ``maxRows`` limits a micro-batch, ``partitions`` sets the
    number of tasks that read.

    Examples
    --------
    ::

        register(spark)
        raw = spark.readStream.format("riot_city").option("sensors", 50).option("messages", 10_000).load()
        observations = transform(t.ParseSenML(schema="city"), raw)
    """
    for name, make in SOURCES.items():
        spark.dataSource.register(_format(name, make))


#: Options for Spark rather than for the source.
OWN = ("maxrows", "partitions")

SOURCES: dict[str, Callable[..., Source]] = {
    "riot_city": streams.city,
    "riot_taxi": streams.taxi,
    "riot_fit": streams.fit,
    "riot_grid": streams.grid,
    "riot_replay": streams.replay,
}


def _format(name_of_source: str, make: Callable[..., Source]) -> type[DataSource]:
    class RowSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_source

        def schema(self) -> Any:
            return from_arrow_schema(self._source().schema)

        def reader(self, schema: Any) -> DataSourceReader:
            return _Rows(self._source(), _own(self.options, "partitions") or 2)

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            if _own(self.options, "maxrows") is not None:
                require("limits of streaming sources")
            return _Stream(self._source(), _own(self.options, "partitions") or 2, _own(self.options, "maxrows"))

        def _source(self) -> Source:
            given = {k.lower(): v for k, v in self.options.items() if k.lower() not in OWN}
            return make(**_arguments(name_of_source, make, given))

    return RowSource


def _arguments(source: str, make: Callable[..., Source], options: dict[str, str]) -> dict[str, Any]:
    """Convert options, which are strings, to the arguments of a function."""
    kinds = {n: p.annotation for n, p in inspect.signature(make, eval_str=True).parameters.items()}
    found = {}
    for name, text in options.items():
        if name not in kinds:
            raise ConfigError(
                f"{source} has no option {name!r}; known are {', '.join(kinds)}, maxRows, partitions"
                f"{did_you_mean(name, kinds)}"
            )
        try:
            plain = name == "path" or timedelta in (kinds[name], *typing.get_args(kinds[name]))
            found[name] = text if plain else msgspec.convert(text, kinds[name], strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(f"option {name!r} of {source} cannot be {text!r}: {error}") from None
    return found


def _own(options: Any, name: str) -> int | None:
    text = next((v for k, v in options.items() if k.lower() == name), None)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"option {name!r} must be a whole number >= 1, got {text!r}")
    return int(text)


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
