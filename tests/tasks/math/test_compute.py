"""Computed fields: names, types and errors; the expressions have their own tests."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP


def test_expressions_read_the_input_alone():
    rows = t.Compute({"value": "value * 2", "half": "value / 2"}).session()
    assert rows.push({"value": 3.0}) == [{"value": 6.0, "half": 1.5}]


def test_fields_are_appended_in_order_with_their_types():
    schema = pa.schema({"n": pa.int32(), "at": pa.timestamp("ms"), "s": pa.large_string()})
    task = t.Compute({"b": "n + 1", "a": "n / 2", "t": "at", "c": "n > 1", "u": "upper(s)", "d": "at - at"})
    assert task.output_schema(schema) == pa.schema(
        [
            *schema,
            ("b", pa.int64()),
            ("a", pa.float64()),
            ("t", pa.timestamp("ms", "UTC")),
            ("c", pa.bool_()),
            ("u", pa.large_string()),
            ("d", pa.duration("ms")),
        ]
    )
    at = datetime(2024, 5, 1, tzinfo=UTC)
    batch = pa.RecordBatch.from_pylist([{"n": 3, "at": at, "s": "ü"}, {"n": None, "at": None, "s": None}], schema)
    first, second = task.session().push_batch(batch).to_pylist()
    assert [first[name] for name in "batcu"] == [4, 1.5, at, True, "Ü"]
    assert [second[name] for name in "batcud"] == [None] * 6


def test_results_are_never_nan():
    rows = t.Compute({"x": "value - value"}).session()
    assert rows.push({"value": float("inf")}) == [{"value": float("inf"), "x": None}]


def test_record_with_errors_is_rejected_once_for_the_first():
    flow = ro.Dataflow("f")
    source = flow.source("in", schema={"a": "int64", "b": "int64"})
    flow.sink("out", source.to(t.Compute({"x": "6 / a", "y": "b * 4", "z": "b / a"}), id="c"))
    result = flow.run([{"a": 0, "b": 2**62}, {"a": 2, "b": 2**62}, {"a": 2, "b": 1}, {"a": None, "b": 2}])
    assert result["c"].select(["x", "y", "z"]).to_pylist() == [
        {"x": 3.0, "y": 4, "z": 0.5},
        {"x": None, "y": 8, "z": None},
    ]
    assert result.errors["message"].to_pylist() == ["division by zero in 6 / a", "b * 4 is beyond 64 bits"]


def test_field_that_its_expression_does_not_read_is_kept():
    schema = pa.schema({"value": pa.float64(), "count": pa.int64()})
    with pytest.raises(ConfigError, match="the expression of 'count' would replace a field of the input"):
        t.Compute({"count": "value + 1"}).output_schema(schema)
    assert t.Compute({"count": "count + 1"}).output_schema(schema).names == ["value", "count"]


def test_descriptor_holds_the_expressions():
    task = t.Compute({"x": "a + 1", "y": "b"})
    again = t.Task.from_dict(json.loads(json.dumps(task.to_dict())))
    assert again == task == t.Compute(expressions=[("x", "a + 1"), ("y", "b")])
    assert task.to_dict() == {"task": "compute", "expressions": [["x", "a + 1"], ["y", "b"]]}
    assert task.writes() == {"x", "y"} and task.requires() == {"a": "exact number", "b": "any"}


@pytest.mark.parametrize(
    ("expressions", "message"),
    [
        ({}, "expressions must map names of fields to expressions"),
        ("a + 1", "expressions must map names of fields to expressions"),
        ({"x": 3}, "expressions must map names of fields to expressions"),
        ([("x", "a", "b")], "expressions must map names of fields to expressions"),
        ([("x", "a"), ("x", "b")], "expressions name 'x' twice"),
        ({"": "a"}, "expressions must not name ''"),
        ({"seq": "a"}, "expressions must not name 'seq'"),
        ({"ordinal_2": "a"}, "expressions must not name 'ordinal_2'"),
        ({"\ud800": "a"}, "is not Unicode text"),
        ({"x": "a +"}, "Compute: expressions: 'x': 'a +' is not an expression"),
        ({"x": "None"}, "'x': 'None' has no type"),
    ],
)
def test_wrong_expressions_are_refused_at_construction(expressions, message):
    with pytest.raises(ConfigError) as caught:
        t.Compute(expressions)
    assert message in str(caught.value)


def test_event_time_is_replaced_by_a_time_only():
    late = t.Compute({"event_time": "coalesce(event_time, at) + duration('1h')"})
    schema = pa.schema({"event_time": TIMESTAMP, "at": TIMESTAMP})
    assert late.output_schema(schema) == schema
    row = late.session().push({"event_time": None, "at": datetime(2024, 5, 1, tzinfo=UTC)})[0]
    assert row["event_time"] == datetime(2024, 5, 1, 1, tzinfo=UTC)
    with pytest.raises(ConfigError, match=r"'event_time' gives int64, it must give timestamp\[us, tz=UTC\]"):
        t.Compute({"event_time": "hour(event_time)"}).output_schema(schema)


def test_types_are_checked_by_name():
    with pytest.raises(ConfigError, match=r"compute: 'x': \+ does not take text and number: s \+ 1"):
        t.Compute({"x": "s + 1"}).output_schema(pa.schema({"s": pa.string()}))
