"""Dataflows in process continue after a kill or a close."""

from __future__ import annotations

import random
import threading

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.reuse import Limits, LocalBackend, ReuseManager
from tests.random_flows import assert_same, everything, ordered, random_input
from tests.reuse.merging_dataflows import apart, expected, got, merged, sources
from tests.reuse.sharing import random_actions
from tests.reuse.tapes import VALUES, Tape, flow, gone, opened
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)


class Life:
    """A manager that may be killed, and its sinks; ``clock`` counts turns."""

    def __init__(self, folder, logs, batch_size, killed):
        self.folder, self.logs, self.batch_size, self.killed = folder, logs, batch_size, killed
        self.sinks, self.flows, self.saved = {}, {}, {}
        self.clock = 0
        self.open()

    def open(self):
        folder = self.folder / "kept" if self.killed else None
        self.backend = LocalBackend(self.batch_size, epoch="10000d", folder=folder)
        log = self.folder / "log" if self.killed else None
        self.manager = ReuseManager(self.backend, log=log, rebind=lambda name, flow: self.ends(flow, name))
        self.note()

    def ends(self, flow, name):
        self.flows.setdefault(name, flow)
        return {n.id: self.logs[n.id] for n in flow.nodes_of_kind("source")}, self.sinks.setdefault(name, Tape())

    def note(self):
        """Note the turn of the newest checkpoint."""
        if self.killed:
            self.saved.setdefault(self.backend.checkpoint.epoch, self.clock)

    def kill(self):
        self.clock = self.saved[self.backend.checkpoint.epoch]
        gone(self.manager)
        self.open()

    def turn_to(self, clock, choose):
        while self.clock < clock:
            if self.killed and choose.random() < 0.15:
                self.kill()
            self.backend.turn()
            self.clock += 1
            if self.killed and choose.random() < 0.2:
                self.backend.commit()
            self.note()

    def act(self, do, what):
        if do == "submit":
            self.manager.submit(what, *self.ends(what, what.name))
        else:
            getattr(self.manager, do)(what)
        self.note()


@pytest.mark.long
@given(choose=SEEDS)
@settings(max_examples=depth(12), deadline=None)
def test_kills_change_no_output(choose, tmp_path_factory):
    folder = tmp_path_factory.mktemp("life")
    logs = {name: random_input(choose, 40) for name in ("north", "south", "west")}
    size = choose.randint(1, 8)
    actions = random_actions(choose, 7)
    clocks = sorted(choose.randint(0, 40 // size) for _ in actions)
    lives = [Life(folder, logs, size, killed) for killed in (False, True)]
    paused = set()
    for clock, (do, what) in zip(clocks, actions, strict=True):
        rests = choose.choice(lives[0].manager.names) if lives[0].manager.names and choose.random() < 0.3 else None
        for life in lives:
            life.turn_to(clock, choose)
            if rests is not None:
                life.act("resume" if rests in paused else "pause", rests)
            life.act(do, what)
        if rests is not None:
            paused ^= {rests}
        paused -= {what}
    for life in lives:
        life.turn_to(60, choose)
        if life.killed:
            life.kill()
        life.backend.run()  # a source that was opened late has not ended by turn 60
        life.manager.close()
    for name, made in lives[0].flows.items():
        nodes = ordered(made)
        found = [everything(life.sinks[name], made, nodes) for life in lives]
        assert_same(found[1], found[0], made)
    assert lives[1].backend.stats()["records"] == lives[0].backend.stats()["records"]


def test_restart_keeps_state_and_counts(tmp_path):
    sinks = {"ada": Tape()}
    manager, source = opened(tmp_path, sinks)
    manager.submit(flow("ada", t.SlidingSum(window=100)), source, sinks["ada"])
    manager.backend.turn()
    before = manager.stats()
    manager.close()
    assert sinks["ada"].values("t0") == [sum(VALUES[: i + 1]) for i in range(10)], (
        "records before the close are committed"
    )
    manager, _ = opened(tmp_path, sinks)
    after = manager.stats()
    for name in ("messages", "records", "rows", "spared", "steps", "dataflows"):
        assert after[name] == before[name]
    manager.backend.run()
    assert sinks["ada"].values("t0") == [sum(VALUES[: i + 1]) for i in range(60)]
    manager.close()


def test_merged_sources_continue_after_a_kill(tmp_path):
    flows = {
        "ada": apart("ada", "south"),
        "cyd": merged("cyd", ("south", "north")),
        "dan": merged("dan", ("north", "south"), declared=("south", "north")),
    }
    tapes = {name: Tape() for name in flows}

    def start():
        backend = LocalBackend(10, epoch="10000d", folder=tmp_path / "kept")
        return ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (sources(flow), tapes[name]))

    manager = start()
    reports = [manager.submit(one, sources(one), tapes[name]) for name, one in flows.items()]
    assert not reports[-1].new
    for _ in range(3):
        manager.backend.turn()
        manager.backend.commit()
        manager.backend.turn()
        gone(manager)
        manager = start()
        if "ada" in manager.names:
            manager.remove("ada")
    manager.backend.run()
    manager.close()
    for name in ("cyd", "dan"):
        assert got(tapes[name], flows[name]) == expected(flows[name])


def test_flushed_records_come_once(tmp_path):
    sinks = {"ada": Tape()}
    manager, source = opened(tmp_path, sinks)
    manager.submit(flow("ada", t.MovingAverage(window=50, partial=True)), source, sinks["ada"])
    manager.backend.run()
    assert sinks["ada"].values("t0") == [24.5, 54.5]
    gone(manager)
    manager, _ = opened(tmp_path, sinks)
    manager.backend.run()
    manager.close()
    assert sinks["ada"].values("t0") == [24.5, 54.5]


def test_no_checkpoint_ahead_of_a_slow_sink(tmp_path):
    free = threading.Event()
    slow, quick = Tape(lambda stream, batch: free.wait(20)), Tape()
    sinks = {"slow": slow, "quick": quick}
    limits = Limits(grace="50ms", max_queue_bytes=100, patience="200ms")
    manager, source = opened(tmp_path, sinks, limits=limits)
    for name in sinks:
        manager.submit(flow(name), source, sinks[name])
    kept = manager.backend.checkpoint
    epoch = kept.epoch
    for _ in range(3):
        manager.backend.turn()
        manager.backend.commit()
    assert kept.epoch == epoch and len(quick.values("in")) == 30
    gone(manager)  # and the records that wait in memory and files
    free.set()
    manager, _ = opened(tmp_path, sinks, limits=limits)
    manager.backend.run()
    manager.close()
    assert quick.values("in") == slow.values("in") == VALUES


def test_checkpoint_waits_for_a_slow_sink(tmp_path):
    free = threading.Event()
    slow = Tape(lambda stream, batch: free.wait(20))
    manager, source = opened(tmp_path, {"slow": slow}, limits=Limits(grace="50ms"))
    manager.submit(flow("slow"), source, slow)
    manager.backend.turn()
    manager.backend.commit()
    epoch = manager.backend.checkpoint.epoch
    free.set()
    manager.close()
    assert manager.backend.checkpoint.epoch > epoch and len(slow.values("in")) == 10
    manager, _ = opened(tmp_path, {"slow": slow})
    manager.backend.run()
    manager.close()
    assert slow.values("in") == VALUES


def test_dataflow_is_refused_if_its_checkpoint_fails(tmp_path, monkeypatch):
    sinks = {"ada": Tape(), "bob": Tape()}
    manager, source = opened(tmp_path, sinks)
    manager.submit(flow("ada", t.SlidingSum()), source, sinks["ada"])
    before = manager.canonical(), manager.backend.running_steps()
    kept = manager.backend.checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(kept.store, "write", lambda saved: (_ for _ in ()).throw(ConnectorError("disk full")))
        with pytest.raises(ConnectorError, match="disk full"):
            manager.submit(flow("bob", t.SlidingSum(), t.NoOp()), source, sinks["bob"])
    assert (manager.canonical(), manager.backend.running_steps()) == before
    manager.close()


def test_iterator_and_other_files_are_refused(tmp_path):
    manager, source = opened(tmp_path, {})
    with pytest.raises(ConfigError, match=r"is an iterator, which can be read once, but this back end"):
        manager.submit(flow("ada"), iter([{"value": 1.0}]), Tape())
    with pytest.raises(ConnectorError, match="in use by this process"):
        LocalBackend(folder=tmp_path / "kept")
    manager.submit(flow("ada"), source, Tape())
    gone(manager)
    newest = max((tmp_path / "kept").glob("state-*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(StateError, match="is damaged"):
        LocalBackend(folder=tmp_path / "kept")
    flow("alone").run([{"value": 1.0}], sinks=Tape(), checkpoint=tmp_path / "one")
    with pytest.raises(StateError, match="holds something else"):
        LocalBackend(folder=tmp_path / "one")


def test_sinks_get_the_identity_of_their_run_again(tmp_path):
    class Named(Tape):
        def identify(self, run):
            told.append(run)

    told = []
    sinks = {"ada": Named(), "bob": Named()}
    manager, source = opened(tmp_path, sinks)
    for name, sink in sinks.items():
        manager.submit(flow(name, t.SlidingSum(window=100)), source, sink)
    manager.backend.turn()
    manager.close()
    manager, _ = opened(tmp_path, sinks)
    manager.close()
    assert len({*told}) == 2 and sorted(told[:2]) == sorted(told[2:])
