"""A riot_ops source as Spark reads it: packed blocks of the output of stage 0.

The blocks are a function of the part that is read, byte for byte: Spark compares the checksums of a shuffle when it
computes a lost part of it again, and fails a query whose rows have changed. So they carry the time at which the
micro-batch was planned, which is part of the input, and no reading of the clock.

Its offsets are ``{"at": offset of the source, "ended": whether the source ends there}``. So an end that is
known only after the last record changes the offset, and Spark runs a micro-batch for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from riot_ops.core.buffering import Buffering
from riot_ops.core.source import Source, Split, initial_offset
from riot_ops.graph.plan import Plan
from riot_ops.runtime.memory import return_freed_memory
from riot_ops.spark.blocks import Block, Packer, blocks_to_batch
from riot_ops.spark.features import ReadAllAvailable, ReadLimit, ReadMaxRows
from riot_ops.spark.rate_control import RateController
from riot_ops.spark.sink import SinkRoutes, part_number
from riot_ops.spark.stage import SOURCE_END, run_stage_zero

__all__ = ["Part", "Reader", "SourceStage"]


@dataclass
class SourceStage:
    """Stage 0 of a plan, which runs where a source is read."""

    plan: Plan
    stream: str
    source: Source
    sink_routes: SinkRoutes
    labels: dict[int, list[int]]
    order: tuple[str, ...]
    buffering: Buffering
    max_records: int | None
    splits: int
    small_memory: bool = False  # whether a worker returns what each part has freed

    def blocks(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Read a split, run the stage and pack its output; after the last split notify every bucket of the end."""
        if part.split is not None:
            yield from self._records(part.split, part.planned_us)
        if part.last and (blocks := self._end_blocks(part.planned_us)):
            yield blocks_to_batch(blocks)
        if self.small_memory:
            return_freed_memory()

    def _records(self, split: Split, planned_us: float) -> Iterator[pa.RecordBatch]:
        part = part_number()
        writer = self.sink_routes.writer(0, part)
        packer = Packer(self.plan, 0, self.labels, self.buffering, writer=writer)
        packer.stamp(*split.get("due", (planned_us, planned_us)))
        inputs = self.source.read_inputs(self.stream, split)
        yield from run_stage_zero(self.plan, inputs, self.order, packer, part=part)

    def _end_blocks(self, planned_us: float) -> list[Block]:
        return [
            Block(index, label, SOURCE_END, 0, planned_us, planned_us, self.stream.encode())
            for index, labels in self.labels.items()
            for label in labels
        ]


class Part(InputPartition):
    """A part of a micro-batch, planned at a time in microseconds since the epoch."""

    def __init__(self, split: Any, last: bool, planned_us: float) -> None:
        self.split = split
        self.last = last
        self.planned_us = planned_us


class Reader:
    """Reads a source for Spark.

    With a rate controller the limit of records follows the duration of micro-batches, as Spark asks the same reader for
    the end offset of each.

    Before Spark 4.2 it asks without saying where the micro-batch starts. The reader then takes the end of the one that
    was planned last, which it knows from its own answers and from :meth:`plan`. Spark calls that when a query
    continues, for the last entry of its log of offsets; but where a setting wraps sources for the trigger "available
    now", only after it has asked for the end, so ``planned`` gives that entry too.
    """

    _first: dict[str, Any] | None = None
    _planned: dict[str, Any] | None = None

    def __init__(
        self, stage: SourceStage, rate: RateController | None = None, planned: dict[str, Any] | None = None
    ) -> None:
        self._stage = stage
        self._rate = rate
        self._planned = planned

    def begin(self) -> dict[str, Any]:
        """Answer Spark's question for the initial offset, always in the same way."""
        if self._first is None:
            self._first = self.initial_offset()
        return self._first

    def advance(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Answer Spark's question for the latest offset; without ``start`` it follows the last planned one."""
        if start is None:
            start = self.begin() if self._planned is None else self._planned
        self._planned = self.latest_offset(start, limit)
        return self._planned

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Answer Spark's question for the partitions of a micro-batch, which makes its end the last planned one."""
        self._planned = end
        return self.partitions(start, end)

    def initial_offset(self) -> dict[str, Any]:
        """Return the offset at which a new query begins."""
        return {"at": initial_offset(self._stage.stream, self._stage.source), "ended": False}

    def max_records(self) -> int | None:
        """Return the maximum records of a micro-batch."""
        return self._stage.max_records

    def read_limit(self) -> ReadLimit:
        """Return Spark's read limit for a micro-batch."""
        limit = self.max_records()
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latest_offset(self, start: dict[str, Any], limit: ReadLimit | None) -> dict[str, Any]:
        """Return the offset at which the next micro-batch ends."""
        limit_records = limit.max_rows if isinstance(limit, ReadMaxRows) else self._stage.max_records
        if self._rate is not None:
            limit_records = self._rate.next()
        at = self._stage.source.latest(start["at"], limit_records)
        if self._rate is not None and at != start["at"]:
            self._rate.start_batch(self._stage.source.count(start["at"], at))
        return {"at": at, "ended": self._stage.source.finished(at)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the partitions of a micro-batch."""
        if start == end:
            return []
        splits: list[Split | None] = []
        if start["at"] != end["at"]:
            splits += self._stage.source.splits(start["at"], end["at"], self._stage.splits)
        if end["ended"] and not splits:
            splits = [None]
        now = time.time() * 1e6
        return [Part(split, end["ended"] and split is splits[-1], now) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run stage 0 over a partition."""
        assert isinstance(partition, Part)
        return self._stage.blocks(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Let the source discard records before an offset."""
        self._stage.source.commit(end["at"])

    def stop(self) -> None:
        """Close the source."""
        self._stage.source.close()
