"""Several dataflows submitted as one action behave as if submitted one after the other."""

from __future__ import annotations

import contextlib
import json
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.reuse import LocalBackend, NullBackend, Request, ReuseManager, errors
from tests.random_flows import SCHEMA, assert_same, everything, random_input
from tests.reuse.local_users import Got, any_flow, known
from tests.reuse.sharing import check, overlapping_flow
from tests.reuse.spark.fake_spark import FakeSpark, Gated
from tests.search import depth, seeds

SEEDS = st.integers(0, 2**32).map(random.Random)
NAMES = ("north", "south", "west", "in0", "in1")
ROWS = [{"value": float(i)} for i in range(100)]


def above(name, limit, source="in"):
    flow = ro.Dataflow(name)
    task = t.RangeFilter(by=None, bounds={"value": (limit, 1000)})
    return flow.sink("out", flow.source(source, schema={"value": "double"}).to(task, id="kept"))


def values(sink):
    table = sink.table("kept")
    return table["value"].to_pylist() if table.num_columns else []


# -- equivalence -----------------------------------------------------------------------------------


@given(SEEDS)
@settings(max_examples=depth(20))
def test_ledger_equals_single_submissions(choose):
    before = [overlapping_flow(choose, f"b{i}") for i in range(choose.randint(0, 2))]
    flows = {f"d{i}": overlapping_flow(choose, f"d{i}") for i in range(choose.randint(1, 5))}
    at_once, one_by_one = ReuseManager(), ReuseManager()
    for manager in (at_once, one_by_one):
        for flow in before:
            manager.submit(flow)
        if before:
            manager.pause("b0")
    reports = at_once.submit_all(Request(flow, owner=name) for name, flow in flows.items())
    assert reports == [one_by_one.submit(flow, owner=name) for name, flow in flows.items()]
    assert at_once.canonical() == one_by_one.canonical() and at_once.state() == one_by_one.state()
    alive = {**{flow.name: flow for flow in before}, **flows}
    check(at_once, alive)
    for name in choose.sample(list(alive), len(alive)):
        assert at_once.remove(name) == one_by_one.remove(name)
        assert at_once.canonical() == one_by_one.canonical()
    assert not at_once.backend.running_steps() and at_once.stats()["fragments"] == 0


def valid_flows(choose, n):
    """Random dataflows that may be submitted."""
    found = {}
    while len(found) < n:
        name = f"d{len(found)}"
        flow = any_flow(choose, name)
        with contextlib.suppress(errors.NotDeduplicatedError, errors.DisconnectedError, errors.DescriptorError):
            ReuseManager().submit(flow, name=name)
            found[name] = flow
    return found


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=depth(10))
def test_records_equal_single_submissions(choose):
    logs = {name: random_input(choose, 40) for name in NAMES}
    flows = valid_flows(choose, 5)
    first, size, turns = choose.randint(0, len(flows)), choose.randint(1, 12), choose.randint(0, 3)
    gone = choose.choice([None, *flows])
    got = []
    for at_once in (True, False):
        manager = ReuseManager(LocalBackend(size))
        sinks = {name: ro.MemorySink() for name in flows}
        requests = [
            Request(flow, {n.id: logs[n.id] for n in flow.nodes_of_kind("source")}, sinks[name], name=name)
            for name, flow in flows.items()
        ]
        manager.submit_all(requests[:first])
        for _ in range(turns):
            manager.backend.turn()
        rest = requests[first:]
        for some in [rest] if at_once else [[one] for one in rest]:
            manager.submit_all(some)
        manager.backend.turn()
        if gone is not None:
            manager.remove(gone)
        manager.backend.run()
        got.append({name: everything(Got(sinks[name]), flow, known(flow)) for name, flow in flows.items()})
        for name in manager.names:
            manager.remove(name)
        assert not manager.backend.running_steps() and not manager.backend.engine.steps
    for name, flow in flows.items():
        assert_same(got[0][name], got[1][name], flow)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(3))
def test_queries_give_each_dataflow_the_same_records_as_alone(seed, tmp_path):
    choose = random.Random(seed)
    logs = {name: random_input(choose, 60) for name in NAMES}
    flows = valid_flows(choose, 6)
    manager = ReuseManager(FakeSpark(tmp_path / "back"))
    sinks = {name: ro.MemorySink() for name in flows}
    requests = [
        Request(flow, {n.id: Gated(ro.MemorySource(logs[n.id], SCHEMA), tmp_path / "gate") for n in flow.nodes_of_kind("source")},
                sinks[name], name=name)
        for name, flow in flows.items()
    ]  # fmt: skip
    manager.submit_all(requests[:2])
    manager.submit_all(requests[2:])
    assert manager.stats()["queries"] == manager.stats()["fragments"] <= 2 * len(flows)
    (tmp_path / "gate").touch()
    assert manager.backend.wait("1min")
    for name, flow in flows.items():
        alone = flow.run({n.id: logs[n.id] for n in flow.nodes_of_kind("source")})
        assert_same(everything(Got(sinks[name]), flow, known(flow)), everything(alone, flow, known(flow)), flow)
    for name in flows:
        manager.remove(name)
    assert not list((tmp_path / "back" / "fragments").iterdir()) and not list(
        (tmp_path / "back" / "dataflows").iterdir()
    )
    manager.close()


# -- queries ---------------------------------------------------------------------------------------


@pytest.fixture(params=["null", "local", "queries"])
def back_end(request, tmp_path):
    made = {"null": NullBackend, "local": LocalBackend, "queries": lambda: FakeSpark(tmp_path / "back")}[
        request.param
    ]()
    yield made
    made.close()


def test_connected_dataflows_become_one_query(back_end, tmp_path):
    manager = ReuseManager(back_end)
    sinks = [ro.MemorySink() for _ in range(20)]
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")
    other = Gated(ro.MemorySource([{"value": 0.5}]), tmp_path / "gate")
    requests = [Request(above(f"d{i}", i), source, sinks[i]) for i in range(19)]
    reports = manager.submit_all([*requests, Request(above("apart", 0, "other"), other, sinks[19])])
    assert [one.name for one in reports] == [*(f"d{i}" for i in range(19)), "apart"]
    assert [one.first for one in reports] == [{"in": 0}] * 19 + [{"other": 0}]
    assert {one.group for one in reports} == {0, 1}
    if not isinstance(back_end, LocalBackend):
        assert manager.stats()["fragments"] == 2
    assert manager.remove("d18").stopped == ("range_filter.37", "out.38")
    if isinstance(back_end, NullBackend):
        return
    (tmp_path / "gate").touch()
    back_end.run() if isinstance(back_end, LocalBackend) else back_end.wait("20s")
    for i, sink in enumerate(sinks[:18]):
        assert values(sink) == [float(v) for v in range(i, 100)]
    assert values(sinks[19]) == [0.5]


@pytest.mark.parametrize(("join", "queries"), [(False, 2), (True, 1)])
def test_readers_of_one_query_become_one_query(tmp_path, join, queries):
    backend = FakeSpark(tmp_path / "back", join=join)
    manager = ReuseManager(backend)
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")
    manager.submit(above("first", 0), source, ro.MemorySink())
    sinks = [ro.MemorySink() for _ in range(5)]
    manager.submit_all(Request(above(f"d{i}", 10 * i + 1), source, sinks[i]) for i in range(5))
    assert manager.stats()["fragments"] == queries
    (tmp_path / "gate").touch()
    assert backend.wait("20s")
    assert [len(values(sink)) for sink in sinks] == [99, 89, 79, 69, 59]
    manager.close()


def test_empty_list_is_no_action(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    assert manager.submit_all([]) == [] and not (tmp_path / "log").read_bytes()


# -- all or nothing --------------------------------------------------------------------------------


def test_one_malformed_dataflow_refuses_all(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit(above("there", 0))
    before = manager.state(), manager.stats(), (tmp_path / "log").read_bytes()
    for wrong, kind, message in (
        (Request(above("there", 1)), errors.DuplicateNameError, "is running"),
        (Request(above("a", 1)), errors.DuplicateNameError, "two of the dataflows are named 'a'"),
        (Request(ro.Dataflow("b")), errors.EmptyDataflowError, "no steps"),
        (Request("b"), ConfigError, "expected a Dataflow, got str"),
        (Request(above("b", 1), on_slow="wait"), ConfigError, "on_slow must be"),
        (above("b", 1), ConfigError, "expected a Request, got Dataflow"),
    ):
        with pytest.raises(kind, match=message):
            manager.submit_all([Request(above("a", 5)), wrong])
        assert (manager.state(), manager.stats(), (tmp_path / "log").read_bytes()) == before


@pytest.mark.parametrize("back_end", ["local", "queries"], indirect=True)
def test_one_failing_sink_refuses_all(back_end, tmp_path):
    manager = ReuseManager(back_end)
    source = ro.MemorySource(ROWS)
    manager.submit(above("there", 0), source, ro.MemorySink())
    if isinstance(back_end, FakeSpark):
        back_end.wait("10s")
    (tmp_path / "taken" / "kept").mkdir(parents=True)
    (tmp_path / "taken" / "kept" / "part-000000-00000.parquet").touch()
    before, running = manager.state(), back_end.running_steps()
    with pytest.raises(ConnectorError, match="holds the output of an earlier run"):
        manager.submit_all(
            Request(above(name, limit), source, ro.ParquetSink(tmp_path / name))
            for limit, name in enumerate(("good", "taken", "fine"))
        )
    assert manager.state() == before and back_end.running_steps() == running
    assert not list((tmp_path / "good").glob("*/*")), "the sink has ended, or has a file"
    if isinstance(back_end, LocalBackend):
        assert {step.id for step in back_end.engine.steps} == running - {"out.2"}
    else:
        assert [p.name for p in (tmp_path / "back" / "fragments").iterdir()] == ["f0"]
        assert len(list((tmp_path / "back" / "dataflows").iterdir())) == 1
    good = ro.ParquetSink(tmp_path / "good")
    manager.submit(above("good", 50), source, good)
    back_end.run() if isinstance(back_end, LocalBackend) else back_end.wait("10s")
    manager.remove("good")


def test_unlogged_submission_is_undone_and_pauses_stay(tmp_path, monkeypatch):
    backend = LocalBackend()
    manager = ReuseManager(backend, log=tmp_path / "log")
    source = ro.MemorySource(ROWS)
    manager.submit(above("there", 0), source, ro.MemorySink())
    manager.pause("there")
    before, resting = manager.state(), set(backend.engine.disabled)
    note = manager.journal.log.record_outcome

    def full(state):
        if state == "enacted":
            raise ConnectorError("no room")
        note(state)

    monkeypatch.setattr(manager.journal.log, "record_outcome", full)
    with pytest.raises(ConnectorError, match="no room"):
        manager.submit_all(Request(above(f"d{i}", 0), source, ro.MemorySink()) for i in range(3))
    assert manager.state() == before and backend.engine.disabled == resting and resting


def test_log_has_one_action_and_replays_it_completely(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit_all(Request(above(f"d{i}", i), owner="ada") for i in range(3))
    state = manager.state()
    manager.close()
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["state"] for line in lines] == ["intent", "enacted", "committed"]
    for n, names in ((3, ["d0", "d1", "d2"]), (2, ["d0", "d1", "d2"]), (1, [])):
        (tmp_path / "log").write_bytes(b"".join(lines[:n]))  # as after a crash, which may also lose what follows
        (tmp_path / "log.end").unlink(missing_ok=True)
        again = ReuseManager(log=tmp_path / "log")
        assert again.names == names and (again.state() == state) == bool(names)
        again.close()


def test_dataflows_of_one_action_share_state_under_each_policy():
    def average(name, window):
        flow = ro.Dataflow(name)
        smooth = flow.source("in", schema={"value": "double"}).to(t.KalmanFilter(), id="kalman")
        return flow.sink("out", smooth.to(t.MovingAverage(window=window), id="average"))

    manager = ReuseManager(policy="stateless")
    _, second = manager.submit_all([Request(average("a", 3)), Request(average("b", 5))])
    assert set(second.reused) == {"in", "kalman"} and manager.stats()["steps"] == manager.stats()["distinct"]
    assert set(manager.submit(average("c", 3)).reused) == {"in"}, "the shared step may have seen records"
