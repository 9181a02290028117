"""The rows of a batch DataFrame in files, read as a log, without Spark."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
import pytest
from pyspark import TaskContext

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.spark.batch_source import FrameFiles, PartFile, file_writer, write_batch_frames

#: Rows of the batches of each file; one file has none.
FILES = ((3, 1), (), (4,), (2, 2))
TOTAL = 12


@pytest.fixture
def log(tmp_path):
    def make(numbered=True):
        schema = pa.schema([("value", pa.int64())] if numbered else [("seq", pa.int64()), ("value", pa.int64())])
        at, parts = itertools.count(100), []
        for i, sizes in enumerate(FILES):
            with pa.ipc.new_file(str(tmp_path / f"{i}.arrow"), schema) as out:
                for size in sizes:
                    values = list(itertools.islice(at, size))
                    columns = {"value": values} if numbered else {"seq": [2 * v for v in values], "value": values}
                    out.write_batch(pa.RecordBatch.from_pydict(columns, schema=schema))
            parts.append(PartFile(f"{i}.arrow", sum(sizes)))
        return FrameFiles(tmp_path, parts, schema)

    return make


def rows(source, start, end):
    return [row for batch in source.read({"start": start, "end": end}) for row in batch.to_pylist()]


def test_any_range(log):
    source = log()
    assert source.schema.names == ["seq", "value"] and not source.schema.field("seq").nullable
    every = [{"seq": i, "value": 100 + i} for i in range(TOTAL)]
    for start, end in itertools.combinations(range(TOTAL + 1), 2):
        assert rows(source, start, end) == every[start:end]
        assert all(batch.num_rows for batch in source.read({"start": start, "end": end}))


def test_given_numbers_are_kept(log):
    source = log(numbered=False)
    assert source.schema.names == ["seq", "value"]
    assert rows(source, 3, 9) == [{"seq": 2 * v, "value": v} for v in range(103, 109)]


def test_offsets(log):
    source = log()
    assert source.initial() == {"row": 0}
    assert source.latest({"row": 0}) == {"row": TOTAL} == source.latest({"row": 5}, 7) == source.latest({"row": 5}, 99)
    assert source.latest({"row": 5}, 2) == {"row": 7}
    assert not source.finished({"row": TOTAL - 1})
    assert source.finished({"row": TOTAL})
    assert source.count({"row": 3}, {"row": 9}) == 6


@pytest.mark.parametrize("n", [1, 2, 5, 12, 40])
def test_splits_are_even_and_whole(log, n):
    splits = log().splits({"row": 2}, {"row": 12}, n)
    assert [i for s in splits for i in range(s["start"], s["end"])] == list(range(2, 12))
    sizes = [s["end"] - s["start"] for s in splits]
    assert len(sizes) == min(n, 10) and max(sizes) - min(sizes) <= 1


def flow_of(*steps):
    flow = ro.Dataflow("some")
    stream = flow.source("in", schema={"device": "string", "value": "double"})
    for step in steps:
        stream = stream.to(step)
    return flow.sink("out", stream)


def in_task(batch=None, **more):
    context = SimpleNamespace(getLocalProperty=lambda _: batch, partitionId=lambda: 3, taskAttemptId=lambda: 8, **more)
    return mock.patch.object(TaskContext, "get", return_value=context)


def test_batch_frame_needs_folder_and_counts_rows(tmp_path):
    frame = SimpleNamespace(sparkSession=None, isStreaming=False)
    with pytest.raises(ConfigError, match="needs a checkpoint in a folder"):
        write_batch_frames(flow_of(t.KalmanFilter()), frame, None)
    schema = pa.schema([("value", pa.int64())])
    batches = [pa.RecordBatch.from_pydict({"value": values}, schema) for values in ([1, 2], [3])]
    with in_task():
        (messages,) = file_writer(str(tmp_path), schema)(iter(batches))
    assert messages.to_pylist() == [{"place": 3, "name": "part-00003-8.arrow", "rows": 3}]
    assert pa.ipc.open_file(tmp_path / "part-00003-8.arrow").read_all()["value"].to_pylist() == [1, 2, 3]


def test_written_rows_are_numbered_and_split(tmp_path):
    schema = pa.schema([("value", pa.int64())])
    files = {"a.arrow": [[0, 1, 2], [3]], "b.arrow": [[]], "c.arrow": [[4, 5], [6, 7, 8, 9]]}
    for name, batches in files.items():
        with pa.ipc.new_file(str(tmp_path / name), schema) as out:
            for values in batches:
                out.write_batch(pa.RecordBatch.from_pydict({"value": pa.array(values, pa.int64())}))
    source = FrameFiles(tmp_path, [PartFile(n, sum(map(len, b))) for n, b in files.items()], schema)
    assert source.schema.names == ["seq", "value"]
    for a in range(11):
        for b in range(a, 11):
            got = [r for batch in source.read({"start": a, "end": b}) for r in batch.to_pylist()]
            assert got == [{"seq": i, "value": i} for i in range(a, b)]
    assert source.latest({"row": 3}, 4) == {"row": 7} and source.latest({"row": 3}) == {"row": 10}
    assert source.finished({"row": 10}) and not source.finished({"row": 9}) and not source.waits()
    assert source.splits({"row": 2}, {"row": 9}, 3) == [
        {"start": 2, "end": 4},
        {"start": 4, "end": 6},
        {"start": 6, "end": 9},
    ]
    assert source.count({"row": 2}, {"row": 9}) == 7
