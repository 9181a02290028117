"""Sources as Spark reads them, without Spark."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.cloudpickle import dumps, loads

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.graph.plan import plan
from riot_ops.ingest.pace import PacedSource
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.spark import dataframe_transform
from riot_ops.spark.dataframe_transform import assign_labels
from riot_ops.spark.sink import SinkRoutes
from riot_ops.spark.source import Reader, SourceStage
from riot_ops.spark.stage import SOURCE_END, read_blocks


def flow_of(*steps):
    flow = ro.Dataflow("some")
    stream = flow.source("in", schema={"device": "string", "value": "double"})
    for step in steps:
        stream = stream.to(step)
    return flow.sink("out", stream)


def in_task(batch=None, place=3, **more):
    context = SimpleNamespace(
        getLocalProperty=lambda _: batch, partitionId=lambda: place, taskAttemptId=lambda: 8, **more
    )
    return mock.patch.object(TaskContext, "get", return_value=context)


def test_position_that_a_checkpoint_cannot_hold_is_refused():
    class Odd(ro.MemorySource):
        def initial(self):
            return 7

    flow = flow_of(t.KalmanFilter(by=("device",)))
    planned = plan(flow)
    labels = assign_labels(planned, 1)
    stage = SourceStage(
        planned, "in", Odd([{"device": "x", "value": 1.0}]), None, labels, ARRIVAL, Buffering(codec=None), None, 1
    )
    with pytest.raises(ro.ConfigError, match=r"source 'in': initial\(\) of Odd must return a mapping of texts"):
        Reader(stage).initial_offset()


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
    reader = Reader(stage)
    start = reader.initial_offset()
    before = time.time() * 1e6
    (part,) = reader.partitions(start, reader.latest_offset(start, reader.read_limit()))
    planned_by = time.time() * 1e6
    with in_task():
        blocks = [b for rows in reader.read(part) for b in read_blocks(rows.to_pandas())]
    assert asked == [(0, 3)]
    assert [block.stream for block in blocks] == ["in", SOURCE_END]
    assert all(before <= block.first_us == block.last_us <= planned_by for block in blocks)


@pytest.mark.parametrize("pace", [None, "at once"])
def test_blocks_of_part_computed_twice_are_equal_to_the_byte(tmp_path, pace):
    """Spark compares the checksums of a shuffle where it computes a lost part of it again."""
    flow = flow_of(t.KalmanFilter(by=("device",)))
    planned = plan(flow)
    schema = pa.schema([("device", pa.string()), ("value", pa.string())])
    source = ro.MemorySource(
        [{"device": f"d{i % 5}", "value": "high" if i == 7 else str(i)} for i in range(40)], schema
    )
    if pace:
        source = PacedSource(source, rate=1e9)
    routes = SinkRoutes({"errors": ["files"]}, {"files": ro.ParquetSink(tmp_path)})
    stage = SourceStage(
        planned, "in", source, routes, assign_labels(planned, 2), ARRIVAL, Buffering(capacity=64), None, 2
    )
    reader = Reader(stage)
    start = reader.initial_offset()
    reader.latest_offset(start, reader.read_limit())
    time.sleep(0.001)
    parts = reader.partitions(start, reader.latest_offset(start, reader.read_limit()))
    assert len(parts) == 2
    found = []
    for _ in range(2):
        found.append([])
        for place, part in enumerate(parts):
            with in_task(place=place):
                found[-1] += [b for rows in reader.read(loads(dumps(part))) for b in read_blocks(rows)]
        time.sleep(0.001)  # the clock moves on
    assert found[0] == found[1]
    assert sum(block.rows for block in found[0] if block.stream == "in") == 39
    assert [path.name[:19] for path in tmp_path.rglob(".part-*")] == [".part-000000-00000-"]


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


def test_rows_packed_twice_are_equal_to_the_byte(monkeypatch):
    """Spark compares the checksums of a shuffle where it computes a lost part of it again."""
    flow = ro.Dataflow("packed")
    flow.sink(
        "out", flow.source("in", schema={"device": "string", "value": "double"}).to(t.KalmanFilter(by=("device",)))
    )
    planned = plan(flow)
    pack = dataframe_transform.pack_stage_zero(
        planned, "in", assign_labels(planned, 2), ("seq",), Buffering(capacity=64)
    )
    at = pa.array([1_700_000_000_000_000] * 10, pa.timestamp("us", "UTC"))
    batches = [
        pa.RecordBatch.from_pydict(
            {"device": ["a", "b"] * 5, "value": np.arange(10.0), dataframe_transform.PLANNED: at}
        )
    ] * 5
    found = []
    for seconds in (0.0, 10.0):  # between two batches
        clock = itertools.count()
        monkeypatch.setattr(time, "monotonic", lambda seconds=seconds, clock=clock: next(clock) * seconds)
        monkeypatch.setattr(time, "time", lambda seconds=seconds, clock=clock: next(clock) * seconds)
        found.append([block for rows in pack(iter(batches)) for block in read_blocks(rows)])
    assert found[0] == found[1]
    assert sum(block.rows for block in found[0]) == 50
    assert {(block.first_us, block.last_us) for block in found[0]} == {(1.7e15, 1.7e15)}


def test_small_batches_are_joined_up_to_a_number_of_bytes(monkeypatch):
    monkeypatch.setattr(dataframe_transform, "BATCH_BYTES", 30)
    batches = [pa.RecordBatch.from_pydict({"seq": [n], "value": [0.0]}) for n in range(5)]
    assert [batch.num_rows for batch in dataframe_transform.with_seq(batches)] == [2, 2, 1]


def test_reader_follows_the_last_planned_offset_before_spark_4_2():
    """Spark then asks for the latest offset without a start: it must neither go back nor skip anything."""
    flow = flow_of()
    planned, source = plan(flow), ro.MemorySource([{"device": "x", "value": float(i)} for i in range(10)])

    def reader(place=None):
        stage = SourceStage(
            planned,
            "in",
            source.project(flow.nodes["in"].schema),
            SinkRoutes({}, {}),
            assign_labels(planned, 1),
            ARRIVAL,
            Buffering(codec=None),
            4,
            1,
        )
        return loads(dumps(Reader(stage, planned=place)))

    first = reader()
    ends = [first.advance() for _ in range(4)]
    rows = [source.count(source.initial(), end["at"]) for end in ends]
    assert rows == [4, 8, 10, 10] and [end["ended"] for end in ends] == [False, False, True, True]
    assert first.begin() == first.begin() == first.initial_offset()

    # a query that continues: Spark plans the newest entry of its log, empty and then again, before it asks
    again = reader()
    assert again.plan(ends[1], ends[1]) == []
    assert len(again.plan(ends[0], ends[1])) == 1
    assert again.advance() == ends[2]
    assert reader(ends[1]).advance() == ends[2], "asked before anything is planned"
    assert reader(ends[1]).advance(ends[0], None) == ends[1], "a start that Spark names wins"
