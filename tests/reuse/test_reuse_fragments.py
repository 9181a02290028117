"""Dataflows shared by queries that hand streams to each other: each gets what it would get alone. Without Spark."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import pytest

import riot_ops as ro
from riot_ops.reuse import ReuseManager, errors
from riot_ops.reuse.spark import source
from riot_ops.reuse.spark.source import BEGIN
from riot_ops.reuse.topic import Head
from riot_ops.runtime.binding import bind_sources
from tests.random_flows import assert_same, everything, random_input
from tests.reuse.queries import FakeSpark, Gated
from tests.reuse.test_local import Got, any_flow, known
from tests.search import seeds

NAMES = ("north", "south", "west", "in0", "in1")


class Users:
    """A manager over fragments, and what its users get."""

    def __init__(self, choose, folder, rows=60, policy="always", **options):
        self.logs = {name: random_input(choose, rows) for name in NAMES}
        self.folder, self.policy, self.options = folder, policy, options
        self.flows, self.sinks, self.first = {}, {}, {}
        self.open()

    def open(self):
        self.backend = FakeSpark(self.folder / "back", **self.options)
        self.manager = ReuseManager(
            self.backend, self.policy, log=self.folder / "log.jsonl", rebind=lambda name, flow: self.bound(flow, name)
        )

    def bound(self, flow, name):
        bound = bind_sources(flow, {n.id: self.logs[n.id] for n in flow.kind("source")})
        return {node: Gated(source, self.folder / "gate") for node, source in bound.items()}, self.sinks[name]

    def submit(self, flow, name):
        self.sinks[name] = ro.ParquetSink(self.folder / name)
        report = self.manager.submit(flow, *self.bound(flow, name), name=name)
        self.flows[name], self.first[name] = flow, report.first
        return report

    def try_submit(self, choose, name):
        flow = any_flow(choose, name)
        try:
            self.submit(flow, name)
        except (errors.NotDeduplicatedError, errors.DisconnectedError, errors.DescriptorError):
            return False
        return True

    def got(self, name, nodes=None):
        sinks = {n.id: self.sinks[name] for n in self.flows[name].kind("sink")}
        return everything(Got(next(iter(sinks.values()))), self.flows[name], nodes)

    def alone(self, name, nodes=None):
        flow = self.flows[name]
        logs = {s: self.logs[s].slice(first) for s, first in self.first[name].items()}
        return everything(flow.run(logs), flow, nodes)

    def read(self):
        """What the dataflows read, of several sources that are merged as one log these together."""
        found = set()
        for flow in self.flows.values():
            sources = tuple(node.id for node in flow.kind("source"))
            apart = flow.merging == "arrival" or len(sources) == 1
            found |= set(sources) if apart else {(flow.merging, *sources)}
        return found

    def check(self, name):
        nodes = known(self.flows[name])
        assert_same(self.got(name, nodes), self.alone(name, nodes), self.flows[name])


@pytest.mark.parametrize("seed", seeds(4))
def test_together_each_gets_what_it_gets_alone(seed, tmp_path):  # P15
    choose = random.Random(seed)
    users = Users(choose, tmp_path, join=seed % 2 == 1)
    for i in range(4):
        users.try_submit(choose, f"d{i}")
    assert users.manager.stats()["readings"] == len(users.read()), "each is read once"
    (tmp_path / "gate").touch()
    assert users.backend.wait(60)
    for name in users.flows:
        users.check(name)
    for name in users.flows:
        users.manager.remove(name)
    stats = users.manager.stats()
    assert stats["fragments"] == stats["queries"] == 0 and not users.backend.running()
    left = [*(tmp_path / "back" / "fragments").iterdir(), *(tmp_path / "back" / "dataflows").iterdir()]
    assert not left
    users.manager.close()


@pytest.mark.parametrize("seed", seeds(4))
def test_whoever_comes_late_gets_what_it_gets_alone_from_there_on(seed, tmp_path):
    choose = random.Random(seed)
    users = Users(choose, tmp_path, rows=80, policy="stateless", join=seed % 2 == 0)
    (tmp_path / "gate").touch()
    alive = []
    for i in range(7):
        if alive and choose.random() < 0.3:
            gone = alive.pop(choose.randrange(len(alive)))
            users.manager.remove(gone)
            nodes = known(users.flows[gone])
            part, whole = users.got(gone, nodes), users.alone(gone, nodes)
            assert all(not part[stream] - whole[stream] for stream in part)
        elif users.try_submit(choose, f"d{i}"):
            alive.append(f"d{i}")
    assert users.backend.wait(60)
    for name in alive:
        users.check(name)
    users.manager.close()


@pytest.mark.parametrize("seed", seeds(4))
def test_all_go_on_after_the_process_was_killed(seed, tmp_path):
    """Nothing is lost or doubled at any sink, whatever was under way."""
    choose = random.Random(seed)
    users = Users(choose, tmp_path, rows=80, join=seed % 2 == 1)
    for i in range(4):
        users.try_submit(choose, f"d{i}")
    (tmp_path / "gate").touch()
    for _ in range(2):
        time.sleep(choose.random() * 0.3)
        users.backend.kill()
        users.manager._journal.close()
        users.open()
        assert users.manager.names == list(users.flows)
    assert users.backend.wait(60)
    for name in users.flows:
        users.check(name)
    users.manager.close()


@pytest.mark.parametrize("seed", seeds(4))
def test_fragments_become_one_while_records_come(seed, tmp_path):  # P15, P18
    """Nothing is lost or doubled at any sink, and state goes on; also where some have gone, and after a kill."""
    choose = random.Random(seed)
    users = Users(choose, tmp_path, rows=100, join=seed % 2 == 1)
    for i in range(5):
        users.try_submit(choose, f"d{i}")
    (tmp_path / "gate").touch()
    gone = choose.choice(list(users.flows)) if len(users.flows) > 2 else None
    if gone is not None:
        users.manager.remove(gone)
        del users.flows[gone]
    for _ in range(2):
        time.sleep(choose.random() * 0.2)
        before = users.manager.canonical()
        users.manager.defragment()
        stats = users.manager.stats()
        assert users.manager.canonical() == before
        assert stats["fragments"] == stats["queries"] <= stats["groups"] and stats["idle"] == 0
        assert stats["readings"] == len(users.read()), "each is read once"
        if seed % 2:
            users.backend.kill()
            users.manager._journal.close()
            users.open()
    assert users.backend.wait(60)
    for name in users.flows:
        users.check(name)
    users.manager.close()


def test_a_query_for_which_others_rest_begins_as_soon_as_it_is_told(tmp_path, monkeypatch):
    backend = FakeSpark(tmp_path / "back")
    manager = ReuseManager(backend)
    flow = ro.Dataflow("ada")
    flow.sink("out", flow.source("in", schema={"value": "double"}))
    manager.submit(flow, ro.MemorySource([{"value": 1.0}]), ro.MemorySink())
    assert backend.wait(10)
    fragment = backend._fragments["f0"]
    fragment.stop()
    reader, *_ = fragment.parts(backend._options)
    begin, waited = (fragment.folder / BEGIN).read_bytes(), []

    def told(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            (fragment.folder / BEGIN).write_bytes(begin)

    monkeypatch.setattr(source, "time", SimpleNamespace(monotonic=lambda: sum(waited), sleep=told))
    (fragment.folder / BEGIN).unlink()
    assert reader.latest_offset(dict(source.WAITING), None)["at"] and len(waited) == 3
    (fragment.folder / BEGIN).unlink()
    assert reader.latest_offset(dict(source.WAITING), None) == source.WAITING, "nobody has told it"
    assert sum(waited) == pytest.approx(source.WAIT_SECONDS + 3 * source.POLL_SECONDS, abs=0.03)
    waited.clear()
    monkeypatch.setattr(type(fragment.topic), "head", lambda topic: Head())
    assert reader.latest_offset(dict(source.WAITING), None) == source.WAITING and not waited, "it is not up yet"
    manager.close()
