"""Parsing of table lines with headers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

TASK = t.ParseTable(fields={"k": ("a", "string"), "v": ("b", "double", None)}, columns=("a", "b", "c"))


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
        ({"fields": {}}, "fields must"),
        ({"fields": {"k": ("z", "string")}}, "not one of the columns"),
        ({"fields": {"k": "a"}}, "not one of the columns"),
        ({"columns": ("a", "a", "b")}, "twice"),
        ({"by": "k"}, "does not use"),
        ({"ttl": "1s"}, "does not use"),
        ({"fields": {"k": ("a", "text")}}, "kind"),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused(parameters, message):
    with pytest.raises(ConfigError, match=message):
        TASK.replace(**parameters)


def test_table_has_at_most_65536_columns():
    names = ["a", "b", *map(str, range(65_534))]
    with pytest.raises(ConfigError, match="columns must be at most 65,536 names, got 65,537"):
        TASK.replace(columns=(*names, "c"))
    session = TASK.session()
    assert session.push({"payload": ",".join(["b", "a", *names[2:]])}) == []
    assert session.push({"payload": "1.5,k" + "," * 65_534}) == [{"k": "k", "v": 1.5}]
    assert session.push({"payload": ",".join([*names, "c"])}) == [], "a line, of too many cells"
    assert [row["reason"] for row in session.errors] == ["wrong_cells"]


@pytest.mark.parametrize("header", ["h,t", "\ufeffh,t", '"h","t"', " h,t", "H,T", ' "H" , "t" ', '\ufeff"h",t\r\n'])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_header_may_have_a_mark_quotes_blanks_and_capitals(header, kind):
    table = t.ParseTable(fields={"t": ("t", "double"), "h": ("h", "double")}, columns=("t", "h"))
    plain = pa.array([header, "50,21.5"])
    payload = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1]), payload], ["seq", "payload"])
    assert [(row["t"], row["h"]) for row in table.session().push_batch(batch).to_pylist()] == [(21.5, 50.0)]


def test_columns_are_case_sensitive():
    table = t.ParseTable(fields={"a": ("T", "double"), "b": ("t", "double")}, columns=("T", "t")).session()
    table.push({"payload": "t,T"})
    assert table.push({"payload": "1,2"}) == [{"a": 2.0, "b": 1.0}]
