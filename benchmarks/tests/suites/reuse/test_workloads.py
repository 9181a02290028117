"""Workloads and traces: the figures that they stand for, and that they run."""

from __future__ import annotations

import functools
import itertools
import random
import statistics
from collections import Counter

import pytest
from riot_bench.suites.reuse.traces import (
    Action,
    count_steps,
    load_trace,
    random_walk_trace,
    save_trace,
    sequential_trace,
)
from riot_bench.suites.reuse.workloads import opmw_like, pi_series, riot21, riot_source

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.reuse import LocalBackend, ReuseManager, signatures
from riot_ops.testing import exact


def marks(flows):
    return {flow.name: list(signatures(flow).values()) for flow in flows}


RIOT = marks(riot21())


def test_riot21_has_the_stated_steps():
    assert len(RIOT) == 21 and sum(map(len, RIOT.values())) == 192
    assert len({mark for found in RIOT.values() for mark in found}) == 105
    for stream in ("city", "taxi", "grid"):
        of = [found for name, found in RIOT.items() if name.startswith(stream)]
        assert sorted(map(len, of)) == [6, 8, 8, 9, 11, 11, 11]
        assert len({mark for found in of for mark in found}) == 35
    saved = count_steps(sequential_trace(list(RIOT)), RIOT)
    assert round(100 * saved.peak, 1) == 45.3 and len(saved.alone) == 42


def test_riot21_takes_other_stores():
    def texts(**options):
        return "".join(flow.to_json() for flow in riot21(**options))

    assert "sqlite:///x.db" in texts(store="sqlite:///x.db") and "memory://y" in texts(broker="memory://y")


def test_traces_of_riot21_have_the_published_savings():
    names = list(RIOT)
    assert statistics.mean(count_steps(sequential_trace(names, s), RIOT).total for s in range(60)) == pytest.approx(
        0.365, abs=0.02
    )
    walks = [count_steps(random_walk_trace(names, seed=s), RIOT) for s in range(60)]
    begun = [1 - sum(w.shared[10:111]) / sum(w.alone[10:111]) for w in walks]
    assert statistics.mean(begun) == pytest.approx(0.337, abs=0.02)


def test_opmw_like_saves_38_percent():
    peaks = []
    for seed in range(20):
        found = marks(opmw_like(seed))
        assert len(found) == 35 and all(len(set(one)) == len(one) for one in found.values())
        peaks.append(count_steps(sequential_trace(list(found), seed), found).peak)
    assert statistics.mean(peaks) == pytest.approx(0.38, abs=0.015)
    assert marks(opmw_like(3)) == marks(opmw_like(3)) != marks(opmw_like(4))


def test_parameters_of_opmw_like_count():
    def distinct(**options):
        found = marks(opmw_like(0, **options))
        return len({m for one in found.values() for m in one}) / sum(map(len, found.values()))

    assert distinct(share=0.2) > distinct() > distinct(share=0.95)
    assert distinct(families=1) < distinct(families=30)
    assert len(opmw_like(0, 5)) == 5

    def sizes(**options):
        return [len(f.nodes_of_kind("task")) + 1 for f in opmw_like(0, **options)]

    assert min(sizes()) >= 2 and max(sizes()) <= 38
    assert set(sizes(min_steps=7, max_steps=9)) <= {7, 8, 9}
    assert statistics.median(sizes(median=20)) > statistics.median(sizes())
    assert statistics.stdev(sizes(sigma=0.1)) < statistics.stdev(sizes())
    for wrong in ({"share": 1.1}, {"min_steps": 1}, {"max_steps": 41}, {"min_steps": 9, "max_steps": 8}):
        with pytest.raises(ConfigError, match="must be"):
            opmw_like(0, **wrong)


def test_opmw_like_accepts_any_function():
    class Work:
        def __call__(self, row):
            return {"pi": 3.0}

    few, many = (functools.partial(pi_series, terms=n) for n in (1, 2))
    works = [few, many, Work(), pi_series]
    found = [set().union(*marks(opmw_like(0, 3, work=work)).values()) for work in works]
    both = [a & b for a, b in itertools.combinations(found, 2)]
    assert both[0] and all(one == both[0] for one in both), "sources alone"
    assert marks(opmw_like(0, 3, work=few)) == marks(opmw_like(0, 3, work=functools.partial(pi_series, terms=1)))
    flow = opmw_like(0, 1, work=few)[0]
    result = flow.run([{"value": 1.0, "pi": 0.0}])
    ends = {edge.source for node in flow.nodes_of_kind("sink") for edge in flow.inputs(node.id)}
    assert {pi for end in ends for pi in result[end]["pi"].to_pylist()} == {4.0}


def test_opmw_like_processes_each_message_once_in_each_task():
    for seed in range(5):
        for flow in opmw_like(seed, 8, work=functools.partial(pi_series, terms=1)):
            result = flow.run([{"value": float(i), "pi": 0.0} for i in range(7)], batch_size=3)
            assert not result.errors.num_rows
            ends = {edge.source for node in flow.nodes_of_kind("sink") for edge in flow.inputs(node.id)}
            for end in ends:
                assert sorted(result[end]["value"].to_pylist()) == [float(i) for i in range(7)]


def test_manager_stats_equal_counted_steps():
    flows = {flow.name: flow for flow in riot21()}
    manager = ReuseManager()
    trace = random_walk_trace(list(flows), steps=20, seed=1)
    saved = count_steps(trace, RIOT)
    uses = Counter()
    for action, alone, shared in zip(trace, saved.alone, saved.shared, strict=True):
        manager.submit(flows[action.name]) if action.op == "submit" else manager.remove(action.name)
        found = manager.stats()
        assert (found["steps"], found["steps_alone"]) == (shared, alone)
        uses.update(found["shares"])
    assert dict(uses) == dict(saved.uses)


def test_saved_shares_by_hand():
    saved = count_steps(
        [Action(0, "submit", "a"), Action(1, "submit", "b"), Action(2, "remove", "a"), Action(3, "remove", "b")],
        {"a": "sxy", "b": "sx"},
    )
    assert (saved.alone, saved.shared) == ((3, 5, 2, 0), (3, 3, 2, 0))
    assert saved.peak == pytest.approx(0.4) and saved.total == pytest.approx(0.2)
    assert saved.mean == pytest.approx((0 + 0.4 + 0) / 3) and saved.uses == {1: 3 + 1 + 2, 2: 2}


def test_no_running_steps_save_nothing():
    for trace in ([], [Action(0, "submit", "a"), Action(1, "remove", "a")]):
        saved = count_steps(trace, {"a": []})
        assert (saved.peak, saved.total, saved.mean, dict(saved.uses)) == (0, 0, 0, {})


def test_traces_are_valid_and_survive_a_roundtrip(tmp_path):
    names = [f"d{i}" for i in range(11)]
    for trace in (
        sequential_trace(names, 3),
        random_walk_trace(names, 50, 3),
        random_walk_trace(names, 50, 3, preload=0.0),
    ):
        there = set()
        for i, action in enumerate(trace):
            assert action.step == i and (action.name in there) == (action.op == "remove")
            (there.add if action.op == "submit" else there.remove)(action.name)
        assert not there
        save_trace(trace, tmp_path / "trace.jsonl")
        assert load_trace(tmp_path / "trace.jsonl") == trace
    assert sequential_trace(names, 3) != sequential_trace(names, 4) and random_walk_trace(
        names, seed=1
    ) != random_walk_trace(names, seed=2)
    assert [a.op for a in random_walk_trace(names, 0, preload=1.0)] == ["submit"] * 11 + ["remove"] * 11
    assert len(random_walk_trace(names, 7, preload=0.5)) >= 6 + 7
    (tmp_path / "bad").write_text('{"step": 1, "op": "stop", "name": "x"}\n')
    with pytest.raises(ConfigError, match=r"line 1 .* is not an action"):
        load_trace(tmp_path / "bad")
    for wrong in ({"names": []}, {"names": names, "steps": -1}, {"names": names, "preload": 2}):
        with pytest.raises(ConfigError, match="a walk needs"):
            random_walk_trace(**wrong)


def test_riot21_shared_outputs_equal_separate_ones():  # P15, with the real tasks
    choose = random.Random(0)
    flows = [f for f in choose.sample(riot21(), 21) if not f.name.startswith("taxi")]
    backend = LocalBackend(batch_size=64)
    manager = ReuseManager(backend, "stateless")
    sinks, first = {}, {}
    for flow in flows:
        source = flow.nodes_of_kind("source")[0].id
        sinks[flow.name] = ro.MemorySink()
        first[flow.name] = manager.submit(flow, riot_source(source, 500), sinks[flow.name]).first[source]
    assert manager.stats()["steps"] == 70 and set(first.values()) == {0}
    backend.run()
    assert backend.stats()["messages"] == 1000
    for flow in flows:
        alone = flow.run(riot_source(flow.nodes_of_kind("source")[0].id, 500))
        streams = {e.source for n in flow.nodes_of_kind("sink") for e in flow.inputs(n.id)} | {"errors"}
        for stream in streams:
            got = Counter(map(exact, sinks[flow.name].table(stream).to_pylist()))
            assert got == Counter(map(exact, alone[stream].to_pylist())), (flow.name, stream)
        assert not alone.errors.num_rows
        assert any(alone[stream].num_rows for stream in streams)


def test_opmw_like_does_its_work():
    flow = next(f for f in opmw_like(0) if len(f.nodes_of_kind("task")) == 3)
    got = flow.run([{"value": 1.0, "pi": 0.0}])
    end = flow.inputs(flow.nodes_of_kind("sink")[0].id)[0].source
    assert got[end].column("pi")[0].as_py() == pi_series({})["pi"]


def test_other_functions_make_other_steps():
    def three(row):
        return {"pi": 3.0}

    flow = next(f for f in opmw_like(0, work=three) if len(f.nodes_of_kind("task")) == 3)
    got = flow.run([{"value": 1.0, "pi": 0.0}])
    assert got[flow.inputs(flow.nodes_of_kind("sink")[0].id)[0].source].column("pi").to_pylist()[0] == 3.0
    usual, others = (
        {signatures(flow)[node.id] for flow in flows for node in flow.nodes_of_kind("task")}
        for flows in (opmw_like(0, 5), opmw_like(0, 5, work=three))
    )
    assert usual and not usual & others
    assert pi_series({}, 2) == {"pi": 4 * (1 - 1 / 3)}
