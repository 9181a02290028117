"""Sources as Spark reads them, without Spark."""

from __future__ import annotations

import time
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
import pytest
from pyspark import TaskContext

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.graph.plan import plan
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.spark.blocks import (
    read_blocks,
)
from riot_ops.spark.dataframe_transform import assign_labels
from riot_ops.spark.source import Reader, SourceStage
from riot_ops.spark.stage import SOURCE_END


def flow_of(*steps):
    flow = ro.Dataflow("some")
    stream = flow.source("in", schema={"device": "string", "value": "double"})
    for step in steps:
        stream = stream.to(step)
    return flow.sink("out", stream)


def in_task(batch=None, **more):
    context = SimpleNamespace(getLocalProperty=lambda _: batch, partitionId=lambda: 3, taskAttemptId=lambda: 8, **more)
    return mock.patch.object(TaskContext, "get", return_value=context)


def test_blocks_are_stamped_and_written_as_stage_zero():
    asked = []
    sink_routes = SimpleNamespace(writer=lambda stage, place: asked.append((stage, place)))
    flow = flow_of(t.KalmanFilter(by=("device",)))
    planned, source = plan(flow), ro.MemorySource([{"device": "x", "value": 1.0}])
    stage = SourceStage(
        planned,
        "in",
        source.project(flow.nodes["in"].schema),
        sink_routes,
        assign_labels(planned, 1),
        ARRIVAL,
        Buffering(codec=None),
        None,
        1,
    )
    before = time.time() * 1e6
    with in_task():
        blocks = [b for rows in stage.blocks({"start": 0, "end": 1}, last=True) for b in read_blocks(rows.to_pandas())]
    assert asked == [(0, 3)]
    assert [block.stream for block in blocks] == ["in", SOURCE_END]
    assert all(before <= block.first_us <= block.last_us <= time.time() * 1e6 for block in blocks)


SCHEMA = {"device": "string"}


def counting():
    """Return a dataflow that counts the records of each device."""
    flow = ro.Dataflow("counting")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(_count("device"), id="n"))
    return flow


def _count(by):
    return t.Window(frame=1_000_000, emit="each", by=(by,), aggregates={"n": "count"})


@pytest.mark.parametrize("splits", [1, 3])
def test_only_last_split_announces_end_of_source(splits):
    source = ro.MemorySource([{"device": "x"}] * 6, pa.schema([("device", pa.string())]))
    planned = plan(counting())
    reader = Reader(
        SourceStage(planned, "in", source, None, assign_labels(planned, 2), ARRIVAL, Buffering(codec=None), 4, splits)
    )
    start = reader.initial_offset()
    middle = reader.latest_offset(start, reader.read_limit())
    end = reader.latest_offset(middle, reader.read_limit())
    assert reader.partitions(start, start) == []
    assert [part.last for part in reader.partitions(start, middle)] == [False] * splits
    assert [part.last for part in reader.partitions(middle, end)] == [False] * (min(splits, 2) - 1) + [True]
    # an end that becomes known without another record
    (part,) = reader.partitions({**end, "ended": False}, end)
    assert (part.split, part.last) == (None, True)
    sink_routes = SimpleNamespace(writer=lambda *_: None)
    reader = Reader(
        SourceStage(
            planned, "in", source, sink_routes, assign_labels(planned, 2), ARRIVAL, Buffering(codec=None), 4, splits
        )
    )
    with mock.patch.object(TaskContext, "get", return_value=SimpleNamespace(partitionId=lambda: 0)):
        given = [
            [b.stream for rows in reader.read(p) for b in read_blocks(rows.to_pandas())]
            for p in reader.partitions(start, end)
        ]
    flushes = [streams.count(SOURCE_END) for streams in given]
    assert flushes == [0] * (len(given) - 1) + [len(assign_labels(planned, 2)[1])]
    assert all(SOURCE_END not in streams[: -flushes[-1]] for streams in given)
