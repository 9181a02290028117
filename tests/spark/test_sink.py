"""Sinks of a query: writers of its stages, metrics of a micro-batch, and packed blocks."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from unittest import mock

import msgspec
import pyarrow as pa
from pyspark import TaskContext

import riot_ops as ro
from riot_ops.core.sink import MemorySink
from riot_ops.spark import sink as sinks
from riot_ops.spark.blocks import SINK_STAGE, Block, blocks_to_batch
from riot_ops.spark.sink import SinkCommitter, SinkRoutes


def in_task(batch=None, **more):
    context = SimpleNamespace(getLocalProperty=lambda _: batch, partitionId=lambda: 3, taskAttemptId=lambda: 8, **more)
    return mock.patch.object(TaskContext, "get", return_value=context)


def test_writer_numbers_are_unique():
    asked = []
    sink = MemorySink()
    sink.writer = lambda *place: asked.append(place) or MemorySink().writer(*place)
    sink_routes = SinkRoutes({"in": ["out"]}, {"out": sink})
    for batch in (None, "0", "7"):
        with in_task(batch):
            for stage in range(4):
                for place in (0, 1, 99_999):
                    sink_routes.writer(stage, place)
    numbers = [place for batch, place in asked if batch == 7]
    assert len(set(numbers)) == len(numbers) == 12
    assert min(numbers) >= 0
    assert sorted({batch for batch, _ in asked}) == [0, 7]


def test_metrics_sum_all_writers(tmp_path, monkeypatch):
    monkeypatch.setattr(sinks.time, "time", lambda: 10.0)
    messages = [
        {"rows": {"a": 2}, "reasons": {"x: late": 1}, "steps": {"x": (3, 1)}, "sinks": {}},
        {"rows": {"a": 5, "b": 1}, "reasons": {}, "steps": {"x": (4, 0), "y": (1, 1)}, "sinks": {}},
    ]
    blocks = [Block(SINK_STAGE, 0, "", 6, 8e6, 9e6, msgspec.msgpack.encode(messages[0]))]
    blocks += [
        Block(SINK_STAGE, 0, "", 2, 7e6, 9.5e6, msgspec.msgpack.encode(messages[1])),
        Block(1, 0, "a", 9, 0, 0, b"other"),
    ]
    writer = SinkCommitter({}, str(tmp_path / "metrics"))
    writer.commit([writer.write(iter([blocks_to_batch(blocks)])), None], 4)
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["4.json"]
    found = json.loads((tmp_path / "metrics" / "4.json").read_text())
    assert found["rows"] == {"a": 7, "b": 1}
    assert found["reasons"] == {"x: late": 1}
    assert found["steps"] == {"x": [7, 1], "y": [1, 1]}
    assert found["latency"] == [[1e6, 2e6, 6], [0.5e6, 3e6, 2]]  # least and most, in microseconds


def test_failed_micro_batch_is_aborted_in_all_sinks(tmp_path):
    asked = []
    found = {name: ro.ParquetSink(tmp_path / name) for name in ("x", "y")}
    for name, sink in found.items():
        sink.abort = lambda batch, name=name: asked.append((name, batch))
    SinkCommitter(found, str(tmp_path / "metrics")).abort(4)
    assert asked == [("x", 4), ("y", 4)]
    assert not (tmp_path / "metrics").exists()


def test_files_are_flushed_before_spark_counts_a_micro_batch(tmp_path, monkeypatch):
    sink = ro.ParquetSink(tmp_path / "out").bind({"a": pa.schema([("value", pa.int64())])})
    writer = sink.writer(4, 0)
    writer.write("a", pa.RecordBatch.from_pydict({"value": [1]}))
    message = {"rows": {"a": 1}, "reasons": {}, "steps": {}, "sinks": {"out": writer.finish()}}
    blocks = [Block(SINK_STAGE, 0, "", 1, 8e6, 9e6, msgspec.msgpack.encode(message))]
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.readlink(f"/proc/self/fd/{handle}")))
    committer = SinkCommitter({"out": sink}, str(tmp_path / "metrics"))
    committer.commit([committer.write(iter([blocks_to_batch(blocks)]))], 4)
    folder = tmp_path / "out" / "a"
    assert flushed == [str(folder / "part-000004-00000.parquet"), str(folder)]
