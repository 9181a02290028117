"""Records that sinks did not get are counted exactly. Without Spark."""

from __future__ import annotations

import os
import threading
from collections import Counter

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.spark import dispatcher as dispatcher_module
from tests.reuse.spark.dataflows import dataflow, until
from tests.reuse.spark.fake_spark import FakeSpark, Gated

#: Ordered so that accepted and rejected values occur from the first to the last batch.
VALUES = [{"value": float(i * 7 % 200)} for i in range(200)]


WHOLE = {"t0": 90, ERRORS_STREAM: 110}


def picky(name):
    """Make a dataflow that accepts 90 of the values up to 199 and rejects 110."""
    flow = ro.Dataflow(name)
    passing = t.RangeFilter(bounds={"value": (0, 89)}, by=None, on_error="reject")
    return flow.sink("out", flow.source("in", schema={"value": "double"}).to(passing, id="t0"))


class Counting(ro.CallbackSink):
    """Counts committed records; may wait to be freed before it takes any, and may fail after ``fails`` records."""

    def __init__(self, waits=False, fails=None):
        super().__init__(lambda stream, batch: None)
        self.got, self.fails = Counter(), fails
        self.entered, self.freed = threading.Event(), threading.Event()
        if not waits:
            self.freed.set()

    def writer(self, batch_id, partition):
        return _Epoch(self)

    def commit(self, batch_id, messages):
        for message in messages:
            self.got.update(message)


class _Epoch:
    def __init__(self, sink):
        self.sink, self.counts = sink, Counter()

    def write(self, stream, batch):
        self.sink.entered.set()
        self.sink.freed.wait()
        self.counts[stream] += batch.num_rows
        if self.sink.fails is not None and sum((self.counts + self.sink.got).values()) > self.sink.fails:
            raise OSError("disk full")

    def finish(self):
        return dict(self.counts)

    def abort(self):
        self.counts.clear()


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "GRACE_SECONDS", 0.1)
    managers = []

    def open(**options):
        managers.append(ReuseManager(FakeSpark(tmp_path / "back", **{"max_records": 10, **options})))
        return managers[-1], Gated(ro.MemorySource(VALUES), tmp_path / "gate"), (tmp_path / "gate").touch

    yield open
    for manager in managers:
        manager.close()


def dropped(manager, name):
    return manager.stats()["dropped"].get(name, {})


@pytest.mark.parametrize("shared", [False, True])
def test_failed_sink_drops_all_later_records(opened, shared):
    manager, source, go = opened()
    sink, other = Counting(fails=50), Counting()
    manager.submit(picky("ada"), source, sink)
    if shared:
        manager.submit(picky("bob"), source, other)
    go()
    until(lambda: sum(sink.got.values()) + sum(dropped(manager, "ada").values()) == 200)
    assert sink.got + Counter(dropped(manager, "ada")) == WHOLE
    assert sum(sink.got.values()) <= 50
    until(lambda: not shared or other.got == WHOLE)
    assert not dropped(manager, "bob")


@pytest.mark.long
def test_dropped_records_include_rejected_ones_and_exclude_pauses(opened):
    manager, source, go = opened(max_lag_bytes=3000)
    sink, other = Counting(waits=True), Counting()
    manager.submit(picky("ada"), source, sink, on_slow="drop_oldest")
    manager.submit(dataflow("bob", (0, 150)), source, other, on_slow="block")
    for fragment in manager.backend.fragments.values():
        fragment.query.delay_s = 0.02
    go()
    assert sink.entered.wait(10)
    until(lambda: other.got["t0"] > 30)
    pause, resume = manager.pause("ada")["in"], manager.resume("ada")["in"]
    until(lambda: other.got == {"t0": 151})
    sink.freed.set()
    assert manager.backend.wait("10s")
    passed = [row["value"] < 90 for i, row in enumerate(VALUES) if not pause <= i < resume]
    wanted = {"t0": passed.count(True), ERRORS_STREAM: passed.count(False)}
    assert sink.got + Counter(dropped(manager, "ada")) == wanted
    assert dropped(manager, "ada")[ERRORS_STREAM] > 0 and dropped(manager, "ada")["t0"] > 0


@pytest.mark.long
def test_abandoned_sink_drops_all_records_but_those_it_is_writing(opened):
    manager, source, go = opened(patience="300ms")
    sink = Counting(waits=True)
    manager.submit(picky("ada"), source, sink, on_slow="block")
    go()
    until(lambda: "ada" in manager.stats()["failed"])
    until(lambda: manager.backend.fragments["f0"].ended)
    sink.freed.set()
    until(lambda: sum(sink.got.values()) + sum(dropped(manager, "ada").values()) == 200)
    assert sink.got + Counter(dropped(manager, "ada")) == WHOLE and sink.got["t0"] > 0


def test_records_of_an_unreadable_file_are_counted(opened):
    manager, source, go = opened(max_records=1000)
    sink = Counting()
    manager.submit(picky("ada"), source, sink)
    [dispatcher] = manager.backend.dispatchers.all()
    dispatcher.halt()  # until a file exists and is damaged
    go()
    until(lambda: manager.backend.fragments["f0"].ended)
    topic = manager.backend.fragments["f0"].topic
    files = [file for n in topic.batches() for file in topic.marker(n).files if file.stream.startswith("range")]
    data = bytearray((topic.folder / files[0].path).read_bytes())
    data[files[0].at : files[0].at + files[0].size] = os.urandom(files[0].size)
    (topic.folder / files[0].path).write_bytes(data)
    while dispatcher.dispatch():
        pass
    dispatcher.dispatch()
    assert "damaged" in manager.stats()["failed"]["ada"]
    assert sink.got + Counter(dropped(manager, "ada")) == WHOLE
