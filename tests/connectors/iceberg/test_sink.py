"""The Iceberg sink: what other libraries read back, restarts, partitions, fields, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import sys
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import IcebergSink, IcebergSource
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError

pytest.importorskip("pyiceberg")
from pyiceberg.catalog import load_catalog

#: Partition transforms are in a library of their own.
CORE = pytest.mark.skipif(find_spec("pyiceberg_core") is None, reason="pyiceberg-core is not installed")
READINGS = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("bed", pa.string()), ("moisture", pa.float64())])


def settings(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}


def batch(first: int, rows: int, bed: str | None = "a") -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"seq": first + i, "bed": bed, "moisture": 0.5 * (first + i)} for i in range(rows)], READINGS
    )


def started(folder: Path, run: str = "run", *, overwrite: bool = False, schema=READINGS, **options) -> IcebergSink:
    sink = IcebergSink("bronze", catalog=settings(folder), **options).bind({"out": schema})
    sink.identify(run)
    sink.begin(overwrite)
    return sink


def continued(folder: Path, batch_id: int, how: str = "recover") -> IcebergSink:
    sink = IcebergSink("bronze", catalog=settings(folder)).bind({"out": READINGS})
    sink.identify("run")
    getattr(sink, how)(batch_id)
    return sink


def put(sink: IcebergSink, batch_id: int, *batches: pa.RecordBatch, partition: int = 0) -> dict:
    """Write as a worker of Spark does: in another process, with messages that travel as bytes."""
    writer = pickle.loads(pickle.dumps(sink)).writer(batch_id, partition)
    for one in batches:
        writer.write("out", one)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(writer.finish()))


def table(folder: Path):
    return load_catalog("default", **settings(folder)).load_table("bronze.out")


def rows(folder: Path) -> list[int]:
    return sorted(table(folder).scan().to_arrow()["seq"].to_pylist())


def test_all_writers_of_a_batch_are_one_snapshot(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 3)), put(sink, 0, batch(3, 2), partition=1)])
    message = put(sink, 1, batch(5, 1))
    assert rows(tmp_path) == [0, 1, 2, 3, 4], "nothing is visible before the commit"
    sink.commit(1, [message])
    sink.commit(2, [sink.writer(2, 0).finish()])
    snapshots = table(tmp_path).snapshots()
    assert [s.summary["riot-ops.batch"] for s in snapshots] == ["0", "1"]
    assert snapshots[0].summary["riot-ops.run"] == "run/out"
    assert snapshots[0].summary["added-data-files"] == "2"
    assert rows(tmp_path) == list(range(6))


def test_other_libraries_read_the_table(tmp_path):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    sink = started(tmp_path, partition_by="bed")
    sink.commit(0, [put(sink, 0, batch(0, 3), batch(3, 2, "b c/ü%"), batch(5, 1, None))])
    expected = [(i, "a" if i < 3 else "b c/ü%" if i < 5 else None, 0.5 * i) for i in range(6)]
    frame = polars.scan_iceberg(table(tmp_path)).select("seq", "bed", "moisture").sort("seq").collect()
    assert frame.rows() == expected
    found = table(tmp_path).scan().to_arrow()
    assert found.num_rows == 6
    assert duckdb.sql("select seq, bed, moisture from found order by seq").fetchall() == expected
    assert [tuple(r.values()) for r in sink.table("out").select(["seq", "bed", "moisture"]).to_pylist()] == expected
    assert table(tmp_path).scan(row_filter="bed = 'a' and moisture >= 1").to_arrow()["seq"].to_pylist() == [2]


def test_messages_do_not_depend_on_the_attempt(tmp_path):
    sink = started(tmp_path, partition_by="bed")
    batches = [batch(i, 1, bed) for i, bed in enumerate("dcabdcab")]
    assert put(sink, 3, *batches) == put(sink, 3, *batches)


def test_aborted_writer_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr("riot_ops.connectors.iceberg.sink.FILE_BYTES", 1)
    sink = started(tmp_path)
    writer = sink.writer(0, 0)
    writer.write("out", batch(0, 3))
    writer.write("out", batch(3, 3))
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 2
    writer.abort()
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_second_commit_of_a_batch_is_passed_over(tmp_path):
    sink = started(tmp_path)
    message = put(sink, 0, batch(0, 3))
    sink.commit(0, [message])
    sink.commit(0, [message])
    assert rows(tmp_path) == [0, 1, 2]


def test_repeated_batch_on_spark_is_passed_over(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 3))])
    sink.commit(1, [put(sink, 1, batch(3, 2))])
    again = continued(tmp_path, 1, how="resume")
    again.commit(1, [put(again, 1, batch(3, 2))])
    again.commit(2, [put(again, 2, batch(5, 1))])
    assert rows(tmp_path) == list(range(6))
    assert len(table(tmp_path).snapshots()) == 3
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 3, "the second files are removed"


@pytest.mark.parametrize("partition_by", [(), "bed", pytest.param("bucket(4, bed)", marks=CORE)])
def test_epoch_that_is_cut_anew_replaces_the_committed_one(tmp_path, partition_by):
    sink, other = started(tmp_path, partition_by=partition_by), started(tmp_path, run="other")
    sink.commit(0, [put(sink, 0, batch(0, 3))])
    sink.commit(1, [put(sink, 1, batch(3, 2), batch(90, 1, "b"))])  # killed here: the checkpoint is of epoch 1
    other.commit(0, [put(other, 0, batch(100, 2))])
    again = continued(tmp_path, 1)
    assert rows(tmp_path) == [0, 1, 2, 100, 101]
    again = continued(tmp_path, 1)  # killed again
    again.commit(1, [put(again, 1, batch(3, 4))])
    again.commit(2, [put(again, 2, batch(7, 1))])
    assert rows(tmp_path) == [*range(8), 100, 101]


def test_first_micro_batch_is_planned_anew(tmp_path):
    sink = started(tmp_path)
    sink.commit(0, [put(sink, 0, batch(0, 3))])
    again = continued(tmp_path, 0, how="resume")
    again.commit(0, [put(again, 0, batch(0, 5))])
    assert rows(tmp_path) == list(range(5))


def test_new_run_appends_or_overwrites(tmp_path):
    for run, overwrite in (("1", False), ("2", False), ("3", True)):
        sink = started(tmp_path, run=run, overwrite=overwrite)
        sink.commit(0, [put(sink, 0, batch(0, 2))])
        assert rows(tmp_path) == ([0, 0, 1, 1] if run == "2" else [0, 1])


def test_other_writers_between_batches_do_not_disturb(tmp_path):
    sink = started(tmp_path)
    for i in range(2):
        sink.commit(i, [put(sink, i, batch(i, 1))])
        table(tmp_path).append(pa.table(batch(100 + i, 1)).cast(table(tmp_path).schema().as_arrow()))
    assert rows(tmp_path) == [0, 1, 100, 101]


class CrashError(BaseException):
    """A kill: nothing of the program runs after it."""


@pytest.mark.parametrize("step", ["before", "after"])
def test_crash_in_a_commit_loses_and_repeats_nothing(tmp_path, monkeypatch, step):
    records = [{"bed": "ab"[i % 2], "moisture": float(i)} for i in range(30)]

    def run(sinks, epoch_rows=6, **options):
        flow = ro.Dataflow("means")
        readings = flow.source("in", schema={"bed": "string", "moisture": "double"})
        flow.sink("kept", readings.apply(t.KalmanFilter(by=("bed",), value="moisture"), id="out"))
        return flow.run(records, sinks=sinks, epoch_rows=epoch_rows, batch_size=epoch_rows, **options)

    expected = run(ro.MemorySink())["out"].to_pylist()
    with monkeypatch.context() as patched:
        done = IcebergSink._add

        def add(self, table, stream, batch_id, files):
            if (step, batch_id) == ("before", 2):
                raise CrashError
            done(self, table, stream, batch_id, files)
            if (step, batch_id) == ("after", 2):
                raise CrashError

        patched.setattr(IcebergSink, "_add", add)
        with pytest.raises(CrashError):
            run(IcebergSink("bronze", catalog=settings(tmp_path)), checkpoint=tmp_path / "kept")
    run(IcebergSink("bronze", catalog=settings(tmp_path)), 4, checkpoint=tmp_path / "kept")
    assert IcebergSink("bronze", catalog=settings(tmp_path)).table("out").to_pylist() == expected


@pytest.mark.parametrize(
    "by",
    [
        ["day", "price", "bed", "u16", "flag", "at", "small"],
        pytest.param(["hour(at)", "truncate(3, bed)", "bucket(4, u16)", "month(day)"], marks=CORE),
    ],
)
def test_partition_transforms_and_types(tmp_path, by):
    at = dt.datetime(2024, 5, 1, 12, 0, 0, 1, dt.UTC)
    columns = {
        "seq": pa.array([1, 2], pa.int64()),
        "at": pa.array([at, None], pa.timestamp("us", "UTC")),
        "day": pa.array([dt.date(2024, 5, 1), None], pa.date32()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "bed": pa.array(["abcdef", None]).dictionary_encode(),
        "u16": pa.array([65535, None], pa.uint16()),
        "small": pa.array([-1, None], pa.int8()),
        "flag": pa.array([True, None]),
        "list": pa.array([[1, None], None], pa.large_list(pa.uint8())),
        "struct": pa.array([{"a": 1, "b": None}, None], pa.struct([("a", pa.int8()), ("b", pa.string())])),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
    }
    one = pa.RecordBatch.from_pydict(columns)
    sink = started(tmp_path, schema=one.schema, partition_by=by)
    sink.commit(0, [put(sink, 0, one)])
    assert sink.table("out").select(one.schema.names).to_pylist() == one.to_pylist()
    assert table(tmp_path).scan(row_filter="flag = true").to_arrow()["seq"].to_pylist() == [1]
    if by[0] == "day":
        return
    spec = {f.name: str(f.transform) for f in table(tmp_path).spec().fields}
    assert spec == {"at_hour": "hour", "bed_truncate": "truncate[3]", "u16_bucket": "bucket[4]", "day_month": "month"}


def test_new_fields_are_refused_or_added(tmp_path):
    started(tmp_path)
    wider = READINGS.append(pa.field("note", pa.string()))
    with pytest.raises(ConfigError, match=r"the table bronze.out lacks the fields 'note' of stream 'out'"):
        started(tmp_path, run="2", schema=wider)
    sink = started(tmp_path, run="3", schema=wider, on_new_field="add")
    sink.commit(0, [put(sink, 0, pa.RecordBatch.from_pylist([{"seq": 1, "note": "n"}], wider))])
    narrow = started(tmp_path, run="4", schema=pa.schema([("seq", pa.int32())]))
    narrow.commit(0, [put(narrow, 0, pa.RecordBatch.from_pydict({"seq": pa.array([2], pa.int32())}))])
    assert [(r["seq"], r["note"]) for r in narrow.table("out").to_pylist()] == [(1, "n"), (2, None)]


def test_fields_that_do_not_fit_are_refused(tmp_path):
    started(tmp_path, partition_by="bed")
    with pytest.raises(ConfigError, match=r"'moisture' of stream 'out' is string, but in the table bronze.out double"):
        started(tmp_path, schema=pa.schema([("seq", pa.int64()), ("bed", pa.string()), ("moisture", pa.string())]))
    with pytest.raises(ConfigError, match=r"lacks the field 'bed', but the table bronze.out is divided by it"):
        started(tmp_path, schema=pa.schema([("seq", pa.int64())]))
    with pytest.raises(ConfigError, match="uint64"):
        started(tmp_path, schema=pa.schema([("x", pa.uint64())]))


def test_tables_and_properties(tmp_path):
    flow = ro.Dataflow("copy")
    flow.source("in", schema={"value": "double"}).apply(t.NoOp(), id="out").to("kept")
    sink = IcebergSink(
        "bronze",
        catalog=settings(tmp_path),
        tables={"out": "silver.readings", "errors": "rejected"},
        properties={"write.parquet.compression-codec": "gzip"},
    )
    result = flow.run([{"value": 1.0}, {"value": "x"}], sinks=sink)
    assert result["out"].num_rows == result.errors.num_rows == 1
    client = load_catalog("default", **settings(tmp_path))
    assert client.load_table("silver.readings").properties["write.parquet.compression-codec"] == "gzip"
    assert client.load_table("bronze.rejected").scan().count() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namespace": ""}, "namespace must be a name"),
        ({"namespace": "a/b"}, "namespace must be a name"),
        ({"catalog": 1}, "catalog must be the name of a catalogue"),
        ({"catalog": {"token": 1}}, r"catalog\['token'\] must be a text, or a Secret"),
        ({"partition_by": "week(at)"}, "partition_by must be fields, or transforms"),
        ({"partition_by": "bucket(at)"}, "partition_by must be fields, or transforms"),
        ({"on_new_field": "x"}, "on_new_field must be"),
        ({"tables": {"out": "a b"}}, "tables: the table of stream 'out'"),
        ({"properties": {"a": 1}}, "properties must be a mapping"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        IcebergSink(**{"namespace": "bronze", "catalog": settings(tmp_path), **options})


def test_transforms_need_their_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyiceberg_core", None)
    IcebergSink("bronze", catalog=settings(tmp_path), partition_by="bed")
    with pytest.raises(MissingExtraError, match=r"bucket\(4, bed\).*pip install 'riot-ops\[iceberg\]'"):
        IcebergSink("bronze", catalog=settings(tmp_path), partition_by="bucket(4, bed)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": "beds"}, "partition_by: stream 'out' has no field 'beds'; did you mean \"bed\""),
        ({"tables": {"uot": "x"}}, "no stream 'uot' ends in this sink"),
        ({"tables": {"out": "x", "more": "bronze.x"}}, r"the streams 'out' and 'more' would share the table bronze.x"),
    ],
)
def test_options_that_do_not_fit_the_streams_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        IcebergSink("bronze", catalog=settings(tmp_path), **options).bind({"out": READINGS, "more": READINGS})


def test_catalogue_that_cannot_be_reached_is_named_without_secrets(tmp_path):
    given = {"type": "rest", "uri": "http://127.0.0.1:9/", "token": ro.Secret("pa55word")}
    sink = IcebergSink("bronze", catalog=given).bind({"out": READINGS})
    with pytest.raises(
        ConnectorError, match=r"\(Iceberg catalogue http://127.0.0.1:9/\); check the settings"
    ) as caught:
        sink.begin(False)
    assert "pa55word" not in f"{caught.value}{vars(sink)}"
    with pytest.raises(ConnectorError, match="cannot be reached"):
        IcebergSink("bronze", catalog={"type": "sql", "uri": "sqlite:////nowhere/x/y.db", "warehouse": "/x"}).bind(
            {"out": READINGS}
        ).begin(False)


def test_layouts_do_not_show_settings_of_the_store(tmp_path):
    sink = IcebergSink("bronze", catalog=settings(tmp_path) | {"s3.secret-access-key": ro.Secret("pa55word")})
    sink = sink.bind({"out": READINGS})
    sink.begin(False)
    assert "pa55word" not in f"{sink.layouts}{vars(sink)}"
    assert json.loads(sink.layouts["out"].metadata)["format-version"] == 2


def test_folders_that_workers_must_see(tmp_path):
    given = settings(tmp_path)
    assert IcebergSink("bronze", catalog=given).worker_folders() == [tmp_path / "lake"]
    assert IcebergSource("bronze.x", catalog=given).local_files() == [str(tmp_path / "lake")]
    for elsewhere in ("default", given | {"warehouse": "s3://bucket"}, {"type": "rest", "uri": "http://host"}):
        assert IcebergSink("bronze", catalog=elsewhere).worker_folders() == []
        assert IcebergSource("bronze.x", catalog=elsewhere).local_files() == []


def test_repr_shows_arguments_without_secrets(tmp_path):
    catalog = settings(tmp_path) | {"token": ro.Secret("pa55word")}
    shown = repr(IcebergSink("bronze", catalog=catalog, tables={"a": "b"}, partition_by="bed", on_new_field="add"))
    assert "pa55word" not in shown and shown.startswith("IcebergSink('bronze', catalog={'type': 'sql'")
    assert shown.endswith("tables={'a': 'b'}, partition_by=('bed',), on_new_field='add')")
    assert repr(IcebergSink("bronze", catalog="mine")) == "IcebergSink('bronze', catalog='mine')"
