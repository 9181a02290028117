"""Small files that are joined: the same records before and after, for all readers, and after a crash at any step."""

from __future__ import annotations

import os
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.folder_lock import LOCK, FolderLock
from riot_ops.core.storage import Address
from riot_ops.core.text_sinks import CSVSink, JSONLinesSink

SCHEMAS = {"out": pa.schema([("text", pa.string()), ("value", pa.int64())])}
SINKS = [ParquetSink, CSVSink, JSONLinesSink]


@pytest.fixture(params=["disk", "store"])
def place(request, tmp_path):
    if request.param == "disk":
        return str(tmp_path / "out")
    return f"memory://{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())}"


def row(n):
    return {"text": (None, "", "ü,\n")[n % 3], "value": n}


def write(sink, batch, rows, partition=0):
    writer = sink.writer(batch, partition)
    for schema in SCHEMAS.values():
        writer.write("out", pa.RecordBatch.from_pylist(rows, schema=schema))
    return writer.finish()


def filled(kind, place, batches=10):
    sink = kind(place).bind(SCHEMAS)
    sink.identify("run")
    sink.begin(False)
    for batch in range(batches):
        messages = [write(sink, batch, [row(2 * batch + part)], part) for part in range(2)]
        sink.commit(batch, messages)
    return sink


def values(kind, place):
    return kind(place).bind(SCHEMAS).table("out")["value"].to_pylist()


def names(kind, place):
    """The files in the folder, also those that do not count."""
    if place.startswith("memory:"):
        found = [one.name for one in Address.of(f"{place}/out", {}).files()]
    else:
        found = os.listdir(f"{place}/out")
    return sorted(re.sub(r"-[0-9a-f]{12}(?=\.)", "", name) for name in found)


@pytest.mark.parametrize("kind", SINKS)
def test_files_are_joined_and_the_records_stay(place, kind):
    filled(kind, place)
    before = kind(place).bind(SCHEMAS).table("out")
    assert kind(place).optimize()["out"] == {"numFilesAdded": 1, "numFilesRemoved": 16}
    open_files = [f"part-{batch:06d}-{part:05d}.{kind.suffix}" for batch in (8, 9) for part in (0, 1)]
    assert names(kind, place) == sorted([f"part-000007-joined-000000.{kind.suffix}", *open_files])
    assert kind(place).bind(SCHEMAS).table("out").equals(before)
    assert kind(place).optimize()["out"] == {"numFilesAdded": 0, "numFilesRemoved": 0}
    flow = ro.Dataflow("again")
    flow.sink("end", flow.source("in", schema={"text": "string", "value": "int64"}))
    assert flow.run(ro.read(f"{place}/out"))["in"]["value"].to_pylist() == list(range(20))


def test_joined_parquet_file_has_one_row_group_and_other_programs_read_it(tmp_path):
    filled(ParquetSink, str(tmp_path))
    ParquetSink(tmp_path, "zstd").optimize()
    (joined,) = (tmp_path / "out").glob("*-joined-*")
    metadata = pq.ParquetFile(joined).metadata
    assert metadata.num_row_groups == 1 and metadata.row_group(0).column(0).compression == "ZSTD"
    found = duckdb.sql(f"select value from '{tmp_path}/out/*.parquet' order by value").fetchall()
    assert [value for (value,) in found] == list(range(20))
    assert not (tmp_path / "out" / LOCK).exists()


def test_target_bytes_bounds_the_files(place):
    sink = filled(CSVSink, place, 30)
    sizes = {}

    def size(path):
        return path.size() if isinstance(path, Address) else path.stat().st_size

    for batch, _, path in sink.files():
        sizes[batch] = sizes.get(batch, 0) + size(path)
    CSVSink(place).optimize(target_bytes=5 * max(sizes.values()))
    joined = [size(path) for _, _, path in CSVSink(place).files() if "joined" in path.name]
    assert 5 <= len(joined) <= 7 and all(one <= 5 * max(sizes.values()) for one in joined)
    assert values(CSVSink, place) == list(range(60))
    CSVSink(place).optimize(target_bytes=1 << 20)
    assert len([name for name in names(CSVSink, place) if "joined" in name]) == 1
    assert values(CSVSink, place) == list(range(60))


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "1MB"])
def test_impossible_size_is_refused(wrong, tmp_path):
    with pytest.raises(ConfigError, match="target_bytes"):
        ParquetSink(tmp_path).optimize(target_bytes=wrong)


def test_folder_without_files_is_left_as_it_is(place):
    assert ParquetSink(place).optimize() == {}


def test_a_running_run_is_refused_on_a_disk(tmp_path):
    sink = filled(ParquetSink, str(tmp_path))
    with FolderLock(sink.folders()), pytest.raises(ConnectorError, match=r"out is in use by this process"):
        ParquetSink(tmp_path).optimize()
    assert len(os.listdir(tmp_path / "out")) == 20


def test_a_running_run_in_a_store_ends_and_continues():
    place = "memory://optimized-while-it-runs"
    running = filled(ParquetSink, place)
    ParquetSink(place).optimize()
    with pytest.raises(ConnectorError, match="another run writes to memory://optimized-while-it-runs now"):
        running.commit(10, [write(running, 10, [row(20)])])
    assert values(ParquetSink, place) == list(range(20))
    again = ParquetSink(place).bind(SCHEMAS)
    again.identify("run")
    again.recover(10)
    again.commit(10, [write(again, 10, [row(20)])])
    assert values(ParquetSink, place) == list(range(21))


def flow():
    made = ro.Dataflow("joined")
    made.sink("end", made.source("out", schema={"text": "string", "value": "int64"}))
    return made


@pytest.mark.parametrize("kind", SINKS)
def test_run_continues_after_its_files_were_joined(place, kind):
    options = {"checkpoint": f"{place}-state", "batch_size": 2, "epoch_rows": 2}
    for count in (12, 20, 21):
        result = flow().run([row(n) for n in range(count)], sinks=kind(place), **options)
        assert result["out"]["value"].to_pylist() == list(range(count))
        kind(place).optimize()
    assert values(kind, place) == list(range(21))
    assert any("joined" in name for name in names(kind, place))
    flow().run([row(0)], sinks=kind(place), overwrite=True)
    assert values(kind, place) == [0] and not any("joined" in name for name in names(kind, place))


def test_run_that_would_write_joined_batches_again_is_refused(place):
    filled(ParquetSink, place)
    ParquetSink(place).optimize()
    for batch in (8, 9, 10):  # that of the newest checkpoint, or of the one before
        sink = ParquetSink(place).bind(SCHEMAS)
        sink.identify("run")
        if batch == 10:
            sink.recover(batch)
    with pytest.raises(ConnectorError, match=r"batch 7, but the file .*-joined-000000.* holds the batches 0 to 7"):
        ParquetSink(place).bind(SCHEMAS).recover(7)
    assert values(ParquetSink, place) == list(range(20))
    sink.recover(8)
    assert values(ParquetSink, place) == list(range(16))


def test_files_with_other_columns_are_not_joined(place):
    sink = filled(ParquetSink, place, 4)
    other = pa.schema([("text", pa.string()), ("value", pa.int64()), ("more", pa.float64())])
    for batch in range(4, 10):
        writer = sink.writer(batch, 0)
        writer.write("out", pa.RecordBatch.from_pylist([row(batch) | {"more": 1.0}], schema=other))
        sink.commit(batch, [writer.finish()])
    ParquetSink(place).optimize()
    assert [name for name in names(ParquetSink, place) if "joined" in name] == [
        "part-000003-joined-000000.parquet",
        "part-000007-joined-000004.parquet",
    ]


def test_damaged_file_is_named_and_nothing_is_removed(tmp_path):
    filled(ParquetSink, str(tmp_path))
    (tmp_path / "out" / "part-000003-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConnectorError, match=r"cannot (read|join) .*part-00000"):
        ParquetSink(tmp_path).optimize()
    assert len([*(tmp_path / "out").iterdir()]) == 20


# -- crashes ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process has gone."""


def kill_at(step, monkeypatch, *functions):
    """End at the step with this number, before it (even) or after it (odd)."""
    count = [0]

    def counted(function):
        def call(*args, **options):
            number, count[0] = count[0], count[0] + 1
            if number == step // 2 and step % 2 == 0:
                raise Killed
            result = function(*args, **options)
            if number == step // 2:
                raise Killed
            return result

        return call

    for owner, name in functions:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


@pytest.mark.parametrize("kind", [ParquetSink, JSONLinesSink])
def test_a_crash_at_any_step_loses_and_doubles_nothing(place, kind, monkeypatch, tmp_path):
    disk = not place.startswith("memory:")
    functions = [(os, "replace"), (Path, "unlink")] if disk else [(Address, "write"), (Address, "delete")]
    for step in range(200):
        here = f"{place}-{step}"
        filled(kind, here, 5)
        with monkeypatch.context() as patch:
            kill_at(step, patch, *functions)
            try:
                kind(here).optimize()
                died = False
            except Killed:
                died = True
        assert values(kind, here) == list(range(10)), step
        assert ro.read(f"{here}/out").schema is not None
        found = flow().run(ro.read(f"{here}/out"))["out"]["value"].to_pylist()
        assert sorted(found) == list(range(10)), step
        if step % 4 < 2:  # the next start removes what was left, or the next call
            sink = kind(here).bind(SCHEMAS)
            sink.identify("run")
            sink.recover(5)
        else:
            kind(here).optimize()
        assert values(kind, here) == list(range(10)), step
        left = [name for name in names(kind, here) if not name.startswith(".riot")]
        assert len(left) == len(kind(here).files()), (step, left)
        if not died:
            break
    assert 10 < step < 199
