"""Inserts into a database, in process and on Spark."""

import os
import sqlite3
from datetime import timedelta

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import ConfigError
from riot_ops import tasks as t
from riot_ops.connectors.stores.sql import SqlTable
from riot_ops.tasks import InsertSQL


def _read(path, query):
    with sqlite3.connect(path) as connection:
        return connection.execute(query).fetchall()


def _insert(task, rows, schema=None):
    session = task.session(ordered=False)
    out = session.push_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
    return out.to_pylist(), {e["seq"]: e["reason"] for e in session.errors}


@pytest.mark.parametrize(("given", "wanted"), [({}, 60), ({"retry": "7s"}, 7)], ids=str)
def test_retry_reaches_the_store(monkeypatch, given, wanted):
    monkeypatch.setattr("riot_ops.tasks.io.insert_sql.shared_client", lambda *_, **options: options)
    task = InsertSQL(store="sqlite://", table="readings", primary_key=("seq",), **given)
    assert task.rows(pa.schema([("seq", pa.int64())])) == {"retry": timedelta(seconds=wanted)}


def test_rows_have_typed_columns(tmp_path):
    task = InsertSQL(store=f"sqlite:///{tmp_path}/a.db", table="readings", primary_key=("seq", "sensor id"))
    rows = [
        {"seq": 0, "sensor id": "ü'\"", "value": 1.5, "list": [1.0]},
        {"seq": 1, "sensor id": None, "value": 1.5, "list": None},
        {"seq": 2, "sensor id": "b", "value": float("nan"), "list": []},
        {"seq": 0, "sensor id": "ü'\"", "value": 2.5, "list": None},
    ]
    out, errors = _insert(task, rows)
    assert [r["value"] for r in out][::2] == [1.5, 2.5] and errors == {1: "missing_key"}
    assert _read(tmp_path / "a.db", 'select seq, "sensor id", value, list from readings order by seq') == [
        (0, "ü'\"", 2.5, None),
        (2, "b", None, "[]"),
    ]


@pytest.mark.parametrize(("rows", "transactions"), [(0, 0), (1, 1), (10, 1), (11, 2), (25, 3)])
def test_batch_is_split_into_transactions(tmp_path, monkeypatch, rows, transactions):
    sizes = []
    write = SqlTable.refusal
    monkeypatch.setattr(SqlTable, "refusal", lambda table, some: sizes.append(len(some)) or write(table, some))
    task = InsertSQL(store=f"sqlite:///{tmp_path}/a.db", table="readings", primary_key=("seq",), batch_size=10)
    _insert(task, [{"seq": i} for i in range(rows)], pa.schema([("seq", pa.int64())]))
    assert len(sizes) == transactions and sum(sizes) == rows


def test_refused_rows_are_rejected_alone(tmp_path):
    schema = pa.schema([("seq", pa.int64()), ("big", pa.uint64())])
    rows = [{"seq": i, "big": 1 << 63 if i in (3, 77) else i} for i in range(100)]
    out, errors = _insert(InsertSQL(store=f"sqlite:///{tmp_path}/a.db", table="x", primary_key=("seq",)), rows, schema)
    assert errors == {3: "refused", 77: "refused"} and len(out) == 98
    assert _read(tmp_path / "a.db", "select count(*) from x") == [(98,)]


def test_refused_row_has_the_reason_of_the_database(tmp_path):
    session = InsertSQL(store=f"sqlite:///{tmp_path}/a.db", table="x", primary_key=("seq",)).session()
    session.push_batch(pa.table({"seq": [0, 1, 2], "big": pa.array([0, 1 << 63, 2], pa.uint64())}))
    (error,) = session.errors
    assert (
        error["seq"] == 1 and "refuses the row: Python int too large to convert to SQLite INTEGER" in error["message"]
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"primary_key": ()},
        {"primary_key": ("a", "a")},
        {"fields": ("b",)},
        {"table": "a b"},
        {"table": ""},
        {"store": "file.db"},
        {"store": "mysql://me:hush@h/d"},
        {"batch_size": 0},
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))) as caught:
        InsertSQL(**{"store": "sqlite://", "table": "x", "primary_key": ("a",), **wrong})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int64())])
def test_keys_of_unsuitable_types_are_refused(kind):
    with pytest.raises(ConfigError, match="'a'"):
        InsertSQL(store="sqlite://", table="x", primary_key=("a",)).output_schema(pa.schema([("a", kind)]))


@pytest.mark.spark
def test_restarted_spark_run_writes_no_duplicates(spark, tmp_path):
    """The rows of the failed micro-batch are in the stores already, and are written again."""
    schema = pa.schema([("seq", pa.int64()), ("sensor", pa.string()), ("text", pa.string())])
    store, flag = f"sqlite:///{tmp_path}/rows.db", str(tmp_path / "flag")

    def pull_the_plug(row):
        if row["seq"] == 77 and not os.path.exists(flag):
            open(flag, "w").close()
            os._exit(1)
        return row

    flow = ro.Dataflow("replay")
    rows = (
        flow.source("in", schema=schema)
        .to(InsertSQL(store=store, table="typed", primary_key=("seq",)), id="sqi")
        .to(t.InsertTable(store=store, table="keyed", partition="{sensor}", row="{seq}"), id="ati")
        .to(t.UploadBlob(store=f"{tmp_path}/blobs", value="text", blob="{seq}", gather="lines/{seq}"), id="abu")
        .to(t.MapFunction(function=pull_the_plug), id="plug")
    )
    flow.sink("out", rows)
    table = pa.table(
        {"seq": range(200), "sensor": [f"s{i % 3}" for i in range(200)], "text": ["ü"] * 200}, schema=schema
    )
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "max_records": 100, "partitions": 1}
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        flow.start(spark, table, **options).wait(timeout="2min")
    assert _read(tmp_path / "rows.db", "select count(*) from typed") == [(100,)]
    query = flow.start(spark, table, **options)
    query.wait(timeout="2min")
    for name in ("typed", "keyed"):
        assert _read(tmp_path / "rows.db", f"select count(*) from {name}") == [(200,)]
    lines = [line for blob in (tmp_path / "blobs" / "lines").iterdir() for line in blob.read_bytes().splitlines()]
    assert len(lines) == len(set(lines)) == 200


@pytest.mark.parametrize(
    ("more", "stored"),
    [
        ({"primary_key": ("seq",)}, ["seq", "word"]),
        ({"primary_key": ("seq", "ordinal")}, ["seq", "word", "ordinal"]),
        ({"primary_key": ("seq",), "fields": ("seq", "ordinal")}, ["seq", "ordinal"]),
    ],
    ids=["whole record", "in the key", "asked for"],
)
def test_ordinals_are_stored_if_asked_for(tmp_path, more, stored):
    task = InsertSQL(store=f"sqlite:///{tmp_path}/a.db", table="words", **more)
    out, errors = _insert(task, [{"seq": 1, "word": "a", "ordinal": 0, "ordinal_2": 3}])
    assert out == [{"seq": 1, "word": "a", "ordinal": 0, "ordinal_2": 3}] and not errors
    assert {row[1] for row in _read(tmp_path / "a.db", "pragma table_info(words)")} == {*stored}
