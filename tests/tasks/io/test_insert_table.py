"""Inserts into tables in all stores."""

import datetime as dt
import uuid

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import ConfigError, Secret
from riot_ops.connectors.stores import open_table
from riot_ops.tasks import InsertTable
from riot_ops.testing import ABORT, ScriptedSource

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("seq", pa.int64()), ("event_time", TIME), ("sensor_id", pa.string()), ("value", pa.float64())])


@pytest.fixture(params=["sqlite", "memory", pytest.param("azure", marks=pytest.mark.integration)])
def place(request, tmp_path):
    name = f"t{uuid.uuid4().hex}"
    if request.param != "azure":
        return {"store": "memory" if request.param == "memory" else f"sqlite:///{tmp_path}/rows.db", "table": name}
    credential = Secret(request.getfixturevalue("azurite").connection)
    open_table("azure-table://", name, credential).create()
    return {"store": "azure-table://", "table": name, "credential": credential}


def _batch(rows):
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in rows], schema=SCHEMA)


def _time(ms):
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=ms)


@pytest.mark.long
def test_rows_are_stored_under_their_keys(place):
    task = InsertTable(**place, partition="city", row="{event_time:ms}|{sensor_id}")
    session = task.session()
    rows = [
        (0, _time(1422748800000), "ü/1", 1.5),
        (1, _time(-1), "", None),
        (2, None, "a", 1.0),
        (3, _time(0), "x" * 500, 1.0),
        (4, _time(0), "a", float("inf")),
        (5, _time(0), "a", float("nan")),
    ]
    out = session.push_batch(_batch(rows))
    assert [row["seq"] for row in out.to_pylist()] == [0, 1, 5]
    assert {e["seq"]: e["reason"] for e in session.errors} == {2: "missing_key", 3: "bad_key", 4: "not_finite"}
    assert [(r.row, r.values) for r in task.rows.range("city", "!", "~")] == [
        ("-99999999999999999999|", {"seq": 1, "event_time": _time(-1), "sensor_id": ""}),
        ("00000000000000000000|a", {"seq": 5, "event_time": _time(0), "sensor_id": "a"}),
        (
            "00000001422748800000|=C3=BC=2F1",
            {"seq": 0, "event_time": _time(1422748800000), "sensor_id": "ü/1", "value": 1.5},
        ),
    ]


def test_repeated_batch_changes_nothing(place):
    task = InsertTable(**place, partition="{sensor_id}", row="{seq}", fields=("value",))
    batch = _batch([(i, _time(i), f"s{i % 3}", i / 2) for i in range(250)])
    for _ in range(2):
        assert task.session().push_batch(batch).equals(batch)
    for s in range(3):
        found = task.rows.range(f"s{s}", "0", "9")
        assert [r.values for r in found] == [{"value": i / 2} for i in range(250) if i % 3 == s]


def test_restarted_run_leaves_each_row_once(tmp_path):
    store = f"sqlite:///{tmp_path}/rows.db"
    flow = ro.Dataflow("ati")
    inserted = flow.source("in", schema=SCHEMA).to(
        InsertTable(store=store, table="rows", partition="{sensor_id}", row="{seq}"), id="ati"
    )
    flow.sink("out", inserted)
    rows = [(i, _time(i), f"s{i % 3}", i / 2) for i in range(1000)]
    source = ScriptedSource([_batch(rows[:450]), ABORT, _batch(rows[450:800]), ABORT, _batch(rows[800:])])
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "epoch_rows": 300, "batch_size": 70}
    crashes = 0
    while True:
        try:
            flow.run(source, **options)
            break
        except ro.ConnectorError as error:
            assert "ABORT" in str(error)
            crashes += 1
    assert crashes == 2
    table = open_table(store, "rows")
    found = [r.values["seq"] for s in range(3) for r in table.range(f"s{s}", "0", "9")]
    assert len(found) == 1000 and set(found) == set(range(1000))


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": "a b"},
        {"row": "{"},
        {"row": "{seq}/{ordinal}"},
        {"partition": ""},
        {"batch_size": 0},
        {"batch_size": 101},
        {"store": "postgresql://me:hush@h/d"},
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))) as caught:
        InsertTable(**{"store": "memory", "table": "rows", "partition": "p", "row": "{seq}", **wrong})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["PartitionKey", "a b", "ü", "Timestamp"])
def test_unsupported_field_names_are_refused(name):
    task = InsertTable(store="memory", table="rows", partition="p", row="{seq}")
    with pytest.raises(ConfigError, match=f"'{name}'"):
        task.output_schema(pa.schema([("seq", pa.int64()), (name, pa.int64())]))
    task.replace(fields=("seq",)).output_schema(pa.schema([("seq", pa.int64()), (name, pa.int64())]))


@pytest.mark.parametrize(
    ("fields", "stored"), [(None, {"n": 1, "word": "a"}), (("word", "ordinal"), {"word": "a", "ordinal": 7})]
)
def test_ordinals_are_stored_if_asked_for(fields, stored):
    task = InsertTable(store="memory", table=f"t{uuid.uuid4().hex}", partition="p", row="{n}", fields=fields)
    row = {"n": 1, "word": "a", "ordinal": 7, "ordinal_2": 3}
    assert task.session(ordered=False).push_batch(pa.RecordBatch.from_pylist([row])).to_pylist() == [row]
    assert [found.values for found in task.rows.range("p", "!", "~")] == [stored]
