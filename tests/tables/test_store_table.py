"""Look-up of table rows in all stores."""

from datetime import timedelta

import pyarrow as pa
import pytest

from riot_ops import ConfigError, Secret
from riot_ops.core.secret import literal_secrets
from riot_ops.tables import StoreTable, store_table
from riot_ops.task import Task
from riot_ops.tasks import InsertTable, Lookup
from tests.tasks.io.test_insert_table import place

__all__ = ["place"]

SCHEMA = {"age": "int64", "ratio": "double", "note": "string", "time": "timestamp[us, tz=UTC]"}


def _lookup(place, keys, **options):
    task = Lookup(table=StoreTable(**place, partition="subjects", row="{id}", schema=SCHEMA), **options)
    session = task.session()
    out = session.push_batch(pa.RecordBatch.from_pydict({"id": pa.array(keys, pa.string())}))
    return out.to_pylist(), [e["reason"] for e in session.errors]


@pytest.fixture
def filled(place):
    rows = [
        {"id": "s1", "age": 30, "ratio": 0.5, "note": "ü", "time": pa.scalar(0, pa.timestamp("us", tz="UTC")).as_py()},
        {"id": "ü/2", "age": 31, "ratio": 2.0, "note": None, "time": None},
    ]
    InsertTable(**place, partition="subjects", row="{id}").session().push_batch(pa.RecordBatch.from_pylist(rows))
    wrong = [{"id": "wrong", "age": "old"}]
    InsertTable(**place, partition="subjects", row="{id}").session().push_batch(pa.RecordBatch.from_pylist(wrong))
    return rows


def test_values_of_known_rows_are_added(place, filled):
    rows, errors = _lookup(place, ["ü/2", "s1", "gone", None, "s1", "wrong", ""], on_missing="reject")
    assert rows == [filled[1], filled[0], filled[0]]
    assert sorted(errors) == ["missing_key", "unknown_key", "unknown_key", "wrong_type"]


def test_unknown_rows_give_nulls(place, filled):
    rows, errors = _lookup(place, ["gone", "s1"], on_missing="null")
    assert rows == [{"id": "gone", **dict.fromkeys(SCHEMA)}, filled[0]] and errors == []


def test_key_is_looked_up_once_per_batch(place, filled, monkeypatch):
    table = StoreTable(**place, partition="subjects", row="{id}", schema={"age": "int64"})
    asked, store = [], table.rows
    get = store.get
    monkeypatch.setattr(store, "get", lambda keys: asked.append(len(set(keys))) or get(keys))
    out = Lookup(table=table).session().push_batch(pa.RecordBatch.from_pydict({"id": ["s1", "ü/2"] * 150}))
    assert out.column("age").to_pylist() == [30, 31] * 150 and asked == [2]


@pytest.mark.parametrize("schema", [{}, {"a": "nonsense"}, {"": "int64"}, "city", None])
def test_wrong_schemas_are_refused(schema):
    with pytest.raises(ConfigError, match="schema"):
        StoreTable(store="memory", table="rows", partition="p", row="{id}", schema=schema)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"on": "id"}, "its partition and row"),
        ({"default": "?"}, "tables of texts"),
        ({"line": "text"}, "tables of texts"),
        ({"coded": True}, "tables of texts"),
        ({"columns": "size"}, "no column 'size'"),
    ],
)
def test_options_of_tables_of_texts_are_refused(options, match):
    table = StoreTable(store="memory", table="rows", partition="p", row="{id}", schema={"age": "int64"})
    with pytest.raises(ConfigError, match=match):
        Lookup(table=table, **options)


def test_wanted_columns_are_renamed(place, filled):
    rows, errors = _lookup(place, ["s1", "wrong"], columns={"years": "age"}, on_missing="drop")
    assert rows == [{"id": "s1", "years": 30}] and errors == ["wrong_type"]
    rows, _ = _lookup(place, ["wrong", "gone", "s1"], columns=("ratio",), on_missing="drop")
    assert rows == [{"id": "wrong", "ratio": None}, {"id": "s1", "ratio": 0.5}], "an unwanted value may have any type"


def test_secret_of_a_store_is_not_written():
    given = {
        "store": "postgresql://me@host/db",
        "table": "rows",
        "partition": "p",
        "row": "{id}",
        "schema": {"a": "int64"},
    }
    value, named = (StoreTable(**given, credential=one) for one in (Secret("s3cr3t"), Secret.env("DB_PASSWORD")))
    assert "s3cr3t" not in repr(Lookup(table=value)) + str(Lookup(table=value).to_dict())
    assert Task.from_dict(Lookup(table=named).to_dict()) == Lookup(table=named)
    assert literal_secrets(Lookup(table=value)) == ["table.credential"] and not literal_secrets(Lookup(table=named))


def test_store_is_opened_with_defaults_or_given_options(monkeypatch):
    monkeypatch.setattr(store_table, "shared_table", lambda *given, **options: (given, options))
    given = {"store": "azure-table://", "table": "rows", "partition": "p", "row": "{seq}", "schema": {"v": "double"}}
    assert StoreTable(**given).rows == (
        ("azure-table://", "rows", None),
        {"retry": timedelta(minutes=1), "max_concurrency": 8},
    )
    table = StoreTable(**given, credential=Secret("x"), retry="7s", max_concurrency=3)
    assert table.rows == (
        ("azure-table://", "rows", Secret("x")),
        {"retry": timedelta(seconds=7), "max_concurrency": 3},
    )


def test_calls_of_a_store_are_not_made_at_once():
    table = StoreTable(store="memory", table="rows", partition="p", row="{id}", schema={"age": "int64"})
    assert not Lookup(table=table).reentrant and Lookup(table={"a": "x"}, on="id", columns="b").reentrant
