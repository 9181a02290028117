"""What sinks did not get is counted to the record: in process, and on Spark without Spark."""

from __future__ import annotations

import os
import threading
from collections import Counter

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse import LocalBackend, ReuseManager
from riot_ops.reuse.spark import carrier as carriers
from riot_ops.reuse.spark.bookmark import Bookmark
from riot_ops.reuse.spark.dealing import waiting
from riot_ops.reuse.topic import Topic
from tests.reuse.queries import FakeSpark, Gated
from tests.reuse.test_outlets import Files, flow, log
from tests.reuse.test_reuse_queries import dataflow, until

#: In an order in which both kinds come from the first to the last batch.
VALUES = [{"value": float(i * 7 % 200)} for i in range(200)]
WHOLE = {"t0": 90, ERRORS_STREAM: 110}


def picky(name):
    """Of the values up to 199, 90 pass and 110 are rejected."""
    made = ro.Dataflow(name)
    passing = t.RangeFilter(bounds={"value": (0, 89)}, by=None, on_fail="reject")
    return made.sink("out", made.source("in", schema={"value": "double"}).to(passing, id="t0"))


class Noting(ro.CallbackSink):
    """Counts what it has committed; may wait before it takes anything, and may fail when it has so much."""

    def __init__(self, waits=False, fails=None):
        super().__init__(lambda stream, batch: None)
        self.got, self.fails = Counter(), fails
        self.entered, self.freed = threading.Event(), threading.Event()
        if not waits:
            self.freed.set()

    def writer(self, batch_id, partition):
        return _Held(self)

    def commit(self, batch_id, messages):
        for message in messages:
            self.got.update(message)


class _Held:
    def __init__(self, sink):
        self.sink, self.held = sink, Counter()

    def write(self, stream, batch):
        self.sink.entered.set()
        self.sink.freed.wait()
        self.held[stream] += batch.num_rows
        if self.sink.fails is not None and sum((self.held + self.sink.got).values()) > self.sink.fails:
            raise OSError("disk full")

    def finish(self):
        return dict(self.held)

    def abort(self):
        self.held.clear()


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.setattr(carriers, "GRACE_SECONDS", 0.1)
    made = []

    def open(**options):
        made.append(ReuseManager(FakeSpark(tmp_path / "back", **{"max_records": 10, **options})))
        return made[-1], Gated(ro.MemorySource(VALUES), tmp_path / "gate"), (tmp_path / "gate").touch

    yield open
    for manager in made:
        manager.close()


def dropped(manager, name):
    return manager.stats()["dropped"].get(name, {})


@pytest.mark.parametrize("shared", [False, True])
def test_a_sink_that_fails_on_spark_misses_all_from_there_on(opened, shared):
    manager, source, go = opened()
    sink, other = Noting(fails=50), Noting()
    manager.submit(picky("ada"), source, sink)
    if shared:
        manager.submit(picky("bob"), source, other)
    go()
    until(lambda: sum(sink.got.values()) + sum(dropped(manager, "ada").values()) == 200)
    assert sink.got + Counter(dropped(manager, "ada")) == WHOLE
    assert sum(sink.got.values()) <= 50
    until(lambda: not shared or other.got == WHOLE)
    assert not dropped(manager, "bob")


def test_what_is_dropped_on_spark_is_counted_with_what_was_rejected_and_without_pauses(opened):
    manager, source, go = opened(behind_bytes=3000)
    sink, other = Noting(waits=True), Noting()
    manager.submit(picky("ada"), source, sink, on_slow="drop_oldest")
    manager.submit(dataflow("bob", (0, 150)), source, other, on_slow="block")
    for fragment in manager.backend._fragments.values():
        fragment.query.delay_s = 0.02
    go()
    assert sink.entered.wait(10)
    until(lambda: other.got["t0"] > 30)
    rests, wakes = manager.pause("ada")["in"], manager.resume("ada")["in"]
    until(lambda: other.got == {"t0": 151})
    sink.freed.set()
    assert manager.backend.wait(10)
    passed = [row["value"] < 90 for i, row in enumerate(VALUES) if not rests <= i < wakes]
    wanted = {"t0": passed.count(True), ERRORS_STREAM: passed.count(False)}
    assert sink.got + Counter(dropped(manager, "ada")) == wanted
    assert dropped(manager, "ada")[ERRORS_STREAM] > 0 and dropped(manager, "ada")["t0"] > 0


def test_one_that_is_given_up_on_spark_misses_all_but_what_it_has_in_hand(opened):
    manager, source, go = opened(patience_s=0.3)
    sink = Noting(waits=True)
    manager.submit(picky("ada"), source, sink, on_slow="block")
    go()
    until(lambda: "ada" in manager.stats()["failed"])
    until(lambda: manager.backend._fragments["f0"].ended)
    sink.freed.set()
    until(lambda: sum(sink.got.values()) + sum(dropped(manager, "ada").values()) == 200)
    assert sink.got + Counter(dropped(manager, "ada")) == WHOLE and sink.got["t0"] > 0


def test_what_cannot_be_read_is_counted(opened):
    manager, source, go = opened(max_records=1000)
    sink = Noting()
    manager.submit(picky("ada"), source, sink)
    [carrier] = manager.backend._carriers.all()
    carrier.halt()  # until there is something, and it is damaged
    go()
    until(lambda: manager.backend._fragments["f0"].ended)
    topic = manager.backend._fragments["f0"].topic
    files = [file for n in topic.batches() for file in topic.marker(n).files if file.stream.startswith("range")]
    data = bytearray((topic.folder / files[0].path).read_bytes())
    data[files[0].at : files[0].at + files[0].size] = os.urandom(files[0].size)
    (topic.folder / files[0].path).write_bytes(data)
    while carrier.turn():
        pass
    carrier.turn()
    assert "damaged" in manager.stats()["failed"]["ada"]
    assert sink.got + Counter(dropped(manager, "ada")) == WHOLE


def test_in_process_a_record_that_two_sinks_lose_is_lost_once():
    manager = ReuseManager(LocalBackend(batch_size=2, epoch_s=1000.0))
    one, two, good = Files(breaks=7), Files(breaks=13), Files()
    manager.submit(flow("ada", "one", "two", "good"), log(20), {"one": one, "two": two, "good": good})
    manager.backend.run()
    manager.close()
    assert good.seen == list(range(20)) and one.seen == two.seen == []
    assert manager.backend.stats()["dropped"] == {"ada": {"values": 20}}


@pytest.mark.parametrize("broken", ["writer", "commit"])
def test_in_process_what_was_committed_is_not_lost_where_the_next_epoch_cannot_begin(broken):
    class Once(Files):
        def writer(self, batch_id, partition):
            if batch_id == 3 and broken == "writer":
                raise OSError("no handle")
            return super().writer(batch_id, partition)

        def commit(self, batch_id, messages):
            if batch_id == 3 and broken == "commit":
                raise OSError("no room")
            super().commit(batch_id, messages)

    manager = ReuseManager(LocalBackend(batch_size=2, epoch_s=0.0))
    sink = Once()
    manager.submit(flow("ada"), log(20), sink)
    manager.backend.run()
    assert sink.seen == list(range(6))
    assert manager.stats()["dropped"] == {"ada": {"values": 14}}
    manager.close()


def test_a_reader_never_goes_back(tmp_path):
    topic = Topic(tmp_path / "topic")
    mark = Bookmark("r", {"f0": topic}, {"f0": 5})
    mark.read({"f0": 9})
    mark.read({"f0": 7})  # of what a slow sink had in hand, when all behind it has been counted
    assert mark.at == {"f0": 9}


def test_topics_may_come_and_go_while_somebody_looks(tmp_path):
    """What waits is told without a lock."""

    class Looked(Topic):
        def there(self, since=0):
            mark.keep(lambda name: name == "f0")
            return super().there(since)

    topics = {name: Looked(tmp_path / name) for name in ("f0", "f1")}
    mark = Bookmark("r", topics, dict.fromkeys(topics, 0))
    assert waiting(mark, []) == {} and [name for name, _, _ in mark.each()] == ["f0"]
