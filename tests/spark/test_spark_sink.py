"""Where a query's results end: the writers of its stages, the metrics of a micro-batch, and where blocks go."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from unittest import mock

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.core.payload import decode
from riot_ops.core.sink import MemorySink
from riot_ops.graph.plan import plan
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.spark import jvm_stderr as quiet
from riot_ops.spark import sink as sinks
from riot_ops.spark import stage as stages
from riot_ops.spark.batch_source import _write, as_logs
from riot_ops.spark.blocks import SINK, Block, Packer, blocks_of, blocks_to_batch, bucket_labels
from riot_ops.spark.dataframe_transform import labels_of
from riot_ops.spark.sink import Outlet, Writer
from riot_ops.spark.source import SourceStage
from riot_ops.spark.stage import FLUSH, OWNERS, StageProcessor
from tests.staged import Chain


def flow_of(*steps):
    flow = ro.Dataflow("some")
    stream = flow.source("in", schema={"device": "string", "value": "double"})
    for step in steps:
        stream = stream.to(step)
    return flow.sink("out", stream)


def in_task(batch=None, **more):
    context = SimpleNamespace(getLocalProperty=lambda _: batch, partitionId=lambda: 3, taskAttemptId=lambda: 8, **more)
    return mock.patch.object(TaskContext, "get", return_value=context)


def test_no_two_writers_of_a_query_have_one_number():
    asked = []
    sink = MemorySink()
    sink.writer = lambda *place: asked.append(place) or MemorySink().writer(*place)
    outlet = Outlet({"in": ["out"]}, {"out": sink})
    for batch in (None, "0", "7"):
        with in_task(batch):
            for stage in range(4):
                for place in (0, 1, 99_999):
                    outlet.writer(stage, place)
    numbers = [place for batch, place in asked if batch == 7]
    assert len(set(numbers)) == len(numbers) == 12
    assert min(numbers) >= 0
    assert sorted({batch for batch, _ in asked}) == [0, 7]


def test_what_is_read_is_stamped_with_the_time_and_written_as_of_the_first_stage():
    asked = []
    outlet = SimpleNamespace(writer=lambda stage, place: asked.append((stage, place)))
    flow = flow_of(t.KalmanFilter(by=("device",)))
    planned, source = plan(flow), ro.MemorySource([{"device": "x", "value": 1.0}])
    stage = SourceStage(
        planned,
        "in",
        source.declared(flow.nodes["in"].schema),
        outlet,
        labels_of(planned, 1),
        ARRIVAL,
        Buffering(codec=None),
        None,
        1,
    )
    before = time.time() * 1e6
    with in_task():
        blocks = [b for rows in stage.blocks({"start": 0, "end": 1}, last=True) for b in blocks_of(rows.to_pandas())]
    assert asked == [(0, 3)]
    assert [block.stream for block in blocks] == ["in", FLUSH]
    assert all(before <= block.first_us <= block.last_us <= time.time() * 1e6 for block in blocks)


def test_a_micro_batch_tells_what_all_writers_did(tmp_path, monkeypatch):
    monkeypatch.setattr(sinks.time, "time", lambda: 10.0)
    told = [
        {"rows": {"a": 2}, "reasons": {"x: late": 1}, "steps": {"x": (3, 1)}, "sinks": {}},
        {"rows": {"a": 5, "b": 1}, "reasons": {}, "steps": {"x": (4, 0), "y": (1, 1)}, "sinks": {}},
    ]
    blocks = [Block(SINK, 0, "", 6, 8e6, 9e6, msgspec.msgpack.encode(told[0]))]
    blocks += [Block(SINK, 0, "", 2, 7e6, 9.5e6, msgspec.msgpack.encode(told[1])), Block(1, 0, "a", 9, 0, 0, b"other")]
    writer = Writer({}, str(tmp_path / "metrics"))
    writer.commit([writer.write(iter([blocks_to_batch(blocks)])), None], 4)
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["4.json"]
    found = json.loads((tmp_path / "metrics" / "4.json").read_text())
    assert found["rows"] == {"a": 7, "b": 1}
    assert found["reasons"] == {"x: late": 1}
    assert found["steps"] == {"x": [7, 1], "y": [1, 1]}
    assert found["latency"] == [[1e6, 2e6, 6], [0.5e6, 3e6, 2]]  # least and most, in microseconds


def murmur3(value):
    """MurmurHash3 x86_32 of a 32-bit number with seed 42, by its definition."""

    def turned(x, by):
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    h = 42 ^ (turned(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF)
    h = (turned(h, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    for shift, by in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = ((h ^ (h >> shift)) * by) & 0xFFFFFFFF
    return h - (1 << 32) if h >= 1 << 31 else h


@pytest.mark.parametrize("partitions", [1, 2, 3, 5, 7, 12])
def test_buckets_are_spread_evenly_over_the_partitions_of_spark(partitions):
    assert murmur3(0) == 933211791  # spark.sql("select hash(0)")
    labels = bucket_labels(3 * partitions, partitions)
    assert len({*labels}) == 3 * partitions
    assert [murmur3(label) % partitions for label in labels] == [*range(partitions)] * 3


@pytest.mark.parametrize(("capacity", "rows"), [(8 << 20, [3, 3]), (4 << 20, [2, 2, 2])])
def test_blocks_are_as_large_as_they_may_be(capacity, rows):
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))
    packer = Packer(planned, 0, labels_of(planned, 1), Buffering(codec=None, capacity=capacity))
    values = pa.array(np.arange(1 << 17, dtype=float))
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(1 << 17), pa.int64()), "device": pa.array(np.ones(1 << 17)), "value": values}
    )
    full = [block for _ in range(6) for block in packer.add({"in": [batch]})]  # 3 MiB each
    rest = list(packer.close())
    assert [block.rows >> 17 for block in full + rest] == rows
    assert len(rest) == 0


@pytest.mark.parametrize("capacity", [0, 1, 16 << 10, 64 << 10])
def test_blocks_are_small_where_they_may_have_little(capacity):
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))
    packer = Packer(planned, 0, labels_of(planned, 1), Buffering(codec=None, capacity=capacity))
    n = 1 << 17
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(n), pa.int64()), "device": pa.array(np.ones(n)), "value": pa.array(np.ones(n))}
    )  # 3 MiB
    blocks = [*packer.add({"in": [batch]}), *packer.close()]
    assert len(blocks) == 48
    assert {block.rows for block in blocks} == {2730, 2731}  # 24 bytes each
    found = pa.Table.from_batches([batch for block in blocks for batch in decode(block.payload)])
    assert found["seq"].to_pylist() == [*range(n)]


def test_a_batch_larger_than_a_block_is_cut():
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))
    packer = Packer(planned, 0, labels_of(planned, 1), Buffering(codec=None, capacity=1 << 20))
    n = 1 << 17
    batch = pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(n), pa.int64()), "device": pa.array(np.ones(n)), "value": pa.array(np.ones(n))}
    )  # 3 MiB
    blocks = [*packer.add({"in": [batch]}), *packer.close()]
    assert [block.rows for block in blocks] == [43_690, 43_691, 43_691]
    found = pa.Table.from_batches([batch for block in blocks for batch in decode(block.payload)])
    assert found["seq"].to_pylist() == [*range(n)]
    few = [*packer.add({"in": [batch.slice(5, 10)]}), *packer.close()]
    assert [block.rows for block in few] == [10], "a few rows of what is large are not large"


@pytest.mark.parametrize("partitions", [1, 16, 200])
def test_a_block_is_no_larger_where_one_key_has_all(partitions):
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))
    packer = Packer(planned, 0, labels_of(planned, partitions), Buffering(codec=None, capacity=1 << 20))
    n = 1 << 15
    columns = {"seq": np.arange(n), "device": np.ones(n), "value": np.ones(n)}
    batch = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})  # 768 KiB
    blocks = [block for _ in range(10) for block in packer.add({"in": [batch]})]
    assert [block.rows for block in [*blocks, *packer.close()]] == [2 * n] * 5


def test_a_worker_keeps_the_state_of_the_queries_it_ran_last(monkeypatch):
    monkeypatch.setattr(stages, "_CACHE", type(stages._CACHE)())
    monkeypatch.setattr(stages, "CACHED_SECONDS", -1.0)
    first = stages.cached_engines("first")
    for i in range(3):
        stages.cached_engines(f"{i}")
    assert stages.cached_engines("first") is first
    stages.cached_engines("new")
    assert [*stages._CACHE] == ["1", "2", "first", "new"]
    monkeypatch.setattr(stages, "CACHED_SECONDS", 60.0)
    stages.cached_engines("other")
    assert len(stages._CACHE) == 5, "it has run for all of them just now"


def test_state_belongs_to_the_query_that_wrote_it():
    planned = plan(flow_of(t.KalmanFilter(by=("device",))))

    def processor(**settings):
        return StageProcessor(
            planned, 1, labels_of(planned, 1), "run", ARRIVAL, Buffering(codec=None), owner={"the plan": settings}
        )

    chain = Chain()
    asking = [blocks_to_batch([Block(1, OWNERS, "in", 0, 0, 0, b"")]).to_pandas()]
    for _ in range(2):
        assert list(processor(fuse="exact").process(OWNERS, iter(asking), chain)) == []
    with pytest.raises(StateError, match=r"another query: .*fuse"):
        list(processor(fuse="coarse").process(OWNERS, iter(asking), chain))


def test_rows_of_a_batch_frame_are_counted_and_need_a_folder(tmp_path):
    frame = SimpleNamespace(sparkSession=None, isStreaming=False)
    with pytest.raises(ConfigError, match="needs a checkpoint in a folder"):
        as_logs(flow_of(t.KalmanFilter()), frame, None)
    schema = pa.schema([("value", pa.int64())])
    batches = [pa.RecordBatch.from_pydict({"value": values}, schema) for values in ([1, 2], [3])]
    with in_task():
        (told,) = _write(str(tmp_path), schema)(iter(batches))
    assert told.to_pylist() == [{"place": 3, "name": "part-00003-8.arrow", "rows": 3}]
    assert pa.ipc.open_file(tmp_path / "part-00003-8.arrow").read_all()["value"].to_pylist() == [1, 2, 3]


def test_without_standard_error_spark_starts_as_it_does(monkeypatch):
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda *_: pytest.fail("started"))
    monkeypatch.setattr(quiet.os, "dup", mock.Mock(side_effect=OSError))
    quiet.start_jvm(None)
