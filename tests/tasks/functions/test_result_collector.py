"""Checks of the results of Python functions: types of values, and the place of an error."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.tasks.functions.flat_map_function import flat_map
from riot_ops.tasks.functions.keyed_function import keyed

FILE = Path(__file__).name


def read(row):
    return json.loads(row["text"])


def outer(row):
    return read(row)


def keyed_outer(state, row):
    return state, outer(row)


def message(task, row):
    session = task.session()
    assert session.push(row) == []
    assert session.errors[0]["reason"] == "function_error"
    return session.errors[0]["message"].rpartition(" (")[2]


@pytest.mark.parametrize(
    "task", [ro.map(outer), flat_map(outer), ro.filter(outer), keyed(keyed_outer)], ids=lambda task: task.name()
)
def test_error_names_the_innermost_line_of_the_function_s_file(task):
    # not the line in json that raised
    assert message(task, {"text": "{"}) == f"{FILE}, line {read.__code__.co_firstlineno + 1}, in read)"


def test_error_in_a_notebook_names_no_temporary_file():
    cell = {}
    exec(compile("def half(row):\n    return row['nothing']", "/tmp/ipykernel_71/9.py", "exec"), cell)
    assert message(ro.map(cell["half"]), {"text": "{"}) == "notebook, line 2, in half)"


def test_error_of_a_compiled_function_names_no_line():
    session = ro.map(math.sqrt).session()
    assert session.push({"text": "{"}) == []
    assert session.errors[0]["message"].startswith("TypeError: must be real number, not dict")
    assert "line" not in session.errors[0]["message"]


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("float64", [1, 2.5, None, 2**53], ["x", True, 2**60, [1]]),
        ("int64", [1, -(2**63), None, 1.0], [1.5, "1", 2**63]),
        ("string", ["ü", ""], [1, b"\xff", "\ud800"]),
        ("bool", [True, None], [1, "yes"]),
        ("timestamp[us, tz=UTC]", [datetime(2020, 1, 1, tzinfo=UTC)], ["2020"]),
        ("int8", [127], [128]),
        ("list<item: double>", [[1.0, None]], [["x"], 3]),
        ("binary", [b"\xff"], [3]),
    ],
)
def test_unfitting_values_reject_the_record(dtype, good, bad):
    session = ro.map(lambda row: {"x": values[row["i"]]}, schema={"x": dtype}).session()
    values = good + bad
    out = session.push_batch(pa.RecordBatch.from_pydict({"i": list(range(len(values)))}))
    assert [row["x"] for row in out.to_pylist()] == good
    assert [e["reason"] for e in session.errors] == ["wrong_type"] * len(bad)
