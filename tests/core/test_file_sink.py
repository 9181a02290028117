"""Files of results: which ones a run replaces, refuses and keeps, their compression, rolling."""

from __future__ import annotations

import glob
import os
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.file_sink import ParquetSink

ROWS = [{"value": float(i)} for i in range(10)]


def flow(stream):
    dataflow = ro.Dataflow(stream)
    source = dataflow.source("readings", schema={"value": "double"})
    return dataflow.sink("out", source.to(t.KalmanFilter(), id=stream))


def files(folder, stream):
    return sorted((folder / stream).glob("*.parquet"))


def rows(folder, stream):
    return pq.read_table(files(folder, stream)).num_rows


@pytest.mark.long
def test_dataflows_may_share_a_folder(tmp_path):
    flow("a").run(ROWS, out=tmp_path)
    flow("b").run(ROWS[:3], out=tmp_path, batch_size=1, epoch_rows=1)
    assert rows(tmp_path, "a") == 10
    assert rows(tmp_path, "b") == 3
    flow("b").run([], out=tmp_path, overwrite=True)
    assert rows(tmp_path, "a") == 10
    assert [f.name for f in files(tmp_path, "b")] == ["empty.parquet"]


@pytest.mark.spark
def test_dataflows_may_share_a_folder_on_spark(spark, tmp_path):
    for name in "ab":
        flow(name).run(ROWS, out=tmp_path)
    flow("b").start(spark, ROWS[:4], out=tmp_path, overwrite=True).wait()
    assert (rows(tmp_path, "a"), rows(tmp_path, "b")) == (10, 4)


@pytest.mark.parametrize(
    ("options", "codec"),
    [({}, "SNAPPY"), ({"compression": "zstd"}, "ZSTD"), ({"compression": "none"}, "UNCOMPRESSED")],
)
def test_compression_of_files(options, codec, tmp_path):
    flow("a").run(ROWS, sinks={"out": ParquetSink(tmp_path, **options)})
    (path,) = files(tmp_path, "a")
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == codec


def test_output_of_an_earlier_run_is_refused_or_replaced(tmp_path):
    flow("a").run(ROWS, out=tmp_path)
    with pytest.raises(ConnectorError, match="holds the output of an earlier run"):
        flow("a").run(ROWS, out=tmp_path)
    flow("a").run(ROWS[:2], out=tmp_path, overwrite=True)
    assert rows(tmp_path, "a") == 2


def test_second_commit_of_a_batch_replaces_the_first(tmp_path):
    sink = ParquetSink(tmp_path)
    for values in ([1.0, 2.0], [3.0]):
        writer = sink.writer(0, 0)
        writer.write("a", pa.RecordBatch.from_pydict({"value": values}))
        message = writer.finish()
        sink.commit(0, [message])
        sink.commit(0, [message])
    assert pq.read_table(files(tmp_path, "a"))["value"].to_pylist() == [3.0]


def test_temporary_files_of_a_crash_are_removed(tmp_path):
    for stream in ("a", "b"):
        writer = ParquetSink(tmp_path).writer(0, 0)
        writer.write(stream, pa.RecordBatch.from_pydict({"value": [1.0]}))
        writer.finish()  # without a commit
    flow("a").run(ROWS, out=tmp_path)
    assert [f.name[0] for f in (tmp_path / "a").iterdir()] == ["p"]
    assert [f.name[0] for f in (tmp_path / "b").iterdir()] == ["."], "another run may be writing it"


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_batch_with_a_missing_file_is_not_committed(tmp_path, damage):
    sink = ParquetSink(tmp_path / "out")
    messages = []
    for partition in range(2):
        writer = sink.writer(3, partition)
        writer.write("a", pa.RecordBatch.from_pydict({"value": [1.0]}))
        messages.append(writer.finish())
    ((_, hidden, size, _),) = messages[1]["files"]
    if damage == "missing":
        Path(hidden).unlink()
    else:
        os.truncate(hidden, size - 1)
    problem = "is missing" if damage == "missing" else f"has {size - 1:,} bytes instead of {size:,}"
    with pytest.raises(ConnectorError, match=rf"batch 3 .*{hidden}.*{problem}.*{tmp_path}/out must be a folder"):
        sink.commit(3, messages)
    assert not sink.files(), "a part of a batch is visible"


# -- streams of a result ---------------------------------------------------------------------------


# -- rolling -----------------------------------------------------------------------------------------


def write(sink, batch, values, stream="a"):
    """Commit a batch."""
    writer = sink.writer(batch, 0)
    writer.write(stream, pa.RecordBatch.from_pydict({"value": values}))
    sink.commit(batch, [writer.finish()])


def visible(folder):
    """The values that another program sees, by file."""
    return {file.name: pq.read_table(file)["value"].to_pylist() for file in files(folder, "a")}


def bound(folder, stream="a", **options):
    return ParquetSink(folder, **options).bind({stream: pa.schema([("value", pa.float64())])})


def test_files_of_batches_wait_until_they_are_large_enough(tmp_path):
    size = 0
    sink = bound(tmp_path, roll_bytes=10_000)
    for batch in range(30):
        write(sink, batch, [float(batch)])
        waiting = [path for path in (tmp_path / "a").glob(".waiting-*")]
        size = max(size, sum(path.stat().st_size for path in waiting))
        assert sink.table("a")["value"].to_pylist() == [float(n) for n in range(batch + 1)]
    assert 10_000 <= size < 13_000
    seen = visible(tmp_path)
    assert 1 <= len(seen) <= 3
    joined = [value for values in seen.values() for value in values]
    assert joined == [float(n) for n in range(len(joined))], "each record once, in order"
    sink.end({})
    assert [v for values in visible(tmp_path).values() for v in values] == [float(n) for n in range(30)]
    assert all(path.name[0] != "." for path in (tmp_path / "a").iterdir())


def test_files_of_batches_wait_until_they_are_old_enough(tmp_path):
    sink = bound(tmp_path, roll_interval=timedelta(hours=1))
    for batch in range(3):
        write(sink, batch, [float(batch)])
    assert visible(tmp_path) == {}
    for path in (tmp_path / "a").glob(".waiting-000000-*"):
        os.utime(path, (time.time() - 3601,) * 2)
    write(sink, 3, [3.0])
    assert visible(tmp_path) == {"part-000002-rolled.parquet": [0.0, 1.0, 2.0]}
    assert sink.table("a")["value"].to_pylist() == [0.0, 1.0, 2.0, 3.0]


def test_repeated_batch_is_not_rolled(tmp_path):
    sink = bound(tmp_path, roll_bytes=1)
    write(sink, 0, [0.0])
    write(sink, 1, [1.0])
    assert visible(tmp_path) == {"part-000000-rolled.parquet": [0.0]}
    again = bound(tmp_path, roll_bytes=1)
    again.recover(1)
    write(again, 1, [10.0])
    again.end({})
    assert sorted(v for values in visible(tmp_path).values() for v in values) == [0.0, 10.0]


def test_crash_after_rolling_repeats_nothing(tmp_path):
    sink = bound(tmp_path, roll_bytes=1)
    write(sink, 0, [0.0])
    (waiting,) = (tmp_path / "a").glob(".waiting-*")
    copy = waiting.read_bytes()
    write(sink, 1, [1.0])
    waiting.write_bytes(copy)  # as if the process had ended before it removed the file
    assert sink.table("a")["value"].to_pylist() == [0.0, 1.0]
    again = bound(tmp_path, roll_bytes=1)
    again.recover(2)
    assert not waiting.exists()
    assert again.table("a")["value"].to_pylist() == [0.0, 1.0]


def test_run_without_rolling_shows_waiting_files(tmp_path):
    sink = bound(tmp_path, roll_interval="1h")
    write(sink, 0, [0.0])
    write(sink, 1, [1.0])
    later = bound(tmp_path)
    later.recover(1)
    assert visible(tmp_path) == {"part-000000-00000.parquet": [0.0]}


def test_waiting_output_of_an_earlier_run_is_refused_or_replaced(tmp_path):
    write(bound(tmp_path, roll_interval="1h"), 0, [0.0])
    for options in ({}, {"roll_interval": "1h"}):
        with pytest.raises(ConnectorError, match="holds the output of an earlier run"):
            bound(tmp_path, **options).begin(overwrite=False)
    bound(tmp_path).begin(overwrite=True)
    assert list((tmp_path / "a").iterdir()) == []


def test_damaged_waiting_file_is_named(tmp_path):
    sink = bound(tmp_path, roll_bytes=1)
    write(sink, 0, [0.0])
    (waiting,) = (tmp_path / "a").glob(".waiting-*")
    waiting.write_bytes(b"PAR1")
    with pytest.raises(ConnectorError, match=r"cannot roll the files of stream 'a' into .*part-000000-rolled"):
        write(sink, 1, [1.0])
    assert waiting.exists() and visible(tmp_path) == {}


def test_rolled_files_of_a_run_keep_the_codec(tmp_path):
    sink = ParquetSink(tmp_path, "zstd", roll_bytes=1)
    flow("a").run(ROWS, sinks=sink, batch_size=2, epoch_rows=2)
    seen = files(tmp_path, "a")
    assert 0 < len(seen) <= 5
    assert {pq.ParquetFile(f).metadata.row_group(0).column(0).compression for f in seen} == {"ZSTD"}
    assert pq.read_table(seen)["seq"].to_pylist() == list(range(10))


@pytest.mark.spark
def test_rolled_files_on_spark(spark, tmp_path):
    options = {"checkpoint": tmp_path / "checkpoint", "max_records": 3, "trigger": "available now"}
    for _ in range(2):
        flow("a").start(spark, ROWS, sinks=ParquetSink(tmp_path / "out", roll_interval="1h"), **options).wait()
    seen = [path.name for path in files(tmp_path / "out", "a")]
    assert len(seen) == 2 and seen[0].endswith("-rolled.parquet"), seen
    assert pq.read_table(files(tmp_path / "out", "a"))["seq"].to_pylist() == list(range(10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"roll_bytes": 0}, r"roll_bytes must be a number of bytes, 1 or more, got 0"),
        ({"roll_bytes": "1 MB"}, r"roll_bytes must be a number of bytes"),
        ({"roll_bytes": True}, r"roll_bytes must be a number of bytes"),
        ({"roll_interval": "-1h"}, r"is not a duration"),
        ({"roll_interval": timedelta(0)}, r"roll_interval must be a positive duration"),
        ({"roll_interval": 3600}, r"roll_interval must be a positive duration, such as '1h', got 3600"),
        ({"compression": "zip"}, r"compression must be one of none, snappy, gzip, .* got 'zip'"),
    ],
)
def test_misuse_raises_at_construction(options, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        ParquetSink(tmp_path, **options)


def test_hidden_files_of_uncommitted_batches_are_not_read(tmp_path):
    sink = bound(tmp_path)
    write(sink, 0, [0.0])
    writer = sink.writer(1, 0)
    writer.write("a", pa.RecordBatch.from_pydict({"value": [1.0]}))
    ((_, hidden, _, _),) = writer.finish()["files"]
    assert sink.table("a")["value"].to_pylist() == [0.0]
    assert pa.dataset.dataset(tmp_path / "a").to_table()["value"].to_pylist() == [0.0]
    source = ro.read(tmp_path / "a")
    assert source.count(source.initial(), source.latest(source.initial())) == 1
    assert [*glob.glob(f"{tmp_path}/**/*.parquet", recursive=True, include_hidden=True)] == [str(sink.path("a", 0, 0))]
    assert Path(hidden).exists()


@pytest.mark.parametrize("rolls", [{}, {"roll_bytes": 1 << 30}])
def test_aborted_batch_leaves_no_file(tmp_path, rolls):
    other = bound(tmp_path, stream="b")
    kept = other.writer(7, 0)
    kept.write("b", pa.RecordBatch.from_pydict({"value": [7.0]}))
    sink = bound(tmp_path, **rolls)
    write(sink, 0, [0.0])
    finished, open_one = sink.writer(1, 0), sink.writer(1, 1)
    finished.write("a", pa.RecordBatch.from_pydict({"value": [1.0]}))
    finished.finish()
    open_one.write("a", pa.RecordBatch.from_pydict({"value": [2.0]}))
    sink.abort(1)
    assert [path.name for path in (tmp_path / "a").iterdir()] == [sink.path("a", 0, 0).name]
    other.commit(7, [kept.finish()])
    assert other.table("b")["value"].to_pylist() == [7.0], "a stream of another sink"
    assert sink.table("a")["value"].to_pylist() == [0.0]
