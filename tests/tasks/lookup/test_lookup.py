"""Look-ups against a dict and a merge of pandas: fields, lines, unknown keys."""

import csv

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riot_ops import ConfigError
from riot_ops.tables import Networks
from riot_ops.tasks import Lookup
from tests.search import depth

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=6)
SHORT = st.text("ab,ü\0", max_size=3)


@given(st.dictionaries(TEXTS, st.tuples(TEXTS, TEXTS), min_size=1, max_size=8), st.lists(st.one_of(st.none(), TEXTS)))
def test_values_with_defaults_equal_those_of_a_dict(table, strangers):
    keys = [*table, *strangers]
    task = Lookup(table=table, on="key", columns=("x", "y"), default=("?", ""))
    out = task.session().push_batch(pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.string())}))
    assert [(row["x"], row["y"]) for row in out.to_pylist()] == [table.get(key, ("?", "")) for key in keys]


@settings(max_examples=depth(25))
@given(
    st.dictionaries(SHORT, st.tuples(SHORT, SHORT), min_size=1, max_size=6),
    st.lists(SHORT | st.none(), max_size=20),
    st.sampled_from(["drop", "null", "reject"]),
    st.booleans(),
    st.booleans(),
)
def test_rows_equal_those_of_pandas(table, keys, on_missing, dictionary, coded):
    column = pa.array(keys, pa.string())
    batch = pa.RecordBatch.from_pydict({"k": column.dictionary_encode() if dictionary else column})
    session = Lookup(table=table, on="k", columns=("x", "y"), on_missing=on_missing, coded=coded).session()
    out = session.push_batch(batch)
    right = pd.DataFrame([(k, *row) for k, row in table.items()], columns=["k", "x", "y"], dtype=object)
    left = pd.DataFrame({"k": pd.Series(keys, dtype=object)})
    wanted = left.merge(right, how="left" if on_missing == "null" else "inner", on="k")
    assert [tuple(row.values()) for row in out.to_pylist()] == [
        tuple(None if pd.isna(x) else x for x in row) for row in wanted.itertuples(index=False)
    ]
    assert all(pa.types.is_dictionary(out.schema.field(name).type) == coded for name in ("x", "y"))
    unknown = [key for key in keys if key not in table]
    assert [e["reason"] for e in session.errors] == ["unknown_key"] * (len(unknown) if on_missing == "reject" else 0)


@given(st.dictionaries(TEXTS, st.tuples(TEXTS, TEXTS), min_size=1, max_size=8), st.lists(st.tuples(TEXTS, TEXTS)))
def test_extended_lines_are_valid_csv(table, others):
    records = [(first, key) for first, key in others] + [("1", key) for key in table]
    quote = '"{}"'.format
    lines = [f"{quote(a.replace(chr(34), chr(34) * 2))},{quote(b.replace(chr(34), chr(34) * 2))}" for a, b in records]
    session = Lookup(table=table, on="payload", column=1, default=("no", 'n,"o')).session()
    out = session.push_batch(pa.RecordBatch.from_pydict({"payload": pa.array(lines, pa.string())}))
    assert session.errors == []
    for (first, key), row in zip(records, out["payload"].to_pylist(), strict=True):
        assert next(csv.reader([row], strict=True)) == [first, key, *table.get(key, ("no", 'n,"o'))]


@pytest.mark.parametrize("on_missing", ["drop", "reject"])
def test_line_with_an_unknown_key_is_dropped_or_rejected(on_missing):
    session = Lookup(table={"a": "x"}, on="payload", column=1, on_missing=on_missing).session()
    assert session.push_many([{"payload": "1,a"}, {"payload": "2,b"}]) == [{"payload": "1,a,x"}]
    assert [e["reason"] for e in session.errors] == ["unknown_key"] * (on_missing == "reject")
    assert [e["message"] for e in session.errors] == ["column 1 of payload = 'b' is not in the table"] * (
        on_missing == "reject"
    )


@pytest.mark.parametrize("text", [pa.string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_unknown_key_is_named(text):
    session = Lookup(table={("a", "1"): "x"}, on=("k", "n"), columns="place", on_missing="reject").session()
    keys = pa.array(["a", "é", None, 70 * "b"], pa.string()).cast(text)
    batch = pa.record_batch({"k": keys, "n": ["1", "1", "2", "2"]})
    assert session.push_batch(batch).num_rows == 1
    assert [e["message"] for e in session.errors] == [
        "k = 'é', n = '1' is not in the table",
        "k = null, n = '2' is not in the table",
        f"k = '{60 * 'b'}', n = '2' is not in the table",
    ]


def test_bad_lines_are_rejected():
    session = Lookup(table={"a": "x"}, on="payload", column=2).session()
    payload = pa.array([b"1,2,a\r\n", b"1,2", None, b'1,"2,a', b"\xff,2,a"], pa.binary())
    out = session.push_batch(pa.RecordBatch.from_pydict({"payload": payload}))
    assert out["payload"].to_pylist() == ["1,2,a,x"]
    assert sorted((e["reason"], e["raw"]) for e in session.errors) == [
        ("malformed", "\\xff,2,a"),
        ("missing", None),
        ("wrong_columns", '1,"2,a'),
        ("wrong_columns", "1,2"),
    ]


def test_values_are_added_as_fields_and_to_the_line():
    session = Lookup(table={"a": ("x", 'y "z"')}, on="id", columns=("p", "q"), line="text", default="-").session()
    rows = {"id": ["a", "b", "a", None], "text": pa.array([b"1,2\r\n", b"", None, b"\xff"], pa.binary())}
    out = session.push_batch(pa.RecordBatch.from_pydict(rows))
    assert out["text"].to_pylist() == ['1,2,x,"y ""z"""', ",-,-", None]
    assert (out["p"].to_pylist(), out["q"].to_pylist()) == (["x", "-", "x"], ['y "z"', "-", 'y "z"'])
    assert [(e["reason"], e["raw"]) for e in session.errors] == [("malformed", "\\xff")]


def test_default_of_a_coded_column_is_one_of_its_values():
    task = Lookup(table={"a": "x"}, on="id", columns="p", coded=True, default="?")
    out = task.session().push_batch(pa.record_batch({"id": ["a", "b"]}))
    assert out["p"].type == task.output_schema(pa.schema({"id": pa.string()})).field("p").type
    assert out["p"].to_pylist() == ["x", "?"]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"on": ()}, "on must name the field"),
        ({"on": ("a", "b")}, "a key of the table has 1 texts"),
        ({"columns": None}, "columns must be 1 distinct names"),
        ({"columns": ("p", "q")}, "columns must be 1 distinct names"),
        ({"columns": {"p": "q"}}, "columns must be 1 distinct names"),
        ({"columns": 5}, "columns must be names"),
        ({"columns": "k"}, "other than those of the key"),
        ({"table": {"a": ("x", "y")}, "columns": ("p", "p")}, "distinct names"),
        ({"table": Networks(), "columns": ("town",)}, "the table has no column 'town'"),
        ({"default": ("p", "q")}, "default must be one text, or 1"),
        ({"default": "p", "on_missing": "drop"}, "default is for on_missing='null'"),
        ({"on_missing": "keep"}, "on_missing"),
        ({"columns": None, "column": -1}, "column = -1.* >= 0"),
        ({"columns": None, "column": 65_536}, "column = 65536.* <= 65535"),
        ({"column": 1}, "cannot be combined with column"),
        ({"columns": None, "column": 1, "line": "p"}, "cannot be combined with column"),
        ({"line": "k"}, "line must not be 'k'"),
        ({"line": "p"}, "line must not be 'p'"),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, match):
    with pytest.raises(ConfigError, match=match):
        Lookup(**{"table": {"a": "x"}, "on": "k", "columns": ("p",), **wrong})
