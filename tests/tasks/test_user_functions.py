"""Tasks over plain functions: what they return, what they raise, what they keep."""

from __future__ import annotations

import json
import math
import pickle
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError, RecordError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.task import Task
from riot_ops.tasks.functions.filter_function import FilterFunction, filter_
from riot_ops.tasks.functions.flat_map_function import flat_map
from riot_ops.tasks.functions.keyed_function import KeyedFunction, keyed
from riot_ops.tasks.functions.map_function import MapFunction, map_
from tests.reference import user_functions as reference
from tests.reference.splits import KEYS, run
from tests.search import depth

HERE = "test_user_functions.py"


def line(fn):
    """The first line of a function."""
    return fn.__code__.co_firstlineno


def moody(state, row):
    """Changes its state in place, then may fail."""
    state["seen"].append(row["value"])
    if row["value"] == 3:
        raise ValueError("three")
    if row["value"] == 4:
        return state, [{"total": 1.0}, {"total": "four"}]
    if row["value"] == 5:
        return {"seen": {1: [object()]} if len(state["seen"]) % 2 else object()}, None
    if row["value"] == 6:
        return state, None
    return state, [{"total": float(sum(state["seen"]))}] * (row["value"] % 3)


def honest(state, row):
    """The same, raising what the task would reject."""
    state, results = moody(state, row)
    if row["value"] in (4, 5):
        raise TypeError
    return state, results


def double(row):
    return {**row, "value": 2 * row["value"]}


@settings(deadline=None, max_examples=depth(80))
@given(st.lists(st.tuples(KEYS, st.integers(0, 8)), max_size=30), st.lists(st.integers(0, 30), max_size=3))
def test_keyed_equals_reference(events, cuts):
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(events)), pa.int64()),
            "ordinal": pa.array([1] * len(events), pa.int64()),
            "key": pa.array([k for k, _ in events], pa.string()),
            "value": pa.array([v for _, v in events], pa.int64()),
        }
    )
    task = keyed(moody, initial={"seen": []}, by=("key",), schema={"total": "float64"})
    out, errors = run(task, batch, cuts)
    expected, failed = reference.keyed(honest, {"seen": []}, ("key",), batch.to_pylist())
    assert out == expected
    assert sorted(e["seq"] for e in errors) == failed


def test_errors_reject_one_record():
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

    session = map_(fn, schema={"value": "float64"}).session()
    assert session.push_many({"value": v} for v in (0, 1, 2, 3, 4, 5)) == [{"value": 0.2}]
    assert [(e["reason"], e["message"]) for e in session.errors] == [
        ("function_error", f"ZeroDivisionError: division by zero ({HERE}, line {line(fn) + 9}, in fn)"),
        ("warm", "too warm"),
        ("wrong_type", "the function returned 7 (int), not a dict"),
        ("wrong_type", session.errors[3]["message"]),
        ("unknown_field", "the function returned the field 'valu', which its schema lacks; fields are value"),
    ]
    assert "value = 'text' (str) is not a double" in session.errors[3]["message"]
    batch = pa.RecordBatch.from_pydict({"value": list(range(6))})
    session = map_(fn, schema={"value": "float64"}).session()
    assert session.push_batch(batch).to_pylist() == [{"value": 0.2}]
    assert len(session.errors) == 5


def read(row):
    return json.loads(row["text"])


def outer(row):
    return read(row)


def test_an_error_names_the_innermost_line_of_the_function_s_file():
    def message(task, row):
        session = task.session()
        assert session.push(row) == []
        assert session.errors[0]["reason"] == "function_error"
        return session.errors[0]["message"].rpartition(" (")[2]

    bad = {"text": "{", "value": 3}
    # not the line in json, in which it arose
    assert message(map_(outer), bad) == f"{HERE}, line {line(read) + 1}, in read)"
    assert message(flat_map(outer), bad) == f"{HERE}, line {line(read) + 1}, in read)"
    assert message(filter_(outer), bad) == f"{HERE}, line {line(read) + 1}, in read)"
    assert message(keyed(moody, initial={"seen": []}), bad) == f"{HERE}, line {line(moody) + 4}, in moody)"
    cell = {}
    exec(compile("def half(row):\n    return row['nothing']", "/tmp/ipykernel_71/9.py", "exec"), cell)
    assert message(map_(cell["half"]), bad) == "notebook, line 2, in half)"
    session = map_(math.sqrt).session()  # no Python code, no line
    assert session.push(bad) == []
    assert session.errors[0]["message"].startswith("TypeError: must be real number, not dict")
    assert "line" not in session.errors[0]["message"]


def test_fields_that_order_records_are_carried_over():
    now = datetime(2020, 1, 1, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array([7], pa.int64()),
            "event_time": pa.array([now], TIMESTAMP),
            "ordinal": pa.array([2], pa.int64()),
            "value": [1.5],
        }
    )
    carried = {"seq": 7, "event_time": now}
    task = map_(lambda row: {"x": row["value"]}, schema={"x": "float64"})
    assert run(task, batch)[0] == [{**carried, "ordinal": 2, "x": 1.5}]
    task = flat_map(lambda row: ({"value": v} for v in (1.0, 2.0)))
    assert run(task, batch)[0] == [
        {**carried, "ordinal": 2, "ordinal_2": i, "value": v} for i, v in enumerate((1.0, 2.0))
    ]
    later = now + timedelta(1)
    assert run(map_(lambda row: {"event_time": later}), batch)[0] == [
        {"seq": 7, "event_time": later, "ordinal": 2, "value": None}
    ]
    assert run(flat_map(lambda row: None), batch)[0] == []


def test_map_may_give_only_the_fields_that_it_adds():
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
    task = map_(fn, adds={"half": "float64", "name": "string"})
    rows, errors = run(task, batch)
    assert rows == [{"seq": 1, "name": "1.0", "value": 1.0, "half": 0.5}]
    assert sorted((e["seq"], e["reason"]) for e in errors) == [
        (2, "function_error"),
        (3, "unknown_field"),
        (4, "unknown_field"),
    ]
    assert task.output_schema(batch.schema).field("half").type == pa.float64()
    assert task.writes() == {"half", "name"}
    assert map_(fn).writes() is None
    # a result that is no number is null, one that is not given as well
    assert map_(lambda row: {"x": float("nan")}, adds={"x": "double", "y": "double"}).session().push({"z": 1}) == [
        {"z": 1, "x": None, "y": None}
    ]
    with pytest.raises(ConfigError, match="either schema"):
        map_(fn, adds={"x": "double"}, schema={"x": "double"})
    with pytest.raises(ConfigError, match="adds field 'x'"):
        map_(fn, adds={"x": "flot"})


def test_a_task_has_the_name_that_it_is_given():
    tasks = [f(double, name="mine") for f in (map_, flat_map, filter_, keyed)]
    assert [task.label for task in tasks] == ["mine"] * 4
    assert [f(double).label for f in (map_, flat_map, filter_, keyed)] == ["double"] * 4


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
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
def test_types_of_results(kind, good, bad):
    session = map_(lambda row: {"x": values[row["i"]]}, schema={"x": kind}).session()
    values = good + bad
    out = session.push_batch(pa.RecordBatch.from_pydict({"i": list(range(len(values)))}))
    assert [row["x"] for row in out.to_pylist()] == good
    assert [e["reason"] for e in session.errors] == ["wrong_type"] * len(bad)


def test_filter_wants_a_bool():
    batch = pa.RecordBatch.from_pydict({"value": [1, 2, 3, None]})
    session = filter_(lambda row: row["value"] > 1 if row["value"] != 3 else 1).session()
    assert session.push_batch(batch).to_pylist() == [{"value": 2}]
    assert [e["reason"] for e in session.errors] == ["wrong_type", "function_error"]


def test_many_results():
    session = flat_map(lambda row: [row] * row["n"]).session()
    assert [row["ordinal"] for row in session.push({"n": 5000})] == list(range(5000))


def test_a_generator_that_fails_late_gives_nothing():
    def fn(row):
        yield {"value": 1.0}
        raise KeyError("late")

    session = flat_map(fn).session()
    assert session.push({"value": 0.0}) == []
    assert session.errors[0]["message"] == f"KeyError: 'late' ({HERE}, line {line(fn) + 2}, in fn)"


@pytest.mark.parametrize("state", [None, True, 0, -1.5, "ü", [1, [2]], {"a": [None]}, float("nan"), (1, 2), {1: 2}])
def test_a_restart_makes_no_difference(state):
    def fn(current, row):
        return (state if row["i"] == 0 else current), {"text": json.dumps(current)}

    batch = pa.RecordBatch.from_pydict({"i": [0, 1, 2]})
    task = keyed(fn, schema={"text": "string"})
    assert run(task, batch, [1, 2]) == run(task, batch, [], restart=False)


def test_a_function_cannot_reach_into_the_state():
    kept = []

    def fn(state, row):
        state["n"] += 1
        kept.append(state)
        for old in kept[:-1]:
            old["n"] = 100
        return state, {"n": state["n"]}

    task = keyed(fn, initial={"n": 0}, by=("k",), schema={"n": "int64"})
    session = task.session()
    assert [session.push({"k": k})[0]["n"] for k in "aabba"] == [1, 2, 1, 2, 3]
    assert task.initial == {"n": 0}


def test_functions_are_named_in_descriptors():
    task = map_(double, schema={"value": pa.float64(), "at": TIMESTAMP})
    data = json.loads(json.dumps(task.to_dict()))
    assert data["function"].endswith("test_user_functions:double")
    assert data["label"] == "double"
    assert MapFunction.with_function(data, double) == task
    assert pickle.loads(pickle.dumps(task)) == task
    with pytest.raises(ConfigError, match="with_function"):
        Task.from_dict(data)
    with pytest.raises(ConfigError, match="names the function"):
        MapFunction.with_function(data, honest)
    with pytest.raises(ConfigError, match="not of filter_function"):
        FilterFunction.with_function(data, double)
    with pytest.raises(ConfigError, match="cannot be found by name"):
        map_(lambda row: row).to_dict()
    timed = KeyedFunction(function=moody, by=("key",), initial={"seen": []}, ttl=timedelta(hours=1))
    assert KeyedFunction.with_function(json.loads(json.dumps(timed.to_dict())), moody) == timed
    hash(timed)


@pytest.mark.parametrize(
    "make",
    [
        lambda: map_(3),
        lambda: map_(double, schema={}),
        lambda: map_(double, schema={"x": "flot"}),
        lambda: map_(double, schema=3),
        lambda: map_(double, schema={"x": pa.struct([("a", pa.int8())])}),
        lambda: FilterFunction(function=double, schema={"x": "int64"}),
        lambda: keyed(moody, initial=[object()]),
        lambda: keyed(moody, initial=object()),
        lambda: keyed(moody, by=("a", "a")),
        MapFunction,
    ],
)
def test_misuse(make):
    with pytest.raises(ConfigError):
        make()
