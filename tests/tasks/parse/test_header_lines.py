"""Parsing of table lines with headers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

TASK = t.ParseLines(schema={"k": ("a", "string"), "v": ("b", "double", None)}, header=("a", "b", "c"))


def read(lines, cut, task=TASK):
    session, rows = task.session(), []
    for start in range(0, len(lines), cut):
        batch = pa.RecordBatch.from_pydict({"payload": pa.array(lines[start : start + cut])})
        rows += session.push_batch(batch).to_pylist()
    return [(row["k"], row["v"]) for row in rows], [e["reason"] for e in session.errors]


@pytest.mark.parametrize("cut", [1, 2, 3, 100])
def test_last_header_applies(cut):
    lines = ["x,1,2", "b, a\r\n", "2,y", "a,c", "3,z", "c,b,a,d", "0,4,w,", "0,5,q", "a,b,c", "a,,7"]
    found, errors = read(lines, cut)
    assert found == [("x", 1.0), ("y", 2.0), ("z", 3.0), ("w", 4.0), ("a", None)]
    assert errors == ["bad_number", "wrong_cells"]  # "a,c" names too few columns for a header


def test_bytes_other_delimiters_and_null_lines():
    task = TASK.replace(delimiter="\t;")
    assert read([b"b\ta", b"1;x", b"\xff\tb"], 2, task) == ([("x", 1.0)], ["invalid_utf8"])
    assert read([], 1) == ([], [])
    empty = pa.RecordBatch.from_pydict({"payload": pa.array([None, None], pa.string())})
    assert TASK.session().push_batch(empty).num_rows == 0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"schema": {}}, "schema must"),
        ({"schema": {"k": ("z", "string")}}, "not one of the columns"),
        ({"schema": {"k": "a"}}, "not one of the columns"),
        ({"header": ("a", "a", "b")}, "twice"),
        ({"by": "k"}, "does not use"),
        ({"ttl": "1s"}, "does not use"),
        ({"header": ()}, "not one of the columns"),
        ({"schema": {"k": ("a", "text")}}, "kind"),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused(parameters, message):
    with pytest.raises(ConfigError, match=message):
        TASK.replace(**parameters)


def test_table_has_at_most_65536_columns():
    names = ["a", "b", *map(str, range(65_534))]
    with pytest.raises(ConfigError, match="header must be at most 65,536 names, got 65,537"):
        TASK.replace(header=(*names, "c"))
    session = TASK.session()
    assert session.push({"payload": ",".join(["b", "a", *names[2:]])}) == []
    assert session.push({"payload": "1.5,k" + "," * 65_534}) == [{"k": "k", "v": 1.5}]
    assert session.push({"payload": ",".join([*names, "c"])}) == [], "a line, of too many cells"
    assert [row["reason"] for row in session.errors] == ["wrong_cells"]


@pytest.mark.parametrize("header", ["h,t", "\ufeffh,t", '"h","t"', " h,t", "H,T", ' "H" , "t" ', '\ufeff"h",t\r\n'])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_header_may_have_a_mark_quotes_blanks_and_capitals(header, kind):
    table = t.ParseLines(schema={"t": ("t", "double"), "h": ("h", "double")}, header=("t", "h"))
    plain = pa.array([header, "50,21.5"])
    payload = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1]), payload], ["seq", "payload"])
    assert [(row["t"], row["h"]) for row in table.session().push_batch(batch).to_pylist()] == [(21.5, 50.0)]


def test_columns_are_case_sensitive():
    table = t.ParseLines(schema={"a": ("T", "double"), "b": ("t", "double")}, header=("T", "t")).session()
    table.push({"payload": "t,T"})
    assert table.push({"payload": "1,2"}) == [{"a": 2.0, "b": 1.0}]


def test_options_of_lines_apply_to_tables():
    options = {"null_values": ("-",), "keep": ("site",), "problems": "why", "more": True, "delimiter": ";"}
    session = t.ParseLines(schema={"v": ("b", "double", None)}, header=("a", "b"), **options).session()
    lines = ("x;-;more", "b;a", "?;x")
    rows = [row for line in lines for row in session.push({"payload": line, "site": "s"})]
    assert [(row["site"], row["v"]) for row in rows] == [("s", None), ("s", None)]
    assert rows[0]["why"] is None and "'?' is not a valid double" in rows[1]["why"]
    trailing = t.ParseLines(schema={"v": ("b", "int64")}, header=("a", "b"), trailing=True).session()
    assert trailing.push({"payload": "x,1,"}) == [{"v": 1}]


@pytest.mark.parametrize("option", [{"format": "spaces"}, {"cells": 3}, {"skip": {0: "a"}}], ids=str)
def test_options_of_lines_without_headers_are_refused(option):
    (name,) = option
    with pytest.raises(ConfigError, match=f"{name} is for lines without headers"):
        t.ParseLines(schema={"v": ("b", "int64")}, header=("a", "b"), **option)


def test_header_gives_a_task_with_state_and_descriptor():
    plain = t.ParseLines(schema={"v": (1, "int64")})
    table = t.ParseLines(schema={"v": ("b", "int64")}, header=("a", "b"))
    assert table.stateful and not plain.stateful
    assert plain.replace(schema={"v": ("b", "int64")}, header=("a", "b")) == table
    for task in (plain, table):
        assert task.name() == "parse_lines" and t.Task.from_dict(task.to_dict()) == task
