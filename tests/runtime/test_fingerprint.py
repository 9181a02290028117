"""Fingerprints of dataflows, and descriptions of their differences."""

from __future__ import annotations

import json

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.runtime.fingerprint import describe_difference, fingerprint


def flow(window=5, name="a", schema="double", spread=lambda s: s.partition_by("key")):
    made = ro.Dataflow(name)
    source = made.source("in", schema={"key": "string", "value": schema})
    average = spread(source).to(t.MovingAverage(by=("key",), window=window), id="avg")
    return made.sink("out", average)


def test_fingerprint_holds_parts_of_dataflow():
    found = fingerprint(flow())
    assert list(found) == ["source 'in'", "step 'avg'", "sink 'out'", "edge 'in' -> 'avg'", "edge 'avg' -> 'out'"]
    assert found["source 'in'"] == {"seq": "int64", "key": "string", "value": "double"}
    step = found["step 'avg'"]
    assert (step["window"], step["task"], step["version"]) == (5, "moving_average", 1)
    assert found["sink 'out'"] == {}
    edge = found["edge 'in' -> 'avg'"]
    assert (edge["kind"], edge["fields"], edge["router"]) == ("hash", ["key"], None)
    assert found == json.loads(json.dumps(found)) == fingerprint(flow(name="another"))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"window": 6}, "step 'avg': window was 5 and is 6"),
        ({"schema": "int64"}, "source 'in': value was 'double' and is 'int64'"),
        ({"spread": lambda s: s.partition_by("value")}, "edge 'in' -> 'avg': fields was ['key'] and is ['value']"),
    ],
)
def test_difference_names_part_and_values(changed, text):
    assert describe_difference(fingerprint(flow()), fingerprint(flow(**changed))) == text
    assert describe_difference(fingerprint(flow()), fingerprint(flow())) == ""


def test_difference_names_added_and_removed_parts():
    a, b = {"step 'a'": {}, "step 'b'": {"x": 1}}, {"step 'b'": {"x": 1}, "step 'c'": {}}
    assert describe_difference(a, b) == "there is no step 'a' any more; there was no step 'c'"
    assert describe_difference({"p": {"x": 1, "y": 2}}, {"p": {"x": 1, "y": 3, "z": None}}) == "p: y was 2 and is 3"
    assert describe_difference({"p": {"x": 1}}, {"p": {"x": 2, "z": 0}}) == "p: x was 1 and is 2, z was None and is 0"
    assert describe_difference({"p": {"x": float("nan")}}, {"p": {"x": float("nan")}}) == ""
