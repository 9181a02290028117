"""Descriptors: round trips, and a ConfigError for any that is wrong."""

from __future__ import annotations

import copy
import json
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from tests.random_flows import (
    SCHEMA,
    assert_same,
    everything,
    random_flow,
    random_input,
)
from tests.search import depth


def described():
    made = ro.Dataflow("small")
    readings = made.source("readings", schema={"device": "string", "value": "double"})
    made.sink("out", readings.partition_by("device", parallelism=2).to(t.KalmanFilter(by=("device",)), id="smooth"))
    return made.to_dict()


def test_json_round_trip():
    flow = ro.Dataflow.from_dict(described())
    assert flow.to_json().splitlines()[1].startswith('  "')
    assert flow.to_json(indent=4).splitlines()[1].startswith('    "')
    assert len(flow.to_json(indent=None).splitlines()) == 1
    assert {flow.to_json(indent=n) == flow.to_json() for n in (0, 2)} == {False, True}
    for indent in (None, 0, 7):
        assert ro.Dataflow.from_json(flow.to_json(indent)).to_dict() == described()


WRONG = (None, 7, -1, 1.5, True, "x", [], ["x"], [[]], {}, {"x": 1}, [{"x": []}], "\ud800")


def places(data, path=()):
    """Yield the path of each value in nested data."""
    yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(value, (*path, key))


def test_wrong_value_at_any_place_is_refused():
    whole = described()
    assert ro.Dataflow.from_dict(whole).to_dict() == whole
    refused = 0
    for path in [p for p in places(whole) if p]:
        for wrong in WRONG:
            changed = copy.deepcopy(whole)
            holder = changed
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = wrong
            try:
                ro.Dataflow.from_dict(changed)
            except ConfigError:
                refused += 1
    assert refused > 200


@pytest.mark.parametrize("text", ["", "[" * 100_000, "7", "null", "{}", '{"format": 1}', b"\xff", None])
def test_other_text_is_refused(text):
    with pytest.raises(ConfigError, match=r"not a JSON dataflow|not a dataflow descriptor"):
        ro.Dataflow.from_json(text)


def test_too_deep_descriptor_is_refused():
    deep = described()
    inner = deep["nodes"][1]["task"]
    for _ in range(50_000):
        inner["by"] = [{}]
        inner = inner["by"][0]
    with pytest.raises(ConfigError, match=r"'small'|by"):
        ro.Dataflow.from_dict(deep)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d["nodes"][0].update(schema=[{"name": "a", "type": "nosuch"}]), "nosuch"),
        (
            lambda d: d["nodes"].append("x"),
            r"'small' \(str\) is not well formed: nodes\[3\]: must be an object with id, .*, got 'x'",
        ),
        (lambda d: d["edges"][0].update(fields="device"), r"edges\[0\]\.fields"),
        (lambda d: d["nodes"][0].update(knd="source"), "unknown key 'knd' of a node.*did you mean \"kind\""),
        (lambda d: d.update(name=7), r"name = 7 \(int\): Expected `str`, got `int`"),
        (lambda d: d.update(nodes=5), r"nodes = 5 \(int\): Expected `array`, got `int`"),
        (lambda d: d["nodes"][2].pop("id"), r"nodes\[2\] = an object with kind: .*missing required field `id`"),
        (lambda d: d["nodes"][0].update(kind="sorce"), r"nodes\[0\]\.kind = 'sorce' .*'sink'; did you mean \"source\""),
        (
            lambda d: d["nodes"][0].update(schema=[{"name": "a"}]),
            r"nodes\[0\]\.schema\[0\] = an object with name: .*`type`",
        ),
        (lambda d: d["nodes"][1].pop("task"), r"nodes\[1\]: the task of 'smooth' lacks its name"),
        (lambda d: d["nodes"][1]["task"].update(nope=1), r"nodes\[1\]: .*no parameter 'nope'"),
        (lambda d: d.update(format="x"), "format must be 'riot_ops.dataflow/1', got 'x'"),
    ],
)
def test_error_names_place_and_value(change, text):
    data = json.loads(json.dumps(described()))
    change(data)
    with pytest.raises(ConfigError, match=text):
        ro.Dataflow.from_dict(data)


SEEDS = st.integers(0, 2**32).map(random.Random)


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=depth(40))
def test_dataflow_from_json_gives_same_records(choose):
    flow = random_flow(choose, functions=False)
    again = ro.Dataflow.from_json(flow.to_json())
    assert again.to_json() == flow.to_json()
    assert str(again.plan()) == str(flow.plan())
    table = random_input(choose, 30)
    assert_same(everything(again.run(table), again), everything(flow.run(table), flow), flow)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["nodes"][1]["task"].update(proces_noise=1.0), 'did you mean "process_noise"'),
        (lambda d: d["nodes"][1]["task"].update(task="kalman_filer"), 'did you mean "kalman_filter"'),
        (lambda d: d["nodes"][1].update(knd="task"), 'did you mean "kind"'),
        (lambda d: d.update(format="x"), "format must be"),
        (lambda d: d["edges"][0].pop("to"), "not well formed"),
        (lambda d: d["nodes"][0].update(schema=[{"name": "value", "type": "dubble"}]), "unknown type 'dubble'"),
    ],
)
def test_wrong_descriptor_is_refused_with_hint(change, message):
    flow = ro.Dataflow("described")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(t.KalmanFilter(), id="a"))
    data = flow.to_dict()
    change(data)
    with pytest.raises(ConfigError, match=message):
        ro.Dataflow.from_dict(data)
