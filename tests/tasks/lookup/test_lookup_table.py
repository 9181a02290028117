"""Look-up of table rows in all stores."""

import pyarrow as pa
import pytest

from riot_ops import ConfigError
from riot_ops.tasks import InsertTable, LookupTable
from tests.tasks.io.test_insert_table import place

__all__ = ["place"]

SCHEMA = {"age": "int64", "ratio": "double", "note": "string", "time": "timestamp[us, tz=UTC]"}


def _lookup(place, keys, **options):
    task = LookupTable(**place, partition="subjects", row="{id}", schema=SCHEMA, **options)
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
    rows, errors = _lookup(place, ["ü/2", "s1", "gone", None, "s1", "wrong", ""])
    assert rows == [filled[1], filled[0], filled[0]]
    assert sorted(errors) == ["bad_key", "missing_key", "not_found", "not_found", "wrong_type"][1:]


def test_unknown_rows_give_nulls(place, filled):
    rows, errors = _lookup(place, ["gone", "s1"], missing="null")
    assert rows == [{"id": "gone", **dict.fromkeys(SCHEMA)}, filled[0]] and errors == []


def test_key_is_looked_up_once_per_batch(place, filled, monkeypatch):
    task = LookupTable(**place, partition="subjects", row="{id}", schema={"age": "int64"})
    asked = []
    store = task.rows
    get = store.get
    monkeypatch.setattr(store, "get", lambda keys: asked.append(len(set(keys))) or get(keys))
    out = task.session().push_batch(pa.RecordBatch.from_pydict({"id": ["s1", "ü/2"] * 150}))
    assert out.column("age").to_pylist() == [30, 31] * 150 and asked == [2]


@pytest.mark.parametrize("schema", [{}, {"a": "nonsense"}, {"": "int64"}, "city", None])
def test_wrong_schemas_are_refused(schema):
    with pytest.raises(ConfigError, match="schema"):
        LookupTable(store="memory", table="rows", partition="p", row="{id}", schema=schema)
