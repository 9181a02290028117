"""Checks of submitted dataflows: malformed graphs, equal steps, options."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.graph.nodes import Edge
from riot_ops.reuse import LocalBackend, ReuseManager, errors
from tests.random_flows import SCHEMA
from tests.reuse.sharing import A, B, chain
from tests.reuse.slow_sinks import flow
from tests.reuse.spark.fake_spark import FakeSpark


def broken(change):
    flow = chain(A, B, name="f")
    change(flow)
    return flow


def apart(flow):
    flow.sink("other", flow.source("south", schema=SCHEMA).to(A, id="k"))


def twins(flow):
    flow.sink("more", flow.stream("north").to(A, id="again"))


def twins_that_meet(flow):
    again = flow.stream("north").to(A, id="again")
    flow.sink("more", ro.merge(flow.stream("f0"), again).to(t.KalmanFilter(process_noise=0.3), id="both"))


WRONG = {
    "empty": (lambda: ro.Dataflow("f"), errors.EmptyDataflowError, "no steps"),
    "dangling": (lambda: broken(lambda f: f.connect("f1", "f9")), errors.DanglingStreamError, "f9"),
    "twice": (lambda: broken(lambda f: f.edges.append(Edge("f0", "f1"))), errors.DuplicateStreamError, "twice"),
    "cycle": (lambda: broken(lambda f: f.connect("f1", "f0")), errors.CycleError, "f0 -> f1 -> f0|f1 -> f0 -> f1"),
    "self": (lambda: broken(lambda f: f.connect("f1", "f1")), errors.CycleError, "f1 -> f1"),
    "no input": (lambda: broken(lambda f: f.sink("more", f.add(A, id="x"))), errors.BoundaryError, "x: it has no"),
    "nowhere": (
        lambda: broken(lambda f: f.stream("f1").to(A, id="x")),
        errors.BoundaryError,
        "x: its output is not read",
    ),
    "behind": (lambda: broken(lambda f: f.connect("out", "f9") or 0), errors.DanglingStreamError, "f9"),
    "parts": (lambda: broken(apart), errors.DisconnectedError, "2 unconnected parts"),
    "twins": (lambda: broken(twins), errors.NotDeduplicatedError, "f0 = again"),
    "schema": (lambda: chain(t.KalmanFilter(value="nothing")), ConfigError, "nothing"),
    "name": (lambda: chain(A, name="there"), errors.DuplicateNameError, "is running"),
}


@pytest.mark.parametrize("below", [".", "control", "fragments/f0"])
@pytest.mark.parametrize("kind", ["local", "spark"])
def test_sink_in_the_folder_of_the_back_end_is_refused(tmp_path, kind, below):
    make = LocalBackend if kind == "local" else FakeSpark
    backend = make(folder=tmp_path / "kept") if kind == "local" else make(tmp_path / "kept")
    manager = ReuseManager(backend, log=tmp_path / "log")
    source = ro.MemorySource([{"value": 1.0}])
    for act in (manager.explain, manager.submit):
        with pytest.raises(
            ConfigError, match=r"the sink .* of 'a' would write to .*, which is in the folder of the back"
        ):
            act(flow("a"), source, ro.ParquetSink(tmp_path / "kept" / below))
    assert manager.names == []
    manager.submit(flow("a"), source, ro.ParquetSink(tmp_path / "out"))
    manager.close()
    backend.close()


@pytest.mark.parametrize("case", WRONG)
def test_malformed_dataflow_is_refused_without_change(case):  # P16
    make, kind, text = WRONG[case]
    manager = ReuseManager()
    manager.submit(chain(A, name="there"))
    before = manager.canonical(), manager.state(), manager.stats()
    for act in (manager.submit, manager.explain) if case != "name" else (manager.submit,):
        with pytest.raises(kind, match=text):
            act(make())
    assert (manager.canonical(), manager.state(), manager.stats()) == before
    assert issubclass(kind, ConfigError)


def test_fold_merges_equal_steps():
    manager = ReuseManager()
    flow = broken(twins)
    report = manager.submit(flow, fold=True)
    assert report.new["f0"] == report.new["again"]
    with pytest.raises(errors.NotDeduplicatedError, match="halve"):
        manager.submit(broken(twins_that_meet), name="g", fold=True)


def test_later_changes_to_a_submitted_dataflow_have_no_effect():
    manager = ReuseManager()
    flow = chain(A, name="a")
    manager.submit(flow)
    before = manager.state()
    flow.sink("more", flow.stream("a0").to(B, id="b"))
    assert manager.state() == before


def test_on_slow_is_logged(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit(flow("a"), on_slow="block", on_failure="stop")
    manager.close()
    for again in (ReuseManager(log=tmp_path / "log"), ReuseManager()):
        if not again.names:
            again.restore(manager.state())
        [what] = again.state()["dataflows"]
        assert (what["on_slow"], what["on_failure"]) == ("block", "stop")


@pytest.mark.parametrize("wrong", [{"on_slow": "stop"}, {"on_failure": "block"}])
def test_unknown_option_is_refused(wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(ConfigError, match=f"{name} must be 'detach' or .*got '{value}'"):
        ReuseManager().submit(flow("a"), **wrong)
