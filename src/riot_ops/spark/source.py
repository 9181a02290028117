"""A riot_ops source as Spark reads it: packed blocks, behind stage 0.

Its offsets are ``{"at": offset of the source, "ended": whether that is its end}``: the end of a source that
is known only after its last record is a change too, for which Spark runs a micro-batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from riot_ops.core.buffering import Buffering
from riot_ops.core.source import Source, Split
from riot_ops.graph.plan import Plan
from riot_ops.spark.blocks import Block, Packer, blocks_to_batch
from riot_ops.spark.rate_control import Pace
from riot_ops.spark.sink import Outlet, part_number
from riot_ops.spark.stage import FLUSH, stage_zero

__all__ = ["Part", "Reader", "SourceStage"]


@dataclass
class SourceStage:
    """Stage 0 of a plan, run where a source is read."""

    plan: Plan
    stream: str
    source: Source
    outlet: Outlet
    labels: dict[int, list[int]]
    order: tuple[str, ...]
    buffering: Buffering
    max_records: int | None
    splits: int

    def blocks(self, split: Split | None, last: bool) -> Iterator[pa.RecordBatch]:
        """Read a split, run the stage over it, pack the result; after the last one tell every bucket."""
        if split is not None:
            yield from self._records(split)
        if last and (marks := self._marks()):
            yield blocks_to_batch(marks)

    def _records(self, split: Split) -> Iterator[pa.RecordBatch]:
        writer = self.outlet.writer(0, part_number())
        packer = Packer(self.plan, 0, self.labels, self.buffering, writer=writer)
        packer.asking = self.plan.asking if self.order[0] == "seq" else {}
        now = time.time() * 1e6
        packer.stamp(*split.get("due", (now, now)))
        inputs = self.source.inputs(self.stream, split)
        yield from stage_zero(self.plan, inputs, self.order, packer)

    def _marks(self) -> list[Block]:
        now = time.time() * 1e6
        return [
            Block(index, label, FLUSH, 0, now, now, self.stream.encode())
            for index, labels in self.labels.items()
            for label in labels
        ]


class Part(InputPartition):
    """A part of a micro-batch."""

    def __init__(self, split: Any, last: bool) -> None:
        self.split = split
        self.last = last


class Reader:
    """What Spark asks a streaming source, under names of its own.

    With a pace the limit of records follows what micro-batches take: Spark asks one and the same reader for the end
    of each.
    """

    def __init__(self, stage: SourceStage, pace: Pace | None = None) -> None:
        self._stage = stage
        self._pace = pace

    def initial_offset(self) -> dict[str, Any]:
        """Where a new query begins."""
        return {"at": self._stage.source.initial(), "ended": False}

    def most(self) -> int | None:
        """Most records of a micro-batch."""
        return self._stage.max_records

    def read_limit(self) -> ReadLimit:
        """How much a micro-batch takes."""
        limit = self.most()
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latest_offset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._stage.max_records
        if self._pace is not None:
            most = self._pace.next()
        at = self._stage.source.latest(start["at"], most)
        if self._pace is not None and at != start["at"]:
            self._pace.gave(self._stage.source.count(start["at"], at))
        return {"at": at, "ended": self._stage.source.finished(at)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The parts of a micro-batch."""
        if start == end:
            return []
        splits: list[Split | None] = []
        if start["at"] != end["at"]:
            splits += self._stage.source.splits(start["at"], end["at"], self._stage.splits)
        if end["ended"] and not splits:
            splits = [None]
        return [Part(split, end["ended"] and split is splits[-1]) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stage 0 over a part."""
        assert isinstance(partition, Part)
        return self._stage.blocks(partition.split, partition.last)

    def commit(self, end: dict[str, Any]) -> None:
        """Forget what comes before."""
        self._stage.source.commit(end["at"])

    def stop(self) -> None:
        """Close the source."""
        self._stage.source.close()
