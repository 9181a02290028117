"""Filter by expressions: parameters, errors, descriptors; the expressions have their own tests."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

ROWS = [{"value": v, "n": n} for v, n in ((4.0, 2), (1.0, 1), (None, 1), (8.0, 0), (9.0, 3))]


def test_record_passes_only_where_the_condition_is_true():
    flow = ro.Dataflow("f")
    source = flow.source("in", schema={"value": "double", "n": "int64"})
    flow.sink("out", source.to(t.Filter("value / n > 1 or n == 1 and value > 5"), id="kept"))
    result = flow.run(ROWS)
    assert result["kept"]["value"].to_pylist() == [4.0, 9.0]
    assert result.errors.select(["task", "reason", "message"]).to_pylist() == [
        {"task": "kept", "reason": "division_by_zero", "message": "division by zero in value / n"}
    ]


def test_condition_is_given_by_position_or_name_and_stands_in_the_descriptor():
    task = t.Filter("value > 3")
    assert task == t.Filter(condition="value > 3") == t.Task.from_dict(json.loads(json.dumps(task.to_dict())))
    assert task.to_dict() == {"task": "filter", "condition": "value > 3"}
    assert task != t.Filter("value > 4")
    with pytest.raises(TypeError):
        t.Filter("value > 3", "value > 4")
    with pytest.raises(TypeError):
        t.Filter()


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (3, "Filter: condition = 3: Expected `str`, got `int`"),
        ("value >", "Filter: condition: 'value >' is not an expression: invalid syntax at character 8"),
        ("1 < 2", "Filter: condition: '1 < 2' reads no field"),
    ],
)
def test_wrong_condition_is_refused_at_construction(condition, message):
    with pytest.raises(ConfigError) as caught:
        t.Filter(condition)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("value", "filter: condition = 'value' gives a number, it must be true or false"),
        ("coalesce(kind, 'x')", "gives a text, it must be true or false"),
        ("kind > 3", "filter: cannot compare text with number: kind > 3; the field 'kind' is string"),
        ("vale > 3", "filter: the expression reads the field 'vale', which its input lacks"),
    ],
)
def test_types_are_checked_before_any_record(condition, message):
    flow = ro.Dataflow("f")
    source = flow.source("in", schema={"value": "double", "kind": "string"})
    flow.sink("out", source.to(t.Filter(condition), id="kept"))
    with pytest.raises(ConfigError) as caught:
        flow.plan()
    assert message in str(caught.value)


def test_reads_the_fields_of_the_condition_and_writes_none():
    task = t.Filter("value > 3 and lower(kind) == 'a' or flag")
    assert task.requires() == {"value": "exact number", "kind": "text", "flag": "any"}
    assert task.writes() == frozenset()
    assert task.float64_fields == ()


def test_large_integers_are_not_rejected():
    batch = pa.RecordBatch.from_pydict({"n": pa.array([2**53, 2**53 + 1, None], pa.int64())})
    session = t.Filter("n > 9007199254740992.0").session()
    assert session.push_batch(batch)["n"].to_pylist() == [2**53 + 1]
    assert not session.errors


def test_error_names_each_record_once_with_its_first_reason():
    batch = pa.RecordBatch.from_pydict({"a": [0, 1, 0], "b": [2**62, 2**62, 1]})
    session = t.Filter("1 / a + b * 2 > 0").session()
    assert session.push_batch(batch).num_rows == 0
    assert [(e["reason"], e["message"]) for e in session.errors] == [
        ("division_by_zero", "division by zero in 1 / a"),
        ("division_by_zero", "division by zero in 1 / a"),
        ("out_of_range", "b * 2 is beyond 64 bits"),
    ]
