"""Joins with a static table against a dict."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.models.markov import load_model
from tests.search import depth

texts = st.text("ab,ü\0", max_size=3)


@settings(max_examples=depth(25))
@given(
    st.dictionaries(texts, st.tuples(texts, texts), min_size=1, max_size=6),
    st.lists(texts | st.none(), max_size=20),
    st.sampled_from(["drop", "null", "reject"]),
    st.booleans(),
)
def test_rows_equal_those_of_a_dict(table, keys, missing, dictionary):
    column = pa.array(keys, pa.string())
    batch = pa.RecordBatch.from_pydict({"k": column.dictionary_encode() if dictionary else column})
    session = t.LookupJoin(field="k", table=table, columns=("x", "y"), missing=missing).session()
    out = session.push_batch(batch).to_pylist()
    every = [(key, *table.get(key, (None, None))) for key in keys]
    assert [tuple(row.values()) for row in out] == [row for row in every if row[1] is not None or missing == "null"]
    unknown = [key for key in keys if key not in table]
    assert [e["reason"] for e in session.errors] == ["unknown_key"] * (len(unknown) if missing == "reject" else 0)


def test_table_file_is_read_and_reloaded(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('id,city,"floor, no"\r\n1,Rio,"2"\n\n2,"São ""P""",\n', encoding="utf-8-sig")
    every = t.LookupJoin(field="id", table=str(path)).session()
    assert every.push_many([{"id": "2"}, {"id": "3"}]) == [{"id": "2", "city": 'São "P"', "floor, no": ""}]
    some = t.LookupJoin(field="place", key="city", table=str(path), columns=("id",)).session()
    assert some.push({"place": "Rio"}) == [{"place": "Rio", "id": "1"}]
    path.write_text("id,city\n1,Oslo\n")
    assert t.LookupJoin(field="id", table=str(path)).session().push({"id": "1"}) == [{"id": "1", "city": "Oslo"}]


def test_many_keys_are_found():
    table = {str(i): str(i * i) for i in range(5000)}
    batch = pa.RecordBatch.from_pydict({"k": [str(i) for i in range(-10, 6000)]})
    out = t.LookupJoin(field="k", table=table, columns=("x",)).session().push_batch(batch)
    assert out["x"].to_pylist() == [*table.values()]


def test_wrong_tables_and_parameters_are_refused(tmp_path):
    for table, message in (
        ({}, "non-empty"), (7, "a path or a non-empty mapping"), ({"a": 1}, "texts"), ({"a": "x", "b": ("x", "y")}, "has 2 texts"),
        ([("a", "x"), ("a", "y")], "twice"), (str(tmp_path / "gone.csv"), "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            t.LookupJoin(field="k", table=table, columns=("x",))
    for columns in ((), ("x", "y"), ("k",)):
        with pytest.raises(ConfigError, match="columns"):
            t.LookupJoin(field="k", table={"a": "x"}, columns=columns)
    with pytest.raises(ConfigError, match="key"):
        t.LookupJoin(field="k", table={"a": "x"}, columns=("x",), key="k")
    path = tmp_path / "t.csv"
    for text, message in (
        ("k,x\na,1\na,2\n", "twice"), ("k,x\na\n", "line 2"), ("k,y\na,1\n", "no column 'x'"), ("", "no column 'k'"),
        ('k,x\na,"', "cannot be read"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            t.LookupJoin(field="k", table=str(path), columns=("x",))


def test_errors_show_no_content_of_a_foreign_file(tmp_path):
    """A descriptor from outside may name any file."""
    path = tmp_path / "secrets"
    path.write_text("root:x:0:0,password=hunter2\nmore,lines\n")
    tasks = (
        lambda: t.LookupJoin(table=str(path), field="key"),
        lambda: t.Annotate(table=str(path)),
        lambda: t.LookupGeo(table=str(path)).session().push({"ip": "1.2.3.4"}),
        lambda: load_model(str(path)),
    )
    for make in tasks:
        with pytest.raises(ConfigError, match="secrets") as caught:
            make()
        assert not any(part in str(caught.value) for part in ("root:x", "hunter2", "more")), str(caught.value)
