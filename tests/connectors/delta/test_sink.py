"""The Delta sink: what other libraries read back, restarts, partitions, types, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import DeltaSink, DeltaSource
from riot_ops.core.errors import ConfigError, ConnectorError

deltalake = pytest.importorskip("deltalake")
from deltalake import DeltaTable, write_deltalake  # noqa: E402

READINGS = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("bed", pa.string()), ("moisture", pa.float64())])


def batch(first: int, rows: int, bed: str | None = "a") -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"seq": first + i, "bed": bed, "moisture": 0.5 * (first + i)} for i in range(rows)], READINGS
    )


def started(folder: Path, run: str = "run", *, overwrite: bool = False, schema=READINGS, **options) -> DeltaSink:
    sink = DeltaSink(folder, **options).bind({"out": schema})
    sink.identify(run)
    sink.begin(overwrite)
    return sink


def continued(folder: Path, batch_id: int, run: str = "run", how: str = "recover") -> DeltaSink:
    sink = DeltaSink(folder).bind({"out": READINGS})
    sink.identify(run)
    getattr(sink, how)(batch_id)
    return sink


def put(sink: DeltaSink, batch_id: int, *batches: pa.RecordBatch, partition: int = 0) -> dict:
    writer = sink.writer(batch_id, partition)
    for one in batches:
        writer.write("out", one)
    return writer.finish()


def rows(folder: Path) -> list[int]:
    return sorted(pa.table(DeltaTable(str(folder / "out")).scan().read_all())["seq"].to_pylist())


def adds(folder: Path) -> list[dict]:
    return pa.table(DeltaTable(str(folder / "out")).get_add_actions()).to_pylist()


# -- what is committed -----------------------------------------------------------------------------


def test_all_writers_of_a_batch_are_one_version(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 3)), put(sink, 0, batch(3, 2), partition=1)])
    sink.commit(1, [put(sink, 1, batch(5, 1))])
    table = DeltaTable(str(tmp_path / "out"))
    assert table.version() == 2, "created, and a version per batch"
    assert rows(tmp_path) == list(range(6))
    last = table.history(1)[0]
    assert (last["operation"], last["riotOpsRun"], last["riotOpsBatch"]) == ("WRITE", "run", "1")
    assert table.transaction_version("riot_ops/run/out") == 1


def test_nothing_is_visible_before_the_commit(tmp_path):
    sink = started(tmp_path)
    message = put(sink, 0, batch(0, 3))
    assert rows(tmp_path) == []
    sink.commit(0, [message])
    assert rows(tmp_path) == [0, 1, 2]


def test_batch_without_records_makes_no_version(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [sink.writer(0, 0).finish()])
    assert DeltaTable(str(tmp_path / "out")).version() == 0


def test_aborted_writer_leaves_no_files(tmp_path):
    sink = started(tmp_path, partition_by="bed")
    writer = sink.writer(0, 0)
    writer.write("out", batch(0, 3))
    writer._flush("out")
    assert list((tmp_path / "out").rglob("*.tmp"))
    writer.abort()
    assert not [path for path in (tmp_path / "out").rglob("part-*") if path.is_file()]


def test_messages_do_not_depend_on_the_attempt(tmp_path):
    sink = started(tmp_path)
    assert put(sink, 3, batch(0, 3)) == put(sink, 3, batch(0, 3))
    sink.commit(3, [put(sink, 3, batch(0, 3))])
    assert rows(tmp_path) == [0, 1, 2]


def test_statistics_are_those_of_the_values(tmp_path):
    at = [dt.datetime(2024, 5, 1, 12, 0, 0, us, dt.UTC) for us in (1, 1500)]
    schema = pa.schema(
        [("seq", pa.int64()), ("x", pa.float64()), ("n", pa.float64()), ("at", pa.timestamp("us", "UTC")),
         ("text", pa.string()), ("day", pa.date32()), ("flag", pa.bool_()), ("many", pa.list_(pa.int64()))]
    )  # fmt: skip
    sink = started(tmp_path, schema=schema)
    found = [
        {"seq": 7, "x": 1.5, "n": float("nan"), "at": at[0], "text": "b" * 40, "day": dt.date(2024, 5, 1), "many": [1]},
        {"seq": 3, "x": None, "n": 2.0, "at": at[1], "text": "a", "day": dt.date(2024, 5, 3), "flag": True},
    ]
    sink.commit(0, [put(sink, 0, pa.RecordBatch.from_pylist(found, schema))])
    log = (tmp_path / "out" / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    (stats,) = [json.loads(json.loads(line)["add"]["stats"]) for line in log if '"add"' in line]
    assert stats["numRecords"] == 2
    assert stats["minValues"] == {
        "seq": 3, "x": 1.5, "n": 2.0, "at": "2024-05-01T12:00:00.000Z", "text": "a", "day": "2024-05-01",
    }  # fmt: skip
    assert stats["maxValues"] == {
        "seq": 7, "x": 1.5, "at": "2024-05-01T12:00:00.002Z", "text": "b" * 32 + "\U0010ffff", "day": "2024-05-03",
    }  # fmt: skip
    assert stats["nullCount"] == {"seq": 0, "x": 1, "n": 0, "at": 0, "text": 0, "day": 0, "flag": 1}


@pytest.mark.parametrize(
    "text", ["𠮷野家", "a" * 32 + "b", "a" * 32 + "\U0010ffff" * 3, "a" * 32 + "\U0010ffff" * 3 + "b"]
)
def test_readers_find_texts_by_the_statistics(tmp_path, text):
    polars = pytest.importorskip("polars")
    sink = started(tmp_path, schema=pa.schema([("text", pa.string())]))
    sink.commit(0, [put(sink, 0, pa.RecordBatch.from_pydict({"text": ["a", text]}))])
    address = str(tmp_path / "out")
    assert DeltaTable(address).to_pyarrow_table(filters=[("text", "=", text)]).num_rows == 1
    assert polars.scan_delta(address).filter(polars.col("text") == text).collect().height == 1


def test_other_libraries_read_the_table(tmp_path):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    sink = started(tmp_path, partition_by="bed")
    sink.commit(0, [put(sink, 0, batch(0, 3), batch(3, 2, "b"), batch(5, 1, None))])
    expected = [(i, "a" if i < 3 else "b" if i < 5 else None, 0.5 * i) for i in range(6)]
    address = str(tmp_path / "out")
    frame = polars.scan_delta(address).select("seq", "bed", "moisture").sort("seq").collect()
    assert frame.rows() == expected
    dataset = DeltaTable(address).to_pyarrow_dataset()
    assert dataset.count_rows() == 6
    assert duckdb.sql("select seq, bed, moisture from dataset order by seq").fetchall() == expected
    assert [tuple(row.values()) for row in sink.table("out").select(["seq", "bed", "moisture"]).to_pylist()] == expected


# -- restarts ----------------------------------------------------------------------------------------


def test_second_commit_of_a_batch_is_passed_over(tmp_path):
    sink = started(tmp_path)
    message = put(sink, 0, batch(0, 3))
    sink.commit(0, [message])
    sink.commit(0, [message])  # as after an interrupt
    assert rows(tmp_path) == [0, 1, 2]
    assert DeltaTable(str(tmp_path / "out")).version() == 1


def test_repeated_batch_on_spark_is_passed_over(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 3))])
    sink.commit(1, [put(sink, 1, batch(3, 2))])  # killed here: Spark has no commit of batch 1
    version = DeltaTable(str(tmp_path / "out")).version()
    again = continued(tmp_path, 1, how="resume")
    again.commit(1, [put(again, 1, batch(3, 2))])
    assert DeltaTable(str(tmp_path / "out")).version() == version, "readers of versions see nothing of it"
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2, "its second files are removed"
    again.commit(2, [put(again, 2, batch(5, 1))])
    assert rows(tmp_path) == list(range(6))


def test_epoch_that_is_cut_anew_replaces_the_committed_one(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 3))])
    sink.commit(1, [put(sink, 1, batch(3, 2))])  # killed here: the checkpoint is of epoch 1
    again = continued(tmp_path, 1)
    assert rows(tmp_path) == [0, 1, 2]
    again.commit(1, [put(again, 1, batch(3, 4))])
    again.commit(2, [put(again, 2, batch(7, 1))])
    assert rows(tmp_path) == list(range(8))


def test_first_micro_batch_is_planned_anew(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 3))])
    again = continued(tmp_path, 0, how="resume")
    again.commit(0, [put(again, 0, batch(0, 5))])
    assert rows(tmp_path) == list(range(5))


def test_recovery_keeps_what_others_wrote(tmp_path):
    sink, other = started(tmp_path), started(tmp_path, run="other")
    sink.commit(0, [put(sink, 0, batch(0, 1))])
    other.commit(0, [put(other, 0, batch(100, 2))])
    write_deltalake(str(tmp_path / "out"), pa.table(batch(200, 1)), mode="append")
    continued(tmp_path, 0)
    assert rows(tmp_path) == [100, 101, 200]


def test_new_run_is_not_taken_for_an_earlier_one(tmp_path):
    for run in ("first", "second"):
        sink = started(tmp_path, run=run)
        sink.commit(0, [put(sink, 0, batch(0, 2))])
    assert rows(tmp_path) == [0, 0, 1, 1]


def test_overwrite_replaces_the_records(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 2))])
    other = started(tmp_path, run="second", overwrite=True)
    other.commit(0, [put(other, 0, batch(7, 1))])
    assert rows(tmp_path) == [7]
    assert pa.table(DeltaTable(str(tmp_path / "out"), version=1).scan().read_all()).num_rows == 2, "history stays"


def test_rewritten_batch_cannot_be_taken_back(tmp_path):
    sink = started(tmp_path)
    for i in range(2):
        sink.commit(i, [put(sink, i, batch(i, 1))])
    DeltaTable(str(tmp_path / "out")).optimize.compact()
    with pytest.raises(ConnectorError, match="rewritten since: restore the table"):
        continued(tmp_path, 1)


def test_other_writers_between_batches_do_not_disturb(tmp_path):
    sink = started(tmp_path)
    for i in range(3):
        sink.commit(i, [put(sink, i, batch(i, 1))])
        write_deltalake(str(tmp_path / "out"), pa.table(batch(100 + i, 1)), mode="append")
    assert rows(tmp_path) == [0, 1, 2, 100, 101, 102]


def test_commit_after_another_program_added_a_column(tmp_path):
    sink = started(tmp_path)
    message = put(sink, 0, batch(0, 1))
    DeltaTable(str(tmp_path / "out")).alter.add_columns(
        list(deltalake.Schema.from_arrow(pa.schema([("note", pa.string())])).fields)
    )
    sink.commit(0, [message])
    assert pa.table(DeltaTable(str(tmp_path / "out")).scan().read_all())["note"].to_pylist() == [None]


def averages(folder: Path) -> ro.Dataflow:
    flow = ro.Dataflow("averages")
    readings = flow.source("in", schema={"bed": "string", "moisture": "double"})
    flow.sink("kept", readings.apply(t.MovingAverage(by=("bed",), value="moisture", window=3, partial=True), id="out"))
    return flow


class CrashError(BaseException):
    """A kill: nothing of the program runs after it."""


@pytest.mark.parametrize("step", ["add", "added", "sync"])
@pytest.mark.parametrize("epoch", [0, 2])
def test_crash_at_any_step_of_a_commit_loses_and_repeats_nothing(tmp_path, monkeypatch, step, epoch):
    records = [{"bed": "ab"[i % 2], "moisture": float(i)} for i in range(40)]
    expected = averages(tmp_path).run(records)["out"].to_pylist()

    def run(epoch_rows):
        sink = DeltaSink(tmp_path / "lake")
        return averages(tmp_path).run(
            records, sinks=sink, checkpoint=tmp_path / "kept", epoch_rows=epoch_rows, batch_size=epoch_rows
        )

    with monkeypatch.context() as patched:
        done = {"add": DeltaSink._add, "sync": DeltaSink.sync}

        def add(self, table, stream, batch_id, files):
            if step == "add" and batch_id == epoch:
                raise CrashError
            done["add"](self, table, stream, batch_id, files)
            if step == "added" and batch_id == epoch:
                raise CrashError

        def flush(self, batch_id):
            if step == "sync" and batch_id == epoch:
                raise CrashError
            done["sync"](self, batch_id)

        patched.setattr(DeltaSink, "_add", add)
        patched.setattr(DeltaSink, "sync", flush)
        with pytest.raises(CrashError):
            run(6)
    run(4)
    assert DeltaSink(tmp_path / "lake").table("out").to_pylist() == expected


KILLED = """
import os, sys
import riot_ops as ro
from riot_ops.connectors import DeltaSink
from tests.connectors.delta.test_sink import averages
from pathlib import Path

folder, kill_at = Path(sys.argv[1]), int(sys.argv[2])
saved = ro.connectors.DeltaSink._add
def add(self, table, stream, batch_id, files):
    saved(self, table, stream, batch_id, files)
    if batch_id == kill_at:
        os.kill(os.getpid(), 9)
ro.connectors.DeltaSink._add = add
records = [{"bed": "ab"[i % 2], "moisture": float(i)} for i in range(40)]
averages(folder).run(records, sinks=DeltaSink(folder / "lake"), checkpoint=folder / "kept", epoch_rows=6, batch_size=6)
"""


@pytest.mark.long
def test_kill_between_commit_and_checkpoint(tmp_path):
    def run(kill_at):
        command = [sys.executable, "-c", KILLED, str(tmp_path), str(kill_at)]
        paths = os.pathsep.join(p for p in (str(Path.cwd()), *sys.path) if p)
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=False).returncode

    assert run(3) == -signal.SIGKILL
    assert run(-1) == 0
    expected = averages(tmp_path).run([{"bed": "ab"[i % 2], "moisture": float(i)} for i in range(40)])
    assert DeltaSink(tmp_path / "lake").table("out").to_pylist() == expected["out"].to_pylist()


# -- partitions ----------------------------------------------------------------------------------------

PLACES = ["a", "a b", "ü/:=%?#", "..", "x" * 60, "", None, "a\nb", "__HIVE_DEFAULT_PARTITION__"]


def test_special_characters_in_partition_values(tmp_path):
    polars = pytest.importorskip("polars")
    sink = started(tmp_path, partition_by=["bed"])
    sink.commit(0, [put(sink, 0, *(batch(i, 1, bed) for i, bed in enumerate(PLACES)))])
    # Delta has neither an empty text nor Hive's name of null as a partition's value
    expected = [(i, None if i in (5, 8) else bed) for i, bed in enumerate(PLACES)]
    found = sink.table("out")
    assert list(zip(found["seq"].to_pylist(), found["bed"].to_pylist(), strict=True)) == expected
    assert polars.scan_delta(str(tmp_path / "out")).select("seq", "bed").sort("seq").collect().rows() == expected
    assert all(tmp_path in path.resolve().parents for path in (tmp_path / "out").rglob("*.parquet"))


def test_partition_values_of_other_types(tmp_path):
    schema = pa.schema(
        [("seq", pa.int64()), ("n", pa.int32()), ("day", pa.date32()), ("flag", pa.bool_()),
         ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(6, 2))]
    )  # fmt: skip
    values = [
        {"n": -3, "day": dt.date(2024, 5, 1), "flag": True, "at": dt.datetime(2024, 5, 1, 12, 0, 0, 1, dt.UTC)},
        {"n": None, "day": dt.date(1950, 1, 1), "flag": False, "price": Decimal("-1.50")},
    ]
    records = [{name: row.get(name) for name in schema.names} | {"seq": i} for i, row in enumerate(values)]
    sink = started(tmp_path, schema=schema, partition_by=["n", "day", "flag", "at", "price"])
    sink.commit(0, [put(sink, 0, pa.RecordBatch.from_pylist(records, schema))])
    assert sink.table("out").select(schema.names).to_pylist() == records
    assert len(adds(tmp_path)) == 2


def test_more_partitions_than_open_files(tmp_path, monkeypatch):
    monkeypatch.setattr("riot_ops.connectors.delta.data_files.MAX_OPEN", 2)
    monkeypatch.setattr("riot_ops.connectors.delta.sink.ROW_GROUP_ROWS", 4)
    sink = started(tmp_path, partition_by="bed")
    sink.commit(0, [put(sink, 0, *(batch(i, 1, "abcd"[i % 4]) for i in range(12)))])
    assert rows(tmp_path) == list(range(12))
    assert len(adds(tmp_path)) > 4


def test_order_within_a_partition_stays(tmp_path):
    sink = started(tmp_path, partition_by="bed")
    sink.commit(0, [put(sink, 0, *(batch(i, 1, "ab"[i % 2]) for i in range(10)))])
    (path,) = (tmp_path / "out" / "bed=b").glob("*.parquet")
    assert pq.ParquetFile(path).read()["seq"].to_pylist() == [1, 3, 5, 7, 9]


# -- fields and types ------------------------------------------------------------------------------------


def test_types_keep_their_values(tmp_path):
    at = dt.datetime(2024, 5, 1, 12, 0, tzinfo=dt.UTC)
    columns = {
        "seq": pa.array([1], pa.int64()),
        "u8": pa.array([255], pa.uint8()),
        "u16": pa.array([65535], pa.uint16()),
        "u32": pa.array([2**32 - 1], pa.uint32()),
        "f16": pa.array([1.5], pa.float16()),
        "ms": pa.array([at], pa.timestamp("ms", "Europe/Berlin")),
        "local": pa.array([at.replace(tzinfo=None)], pa.timestamp("s")),
        "text": pa.array(["a"]).dictionary_encode(),
        "large": pa.array(["b"], pa.large_string()),
        "view": pa.array(["c"], pa.string_view()),
        "bytes": pa.array([b"ab"], pa.binary(2)),
        "price": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        "list": pa.array([[1, None]], pa.large_list(pa.uint8())),
        "struct": pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int8()), ("b", pa.string())])),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
    }
    one = pa.RecordBatch.from_pydict(columns)
    sink = started(tmp_path, schema=one.schema)
    sink.commit(0, [put(sink, 0, one)])
    assert sink.table("out").select(one.schema.names).to_pylist() == one.to_pylist()


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [
        (pa.uint64(), "cast it to int64"),
        (pa.time64("us"), "as text or as a number"),
        (pa.duration("us"), "number of seconds"),
        (pa.timestamp("ns", "UTC"), "microseconds"),
        (pa.list_(pa.uint64()), "cast it to int64"),
        (pa.null(), "convert or drop"),
        (pa.decimal256(50, 2), "convert or drop"),
    ],
)
def test_types_that_delta_lacks_are_refused(tmp_path, dtype, remedy):
    with pytest.raises(ConfigError, match=rf"stream 'out': the field 'x.*{remedy}"):
        DeltaSink(tmp_path).bind({"out": pa.schema([("x", dtype)])})


@pytest.mark.parametrize("names", [["a b"], ["a", "A"], ["x=y"], [""]])
def test_names_that_delta_lacks_are_refused(tmp_path, names):
    with pytest.raises(ConfigError, match="stream 'out'"):
        DeltaSink(tmp_path).bind({"out": pa.schema([(name, pa.int64()) for name in names])})


def test_new_fields_are_refused_or_added(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 1))])
    wider = READINGS.append(pa.field("note", pa.string())).append(pa.field("more", pa.int64()))
    with pytest.raises(ConfigError, match=r"lacks the fields 'note', 'more' of stream 'out'.*on_new_field='add'"):
        started(tmp_path, run="2", schema=wider)
    other = started(tmp_path, run="3", schema=wider, on_new_field="add")
    records = pa.RecordBatch.from_pylist([{"seq": 1, "bed": "a", "moisture": 1.0, "note": "n", "more": 2}], wider)
    other.commit(0, [put(other, 0, records)])
    assert sorted(r["note"] or "" for r in other.table("out").to_pylist()) == ["", "n"]


def test_fields_that_the_table_has_beyond_become_null_and_types_widen(tmp_path):
    wide = pa.schema([("note", pa.string()), ("seq", pa.int64()), ("bed", pa.string()), ("moisture", pa.float64())])
    DeltaTable.create(str(tmp_path / "out"), wide)
    narrow = pa.schema([("seq", pa.int32()), ("moisture", pa.float32())])
    sink = started(tmp_path, schema=narrow)
    sink.commit(0, [put(sink, 0, pa.RecordBatch.from_pylist([{"seq": 1, "moisture": 0.5}], narrow))])
    assert sink.table("out").to_pylist() == [{"note": None, "seq": 1, "bed": None, "moisture": 0.5}]


def test_table_that_does_not_fit_is_refused(tmp_path):
    DeltaTable.create(str(tmp_path / "out"), pa.schema([("seq", pa.int64()), ("moisture", pa.int32())]))
    with pytest.raises(ConfigError, match=r"'moisture' of stream 'out' is double, but in the Delta table .* int32"):
        started(tmp_path, schema=pa.schema([("seq", pa.int64()), ("moisture", pa.float64())]))
    schema = pa.schema([("seq", pa.int64()), pa.field("place", pa.string(), nullable=False)])
    DeltaTable.create(str(tmp_path / "strict" / "out"), schema)
    with pytest.raises(ConfigError, match=r"lacks the field 'place'.*does not allow null"):
        started(tmp_path / "strict", schema=pa.schema([("seq", pa.int64())]))
    DeltaTable.create(str(tmp_path / "cut" / "out"), READINGS, partition_by=["bed"])
    with pytest.raises(ConfigError, match=r"partition_by is moisture2, but .* is divided by bed"):
        started(tmp_path / "cut", partition_by="moisture2", schema=READINGS.append(pa.field("moisture2", pa.int64())))


def test_table_keeps_its_partitions(tmp_path):
    DeltaTable.create(str(tmp_path / "out"), READINGS, partition_by=["bed"])
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 1))])
    assert adds(tmp_path)[0]["path"].startswith("bed=a/")


def test_table_with_a_constraint_is_refused(tmp_path):
    DeltaTable.create(str(tmp_path / "out"), READINGS).alter.add_constraint({"wet": "moisture > 0"})
    with pytest.raises(ConnectorError, match=r"has a constraint \(delta.constraints.wet\)"):
        started(tmp_path)


# -- options and errors ------------------------------------------------------------------------------------


def test_options_reach_the_table(tmp_path):
    sink = started(tmp_path, compression="zstd", properties={"delta.checkpointInterval": "2"})
    for i in range(3):
        sink.commit(i, [put(sink, i, batch(i, 1))])
    table = DeltaTable(str(tmp_path / "out"))
    assert table.metadata().configuration == {"delta.checkpointInterval": "2"}
    assert list((tmp_path / "out" / "_delta_log").glob("*.checkpoint.parquet"))
    path = next((tmp_path / "out").glob("*.parquet"))
    assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"


def test_streams_have_tables_of_their_own(tmp_path):
    flow = averages(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    sink = DeltaSink(tmp_path / "lake", tables={"out": "bronze/averages", "errors": str(elsewhere)})
    result = flow.run([{"bed": "a", "moisture": 1.0}, {"bed": "a", "moisture": "dry"}], sinks=sink)
    assert DeltaTable(str(tmp_path / "lake" / "bronze" / "averages")).count() == 1
    assert DeltaTable(str(elsewhere)).count() == 1
    assert result["out"].num_rows == 1
    assert result.errors["reason"].to_pylist() == ["wrong_type"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": "hdfs://host/x"}, "folder is an address of the kind hdfs:"),
        ({"folder": "s3://me:secret@bucket/x"}, "folder must not hold credentials"),
        ({"on_new_field": "drop"}, "on_new_field must be 'refuse' or 'add'"),
        ({"compression": "zip"}, "compression must be one of"),
        ({"properties": {"a": 1}}, "properties must be a mapping of text to text"),
        ({"tables": {"out": ""}}, "tables: the table of stream 'out'"),
        ({"tables": {"out": "../x"}}, "tables: the table of stream 'out'"),
        ({"storage_options": {"key": 1}}, r"storage_options\['key'\] must be a text, or a Secret"),
        ({"storage_options": "key"}, "storage_options must be a mapping"),
        ({"partition_by": (1,)}, "partition_by must be names"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        DeltaSink(**{"folder": tmp_path, **options})
    assert "secret" not in str(caught.value).replace("Secret", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": "beds"}, "partition_by: stream 'out' has no field 'beds'; did you mean \"bed\""),
        ({"partition_by": ("seq", "bed", "moisture")}, "moisture.* is double; it must be text"),
        ({"tables": {"uot": "x"}}, "no stream 'uot' ends in this sink; did you mean"),
        ({"tables": {"out": "x", "more": "x"}}, "the streams 'out' and 'more' would share"),
    ],
)
def test_options_that_do_not_fit_the_streams_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        DeltaSink(tmp_path, **options).bind({"out": READINGS, "more": READINGS})


def test_missing_file_of_a_worker_is_refused_before_the_commit(tmp_path):
    sink = started(tmp_path)
    message = put(sink, 0, batch(0, 1))
    next((tmp_path / "out").glob("*.parquet")).unlink()
    with pytest.raises(ConnectorError, match=r"batch 0 is incomplete: .* is missing. On a cluster"):
        sink.commit(0, [message])
    assert rows(tmp_path) == []


def test_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConnectorError, match=f"the Delta table {tmp_path}/file/out cannot be created"):
        started(tmp_path / "file")


def test_secrets_of_a_store_are_not_shown(tmp_path):
    sink = DeltaSink("s3://bucket/lake", storage_options={"aws_secret_access_key": ro.Secret("pa55word")})
    assert "pa55word" not in repr(sink.location) + repr(vars(sink))


def test_folders_that_workers_must_see(tmp_path):
    sink = DeltaSink(tmp_path / "lake", tables={"out": f"file://{tmp_path}/x", "more": "s3://bucket/more"})
    assert sink.worker_folders() == [tmp_path / "lake", tmp_path / "x"]
    assert DeltaSink("s3://bucket/lake").worker_folders() == []
    assert DeltaSource(tmp_path).local_files() == [str(tmp_path)]
    assert DeltaSource("s3://bucket/lake").local_files() == []


# -- care ----------------------------------------------------------------------------------------------


def test_optimize_joins_files_and_vacuum_removes_them(tmp_path):
    sink = started(tmp_path)
    for i in range(4):
        sink.commit(i, [put(sink, i, batch(i, 1))])
    left = put(sink, 4, batch(9, 1))  # never committed
    care = DeltaSink(tmp_path)
    address = str(tmp_path / "out")
    assert care.optimize()[address]["numFilesRemoved"] == 4
    assert len(adds(tmp_path)) == 1
    planned = care.vacuum(older_than="0s", dry_run=True)[address]
    assert len(planned) == 5
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 6
    assert len(care.vacuum(older_than="0s")[address]) == 5
    assert not (tmp_path / "out" / left["files"][0][1]).exists()
    assert rows(tmp_path) == [0, 1, 2, 3]
    assert care.vacuum(older_than="30d")[address] == []


def test_z_order_arranges_the_records(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 2, "b"), batch(2, 2, "a"))])
    sink.commit(1, [put(sink, 1, batch(4, 1, "a"))])
    DeltaSink(tmp_path).optimize(z_order="bed")
    (path,) = [one["path"] for one in adds(tmp_path)]
    assert pq.ParquetFile(tmp_path / "out" / path).read()["bed"].to_pylist() == ["a", "a", "a", "b", "b"]


def test_target_bytes_limits_the_files(tmp_path):
    sink = started(tmp_path)
    for i in range(4):
        sink.commit(i, [put(sink, i, batch(10 * i, 10))])
    DeltaSink(tmp_path).optimize(target_bytes=1)
    assert len(adds(tmp_path)) == 4


def test_repr_shows_arguments_without_secrets():
    options = {
        "aws_region": "x",
        "aws_secret_access_key": ro.Secret("pa55word"),
        "aws_session_token": ro.Secret("pa55word"),
    }
    shown = repr(DeltaSink("s3://lake/a", partition_by="bed", compression="zstd", storage_options=options))
    assert shown == (
        "DeltaSink('s3://lake/a', compression='zstd', storage_options={'aws_region': 'x', "
        "'aws_secret_access_key': Secret('***'), 'aws_session_token': Secret('***')}, partition_by=('bed',))"
    )
    assert repr(DeltaSink("/lake")) == "DeltaSink('/lake')"
