"""Random dataflows in queries that hand streams to each other: each gets the same records as alone. Without Spark."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import pytest

import riot_ops as ro
from riot_ops.reuse import ReuseManager, errors
from riot_ops.reuse.spark import source
from riot_ops.reuse.spark.source import START
from riot_ops.reuse.topic import Head
from riot_ops.runtime.binding import bind_sources
from tests.random_flows import assert_same, everything, random_input
from tests.reuse.local_users import Got, any_flow, known
from tests.reuse.spark.fake_spark import FakeSpark, Gated
from tests.search import seeds

NAMES = ("north", "south", "west", "in0", "in1")


class Users:
    """A manager over fragments, its dataflows and their sinks."""

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
        bound = bind_sources(flow, {n.id: self.logs[n.id] for n in flow.nodes_of_kind("source")})
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
        sinks = {n.id: self.sinks[name] for n in self.flows[name].nodes_of_kind("sink")}
        return everything(Got(next(iter(sinks.values()))), self.flows[name], nodes)

    def alone(self, name, nodes=None):
        flow = self.flows[name]
        logs = {s: self.logs[s].slice(first) for s, first in self.first[name].items()}
        return everything(flow.run(logs), flow, nodes)

    def read(self):
        """Return the inputs of the dataflows; sources merged as one log count together."""
        found = set()
        for flow in self.flows.values():
            sources = tuple(node.id for node in flow.nodes_of_kind("source"))
            separate = flow.merging == "arrival" or len(sources) == 1
            found |= set(sources) if separate else {(flow.merging, *sources)}
        return found

    def check(self, name):
        nodes = known(self.flows[name])
        assert_same(self.got(name, nodes), self.alone(name, nodes), self.flows[name])


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(4))
def test_each_dataflow_gets_the_same_records_as_alone(seed, tmp_path):  # P15
    choose = random.Random(seed)
    users = Users(choose, tmp_path, join=seed % 2 == 1)
    for i in range(4):
        users.try_submit(choose, f"d{i}")
    assert users.manager.stats()["readings"] == len(users.read()), "each source is read once"
    (tmp_path / "gate").touch()
    assert users.backend.wait("1min")
    for name in users.flows:
        users.check(name)
    for name in users.flows:
        users.manager.remove(name)
    stats = users.manager.stats()
    assert stats["fragments"] == stats["queries"] == 0 and not users.backend.running_steps()
    left = [*(tmp_path / "back" / "fragments").iterdir(), *(tmp_path / "back" / "dataflows").iterdir()]
    assert not left
    users.manager.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(4))
def test_late_dataflow_gets_the_same_records_as_alone_from_its_start_on(seed, tmp_path):
    choose = random.Random(seed)
    users = Users(choose, tmp_path, rows=80, policy="stateless", join=seed % 2 == 0)
    (tmp_path / "gate").touch()
    alive = []
    for i in range(7):
        if alive and choose.random() < 0.3:
            removed = alive.pop(choose.randrange(len(alive)))
            users.manager.remove(removed)
            nodes = known(users.flows[removed])
            part, whole = users.got(removed, nodes), users.alone(removed, nodes)
            assert all(not part[stream] - whole[stream] for stream in part)
        elif users.try_submit(choose, f"d{i}"):
            alive.append(f"d{i}")
    assert users.backend.wait("1min")
    for name in alive:
        users.check(name)
    users.manager.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(4))
def test_all_dataflows_resume_after_a_kill(seed, tmp_path):
    """No sink loses or duplicates records, at any state of progress."""
    choose = random.Random(seed)
    users = Users(choose, tmp_path, rows=80, join=seed % 2 == 1)
    for i in range(4):
        users.try_submit(choose, f"d{i}")
    (tmp_path / "gate").touch()
    for _ in range(2):
        time.sleep(choose.random() * 0.3)
        users.backend.kill()
        users.manager.journal.close()
        users.open()
        assert users.manager.names == list(users.flows)
    assert users.backend.wait("1min")
    for name in users.flows:
        users.check(name)
    users.manager.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(4))
def test_fragments_are_merged_while_records_arrive(seed, tmp_path):  # P15, P18
    """No sink loses or doubles records, and state is kept; also after a removal, and after a kill."""
    choose = random.Random(seed)
    users = Users(choose, tmp_path, rows=100, join=seed % 2 == 1)
    for i in range(5):
        users.try_submit(choose, f"d{i}")
    (tmp_path / "gate").touch()
    removed = choose.choice(list(users.flows)) if len(users.flows) > 2 else None
    if removed is not None:
        users.manager.remove(removed)
        del users.flows[removed]
    for _ in range(2):
        time.sleep(choose.random() * 0.2)
        before = users.manager.canonical()
        users.manager.defragment()
        stats = users.manager.stats()
        assert users.manager.canonical() == before
        assert stats["fragments"] == stats["queries"] <= stats["groups"] and stats["idle"] == 0
        assert stats["readings"] == len(users.read()), "each source is read once"
        if seed % 2:
            users.backend.kill()
            users.manager.journal.close()
            users.open()
    assert users.backend.wait("1min")
    for name in users.flows:
        users.check(name)
    users.manager.close()


def test_replacement_query_starts_as_soon_as_its_start_point_exists(tmp_path, monkeypatch):
    backend = FakeSpark(tmp_path / "back")
    manager = ReuseManager(backend)
    flow = ro.Dataflow("ada")
    flow.sink("out", flow.source("in", schema={"value": "double"}))
    manager.submit(flow, ro.MemorySource([{"value": 1.0}]), ro.MemorySink())
    assert backend.wait("10s")
    fragment = backend.fragments["f0"]
    fragment.stop()
    reader, *_ = fragment.query_parts(backend.options)
    start, waited = (fragment.folder / START).read_bytes(), []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            (fragment.folder / START).write_bytes(start)

    monkeypatch.setattr(source, "time", SimpleNamespace(monotonic=lambda: sum(waited), sleep=sleep))
    (fragment.folder / START).unlink()
    assert reader.latest_offset(dict(source.NOT_STARTED), None)["at"] and len(waited) == 3
    (fragment.folder / START).unlink()
    assert reader.latest_offset(dict(source.NOT_STARTED), None) == source.NOT_STARTED, "no start point in time"
    assert sum(waited) == pytest.approx(source.WAIT_SECONDS + 3 * source.POLL_SECONDS, abs=0.03)
    waited.clear()
    monkeypatch.setattr(type(fragment.topic), "head", lambda topic: Head())
    assert reader.latest_offset(dict(source.NOT_STARTED), None) == source.NOT_STARTED and not waited, (
        "a query without a micro-batch does not wait"
    )
    manager.close()
