"""Descriptors from outside: whatever is wrong with one is a ConfigError."""

from __future__ import annotations

import copy
import json

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError


def described():
    made = ro.Dataflow("small")
    readings = made.source("readings", schema={"device": "string", "value": "double"})
    made.sink("out", readings.partition_by("device", parallelism=2).to(t.KalmanFilter(by=("device",)), id="smooth"))
    return made.to_dict()


def test_the_text_of_a_descriptor():
    flow = ro.Dataflow.from_dict(described())
    assert flow.to_json().splitlines()[1].startswith('  "')
    assert flow.to_json(indent=4).splitlines()[1].startswith('    "')
    assert len(flow.to_json(indent=None).splitlines()) == 1
    assert {flow.to_json(indent=n) == flow.to_json() for n in (0, 2)} == {False, True}
    for indent in (None, 0, 7):
        assert ro.Dataflow.from_json(flow.to_json(indent)).to_dict() == described()


WRONG = (None, 7, -1, 1.5, True, "x", [], ["x"], [[]], {}, {"x": 1}, [{"x": []}], "\ud800")


def places(data, path=()):
    """Each place in nested data."""
    yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(value, (*path, key))


def test_any_value_at_any_place_is_taken_or_refused():
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
def test_what_is_no_descriptor(text):
    with pytest.raises(ConfigError, match=r"not a JSON dataflow|not a dataflow descriptor"):
        ro.Dataflow.from_json(text)


def test_a_descriptor_that_is_too_deep():
    deep = described()
    inner = deep["nodes"][1]["task"]
    for _ in range(50_000):
        inner["by"] = [{}]
        inner = inner["by"][0]
    with pytest.raises(ConfigError, match=r"'small'|by"):
        ro.Dataflow.from_dict(deep)


@pytest.mark.parametrize(
    ("change", "told"),
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
def test_what_is_wrong_is_told(change, told):
    data = json.loads(json.dumps(described()))
    change(data)
    with pytest.raises(ConfigError, match=told):
        ro.Dataflow.from_dict(data)
