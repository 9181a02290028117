"""Sinks: which Parquet files a run replaces, refuses and keeps, their compression; the console; reading back."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError
from riot_ops.core.sink import CallbackSink, ConsoleSink, ParquetSink

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


def test_console_shows_the_first_records_of_each_batch():
    lines = []
    flow("a").run(ROWS, sinks={"out": ConsoleSink(rows=2, write=lines.append)}, batch_size=5)
    assert len(lines) == 6
    assert lines[0].startswith("a: ") and "value=" in lines[0]
    assert lines[2] == lines[5] == "a: … 3 more"
    whole = []
    flow("a").run(ROWS, sinks={"out": ConsoleSink(write=whole.append)})
    assert len(whole) == 10 and not any("more" in line for line in whole)


def test_console_shows_control_characters_of_records_as_text():
    lines, text = [], ro.Dataflow("text")
    text.sink("out", text.source("in", schema={"word": "string"}))
    text.run([{"word": "a\x1b[31m\nb"}], sinks=ConsoleSink(write=lines.append))
    assert lines == [r"in: seq=0 word=a\x1b[31m\nb"]


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


def branched():
    dataflow = ro.Dataflow("branched")
    source = dataflow.source("readings", schema={"value": "double"})
    dataflow.sink("out", source.to(t.NoOp(), id="between").to(t.KalmanFilter(), id="a"))
    dataflow.sink("other", source.to(t.RangeFilter(bounds={"value": (0.0, 4.0)}, by=None), id="b"))
    return dataflow


def check_result_streams(result, seen):
    """Check a run over ROWS whose sinks write out and errors to files and pass other to a function."""
    read = result.__getitem__
    assert list(result) == ["a", "errors"] and len(result) == 2 and result
    assert "a" in result and "errors" in result
    assert not any(name in result for name in ("b", "between", "aa", 0))
    with pytest.raises(KeyError, match=r"results are read by the name of a stream, got 0; streams are errors, "):
        read(0)
    assert read("a")["seq"].to_pylist() == list(range(10))
    assert read("errors")["seq"].to_pylist() == []
    assert "reason" in read("errors").schema.names
    with pytest.raises(KeyError, match=r"'b.* are in a CallbackSink, which cannot return them"):
        read("b")
    with pytest.raises(KeyError, match=r"between.* ends in no sink.*flow\.sink"):
        read("between")
    with pytest.raises(KeyError, match=r"no stream .*aa.* did you mean"):
        read("aa")
    assert sum(seen) == 5


def test_result_reads_streams_back_from_their_sinks(tmp_path):
    seen = []
    sinks = {"out": ParquetSink(tmp_path), "other": CallbackSink(lambda s, b: seen.append(b.num_rows))}
    result = branched().run(ROWS, sinks=sinks, batch_size=3, epoch_rows=3)
    check_result_streams(result, seen)
    assert result["a"].schema.equals(branched().schemas()["a"])
    assert result.errors.num_rows == 0
    assert branched().run([], sinks=ro.MemorySink())["a"].schema.names == result["a"].schema.names
