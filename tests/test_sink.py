"""Parquet files: what a run replaces, refuses and leaves alone, and how they are packed; the console."""

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
    made = ro.Dataflow(stream)
    source = made.source("readings", schema={"value": "double"})
    return made.sink("out", source.to(t.KalmanFilter(), id=stream))


def files(folder, stream):
    return sorted((folder / stream).glob("*.parquet"))


def rows(folder, stream):
    return pq.read_table(files(folder, stream)).num_rows


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
def test_how_files_are_packed(options, codec, tmp_path):
    flow("a").run(ROWS, sinks={"out": ParquetSink(tmp_path, **options)})
    (path,) = files(tmp_path, "a")
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == codec


def test_the_console_shows_the_first_of_each_batch():
    said = []
    flow("a").run(ROWS, sinks={"out": ConsoleSink(rows=2, write=said.append)}, batch_size=5)
    assert len(said) == 6
    assert said[0].startswith("a: ") and "value=" in said[0]
    assert said[2] == said[5] == "a: … 3 more"
    whole = []
    flow("a").run(ROWS, sinks={"out": ConsoleSink(write=whole.append)})
    assert len(whole) == 10 and not any("more" in line for line in whole)


def test_output_of_an_earlier_run_is_not_mixed_with(tmp_path):
    flow("a").run(ROWS, out=tmp_path)
    with pytest.raises(ConnectorError, match="holds the output of an earlier run"):
        flow("a").run(ROWS, out=tmp_path)
    flow("a").run(ROWS[:2], out=tmp_path, overwrite=True)
    assert rows(tmp_path, "a") == 2


def test_a_batch_that_is_committed_again_replaces_itself(tmp_path):
    sink = ParquetSink(tmp_path)
    for values in ([1.0, 2.0], [3.0]):
        writer = sink.writer(0, 0)
        writer.write("a", pa.RecordBatch.from_pydict({"value": values}))
        message = writer.finish()
        sink.commit(0, [message])
        sink.commit(0, [message])
    assert pq.read_table(files(tmp_path, "a"))["value"].to_pylist() == [3.0]


def test_what_a_crash_left_is_removed(tmp_path):
    for stream in ("a", "b"):
        writer = ParquetSink(tmp_path).writer(0, 0)
        writer.write(stream, pa.RecordBatch.from_pydict({"value": [1.0]}))
        writer.finish()  # and no commit
    flow("a").run(ROWS, out=tmp_path)
    assert [f.name[0] for f in (tmp_path / "a").iterdir()] == ["p"]
    assert [f.name[0] for f in (tmp_path / "b").iterdir()] == ["."], "another run's may be under way"


@pytest.mark.parametrize("damage", ["gone", "short"])
def test_a_batch_of_which_a_file_is_missing_is_not_committed(tmp_path, damage):
    sink = ParquetSink(tmp_path / "out")
    messages = []
    for partition in range(2):
        writer = sink.writer(3, partition)
        writer.write("a", pa.RecordBatch.from_pydict({"value": [1.0]}))
        messages.append(writer.finish())
    ((_, hidden, size, _),) = messages[1]["files"]
    if damage == "gone":
        Path(hidden).unlink()
    else:
        os.truncate(hidden, size - 1)
    told = "is not there" if damage == "gone" else f"has {size - 1:,} bytes instead of {size:,}"
    with pytest.raises(ConnectorError, match=rf"batch 3 .*{hidden}.*{told}.*{tmp_path}/out must be a folder"):
        sink.commit(3, messages)
    assert not sink.files(), "a part of a batch shows"


# -- what a run gives back ---------------------------------------------------------------------------


def branched():
    made = ro.Dataflow("branched")
    source = made.source("readings", schema={"value": "double"})
    made.sink("out", source.to(t.NoOp(), id="between").to(t.KalmanFilter(), id="a"))
    made.sink("other", source.to(t.RangeFilter(bounds={"value": (0.0, 4.0)}, by=None), id="b"))
    return made


def check_streams_given_back(read, seen):
    """Of a run over ROWS with out in files, other in a function and errors in files."""
    assert read("a")["seq"].to_pylist() == list(range(10))
    assert read("errors")["seq"].to_pylist() == []
    assert "reason" in read("errors").schema.names
    with pytest.raises(KeyError, match=r"'b' went to a CallbackSink, which does not give them back"):
        read("b")
    with pytest.raises(KeyError, match=r"between.* ends in no sink.*flow\.sink"):
        read("between")
    with pytest.raises(KeyError, match=r"no stream .*aa.* did you mean"):
        read("aa")
    assert sum(seen) == 5


def test_streams_are_read_back_from_where_they_ended(tmp_path):
    seen = []
    sinks = {"out": ParquetSink(tmp_path), "other": CallbackSink(lambda s, b: seen.append(b.num_rows))}
    result = branched().run(ROWS, sinks=sinks, batch_size=3, epoch_rows=3)
    check_streams_given_back(result.__getitem__, seen)
    assert result["a"].schema.equals(branched().schemas()["a"])
    assert result.errors.num_rows == 0
    assert branched().run([], sinks=ro.MemorySink())["a"].schema.names == result["a"].schema.names
