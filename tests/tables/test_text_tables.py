"""Tables of texts: given directly, CSV files, files of keys."""

import pyarrow as pa
import pytest

from riot_ops import ConfigError
from riot_ops.models.markov import load_model
from riot_ops.tables import CSVTable, InlineTable, KeyFile, Networks, table_from
from riot_ops.tasks import Lookup


def test_key_file_is_read_and_reloaded(tmp_path):
    path = tmp_path / "tabelle.txt"
    path.write_bytes("\ufeffs1:Köln,Dach\r\ns2:,\n\n s 3 :a b,c\n".encode())
    task = Lookup(table=KeyFile(str(path)), on="sensor_id", columns=("city", "place"), default="-")
    out = task.session().push_many([{"sensor_id": s} for s in ("s1", "s2", " s 3 ", "s4")])
    assert [(row["city"], row["place"]) for row in out] == [("Köln", "Dach"), ("", ""), ("a b", "c"), ("-", "-")]
    path.write_text("s1:Bonn,Keller")  # a new version of the file
    assert task.session().push({"sensor_id": "s1"})[0]["city"] == "Bonn"


def test_csv_file_is_read_and_reloaded(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('id,city,"floor, no"\r\n1,Rio,"2"\n\n2,"São ""P""",\n', encoding="utf-8-sig")
    every = Lookup(table=str(path), on="id", on_missing="drop").session()
    assert every.push_many([{"id": "2"}, {"id": "3"}]) == [{"id": "2", "city": 'São "P"', "floor, no": ""}]
    some = Lookup(table=CSVTable(str(path), on="city"), on="place", columns=("id",)).session()
    assert some.push({"place": "Rio"}) == [{"place": "Rio", "id": "1"}]
    path.write_text("id,city\n1,Oslo\n")
    assert Lookup(table=str(path), on="id").session().push({"id": "1"}) == [{"id": "1", "city": "Oslo"}]


def test_key_of_several_columns_is_read(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("house,room,heating\nA,1,gas\nA,2,oil\nB,1,air\n")
    rooms = [{"house": h, "room": r} for h, r in (("B", "1"), ("A", "2"), ("B", "2"), (None, "1"))]
    for task in (
        Lookup(table=str(path), on=("house", "room")),
        Lookup(table={("A", "2"): "oil", ("B", "1"): "air"}, on=("house", "room"), columns="heating"),
    ):
        assert [row["heating"] for row in task.session().push_many(rooms)] == ["air", "oil", None, None]
    with pytest.raises(ConfigError, match=r"a key of the table has 2 texts, got on = \('house',\)"):
        Lookup(table=CSVTable(str(path), on=("house", "room")), on="house")


def test_equal_tables_make_equal_tasks():
    assert (
        table_from([("b", "x"), ("a", ["y"])])
        == table_from({"a": ["y"], "b": ["x"]})
        == InlineTable({"b": "x", "a": "y"})
    )
    assert table_from("a.csv") == CSVTable("a.csv")


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
def test_wrong_key_files_are_refused(tmp_path, text, match):
    path = tmp_path / "table"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=match):
        Lookup(table=KeyFile(str(path)), on="id", columns="x")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("k,x\na,1\na,2\n", "twice"),
        ("k,x\na\n", "line 2"),
        ("k,y\na,1\n", "no column 'x'"),
        ("", "no column 'k'"),
        ("k,x,x\na,1,2\n", "two columns of one name in its first line"),
        ("k,x,k\na,1,2\n", "two columns of one name"),
        ('k,x\na,"', "cannot be read"),
    ],
)
def test_wrong_csv_files_are_refused(tmp_path, text, match):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=match):
        Lookup(table=str(path), on="k", columns=("x",))


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ({}, "is empty"),
        (7, "must be a path, a mapping"),
        ({"a": 1}, "map keys to texts"),
        ({"a": ("x", None)}, "map keys to texts"),
        ({"\ud800": "x"}, "not Unicode text"),
        ({"a": "\ud800"}, "not Unicode text"),
        ({"a": "x", "b": ("x", "y")}, "has 2 values for the key 'b', 1 expected"),
        ({("a", "b"): "x", ("c",): "y"}, "has 1 texts in the key 'c', 2 expected"),
        ([("a", "x"), ("a", "y")], "the key 'a' twice"),
        ("/no/such/file", "cannot be read: No such file"),
        ({"networks": {"paths": None}}, "has no parameter 'paths'"),
        ({"nets": {}}, "unknown table 'nets'"),
        ({"key_file": {}}, "path"),
    ],
)
def test_wrong_tables_are_refused(table, match):
    with pytest.raises(ConfigError, match=match):
        Lookup(table=table, on="k", columns=("x",))


def test_large_table_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("riot_ops.tables.table.MAX_BYTES", 5)
    (tmp_path / "table").write_text("key:value")
    for kind in (KeyFile, CSVTable, Networks):
        with pytest.raises(ConfigError, match="has 9 bytes, at most 5 are allowed"):
            Lookup(table=kind(str(tmp_path / "table")), on="k", columns="x")
    with pytest.raises(ConfigError, match="larger than 5 bytes"):
        InlineTable({"key": "value"})


def test_errors_show_no_content_of_a_foreign_file(tmp_path):
    """A descriptor from outside may name any file."""
    path = tmp_path / "secrets"
    path.write_text("root:x:0:0,password=hunter2\nmore,lines\n")
    tasks = (
        lambda: Lookup(table=str(path), on="key"),
        lambda: Lookup(table=KeyFile(str(path)), on="key", columns="x"),
        lambda: Networks(str(path)),
        lambda: load_model(str(path)),
    )
    for make in tasks:
        with pytest.raises(ConfigError, match="secrets") as caught:
            make()
        assert not any(part in str(caught.value) for part in ("root:x", "hunter2", "more")), str(caught.value)


def test_many_keys_are_found():
    table = {str(i): str(i * i) for i in range(5000)}
    batch = pa.RecordBatch.from_pydict({"k": [str(i) for i in range(-10, 6000)]})
    out = Lookup(table=table, on="k", columns="x", on_missing="drop").session().push_batch(batch)
    assert out["x"].to_pylist() == [*table.values()]
