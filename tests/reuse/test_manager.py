"""The manager on the null back end: what runs, for whom, and what an action changes."""

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
from riot_ops.graph.nodes import Edge
from riot_ops.reuse import NullBackend, ReuseManager, errors, log, signatures
from tests.random_flows import SCHEMA
from tests.reference.reuse import Sharing, plain
from tests.reuse.sharing import overlapping_flow, random_actions
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)


def books(manager):
    return manager._shared


def check(manager, flows):
    """P1 to P6, P12 and P19, of the manager alone."""
    shared = books(manager)
    marks = {name: signatures(flow) for name, flow in flows.items()}
    distinct = {mark for found in marks.values() for mark in found.values()}
    running = {s.piece.signature: s for s in shared.steps.values()}
    assert len(running) == len(shared.steps) and set(running) == distinct  # P1, P2, P3, P4
    edges = {(marks[n][e.source], marks[n][e.target]) for n, flow in flows.items() for e in flow.edges}
    between = {(shared.steps[i].piece.signature, s.piece.signature) for s in shared.steps.values() for i in s.inputs}
    assert between == edges and sum(len(s.inputs) for s in shared.steps.values()) == len(edges)
    assert {m for g in shared.groups.values() for m in g.members} == set(flows)  # P5
    assert sum(len(g.members) for g in shared.groups.values()) == len(flows)
    assert sorted(s for g in shared.groups.values() for s in g.steps) == sorted(shared.steps)
    for id, group in shared.groups.items():
        assert all(shared.group_of[s] == id for s in group.steps)
        seen, waiting = set(), [next(iter(group.steps))]
        while waiting:
            step = waiting.pop()
            if step not in seen:
                seen.add(step)
                waiting += [*shared.steps[step].inputs, *shared.readers[step]]
        assert seen == group.steps
    for name, flow in flows.items():  # P6
        placed = shared.placed[name]
        assert {n: shared.steps[s].piece.signature for n, s in placed.items()} == marks[name]
        for node in flow.nodes:
            above = [placed[e.source] for e in flow.inputs(node)]
            order = sorted if flow.nodes[node].kind == "sink" else list
            assert order(above) == order(shared.steps[placed[node]].inputs)
        assert set(manager.sink_map(name)) == {n.id for n in flow.kind("sink")}
        assert set(placed.values()) <= shared.groups[shared.home(name)].steps
    assert sum(map(len, shared.users.values())) == sum(len(f.nodes) for f in flows.values())  # P12
    assert all(shared.users.values())
    found = manager.stats()  # P19
    assert found["steps"] <= found["steps_alone"]
    disjoint = sum(len(set(m.values())) for m in marks.values()) == len(distinct)
    assert (found["steps"] == found["steps_alone"]) == disjoint
    assert manager.backend.running() == set(shared.steps)


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


@given(SEEDS)
@settings(max_examples=depth(40))
def test_each_distinct_step_runs_once_and_for_those_who_use_it(choose):
    manager = ReuseManager()
    run(manager, random_actions(choose, 14), lambda flows: check(manager, flows))


@given(SEEDS)
@settings(max_examples=depth(30))
def test_it_shares_what_the_definitions_say(choose):  # P13, P10
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
            removal = shared.removal(what)
            stopped = set(removal.stopped)
            for step in removal.stopped:
                assert shared.readers[step] <= stopped
            assert set(removal.cut) == {(i, s) for s in stopped for i in shared.steps[s].inputs if i not in stopped}
            sources = [s for s in shared.placed[what].values() if not shared.steps[s].inputs]
            others = shared.groups[shared.home(what)].members - {what}
            assert len(removal.parts) <= len(sources)  # P11
            assert bool(removal.parts) == bool(others)
            manager.remove(what)
            reference.remove(what)
        users = sorted(sorted(names) for names in reference.users().values())
        assert shape() == (users, reference.shape()[1])


@given(SEEDS)
@settings(max_examples=depth(30))
def test_only_the_set_of_dataflows_counts(choose):  # P7, P8
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
    assert manager.backend.running() == set() and manager.stats()["fragments"] == manager.stats()["idle"] == 0


@given(SEEDS)
@settings(max_examples=depth(20))
def test_the_same_dataflow_again_starts_nothing(choose):  # P9
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
def test_defragmentation_changes_nothing_that_anyone_sees(choose):  # P18
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
def test_its_state_as_json_takes_it_up_again(choose):  # P14
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


def chain(*tasks, name="f", source="north", sink="out"):
    flow = ro.Dataflow(name)
    stream = flow.source(source, schema=SCHEMA)
    for i, task in enumerate(tasks):
        stream = stream.to(task, id=f"{name}{i}")
    return flow.sink(sink, stream)


A, B = t.KalmanFilter(process_noise=0.5), t.RangeFilter(bounds={"light": (0, 1)})


def test_steps_in_another_order_are_other_steps():  # P17
    manager = ReuseManager()
    manager.submit(chain(A, B, name="ab"))
    assert list(manager.submit(chain(B, A, name="ba")).reused) == ["north"]


def test_what_is_told_before_is_what_happens():
    manager = ReuseManager()
    manager.submit(chain(A, B, name="a"), owner="ada")
    before = manager.canonical()
    told = manager.explain(chain(A, name="b"))
    assert manager.canonical() == before and manager.names == ["a"]
    report = manager.submit(chain(A, name="b"))
    assert (told.reused, told.new, told.boundary) == (report.reused, report.new, report.boundary)
    assert told.with_whom == {"north": ["a"], "b0": ["a"]} and told.warm == ["b0"]
    assert str(told).splitlines()[0] == "b: 2 of 3 steps run already"
    assert manager.stats()["dataflows"]["a"]["owner"] == "ada"
    assert manager.explain_sharing().splitlines() == [
        "2 dataflows: 5 steps run in place of 7, 1 sources are read in place of 2",
        "  2 steps are used by 2",
    ]
    assert manager.explain(chain(A, name="b")).name == "b'"


def test_an_owner_that_no_state_can_hold_is_refused_at_once():
    manager = ReuseManager()
    for owner in (7, b"ada", ["ada"]):
        with pytest.raises(ConfigError, match=r"owner must be a text, got"):
            manager.submit(chain(A, name="a"), owner=owner)
    manager.submit(chain(A, name="a"))
    manager.submit(chain(A, name="b"), owner="")
    again = ReuseManager()
    again.restore(manager.state())
    assert {name: one["owner"] for name, one in again.stats()["dataflows"].items()} == {"a": None, "b": ""}


def test_one_that_bridges_two_groups_joins_them_and_leaves_them_as_they_were():
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
    "nowhere": (lambda: broken(lambda f: f.stream("f1").to(A, id="x")), errors.BoundaryError, "x: its output goes"),
    "behind": (lambda: broken(lambda f: f.connect("out", "f9") or 0), errors.DanglingStreamError, "f9"),
    "parts": (lambda: broken(apart), errors.DisconnectedError, "2 parts"),
    "twins": (lambda: broken(twins), errors.NotDeduplicatedError, "f0 = again"),
    "schema": (lambda: chain(t.KalmanFilter(value="nothing")), ConfigError, "nothing"),
    "name": (lambda: chain(A, name="there"), errors.DuplicateNameError, "is running"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_and_nothing_changes(case):  # P16
    make, kind, text = WRONG[case]
    manager = ReuseManager()
    manager.submit(chain(A, name="there"))
    before = manager.canonical(), manager.state(), manager.stats()
    for act in (manager.submit, manager.explain) if case != "name" else (manager.submit,):
        with pytest.raises(kind, match=text):
            act(make())
    assert (manager.canonical(), manager.state(), manager.stats()) == before
    assert issubclass(kind, ConfigError)


def test_a_dataflow_that_nobody_knows_is_refused_with_a_hint():
    manager = ReuseManager()
    manager.submit(chain(A, name="kalman"))
    for act in (manager.remove, manager.pause, manager.resume, manager.sink_map):
        with pytest.raises(errors.UnknownDataflowError, match="did you mean"):
            act("kalmann")


def test_twins_become_one_where_that_is_wanted_and_makes_no_difference():
    manager = ReuseManager()
    flow = broken(twins)
    report = manager.submit(flow, fold=True)
    assert report.new["f0"] == report.new["again"]
    with pytest.raises(errors.NotDeduplicatedError, match="halve"):
        manager.submit(broken(twins_that_meet), name="g", fold=True)


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

    def rest(self, rest):
        self._maybe("rest")

    def defragment(self, groups):
        self._maybe("defragment")


def test_where_the_back_end_fails_nothing_has_changed(tmp_path):  # P16
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

    def fresh(self, step):
        return not self.begun


def test_without_history_steps_with_state_are_shared_only_while_nothing_has_come():
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


def test_a_step_is_shared_only_together_with_what_it_reads():
    backend = Begun()
    manager = ReuseManager(backend, policy="stateless")
    first = manager.submit(chain(A, B, name="a")).new
    second = manager.submit(chain(A, B, name="b")).new
    backend.fresh = lambda step: step in (first["a1"], second["b0"], second["b1"])
    report = manager.submit(chain(A, B, name="c"))
    assert (report.reused["c0"], report.reused["c1"]) == (second["b0"], second["b1"])


def test_with_history_the_report_names_what_is_warm():
    manager = ReuseManager(Begun())
    manager.submit(chain(B, A, B, name="a"))
    assert manager.submit(chain(B, A, B, name="b")).warm == ["b1"], "a filter has no history"
    manager.submit(chain(t.FlagWarmUp(), A, name="c"))
    assert manager.submit(chain(t.FlagWarmUp(), A, name="d")).warm == ["d1"], "nor has what remembers nothing"


# -- pausing ---------------------------------------------------------------------------------------


class Resting(NullBackend):
    def __init__(self):
        super().__init__()
        self.resting = set()

    def extend(self, coming):
        for addition, _ in coming:
            self.resting -= addition.woken
        return super().extend(coming)

    def reduce(self, removal):
        self.resting -= set(removal.stopped)
        self.resting |= removal.rested
        super().reduce(removal)

    def rest(self, rest):
        (self.resting.update if rest.paused else self.resting.difference_update)(rest.steps)


@given(SEEDS)
@settings(max_examples=depth(30))
def test_a_step_rests_while_all_who_use_it_are_paused(choose):
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
def test_a_log_takes_it_up_wherever_it_is_cut(tmp_path_factory, choose):
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
        path.write_bytes(data[:cut])
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


def test_a_log_is_of_one_manager_and_tells_when_it_is_damaged(tmp_path):
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
    path.write_bytes(b"".join(lines)[:-3])
    again = ReuseManager(log=path)
    assert again.names == ["a", "b"]  # it was enacted


def test_each_line_of_a_log_is_on_disk_before_the_next_thing_happens(tmp_path, monkeypatch):
    done = []
    backend = NullBackend()
    monkeypatch.setattr(log.os, "fsync", lambda file: done.append("disk"))
    monkeypatch.setattr(backend, "extend", lambda *given: done.append("extend") or [{}])
    ReuseManager(backend, log=tmp_path / "log").submit(chain(A))
    assert done[-4:] == ["disk", "extend", "disk", "disk"]


def test_what_cannot_be_logged_is_undone(tmp_path, monkeypatch):
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit(chain(A, name="a"))
    before = manager.canonical(), manager.backend.running()
    note = manager._journal.log.note

    def full(state):
        if state == "enacted":
            raise ConnectorError("no room")
        note(state)

    monkeypatch.setattr(manager._journal.log, "note", full)
    with pytest.raises(ConnectorError, match="no room"):
        manager.submit(chain(A, B, name="b"))
    assert (manager.canonical(), manager.backend.running()) == before
    manager.close()
    assert ReuseManager(log=tmp_path / "log").names == ["a"]


def test_what_a_user_does_to_a_dataflow_afterwards_makes_no_difference():
    manager = ReuseManager()
    flow = chain(A, name="a")
    manager.submit(flow)
    before = manager.state()
    flow.sink("more", flow.stream("a0").to(B, id="b"))
    assert manager.state() == before


def test_a_log_holds_functions_by_name_alone(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    with pytest.raises(errors.DescriptorError, match="cannot be found by name"):
        manager.submit(chain(ro.map(lambda row: row)))
    manager.submit(chain(ro.map(dict, name="copy", version=1), name="a"))
    manager.close()
    with pytest.raises(ConfigError, match="functions="):
        ReuseManager(log=tmp_path / "log")
    again = ReuseManager(log=tmp_path / "log", functions={"builtins:dict": dict})
    assert set(again.submit(chain(ro.map(dict, name="copy", version=1), name="b")).reused) == {"north", "b0", "out"}
    free = ReuseManager()
    free.submit(chain(ro.map(lambda row: row)))
    with pytest.raises(errors.DescriptorError, match="cannot be kept as data"):
        free.state()


def test_a_log_holds_no_secrets_and_says_so(tmp_path):
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


# -- size, pictures, threads -----------------------------------------------------------------------


def test_ten_thousand_steps_come_and_go():
    manager = ReuseManager()
    flow = chain(*(t.KalmanFilter(process_noise=1.0 + i % 7) for i in range(10_000)))
    assert len(manager.submit(flow).new) == 10_002
    assert len(manager.submit(flow, name="again").reused) == 10_002
    manager.remove("f")
    assert len(manager.remove("again").stopped) == 10_002


def test_the_picture_shows_who_uses_what():
    manager = ReuseManager()
    for name, tasks in {"a": [A], "b": [A, B], "c": [A, B], "d": [A, B]}.items():
        manager.submit(chain(*tasks, name=name))
    text = manager.diagram()
    assert text.startswith("flowchart LR") and '"kalman_filter.1<br/>4 dataflows"' in text
    assert '"range_filter.3<br/>b, c, d"' in text
    picture = manager.svg()
    assert ">kalman_filter.1<" in picture and ">b, c, d<" in picture and manager._repr_svg_() == picture


def test_ten_users_at_once():
    manager = ReuseManager()
    flows = [overlapping_flow(random.Random(i), f"d{i}") for i in range(60)]
    users = [threading.Thread(target=lambda i=i: [manager.submit(f) for f in flows[i::10]]) for i in range(10)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    check(manager, {f.name: f for f in flows})
