"""The graph of a dataflow: validation."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.task import Task
from tests.random_flows import (
    SCHEMA,
)


@pytest.mark.long
def test_validation_lists_all_problems():
    flow = ro.Dataflow("wrong")
    source = flow.source("in", schema=SCHEMA)
    kalman = source.to(t.KalmanFilter(by=("devise",)), id="kalman")
    text = source.to(t.KalmanFilter(value="device"), id="text")
    source.to(t.KalmanFilter(), id="loose")
    flow.add(t.KalmanFilter(), id="alone")
    merged = ro.merge(source, source.to(t.KalmanFilter(output="smooth"), id="wider"))
    flow.sink("out", kalman, text, merged.to(t.KalmanFilter(), id="merged"))
    flow.connect("kalman", "oout")
    flow.sink("empty")
    with pytest.raises(ConfigError) as caught:
        flow.validate()
    message = str(caught.value)
    for part in (
        "kalman: kalman_filter reads the field 'devise'",
        'did you mean "device"?',
        "text: kalman_filter needs a number in the field 'device', its input has string",
        "loose: not connected: its output goes nowhere",
        "alone: not connected: it has no input",
        "merged: its inputs do not agree: only one has the field 'smooth'",
        "edge kalman -> oout: no node 'oout'; did you mean \"out\"?",
        "empty: not connected: it has no input",
    ):
        assert part in message, part
    for use in (lambda: flow.run([]), flow.plan, flow.schemas):
        with pytest.raises(ConfigError, match="devise"):
            use()


def test_cycle_is_named():
    flow = ro.Dataflow("round")
    a = flow.source("in", schema=SCHEMA).to(t.KalmanFilter(), id="a")
    b = a.to(t.KalmanFilter(), id="b")
    flow.connect("b", "a")
    flow.sink("out", b)
    with pytest.raises(ConfigError, match="cycle through a, b"):
        flow.validate()


def test_duplicate_edge_is_named():
    flow = ro.Dataflow("twice")
    source = flow.source("in", schema=SCHEMA)
    flow.sink("out", source.to(t.KalmanFilter(), id="a"))
    flow.connect("in", "a")
    with pytest.raises(ConfigError, match="in -> a occurs twice"):
        flow.validate()


@pytest.mark.parametrize("name", ["in", "a", "out", "errors"])
def test_duplicate_name_is_refused(name):
    flow = ro.Dataflow("names")
    source = flow.source("in", schema=SCHEMA)
    flow.sink("out", source.to(t.KalmanFilter(), id="a"))
    with pytest.raises(ConfigError, match=f"duplicate name '{name}'"):
        source.to(t.KalmanFilter(), id=name)


def test_streams_of_two_dataflows_do_not_mix():
    one, two = ro.Dataflow("one").source("in", schema=SCHEMA), ro.Dataflow("two").source("in", schema=SCHEMA)
    with pytest.raises(ConfigError, match="one dataflow"):
        ro.merge(one, two)
    with pytest.raises(ConfigError, match="belongs to the dataflow 'two'"):
        one.flow.add(t.KalmanFilter(), two)


def test_function_is_refused_as_task():
    flow = ro.Dataflow("f")
    with pytest.raises(ConfigError, match="a function is appended by map, flat_map or filter"):
        flow.source("in", schema=SCHEMA) >> (lambda row: row)
    assert issubclass(t.KalmanFilter, Task)
