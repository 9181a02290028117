"""Functions of one record: replaced records, added fields, rejected results."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError, RecordError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.tasks.functions.map_function import MapFunction
from tests.reference.splits import run

FILE = Path(__file__).name


def double(row):
    return {**row, "value": 2 * row["value"]}


def test_error_rejects_only_its_record():
    def fn(row):
        if row["value"] == 1:
            raise RecordError("too warm", reason="warm")
        if row["value"] == 2:
            return 7
        if row["value"] == 3:
            return {"value": "text"}
        if row["value"] == 4:
            return {"valu": 4}
        return {"value": 1 / row["value"]}

    session = ro.map(fn, schema={"value": "float64"}).session()
    assert session.push_many({"value": v} for v in (0, 1, 2, 3, 4, 5)) == [{"value": 0.2}]
    line = fn.__code__.co_firstlineno + 9
    assert [(e["reason"], e["message"]) for e in session.errors] == [
        ("function_error", f"ZeroDivisionError: division by zero ({FILE}, line {line}, in fn)"),
        ("warm", "too warm"),
        ("wrong_type", "the function returned 7 (int), not a dict"),
        ("wrong_type", session.errors[3]["message"]),
        ("unknown_field", session.errors[4]["message"]),
    ]
    assert (
        "returned the field 'valu', which its schema lacks; fields are value; further" in session.errors[4]["message"]
    )
    assert "value = 'text' (str) is not a double" in session.errors[3]["message"]
    batch = pa.RecordBatch.from_pydict({"value": list(range(6))})
    session = ro.map(fn, schema={"value": "float64"}).session()
    assert session.push_batch(batch).to_pylist() == [{"value": 0.2}]
    assert len(session.errors) == 5


def test_results_keep_order_fields():
    now = datetime(2020, 1, 1, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array([7], pa.int64()),
            "event_time": pa.array([now], TIMESTAMP),
            "ordinal": pa.array([2], pa.int64()),
            "value": [1.5],
        }
    )
    task = ro.map(lambda row: {"x": row["value"]}, schema={"x": "float64"})
    assert run(task, batch)[0] == [{"seq": 7, "event_time": now, "ordinal": 2, "x": 1.5}]
    later = now + timedelta(1)
    assert run(ro.map(lambda row: {"event_time": later}), batch)[0] == [
        {"seq": 7, "event_time": later, "ordinal": 2, "value": None}
    ]


def test_adds_leaves_the_other_fields_of_a_record_unchanged():
    def fn(row):
        row["name"] = "changed"  # the row is a copy
        return {"half": row["value"] / 2, "name": str(row["value"])} if row["value"] < 3 else {"valeu": 1}

    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array([1, 2, 3, 4], pa.int64()),
            "name": ["a", "b", "c", "d"],
            "value": [1.0, None, 3.0, float("nan")],
        }
    )
    task = ro.map(fn, adds={"half": "float64", "name": "string"})
    rows, errors = run(task, batch)
    assert rows == [{"seq": 1, "name": "1.0", "value": 1.0, "half": 0.5}]
    assert sorted((e["seq"], e["reason"]) for e in errors) == [
        (2, "function_error"),
        (3, "unknown_field"),
        (4, "unknown_field"),
    ]
    assert task.output_schema(batch.schema).field("half").type == pa.float64()
    assert task.writes() == {"half", "name"}
    assert ro.map(fn).writes() is None


def test_nan_or_absent_value_in_an_added_field_is_null():
    session = ro.map(lambda row: {"x": float("nan")}, adds={"x": "double", "y": "double"}).session()
    assert session.push({"z": 1}) == [{"z": 1, "x": None, "y": None}]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"function": 3}, "needs a function"),
        ({}, "needs a function"),
        ({"function": double, "adds": {"x": "double"}, "schema": {"x": "double"}}, "either schema"),
        ({"function": double, "adds": {"x": "flot"}}, "adds field 'x'"),
    ],
)
def test_wrong_parameters_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        MapFunction(**options)
