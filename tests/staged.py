"""A query on Spark without Spark: source, stages and sink as they run there, and what may happen to their tasks."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark import TaskContext
from pyspark.cloudpickle import dumps, loads

import riot_ops as ro
from riot_ops.core.buffering import Buffering, as_buffering
from riot_ops.graph.plan import plan
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.runtime.binding import bind_sinks, bind_sources, end_sinks, read_back
from riot_ops.runtime.merging import merged
from riot_ops.spark import stage as stages_of_spark
from riot_ops.spark.blocks import Block, blocks_of, blocks_to_batch
from riot_ops.spark.dataframe_transform import labels_of
from riot_ops.spark.driver_sink import Relay
from riot_ops.spark.sink import Outlet, Writer
from riot_ops.spark.source import Reader, SourceStage
from riot_ops.spark.stage import StageProcessor

MOST_BATCHES = 1000


class Chain(dict[tuple[int], tuple[bytes]]):
    """The variable of a bucket in Spark's state store."""

    getValue = dict.get  # noqa: N815 (Spark's name)
    updateValue = dict.__setitem__  # noqa: N815
    removeKey = dict.pop  # noqa: N815


class Staged:
    """A dataflow, run in micro-batches over buckets; its streams by name.

    Tasks run in the order, on the workers and after the failures that ``choose`` chooses: each bucket is taken by one
    of two workers, of which either may be a new one that knows nothing, and a task may fail halfway, or what it gave be
    lost, so that it runs again on what was there before.
    """

    def __init__(
        self,
        flow: ro.Dataflow,
        source: Any,
        choose: random.Random,
        *,
        max_records: int | None = None,
        partitions: int = 2,
        fuse: str = "exact",
        buffering: Buffering | None = None,
    ) -> None:
        self.flow = flow
        self.batches = self.repeated = 0
        self._choose = choose
        self._sinks, self._routes = bind_sinks(flow, None, None)
        self._workers: list[OrderedDict[str, Any]] = [OrderedDict(), OrderedDict()]
        self._states: dict[tuple[int, int], Chain] = {}
        sources = merged(flow, bind_sources(flow, source, again="Spark"))
        planned = plan(flow, fuse)
        labels = labels_of(planned, partitions)
        with tempfile.TemporaryDirectory() as folder:
            self._relays = {name: Relay(Path(folder) / name) for name in self._sinks}
            outlet = Outlet(self._routes, self._relays)
            self._writer = Writer(self._relays, f"{folder}/metrics")
            self._readers = [
                Reader(
                    SourceStage(
                        planned, name, one, outlet, labels, ARRIVAL, as_buffering(buffering), max_records, partitions
                    )
                )
                for name, one in sources.items()
            ]
            self._processors = [
                loads(
                    dumps(
                        StageProcessor(
                            planned, number, labels, "run", ARRIVAL, as_buffering(buffering), {*sources}, outlet
                        )
                    )
                )
                for number in range(1, len(planned.shuffles) + 1)
            ]
            context = SimpleNamespace(partitionId=self._numbers().__next__, getLocalProperty=lambda _: self.batches)
            with mock.patch.object(TaskContext, "get", return_value=context):
                self._run()

    def __getitem__(self, stream: str) -> pa.Table:
        return read_back(self.flow, self._sinks, self._routes, stream)

    def _numbers(self) -> Iterator[int]:
        """Of the splits of a micro-batch, whatever it is that asks."""
        n = 0
        while True:
            yield n
            n += 1

    def _run(self) -> None:
        at = [reader.initial_offset() for reader in self._readers]
        while not all(offset["ended"] for offset in at):
            assert self.batches < MOST_BATCHES, "it does not end"
            ends = [
                reader.latest_offset(offset, reader.read_limit())
                for reader, offset in zip(self._readers, at, strict=True)
            ]
            blocks = [
                block
                for reader, start, end in zip(self._readers, at, ends, strict=True)
                for part in reader.partitions(start, end)
                for rows in reader.read(part)
                for block in blocks_of(rows)
            ]
            for number, processor in enumerate(self._processors):
                blocks = self._shuffled(number, processor, blocks)
            self._writer.commit([self._writer.write(iter([blocks_to_batch(blocks)]))], self.batches)
            for name, relay in self._relays.items():
                relay.drain(self._sinks[name], self.batches)
            self.batches += 1
            at = ends
        end_sinks(self.flow, self._sinks, self._routes)

    def _shuffled(self, stage: int, processor: StageProcessor, blocks: list[Block]) -> list[Block]:
        """What a stage gives for all buckets that got something."""
        self._choose.shuffle(blocks)
        found: list[Block] = []
        for bucket, rows in itertools.groupby(sorted(blocks, key=lambda b: b.bucket), lambda b: b.bucket):
            frames = [blocks_to_batch([row]) for row in rows]
            kept = self._states.setdefault((stage, bucket), Chain())
            while self._choose.random() < 0.25:  # what it gave is lost
                self.repeated += 1
                self._task(processor, bucket, frames, Chain(kept), until=self._choose.choice([1, None]))
            found += self._task(processor, bucket, frames, kept)
        return found

    def _task(
        self, processor: StageProcessor, bucket: int, frames: list[Any], state: Chain, until: int | None = None
    ) -> list[Block]:
        worker = self._choose.choice(self._workers)
        if self._choose.random() < 0.15:
            worker.clear()
        link_bytes = self._choose.choice([1, 500, stages_of_spark.LINK_BYTES])
        with mock.patch.multiple(stages_of_spark, _CACHE=worker, LINK_BYTES=link_bytes):
            given = processor.process(bucket, iter(frames), state)
            return [block for frame in itertools.islice(given, until) for block in blocks_of(frame)]
