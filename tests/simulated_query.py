"""A simulated query on Spark, without Spark: source, stages and sink, with random failures of their tasks."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import astuple
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
from riot_ops.runtime.binding import bind_sinks, bind_sources, end_sinks, read_stream
from riot_ops.runtime.merged_source import merge_sources
from riot_ops.spark import stage as stage_module
from riot_ops.spark.blocks import Block, blocks_to_batch
from riot_ops.spark.dataframe_transform import assign_labels
from riot_ops.spark.driver_sink import DriverSink
from riot_ops.spark.sink import SinkCommitter, SinkRoutes
from riot_ops.spark.source import Reader, SourceStage
from riot_ops.spark.stage import StageProcessor, read_blocks

MAX_BATCHES = 1000


class Chain(dict[tuple[int], tuple[bytes]]):
    """The state variable of a bucket, as in Spark's store."""

    getValue = dict.get  # noqa: N815 (Spark's name)
    updateValue = dict.__setitem__  # noqa: N815
    removeKey = dict.pop  # noqa: N815


class SimulatedQuery:
    """Runs a dataflow in micro-batches over buckets; gives its streams by name.

    ``choose`` decides the order of tasks, their workers and their failures. One of two workers, either of which may
    have lost its state, processes a bucket. A task may fail halfway, or its output may be lost, so that it runs again on
    the previous state. ``sinks`` are written as by workers; by default the driver keeps the results in memory.
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
        sinks: Any = None,
    ) -> None:
        self.flow = flow
        self.batches = self.repeated = 0
        self._choose = choose
        self._sinks, self._routes = bind_sinks(flow, sinks, None)
        self._workers: list[OrderedDict[str, Any]] = [OrderedDict(), OrderedDict()]
        self._states: dict[tuple[int, int], Chain] = {}
        sources = merge_sources(flow, bind_sources(flow, source, again="Spark"))
        planned = plan(flow, fuse)
        labels = assign_labels(planned, partitions)
        with tempfile.TemporaryDirectory() as folder:
            self._driver_sinks = (
                {name: DriverSink(Path(folder) / name) for name in self._sinks} if sinks is None else {}
            )
            written = {**self._sinks, **self._driver_sinks}
            if sinks is not None:
                for sink in self._sinks.values():
                    sink.begin(overwrite=False)
            sink_routes = SinkRoutes(self._routes, written, flow.result_ordinals())
            self._writer = SinkCommitter(written, f"{folder}/metrics")
            self._readers = [
                Reader(
                    SourceStage(
                        planned,
                        name,
                        one,
                        sink_routes,
                        labels,
                        ARRIVAL,
                        as_buffering(buffering),
                        max_records,
                        partitions,
                    )
                )
                for name, one in sources.items()
            ]
            self._processors = [
                loads(
                    dumps(
                        StageProcessor(
                            planned, number, labels, "run", ARRIVAL, as_buffering(buffering), {*sources}, sink_routes
                        )
                    )
                )
                for number in range(1, len(planned.shuffles) + 1)
            ]
            context = SimpleNamespace(partitionId=self._numbers().__next__, getLocalProperty=lambda _: self.batches)
            with mock.patch.object(TaskContext, "get", return_value=context):
                self._run()

    def __getitem__(self, stream: str) -> pa.Table:
        return read_stream(self.flow, self._sinks, self._routes, stream)

    def _numbers(self) -> Iterator[int]:
        """Yield partition numbers for the splits of a micro-batch."""
        n = 0
        while True:
            yield n
            n += 1

    def _run(self) -> None:
        at = [reader.initial_offset() for reader in self._readers]
        while not all(offset["ended"] for offset in at):
            assert self.batches < MAX_BATCHES, "the query does not end"
            ends = [
                reader.latest_offset(offset, reader.read_limit())
                for reader, offset in zip(self._readers, at, strict=True)
            ]
            blocks = [
                block
                for reader, start, end in zip(self._readers, at, ends, strict=True)
                for part in reader.partitions(start, end)
                for rows in reader.read(part)
                for block in read_blocks(rows)
            ]
            for number, processor in enumerate(self._processors):
                blocks = self._shuffle(number, processor, blocks)
            self._writer.commit([self._writer.write(iter([blocks_to_batch(blocks)]))], self.batches)
            for name, sink in self._driver_sinks.items():
                sink.drain(self._sinks[name], self.batches)
            self.batches += 1
            at = ends
        end_sinks(self.flow, self._sinks, self._routes)

    def _shuffle(self, stage: int, processor: StageProcessor, blocks: list[Block]) -> list[Block]:
        """Return the output of a stage for all buckets with input."""
        self._choose.shuffle(blocks)
        found: list[Block] = []
        for bucket, rows in itertools.groupby(sorted(blocks, key=lambda b: b.bucket), lambda b: b.bucket):
            frames = [blocks_to_batch([row]) for row in rows]
            kept = self._states.setdefault((stage, bucket), Chain())
            whole = []
            while self._choose.random() < 0.25:  # its output is lost
                self.repeated += 1
                until = self._choose.choice([1, None])
                lost = self._task(processor, bucket, frames, Chain(kept), until=until)
                if until is None:
                    whole.append(lost)
                self._choose.shuffle(frames)  # another attempt gets its blocks in another order
            given = self._task(processor, bucket, frames, kept)
            for lost in whole:  # otherwise Spark fails the query, see riot_ops.spark.source
                assert sorted(map(astuple, lost)) == sorted(map(astuple, given)), "rows are not a function of the input"
            found += given
        return found

    def _task(
        self, processor: StageProcessor, bucket: int, frames: list[Any], state: Chain, until: int | None = None
    ) -> list[Block]:
        worker = self._choose.choice(self._workers)
        if self._choose.random() < 0.15:
            worker.clear()
        link_bytes = self._choose.choice([1, 500, stage_module.LINK_BYTES])
        with mock.patch.multiple(stage_module, ENGINE_CACHE=worker, LINK_BYTES=link_bytes):
            given = processor.process(bucket, iter(frames), state)
            return [block for frame in itertools.islice(given, until) for block in read_blocks(frame)]
