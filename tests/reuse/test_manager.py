"""The manager on the null back end: its ledger, policies, errors and log."""

from __future__ import annotations

import json
import random
import threading

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.reuse import NullBackend, ReuseManager, errors, log
from tests.random_flows import SCHEMA
from tests.reference.reuse import Sharing, plain
from tests.reuse.sharing import A, B, books, chain, check, overlapping_flow, random_actions
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)


def run(manager, actions, each=None):
    flows = {}
    for do, what in actions:
        if do == "submit":
            manager.submit(what)
            flows[what.name] = what
        else:
            manager.remove(what)
            del flows[what]
        if each is not None:
            each(flows)
    return flows


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=depth(40))
def test_each_distinct_step_runs_once_for_its_users(choose):
    manager = ReuseManager()
    run(manager, random_actions(choose, 14), lambda flows: check(manager, flows))


@given(SEEDS)
@settings(max_examples=depth(30))
def test_sharing_equals_the_reference(choose):  # P13, P10
    manager, reference = ReuseManager(), Sharing()

    def shape():
        shared = books(manager)
        users = sorted(sorted(names) for names in shared.users.values())
        return users, sorted(sorted(g.members) for g in shared.groups.values())

    for do, what in random_actions(choose, 12):
        if do == "submit":
            report = manager.submit(what)
            assert set(report.new) == reference.submit(what.name, what)
            for node in report.reused:
                assert all(e.source in report.reused for e in what.inputs(node))
            graph = plain(what)
            assert {tuple(b) for b in report.boundary} == {
                (report.reused[p], report.new[n]) for n in report.new for p in graph[n][1] if p in report.reused
            }
        else:
            shared = books(manager)
            removal = shared.plan_removal(what)
            stopped = set(removal.stopped)
            for step in removal.stopped:
                assert shared.readers[step] <= stopped
            assert set(removal.boundary) == {
                (i, s) for s in stopped for i in shared.steps[s].inputs if i not in stopped
            }
            sources = [s for s in shared.placed[what].values() if not shared.steps[s].inputs]
            others = shared.groups[shared.group_id(what)].members - {what}
            assert len(removal.parts) <= len(sources)  # P11
            assert bool(removal.parts) == bool(others)
            manager.remove(what)
            reference.remove(what)
        users = sorted(sorted(names) for names in reference.users().values())
        assert shape() == (users, reference.shape()[1])


@given(SEEDS)
@settings(max_examples=depth(30))
def test_ledger_depends_only_on_the_set_of_dataflows(choose):  # P7, P8
    manager = ReuseManager()
    flows = run(manager, random_actions(choose, 12))
    fresh = ReuseManager()
    for flow in choose.sample(list(flows.values()), len(flows)):
        fresh.submit(flow)
    assert manager.canonical() == fresh.canonical()
    manager.submit(overlapping_flow(choose, "guest"))
    manager.remove("guest")
    assert manager.canonical() == fresh.canonical()
    for name in choose.sample(list(flows), len(flows)):
        manager.remove(name)
    assert manager.canonical() == ReuseManager().canonical()
    assert manager.backend.running_steps() == set() and manager.stats()["fragments"] == manager.stats()["idle"] == 0


@given(SEEDS)
@settings(max_examples=depth(20))
def test_equal_dataflow_starts_no_step(choose):  # P9
    manager = ReuseManager()
    flow = overlapping_flow(choose, "a")
    manager.submit(flow)
    fragments = manager.stats()["fragments"]
    report = manager.submit(flow, name="b")
    assert not report.new and not report.boundary and set(report.reused) == set(flow.nodes)
    assert manager.stats()["fragments"] == fragments
    assert manager.sink_map("a") == manager.sink_map("b")


@given(SEEDS)
@settings(max_examples=depth(20))
def test_defragmentation_changes_no_report(choose):  # P18
    manager = ReuseManager()
    flows = run(manager, random_actions(choose, 12))
    before = manager.canonical(), [manager.sink_map(name) for name in flows]
    manager.defragment()
    assert (manager.canonical(), [manager.sink_map(name) for name in flows]) == before
    found = manager.stats()
    assert found["fragments"] == found["groups"] and found["idle"] == 0
    check(manager, flows)


@given(SEEDS)
@settings(max_examples=depth(20))
def test_state_survives_json(choose):  # P14
    manager = ReuseManager()
    flows = run(manager, random_actions(choose, 12))
    for name in list(flows)[::2]:
        manager.pause(name)
    again = ReuseManager()
    again.restore(json.loads(json.dumps(manager.state())))
    assert again.canonical() == manager.canonical()
    assert [again.sink_map(name) for name in flows] == [manager.sink_map(name) for name in flows]
    assert again.state() == manager.state()
    with pytest.raises(ConfigError, match="before anything runs") if flows else pytest.raises(ConfigError):
        again.restore(manager.state() if flows else {})


def test_step_order_matters():  # P17
    manager = ReuseManager()
    manager.submit(chain(A, B, name="ab"))
    assert list(manager.submit(chain(B, A, name="ba")).reused) == ["north"]


def test_explain_equals_submit():
    manager = ReuseManager()
    manager.submit(chain(A, B, name="a"), owner="ada")
    before = manager.canonical()
    explanation = manager.explain(chain(A, name="b"))
    assert manager.canonical() == before and manager.names == ["a"]
    report = manager.submit(chain(A, name="b"))
    assert (explanation.reused, explanation.new, explanation.boundary) == (report.reused, report.new, report.boundary)
    assert explanation.with_whom == {"north": ["a"], "b0": ["a"]} and explanation.warm == ["b0"]
    assert str(explanation).splitlines()[0] == "b: 2 of 3 steps run already"
    assert manager.stats()["dataflows"]["a"]["owner"] == "ada"
    assert manager.explain_sharing().splitlines() == [
        "2 dataflows: 5 steps run in place of 7, 1 sources are read in place of 2",
        "  2 steps are used by 2",
    ]
    assert manager.explain(chain(A, name="b")).name == "b'"


def test_owner_must_be_a_text():
    manager = ReuseManager()
    for owner in (7, b"ada", ["ada"]):
        with pytest.raises(ConfigError, match=r"owner must be a text, got"):
            manager.submit(chain(A, name="a"), owner=owner)
    manager.submit(chain(A, name="a"))
    manager.submit(chain(A, name="b"), owner="")
    again = ReuseManager()
    again.restore(manager.state())
    assert {name: one["owner"] for name, one in again.stats()["dataflows"].items()} == {"a": None, "b": ""}


def test_bridging_dataflow_joins_and_splits_groups():
    manager = ReuseManager()

    def flow(name, *sources):
        made = ro.Dataflow(name)
        streams = [made.source(s, schema=SCHEMA) for s in sources]
        return made.sink("out", ro.merge(*streams).to(A, id="k"))

    manager.submit(flow("x", "north", "west"))
    manager.submit(flow("y", "east", "south"))
    assert manager.stats()["groups"] == 2
    report = manager.submit(flow("z", "north", "south"))
    assert manager.stats()["groups"] == 1 and set(report.reused) == {"north", "south"}
    manager.remove("z")
    assert manager.stats()["groups"] == 2
    manager.remove("x")
    manager.remove("y")
    assert manager.stats()["groups"] == 0


# -- errors ----------------------------------------------------------------------------------------


def test_unknown_dataflow_is_refused_with_a_hint():
    manager = ReuseManager()
    manager.submit(chain(A, name="kalman"))
    for act in (manager.remove, manager.pause, manager.resume, manager.sink_map):
        with pytest.raises(errors.UnknownDataflowError, match="did you mean"):
            act("kalmann")


def test_parameters_of_the_manager_are_checked():
    with pytest.raises(ConfigError, match="policy must be"):
        ReuseManager(policy="never")
    with pytest.raises(ConfigError, match="expected a Dataflow"):
        ReuseManager().submit("flow")
    with pytest.raises(ConfigError, match="needs a name"):
        ReuseManager().submit(chain(A), name="")
    manager = ReuseManager(policy="stateless")
    with pytest.raises(ConfigError, match="policy"):
        manager.restore(ReuseManager().state())
    with pytest.raises(ConfigError, match="format"):
        manager.restore({})


class Failing(NullBackend):
    fails = ""

    def _maybe(self, what):
        if self.fails == what:
            raise OSError("no more room")

    def extend(self, coming):
        self._maybe("extend")
        return super().extend(coming)

    def reduce(self, removal):
        self._maybe("reduce")
        super().reduce(removal)

    def apply_pause(self, rest):
        self._maybe("rest")

    def defragment(self, groups):
        self._maybe("defragment")


def test_failed_back_end_changes_nothing(tmp_path):  # P16
    manager = ReuseManager(Failing(), log=tmp_path / "log")
    manager.submit(chain(A, name="a"))
    before = manager.canonical(), manager.state(), manager.stats()
    acts = {
        "extend": lambda: manager.submit(chain(B, name="b")),
        "reduce": lambda: manager.remove("a"),
        "rest": lambda: manager.pause("a"),
        "defragment": manager.defragment,
    }
    for manager.backend.fails, act in acts.items():
        with pytest.raises(errors.EnactError, match="no more room"):
            act()
        assert (manager.canonical(), manager.state(), manager.stats()) == before
    manager.close()
    again = ReuseManager(log=tmp_path / "log")
    assert again.canonical() == before[0]


# -- policies --------------------------------------------------------------------------------------


class Begun(NullBackend):
    begun = True

    def is_fresh(self, step):
        return not self.begun


def test_stateless_policy_shares_only_fresh_stateful_steps():
    manager = ReuseManager(Begun(), policy="stateless")
    manager.submit(chain(B, A, B, name="a"))
    report = manager.submit(chain(B, A, B, name="b"))
    assert set(report.reused) == {"north", "b0"} and set(report.new) == {"b1", "b2", "out"} and not report.warm
    found = manager.stats()
    assert (found["steps"], found["distinct"]) == (8, 5)
    manager.backend.begun = False
    assert set(manager.submit(chain(B, A, B, name="c")).reused) == {"north", "c0", "c1", "c2", "out"}
    manager.remove("a")
    manager.remove("b")
    manager.remove("c")
    assert manager.stats()["steps"] == 0


def test_step_is_shared_only_with_its_inputs():
    backend = Begun()
    manager = ReuseManager(backend, policy="stateless")
    first = manager.submit(chain(A, B, name="a")).new
    second = manager.submit(chain(A, B, name="b")).new
    backend.is_fresh = lambda step: step in (first["a1"], second["b0"], second["b1"])
    report = manager.submit(chain(A, B, name="c"))
    assert (report.reused["c0"], report.reused["c1"]) == (second["b0"], second["b1"])


def test_report_names_warm_steps():
    manager = ReuseManager(Begun())
    manager.submit(chain(B, A, B, name="a"))
    assert manager.submit(chain(B, A, B, name="b")).warm == ["b1"], "a filter is stateless"
    manager.submit(chain(t.FlagWarmUp(), A, name="c"))
    assert manager.submit(chain(t.FlagWarmUp(), A, name="d")).warm == ["d1"], "and so is a step without lookback"


# -- pausing ---------------------------------------------------------------------------------------


class Resting(NullBackend):
    def __init__(self):
        super().__init__()
        self.resting = set()

    def extend(self, coming):
        for addition, _ in coming:
            self.resting -= addition.resumed_steps
        return super().extend(coming)

    def reduce(self, removal):
        self.resting -= set(removal.stopped)
        self.resting |= removal.paused_steps
        super().reduce(removal)

    def apply_pause(self, rest):
        (self.resting.update if rest.paused else self.resting.difference_update)(rest.steps)


@given(SEEDS)
@settings(max_examples=depth(30))
def test_step_pauses_while_all_users_are_paused(choose):
    manager = ReuseManager(Resting())
    paused = set()
    for do, what in random_actions(choose, 14):
        if do == "submit":
            manager.submit(what)
        else:
            manager.remove(what)
            paused.discard(what)
        if manager.names and choose.random() < 0.7:
            name = choose.choice(manager.names)
            (manager.pause if choose.random() < 0.6 else manager.resume)(name)
            paused = {n for n, found in manager.stats()["dataflows"].items() if found["paused"]}
        users = books(manager).users
        assert manager.backend.resting == {step for step, names in users.items() if names <= paused}


# -- the log ---------------------------------------------------------------------------------------


@given(SEEDS)
@settings(max_examples=depth(6))
def test_truncated_log_is_replayed(tmp_path_factory, choose):
    path = tmp_path_factory.mktemp("log") / "actions"
    manager = ReuseManager(log=path)
    seen = {0: manager.canonical()}
    for do, what in random_actions(choose, 6):
        manager.submit(what) if do == "submit" else manager.remove(what)
        seen[path.stat().st_size] = manager.canonical()
        if manager.names and choose.random() < 0.3:
            manager.pause(choose.choice(manager.names))
        seen[path.stat().st_size] = manager.canonical()
    manager.close()
    data = path.read_bytes()
    for cut in sorted({len(data), choose.randrange(len(data)), choose.randrange(len(data))}, reverse=True):
        path.write_bytes(data[:cut])  # as after a crash, which may also lose what follows
        path.with_name("actions.end").unlink(missing_ok=True)
        again = ReuseManager(log=path)
        before = max(size for size in seen if size <= cut)
        after = min((size for size in seen if size >= cut), default=before)
        assert again.canonical() in (seen[before], seen[after])
        known = again.canonical()
        again.submit(overlapping_flow(choose, "guest"))
        again.remove("guest")
        again.close()
        third = ReuseManager(log=path)
        assert third.canonical() == known
        third.close()


def test_log_has_one_manager_and_detects_damage(tmp_path):
    path = tmp_path / "log"
    manager = ReuseManager(log=path)
    manager.submit(chain(A, name="a"))
    manager.submit(chain(B, name="b"))
    with pytest.raises(ConnectorError, match="another manager"):
        ReuseManager(log=path)
    manager.close()
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged in ([lines[0][:-5] + b"xx}}\n", *lines[1:]], lines[1:], [*lines[:2], *lines[3:]]):
        path.write_bytes(b"".join(damaged))
        with pytest.raises(StateError, match="damaged in line"):
            ReuseManager(log=path)
    path.write_bytes(b"".join(lines)[:-3])  # as after a crash
    path.with_name("log.end").unlink()
    again = ReuseManager(log=path)
    assert again.names == ["a", "b"]  # the submission was enacted


def test_each_line_is_synced_before_the_next_step(tmp_path, monkeypatch):
    done = []
    backend = NullBackend()
    monkeypatch.setattr(log.os, "fsync", lambda file: done.append("disk"))
    monkeypatch.setattr(backend, "extend", lambda *given: done.append("extend") or [{}])
    ReuseManager(backend, log=tmp_path / "log").submit(chain(A))
    assert done[-4:] == ["disk", "extend", "disk", "disk"]


def test_unloggable_action_is_undone(tmp_path, monkeypatch):
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit(chain(A, name="a"))
    before = manager.canonical(), manager.backend.running_steps()
    note = manager.journal.log.record_outcome

    def full(state):
        if state == "enacted":
            raise ConnectorError("no room")
        note(state)

    monkeypatch.setattr(manager.journal.log, "record_outcome", full)
    with pytest.raises(ConnectorError, match="no room"):
        manager.submit(chain(A, B, name="b"))
    assert (manager.canonical(), manager.backend.running_steps()) == before
    manager.close()
    assert ReuseManager(log=tmp_path / "log").names == ["a"]


def test_log_holds_functions_by_name(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    with pytest.raises(errors.DescriptorError, match="cannot be found by name"):
        manager.submit(chain(ro.map(lambda row: row)))
    manager.submit(chain(ro.map(dict, label="copy", revision=1), name="a"))
    manager.close()
    with pytest.raises(ConfigError, match="functions="):
        ReuseManager(log=tmp_path / "log")
    again = ReuseManager(log=tmp_path / "log", functions={"builtins:dict": dict})
    assert set(again.submit(chain(ro.map(dict, label="copy", revision=1), name="b")).reused) == {"north", "b0", "out"}
    free = ReuseManager()
    free.submit(chain(ro.map(lambda row: row)))
    with pytest.raises(errors.DescriptorError, match="cannot be stored"):
        free.state()


def test_log_refuses_secrets(tmp_path):
    def publish(secret):
        return chain(t.PublishMQTT(url="memory://x", topic="t", payload="device", username="u", password=secret))

    manager = ReuseManager(log=tmp_path / "log")
    with pytest.raises(errors.DescriptorError, match="f0: password is a secret"):
        manager.submit(publish(ro.Secret("pa55")))
    manager.submit(publish(ro.Secret.env("NAME")))
    manager.close()
    text = (tmp_path / "log").read_text()
    assert "pa55" not in text and "NAME" in text
    assert ReuseManager(log=tmp_path / "log").names == ["f"]


# -- size, diagrams, threads -----------------------------------------------------------------------


@pytest.mark.long
def test_ten_thousand_steps():
    manager = ReuseManager()
    flow = chain(*(t.KalmanFilter(process_noise=1.0 + i % 7) for i in range(10_000)))
    assert len(manager.submit(flow).new) == 10_002
    assert len(manager.submit(flow, name="again").reused) == 10_002
    manager.remove("f")
    assert len(manager.remove("again").stopped) == 10_002


def test_diagram_shows_users():
    manager = ReuseManager()
    for name, tasks in {"a": [A], "b": [A, B], "c": [A, B], "d": [A, B]}.items():
        manager.submit(chain(*tasks, name=name))
    text = manager.diagram()
    assert text.startswith("flowchart LR") and '"kalman_filter.1<br/>4 dataflows"' in text
    assert '"range_filter.3<br/>b, c, d"' in text
    picture = manager.svg()
    assert ">kalman_filter.1<" in picture and ">b, c, d<" in picture and manager._repr_svg_() == picture


def test_ten_concurrent_users():
    manager = ReuseManager()
    flows = [overlapping_flow(random.Random(i), f"d{i}") for i in range(60)]
    users = [threading.Thread(target=lambda i=i: [manager.submit(f) for f in flows[i::10]]) for i in range(10)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    check(manager, {f.name: f for f in flows})
