"""The methods that run a dataflow or a task show the options of the functions that they call, and pass each one on."""

from __future__ import annotations

import inspect

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.graph.plan import plan
from riot_ops.runtime import local
from riot_ops.spark import dataframe_transform, frames, runner
from riot_ops.task import Task

METHODS = [
    (ro.Dataflow.run, local, "run"),
    (ro.Dataflow.start, runner, "start"),
    (ro.Dataflow.transform, frames, "transform_flow"),
    (ro.Dataflow.frames, frames, "frames"),
    (Task.transform, dataframe_transform, "transform"),
]


def options(function):
    found = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in found if p.kind is p.KEYWORD_ONLY}


@pytest.mark.parametrize(("method", "module", "name"), METHODS)
def test_signature_has_every_option(method, module, name):
    assert options(method) == options(getattr(module, name)) != {}
    assert all(p.kind is not p.VAR_KEYWORD for p in inspect.signature(method).parameters.values())


@pytest.mark.parametrize(("method", "module", "name"), METHODS)
def test_every_option_is_passed_on(monkeypatch, method, module, name):
    got = []
    given = {option: object() for option in options(method)}
    monkeypatch.setattr(ro.dataflow if module is local else module, name, lambda *_, **named: got.append(named))
    owner = t.KalmanFilter() if method is Task.transform else ro.Dataflow("any")
    arguments = (object(), object()) if name == "start" else (object(),)
    method(owner, *arguments, **given)
    assert got == [given]


def test_plan_takes_its_option():
    flow = ro.Dataflow("two")
    rows = flow.source("in", schema={"a": str, "b": str, "value": float})
    flow.sink("out", rows.to(t.KalmanFilter(by=("a", "b"))).to(t.MovingAverage(by="a", window=2)))
    for fuse in ("exact", "coarse"):
        assert repr(flow.plan(fuse)) == repr(flow.plan(fuse=fuse)) == repr(plan(flow, fuse))
    assert len(flow.plan("exact").shuffles) != len(flow.plan("coarse").shuffles)
