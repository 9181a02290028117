"""Functions with a state per key, against a naive reference."""

from __future__ import annotations

import json
from datetime import timedelta

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.tasks.functions.keyed_function import KeyedFunction, keyed
from tests.reference import user_functions as reference
from tests.reference.splits import KEYS, run
from tests.search import depth


def failing(state, row):
    """Change the state in place, then, depending on the value, raise or return a bad result."""
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


def raising(state, row):
    """The same function, but it raises an exception for the results that the task rejects."""
    state, results = failing(state, row)
    if row["value"] in (4, 5):
        raise TypeError
    return state, results


@settings(deadline=None, max_examples=depth(80))
@given(st.lists(st.tuples(KEYS, st.integers(0, 8)), max_size=30), st.lists(st.integers(0, 30), max_size=3))
def test_results_and_errors_equal_the_reference(events, cuts):
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(events)), pa.int64()),
            "ordinal": pa.array([1] * len(events), pa.int64()),
            "key": pa.array([k for k, _ in events], pa.string()),
            "value": pa.array([v for _, v in events], pa.int64()),
        }
    )
    task = keyed(failing, initial={"seen": []}, by=("key",), schema={"total": "float64"})
    out, errors = run(task, batch, cuts)
    expected, failed = reference.keyed(raising, {"seen": []}, ("key",), batch.to_pylist())
    assert out == expected
    assert sorted(e["seq"] for e in errors) == failed


@pytest.mark.parametrize("state", [None, True, 0, -1.5, "ü", [1, [2]], {"a": [None]}, float("nan"), (1, 2), {1: 2}])
def test_state_has_the_same_form_after_a_restart(state):
    def fn(current, row):
        return (state if row["i"] == 0 else current), {"text": json.dumps(current)}

    batch = pa.RecordBatch.from_pydict({"i": [0, 1, 2]})
    task = keyed(fn, schema={"text": "string"})
    assert run(task, batch, [1, 2]) == run(task, batch, [], restart=False)


def test_function_cannot_modify_a_stored_state():
    states = []

    def fn(state, row):
        state["n"] += 1
        states.append(state)
        for old in states[:-1]:
            old["n"] = 100
        return state, {"n": state["n"]}

    task = keyed(fn, initial={"n": 0}, by=("k",), schema={"n": "int64"})
    session = task.session()
    assert [session.push({"k": k})[0]["n"] for k in "aabba"] == [1, 2, 1, 2, 3]
    assert task.initial == {"n": 0}


def test_descriptor_keeps_key_initial_state_and_time_to_live():
    task = KeyedFunction(function=failing, by=("key",), initial={"seen": []}, ttl=timedelta(hours=1))
    assert KeyedFunction.with_function(json.loads(json.dumps(task.to_dict())), failing) == task
    hash(task)


@pytest.mark.parametrize(
    "options", [{"initial": [object()]}, {"initial": object()}, {"by": ("a", "a")}], ids=["list", "object", "twice"]
)
def test_wrong_parameters_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        keyed(failing, **options)
