"""A riot_ops source as a Spark data source that delivers packed blocks.

Its offsets are ``{"at": offset of the source, "ended": whether that is its end}``: the end of a source that
is known only after its last record is a change too, for which Spark runs a micro-batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from riot_ops.core.source import Source, Split
from riot_ops.graph.plan import Plan
from riot_ops.runtime.spark.blocks import BLOCKS_DDL, Block, Packer, blocks_to_batch
from riot_ops.runtime.spark.sink import Outlet
from riot_ops.runtime.spark.stage import FLUSH, stage_zero

__all__ = ["SourceStage", "packed_source"]


@dataclass
class SourceStage:
    """Stage 0 of a plan, run where a source is read."""

    plan: Plan
    stream: str
    source: Source
    outlet: Outlet
    labels: dict[int, list[int]]
    order: tuple[str, ...]
    compression: str | None
    max_records: int | None
    splits: int

    def blocks(self, split: Split | None, last: bool) -> Iterator[pa.RecordBatch]:
        """Read a split, run the stage over it, pack the result; after the last one tell every bucket."""
        if split is not None:
            yield from self._records(split)
        if last and (marks := self._marks()):
            yield blocks_to_batch(marks)

    def _records(self, split: Split) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        writer = self.outlet.writer(0, context.partitionId())
        packer = Packer(self.plan, 0, self.labels, self.compression, writer=writer)
        now = time.time() * 1e6
        packer.stamp(*split.get("due", (now, now)))
        inputs = ({self.stream: [batch]} for batch in self.source.read(split))
        yield from stage_zero(self.plan, inputs, self.order, packer)

    def _marks(self) -> list[Block]:
        now = time.time() * 1e6
        return [
            Block(index, label, FLUSH, 0, now, now, self.stream.encode())
            for index, labels in self.labels.items()
            for label in labels
        ]


class _Part(InputPartition):
    def __init__(self, split: Split | None, last: bool) -> None:
        self.split = split
        self.last = last


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, stage: SourceStage) -> None:
        self._stage = stage

    def initialOffset(self) -> dict[str, Any]:
        return {"at": self._stage.source.initial(), "ended": False}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._stage.max_records
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._stage.max_records
        at = self._stage.source.latest(start["at"], most)
        return {"at": at, "ended": self._stage.source.finished(at)}

    def prepareForTriggerAvailableNow(self) -> None:
        pass  # a source of a bounded run ends by itself

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        splits: list[Split | None] = []
        if start["at"] != end["at"]:
            splits += self._stage.source.splits(start["at"], end["at"], self._stage.splits)
        if end["ended"] and not splits:
            splits = [None]
        return [_Part(split, end["ended"] and split is splits[-1]) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        return self._stage.blocks(partition.split, partition.last)

    def commit(self, end: dict[str, Any]) -> None:
        self._stage.source.commit(end["at"])

    def stop(self) -> None:
        self._stage.source.close()


def packed_source(name_of_source: str, stage: SourceStage) -> type[DataSource]:
    """A data source class over a bound stage, to be registered with a session."""

    class PackedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name_of_source

        def schema(self) -> str:
            return BLOCKS_DDL

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return _Reader(stage)

    return PackedSource
