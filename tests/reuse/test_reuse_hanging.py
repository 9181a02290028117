"""Sinks on Spark that hang, or take long: whoever else acts goes on. Without Spark."""

from __future__ import annotations

import threading

import pytest

import riot_ops as ro
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.spark import carrier as carriers
from tests.reuse.queries import FakeSpark, Gated
from tests.reuse.test_reuse_queries import ROWS, dataflow, until, values

ALL = [float(i) for i in range(200)]


class Hanging(ro.CallbackSink):
    """Takes nothing before it is freed."""

    def __init__(self):
        super().__init__(self._take)
        self.entered, self.freed, self.got = threading.Event(), threading.Event(), []

    def _take(self, stream, batch):
        self.entered.set()
        self.freed.wait()
        self.got += batch["value"].to_pylist()


class Shared:
    """Ada's sink hangs; she is alone with what carries to her."""

    def __init__(self, folder, **options):
        self.folder, self.ada = folder, Hanging()
        choices = {name: options.pop(name) for name in ("on_slow",) if name in options}
        self.backend = FakeSpark(folder / "back", **{"max_records": 10, **options})
        self.manager = ReuseManager(self.backend)
        self.source = Gated(ro.MemorySource(ROWS), folder / "gate")
        self.submit("ada", self.ada, **choices)
        [self.first] = self.backend._carriers.all()

    def submit(self, name, sink, *more, **choices):
        self.manager.submit(dataflow(name, (0, 1000), *more), self.source, sink, **choices)
        return sink

    def hang(self):
        (self.folder / "gate").touch()
        assert self.ada.entered.wait(20)

    def recipient(self, name):
        return self.backend._recipients[name]


def within(what, seconds=20):
    """Do something that must not take for ever."""
    found = []
    thread = threading.Thread(target=lambda: found.append(what()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits for a sink"
    assert found, "it failed"
    return found[0]


@pytest.fixture
def shared(tmp_path, monkeypatch):
    monkeypatch.setattr(carriers, "GRACE_SECONDS", 0.05)
    made = []

    def open(**options):
        made.append(Shared(tmp_path, **options))
        return made[-1]

    yield open
    for one in made:
        one.ada.freed.set()
        one.manager.close()


def test_others_come_pause_and_go_while_one_that_is_alone_hangs(shared):
    some = shared()
    some.hang()
    bob = ro.MemorySink()
    within(lambda: some.submit("bob", bob, (0, 50)))
    within(lambda: (some.manager.pause("bob"), some.manager.resume("bob"), some.manager.stats()))
    within(lambda: (some.manager.remove("bob"), some.submit("cyd", bob)))
    assert some.backend._carriers.of["cyd"] is not some.backend._carriers.of["ada"]
    assert not some.ada.got and some.ada.freed.set() is None
    assert some.backend.wait(20) and some.ada.got == ALL


def test_who_hangs_may_rest_itself_and_loses_nothing_of_before(shared):
    some = shared()
    some.backend._fragments["f0"].query.delay_s = 0.02  # so that there is something left when it rests
    some.hang()
    rests = within(lambda: some.manager.pause("ada"))["in"]
    wakes = within(lambda: some.manager.resume("ada"))["in"]
    assert some.recipient("ada").progress.epoch == 0, "what was not taken is noted as such"
    some.ada.freed.set()
    assert some.backend.wait(20) and some.ada.got == [float(i) for i in range(200) if not rests <= i < wakes]
    assert some.recipient("ada").progress.epoch > 0


def test_whoever_acts_does_not_keep_one_that_hangs_from_being_given_up(shared):
    some = shared(on_slow="block", patience_s=0.2)
    some.hang()
    with some.backend._lock, some.backend._carriers.still("ada"):
        until(lambda: some.recipient("ada").given_up)
    assert "took nothing for 0.2 s" in some.manager.stats()["failed"]["ada"]


def test_nobody_comes_to_a_carrier_that_carries_to_nobody_any_more(shared):
    some = shared()
    some.hang()
    until(lambda: not some.first.recipients)
    cyd = some.submit("cyd", ro.MemorySink())
    topic = some.backend._fragments["f0"].topic
    assert not some.first.take_in([some.recipient("cyd")], {"f0": topic}, {"f0": 0})
    assert some.backend._carriers.of["cyd"] is not some.first
    some.ada.freed.set()
    assert some.backend.wait(20) and values(cyd, "t0") in ([], ALL[-len(values(cyd, "t0")) :])


def test_what_is_closed_carries_nothing_more_though_a_sink_is_freed_later(shared):
    some = shared(patience_s=0.2)
    some.hang()
    until(lambda: some.backend._carriers.of["ada"].apart)
    within(some.manager.close)
    some.ada.freed.set()
    thread = some.backend._carriers.of["ada"]._thread
    thread.join(20)
    assert not thread.is_alive() and len(some.ada.got) < 200
