"""Shared dataflows in process that go on after the process has ended, in whatever way."""

from __future__ import annotations

import random
import threading

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.core.sink import Sink, Writer
from riot_ops.reuse import Limits, LocalBackend, ReuseManager
from tests.random_flows import assert_same, everything, ordered, random_input
from tests.reuse.sharing import random_actions
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)
SCHEMA = {"value": "double"}
VALUES = [float(i) for i in range(60)]


class Tape(Sink):
    """Keeps what is committed, as files would: what is not is lost with the process."""

    def __init__(self, hold=None):
        self.epochs = {}
        self.hold = hold

    def writer(self, batch_id, partition):
        return TapeWriter(self.hold)

    def commit(self, batch_id, messages):
        assert batch_id not in self.epochs
        self.epochs[batch_id] = messages[0]

    def begin(self, overwrite):
        assert not self.epochs, "it holds the output of an earlier run"

    def recover(self, batch_id):
        self.epochs = {n: made for n, made in self.epochs.items() if n < batch_id}

    def table(self, stream):
        batches = [batch for _, made in sorted(self.epochs.items()) for name, batch in made if name == stream]
        return pa.Table.from_batches(batches) if batches else pa.table({})

    __getitem__ = table

    def values(self, stream):
        return [] if not self.table(stream).num_rows else self.table(stream)["value"].to_pylist()


class TapeWriter(Writer):
    def __init__(self, hold):
        self.made, self.hold = [], hold

    def write(self, stream, batch):
        if self.hold is not None:
            self.hold(stream, batch)
        self.made.append((stream, batch))

    def finish(self):
        return self.made


def flow(name, *tasks):
    made = ro.Dataflow(name)
    stream = made.source("in", schema=SCHEMA)
    for place, task in enumerate(tasks):
        stream = stream.to(task, id=f"t{place}")
    return made.sink("out", stream)


def gone(manager):
    """The process has ended: nothing is committed, nothing is kept."""
    manager.backend._outlets.halt()
    manager.backend._keeping.close()
    manager._journal.close()


class Life:
    """A manager that may be killed, and its users; ``clock`` counts turns."""

    def __init__(self, folder, logs, batch_size, killed):
        self.folder, self.logs, self.batch_size, self.killed = folder, logs, batch_size, killed
        self.sinks, self.flows, self.saved = {}, {}, {}
        self.clock = 0
        self.open()

    def open(self):
        folder = self.folder / "kept" if self.killed else None
        self.backend = LocalBackend(self.batch_size, epoch_s=1e9, folder=folder)
        log = self.folder / "log" if self.killed else None
        self.manager = ReuseManager(self.backend, log=log, rebind=lambda name, flow: self.ends(flow, name))
        self.note()

    def ends(self, flow, name):
        self.flows.setdefault(name, flow)
        return {n.id: self.logs[n.id] for n in flow.kind("source")}, self.sinks.setdefault(name, Tape())

    def note(self):
        """Which turn the newest checkpoint is of."""
        if self.killed:
            self.saved.setdefault(self.backend._keeping._saved.epoch, self.clock)

    def kill(self):
        self.clock = self.saved[self.backend._keeping._saved.epoch]
        gone(self.manager)
        self.open()

    def turn_to(self, clock, choose):
        while self.clock < clock:
            if self.killed and choose.random() < 0.15:
                self.kill()
            self.backend.turn()
            self.clock += 1
            if self.killed and choose.random() < 0.2:
                self.backend._commit()
            self.note()

    def act(self, do, what):
        if do == "submit":
            self.manager.submit(what, *self.ends(what, what.name))
        else:
            getattr(self.manager, do)(what)
        self.note()


@given(choose=SEEDS)
@settings(max_examples=depth(12), deadline=None)
def test_whenever_it_is_killed_each_gets_what_it_gets_without_that(choose, tmp_path_factory):
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
            life.backend.run()
        life.manager.close()
    for name, made in lives[0].flows.items():
        nodes = ordered(made)
        found = [everything(life.sinks[name], made, nodes) for life in lives]
        assert_same(found[1], found[0], made)
    assert lives[1].backend.stats()["records"] == lives[0].backend.stats()["records"]


def opened(tmp_path, sinks, rows=VALUES, **options):
    backend = LocalBackend(10, epoch_s=1e9, folder=tmp_path / "kept", **options)
    source = ro.MemorySource([{"value": v} for v in rows])
    manager = ReuseManager(backend, log=tmp_path / "log", rebind=lambda name, flow: (source, sinks[name]))
    return manager, source


def test_state_and_figures_go_on(tmp_path):
    sinks = {"ada": Tape()}
    manager, source = opened(tmp_path, sinks)
    manager.submit(flow("ada", t.SlidingSum(window=100)), source, sinks["ada"])
    manager.backend.turn()
    before = manager.stats()
    manager.close()
    assert sinks["ada"].values("t0") == [sum(VALUES[: i + 1]) for i in range(10)], "what there was is committed"
    manager, _ = opened(tmp_path, sinks)
    after = manager.stats()
    for name in ("messages", "records", "rows", "spared", "steps", "dataflows"):
        assert after[name] == before[name]
    manager.backend.run()
    assert sinks["ada"].values("t0") == [sum(VALUES[: i + 1]) for i in range(60)]
    manager.close()


def test_what_a_step_held_at_the_end_comes_once(tmp_path):
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


def test_nothing_is_kept_ahead_of_a_sink_that_is_behind(tmp_path):
    free = threading.Event()
    slow, quick = Tape(lambda stream, batch: free.wait(20)), Tape()
    sinks = {"slow": slow, "quick": quick}
    limits = Limits(grace_s=0.05, queue_bytes=100, patience_s=0.2)
    manager, source = opened(tmp_path, sinks, limits=limits)
    for name in sinks:
        manager.submit(flow(name), source, sinks[name])
    kept = manager.backend._keeping
    epoch = kept._saved.epoch
    for _ in range(3):
        manager.backend.turn()
        manager.backend._commit()
    assert kept._saved.epoch == epoch and len(quick.values("in")) == 30
    gone(manager)  # and with it what waited in memory and in files
    free.set()
    manager, _ = opened(tmp_path, sinks, limits=limits)
    manager.backend.run()
    manager.close()
    assert quick.values("in") == slow.values("in") == VALUES


def test_a_sink_that_takes_its_time_is_waited_for_when_something_is_kept(tmp_path):
    free = threading.Event()
    slow = Tape(lambda stream, batch: free.wait(20))
    manager, source = opened(tmp_path, {"slow": slow}, limits=Limits(grace_s=0.05))
    manager.submit(flow("slow"), source, slow)
    manager.backend.turn()
    manager.backend._commit()
    epoch = manager.backend._keeping._saved.epoch
    free.set()
    manager.close()
    assert manager.backend._keeping._saved.epoch > epoch and len(slow.values("in")) == 10
    manager, _ = opened(tmp_path, {"slow": slow})
    manager.backend.run()
    manager.close()
    assert slow.values("in") == VALUES


def test_who_cannot_be_kept_does_not_come(tmp_path, monkeypatch):
    sinks = {"ada": Tape(), "bob": Tape()}
    manager, source = opened(tmp_path, sinks)
    manager.submit(flow("ada", t.SlidingSum()), source, sinks["ada"])
    before = manager.canonical(), manager.backend.running()
    kept = manager.backend._keeping
    with monkeypatch.context() as patch:
        patch.setattr(kept._checkpoint, "write", lambda saved: (_ for _ in ()).throw(ConnectorError("disk full")))
        with pytest.raises(ConnectorError, match="disk full"):
            manager.submit(flow("bob", t.SlidingSum(), t.NoOp()), source, sinks["bob"])
    assert (manager.canonical(), manager.backend.running()) == before
    manager.close()


def test_an_iterator_is_refused_and_so_is_what_is_not_ours(tmp_path):
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
