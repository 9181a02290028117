"""Annotation: files and mappings, unknown keys, lines, wrong tables."""

import csv

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import ConfigError
from riot_ops.tasks import Annotate

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=6)


@given(st.dictionaries(TEXTS, st.tuples(TEXTS, TEXTS), min_size=1, max_size=8), st.lists(st.one_of(st.none(), TEXTS)))
def test_values_equal_those_of_a_dict(table, strangers):
    keys = [*table, *strangers]
    task = Annotate(table=table, field="key", columns=("x", "y"), default=("?", ""))
    out = task.session().push_batch(pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.string())}))
    assert [(row["x"], row["y"]) for row in out.to_pylist()] == [table.get(key, ("?", "")) for key in keys]


@given(st.dictionaries(TEXTS, st.tuples(TEXTS, TEXTS), min_size=1, max_size=8), st.lists(st.tuples(TEXTS, TEXTS)))
def test_extended_lines_are_valid_csv(table, others):
    records = [(first, key) for first, key in others] + [("1", key) for key in table]
    quote = '"{}"'.format
    lines = [f"{quote(a.replace(chr(34), chr(34) * 2))},{quote(b.replace(chr(34), chr(34) * 2))}" for a, b in records]
    session = Annotate(table=table, field="payload", column=1, default=("no", 'n,"o')).session()
    out = session.push_batch(pa.RecordBatch.from_pydict({"payload": pa.array(lines, pa.string())}))
    assert session.errors == []
    for (first, key), row in zip(records, out["payload"].to_pylist(), strict=True):
        assert next(csv.reader([row], strict=True)) == [first, key, *table.get(key, ("no", 'n,"o'))]


def test_table_file_is_read_and_reloaded(tmp_path):
    path = tmp_path / "tabelle.txt"
    path.write_bytes("\ufeffs1:Köln,Dach\r\ns2:,\n\n s 3 :a b,c\n".encode())
    task = Annotate(table=str(path), columns=("city", "place"), default="-")
    out = task.session().push_many([{"sensor_id": s} for s in ("s1", "s2", " s 3 ", "s4")])
    assert [(row["city"], row["place"]) for row in out] == [("Köln", "Dach"), ("", ""), ("a b", "c"), ("-", "-")]
    path.write_text("s1:Bonn,Keller")  # a new version of the file
    assert task.session().push({"sensor_id": "s1"})[0]["city"] == "Bonn"


def test_columns_have_default_names():
    assert Annotate(table={"a": "x"}).session().push({"sensor_id": "a"}) == [{"sensor_id": "a", "annotation": "x"}]
    two = Annotate(table={"a": ("x", "y")}).session().push({"sensor_id": "b"})
    assert two == [{"sensor_id": "b", "annotation_1": "", "annotation_2": ""}]
    assert Annotate(table=[("b", "x"), ("a", ["y"])]) == Annotate(table={"a": ["y"], "b": ["x"]})


def test_bad_lines_are_rejected():
    session = Annotate(table={"a": "x"}, field="payload", column=2).session()
    payload = pa.array([b"1,2,a\r\n", b"1,2", None, b'1,"2,a', b"\xff,2,a"], pa.binary())
    out = session.push_batch(pa.RecordBatch.from_pydict({"payload": payload}))
    assert out["payload"].to_pylist() == ["1,2,a,x"]
    assert sorted((e["reason"], e["raw"]) for e in session.errors) == [
        ("malformed", "\\xff,2,a"),
        ("missing", None),
        ("wrong_columns", '1,"2,a'),
        ("wrong_columns", "1,2"),
    ]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "is empty"),
        ("s1", "line 1 of .* must have one colon"),
        ("s1:a\ns2:b:c", "line 2 of .* must have one colon"),
        ("s1:a\ns1:b", "the key 's1' twice"),
        ("s1:a\ns2:b,c", "has 2 values for the key 's2', 1 expected"),
        (b"s1:\xff", "cannot be read"),
    ],
)
def test_wrong_files_are_refused(tmp_path, text, match):
    path = tmp_path / "table"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=match):
        Annotate(table=str(path))


def test_large_table_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("riot_ops.tasks.lookup.annotate.MAX_BYTES", 5)
    (tmp_path / "table").write_text("key:value")
    with pytest.raises(ConfigError, match="has 9 bytes, at most 5 are allowed"):
        Annotate(table=str(tmp_path / "table"))
    with pytest.raises(ConfigError, match="larger than 5 bytes"):
        Annotate(table={"key": "value"})


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"table": "/no/such/file"}, "cannot be read: No such file"),
        ({"table": {}}, "is empty"),
        ({"table": {"a": 1}}, "map keys to texts"),
        ({"table": {"a": ("x", None)}}, "values other than texts"),
        ({"table": 5}, "must be a path or map keys"),
        ({"table": {"a": "x"}, "columns": ("p", "q")}, "columns must be 1 distinct names"),
        ({"table": {"a": ("x", "y")}, "columns": ("p", "p")}, "2 distinct names"),
        ({"table": {"a": "x"}, "default": ("p", "q")}, "default must be one text, or 1"),
        ({"table": {"a": "x"}, "column": -1}, "column = -1.* >= 0"),
        ({"table": {"a": "x"}, "column": 65_536}, "column = 65536.* <= 65535"),
        ({"table": {"a": "x"}, "column": 1, "columns": ("p",)}, "cannot be combined with column"),
        ({"table": {"a": "x"}, "column": 1, "line": "p"}, "cannot be combined with column"),
        ({"table": {"a": "x"}, "line": "sensor_id"}, "line must not be 'sensor_id'"),
        ({"table": {"a": "x"}, "line": "annotation"}, "line must not be 'annotation'"),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, match):
    with pytest.raises(ConfigError, match=match):
        Annotate(**wrong)


def test_values_are_added_as_fields_and_to_the_line():
    session = Annotate(table={"a": ("x", 'y "z"')}, columns=("p", "q"), line="text", default="-").session()
    rows = {"sensor_id": ["a", "b", "a", None], "text": pa.array([b"1,2\r\n", b"", None, b"\xff"], pa.binary())}
    out = session.push_batch(pa.RecordBatch.from_pydict(rows))
    assert out["text"].to_pylist() == ['1,2,x,"y ""z"""', ",-,-", None]
    assert (out["p"].to_pylist(), out["q"].to_pylist()) == (["x", "-", "x"], ['y "z"', "-", 'y "z"'])
    assert [(e["reason"], e["raw"]) for e in session.errors] == [("malformed", "\\xff")]
