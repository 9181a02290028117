"""Shared dispatchers: no dataflow waits for one that is slow, fails, pauses or is removed. Without Spark."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest

import riot_ops as ro
from riot_ops.core.errors import RiotError
from riot_ops.reuse import Request, ReuseManager
from riot_ops.reuse.errors import EnactError
from riot_ops.reuse.spark import dispatcher as dispatcher_module
from riot_ops.reuse.spark.dispatcher_pool import DispatcherPool
from riot_ops.reuse.spark.subscriber import Progress, Subscriber, Subscription
from riot_ops.reuse.submission import build_submission
from tests.reuse.spark.dataflows import ALL, ROWS, dataflow, until, values
from tests.reuse.spark.fake_spark import FakeSpark, Gated


class Scenario:
    """Dataflows submitted at once, each with all records, and their sinks."""

    def __init__(self, folder, names, slow=None, **options):
        self.folder, self.slow = folder, slow or {}
        self.sinks = {name: ro.MemorySink() for name in names}
        self.open(**options)
        self.manager.submit_all(self.requests(names))

    def open(self, **options):
        self.backend = FakeSpark(self.folder / "back", **{"max_records": 10, **options})
        self.manager = ReuseManager(self.backend, log=self.folder / "log", rebind=lambda name, flow: self.bound(name))

    def bound(self, name):
        return Gated(ro.MemorySource(ROWS), self.folder / "gate"), self.slow.get(name, self.sinks.get(name))

    def requests(self, names, **more):
        return [Request(dataflow(name, (0, 1000 + i)), *self.bound(name), **more) for i, name in enumerate(names)]

    def go(self):
        (self.folder / "gate").touch()

    def got(self, name):
        return values(self.sinks[name], "t0")

    def dispatchers(self):
        return [sorted(one.name for one in dispatcher.subscribers) for dispatcher in self.backend.dispatchers.all()]


@pytest.fixture
def scenario(tmp_path):
    scenarios = []

    def open(*names, **options):
        scenarios.append(Scenario(tmp_path, names, **options))
        return scenarios[-1]

    yield open
    for one in scenarios:
        one.manager.close()


def reader_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("riot_ops-to-")]


def test_thirty_dataflows_share_one_thread_reader_and_progress_file(scenario, tmp_path):
    names = [f"d{i}" for i in range(30)]
    all_of = scenario(*names)
    all_of.go()
    assert all_of.backend.wait("20s")
    assert all(all_of.got(name) == ALL for name in names)
    assert len(reader_threads()) <= 2, "one of the dispatcher, and one of a delivery"
    assert len(list((tmp_path / "back" / "dataflows").glob("*.json"))) == 1
    assert len(all_of.backend.fragments["f0"].topic.readers()) == 1


def test_each_value_of_on_slow_has_a_dispatcher(scenario):
    some = scenario("ada", "bob")
    requests = some.requests(["cyd", "dan"], on_slow="drop_oldest") + some.requests(["eve"], on_slow="block")
    for request in requests:
        some.sinks[request.flow.name] = ro.MemorySink()
    some.manager.submit_all(
        Request(r.flow, some.bound(r.flow.name)[0], some.sinks[r.flow.name], on_slow=r.on_slow) for r in requests
    )
    assert sorted(some.dispatchers()) == [["ada", "bob"], ["cyd", "dan"], ["eve"]]
    some.go()
    assert some.backend.wait("10s")
    assert all(some.got(name) == ALL for name in some.sinks)


def test_slow_sink_gets_its_own_dispatcher(scenario, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "GRACE_SECONDS", 0.1)
    free = threading.Event()
    got = []

    def slow(stream, batch):
        free.wait(20)
        got.extend(batch["value"].to_pylist())

    some = scenario("ada", "bob", "cyd", slow={"bob": ro.CallbackSink(slow)})
    some.go()
    until(lambda: some.got("ada") == some.got("cyd") == ALL)
    assert sorted(some.dispatchers()) == [["ada", "cyd"], ["bob"]] and not got
    assert some.manager.stats()["slow"]["bob"] > 0 and not some.manager.stats()["failed"]
    free.set()
    assert some.backend.wait("10s") and got == ALL
    assert some.manager.stats()["rows"] == {"ada": 200, "bob": 200, "cyd": 200}
    some.manager.remove("bob")
    assert some.dispatchers() == [["ada", "cyd"]]


@pytest.mark.long
def test_all_sinks_may_be_slow(scenario, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "GRACE_SECONDS", 0.05)
    got = {name: [] for name in ("ada", "bob", "cyd")}

    def slow(name):
        def take(stream, batch):
            if not got[name]:
                time.sleep(0.3)
            got[name].extend(batch["value"].to_pylist())

        return ro.CallbackSink(take)

    some = scenario("ada", "bob", "cyd", slow={name: slow(name) for name in got})
    some.go()
    assert some.backend.wait("20s")
    assert got == dict.fromkeys(got, ALL)
    until(lambda: len(list((some.folder / "back" / "dataflows").iterdir())) == len(some.dispatchers()))


def test_failing_sink_affects_no_other_dataflow(scenario):
    def full(stream, batch):
        raise OSError("disk full")

    some = scenario("ada", "bob", "cyd", slow={"bob": ro.CallbackSink(full)})
    some.go()
    assert some.backend.wait("10s")
    assert some.got("ada") == some.got("cyd") == ALL
    assert some.manager.stats()["failed"] == {"bob": "OSError: disk full"}
    assert some.manager.stats()["dropped"]["bob"]["t0"] > 0


@pytest.mark.long
def test_pause_resume_and_removal_affect_no_other_dataflow(scenario):
    some = scenario("ada", "bob", "cyd", "dan")
    some.manager.pause("bob")
    some.manager.remove("cyd")
    some.go()
    assert some.backend.wait("10s")
    assert some.got("ada") == some.got("dan") == ALL and some.got("bob") == some.got("cyd") == []
    some.manager.resume("bob")
    assert some.backend.wait("10s") and some.got("bob") == [], "records from during the pause"
    for name in ("bob", "dan", "ada"):
        some.manager.remove(name)
    assert not list((some.folder / "back" / "dataflows").iterdir()) and not some.backend.dispatchers.by_dataflow


@pytest.mark.long
@pytest.mark.parametrize("slow", [False, True])
def test_each_dataflow_has_all_records_once_after_a_kill(tmp_path, monkeypatch, slow):
    monkeypatch.setattr(dispatcher_module, "GRACE_SECONDS", 0.05)
    names = ["ada", "bob", "cyd"]
    some = Scenario(tmp_path, [])
    some.sinks = {name: ro.ParquetSink(tmp_path / name) for name in names}
    if slow:
        write = ro.ParquetSink.commit
        monkeypatch.setattr(
            ro.ParquetSink, "commit",
            lambda self, *given: time.sleep(0.2 * (self.folder.name == "bob")) or write(self, *given),
        )  # fmt: skip
    some.manager.submit_all(some.requests(names))
    some.go()
    for _ in range(2):
        time.sleep(0.3)
        some.backend.kill()
        some.manager.journal.close()
        some.open()
        assert some.manager.names == names
    assert some.backend.wait("20s")
    for name in names:
        assert sorted(some.got(name)) == ALL
    some.manager.close()


def test_unreadable_file_fails_only_its_subscribers(scenario):
    some = scenario("ada", "bob", max_records=1000)
    for dispatcher in some.backend.dispatchers.all():
        dispatcher.halt()  # until a file exists and is damaged
    some.go()
    topic = some.backend.fragments["f0"].topic
    until(lambda: some.backend.fragments["f0"].ended)
    [file] = [f for n in topic.batches() for f in topic.marker(n).files if f.stream.startswith("range_filter.3")][:1]
    data = bytearray((topic.folder / file.path).read_bytes())
    data[file.at : file.at + file.size] = os.urandom(file.size)
    (topic.folder / file.path).write_bytes(data)
    [dispatcher] = some.backend.dispatchers.all()
    while dispatcher.dispatch():
        pass
    assert some.got("ada") == ALL and "damaged" in some.manager.stats()["failed"]["bob"]
    assert "ada" not in some.manager.stats()["failed"]


@pytest.mark.parametrize("place", [0, -1], ids=["oldest", "newest"])
def test_missing_unread_batch_fails_the_dataflow(scenario, place):
    some = scenario("ada")
    [dispatcher] = some.backend.dispatchers.all()
    dispatcher.halt()
    some.go()
    topic = some.backend.fragments["f0"].topic
    until(lambda: some.backend.fragments["f0"].ended)
    (topic.folder / f"batch-{topic.batches()[place]:06d}.json").unlink()
    while dispatcher.dispatch():
        pass
    assert "is gone" in some.manager.stats()["failed"]["ada"]
    assert some.backend.wait("10s")


def test_fragments_are_merged_under_a_shared_dispatcher(scenario):
    some = scenario("ada", "bob", join=False)
    flow = dataflow("cyd", (0, 1000), (0, 50))
    some.sinks["cyd"] = ro.MemorySink()
    some.manager.submit(flow, *some.bound("cyd"))
    assert some.manager.stats()["fragments"] == 2
    some.manager.defragment()
    assert some.manager.stats()["fragments"] == 1 and some.dispatchers() == [["ada", "bob", "cyd"]]
    some.go()
    assert some.backend.wait("10s")
    assert some.got("ada") == some.got("bob") == ALL and values(some.sinks["cyd"], "t1") == ALL[:51]


def test_removal_does_not_wait_for_a_hanging_sink(scenario, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "GRACE_SECONDS", 0.1)
    free = threading.Event()
    some = scenario("ada", "bob", slow={"bob": ro.CallbackSink(lambda stream, batch: free.wait(20))}, patience="300ms")
    some.go()
    until(lambda: some.got("ada") == ALL)
    begin = time.monotonic()
    some.manager.remove("bob")
    some.manager.remove("ada")
    assert time.monotonic() - begin < 5
    free.set()
    with pytest.raises(RiotError):
        some.manager.remove("bob")


@pytest.mark.long
@pytest.mark.parametrize("order", [("ada", "bob"), ("bob", "ada")])
def test_removal_waits_until_sinks_have_ended(scenario, order):
    ended = []

    class Late(ro.CallbackSink):
        def end(self, schemas):
            time.sleep(0.3)
            ended.append(self.owner)

    slow = {name: Late(lambda stream, batch: None) for name in order}
    for name in order:
        slow[name].owner = name
    some = scenario("ada", "bob", slow=slow)
    for n, name in enumerate(order, 1):
        some.manager.remove(name)
        assert ended == [*order[:n]]
    assert not list((some.folder / "back" / "fragments").iterdir())


@pytest.mark.long
def test_new_dataflows_join_the_existing_dispatcher(scenario):
    some = scenario("ada")
    some.backend.fragments["f0"].query.delay_s = 0.03  # so that records are left when they start
    some.go()
    firsts = {"ada": 0}
    for i in range(12):
        until(lambda i=i: len(some.got("ada")) > 12 * i)
        some.sinks[f"d{i}"] = ro.MemorySink()
        [request] = some.requests([f"d{i}"])
        [report] = some.manager.submit_all([request])
        firsts[f"d{i}"] = report.first["in"]
    assert some.backend.wait("10s")
    assert len(some.dispatchers()) == 1 and len(reader_threads()) <= 2
    for name, first in firsts.items():
        assert some.got(name) == ALL[first:], "records were lost or doubled"
    assert 0 < firsts["d5"] < 200, "they started before or after all records"


def test_slow_new_dataflow_delays_no_other_and_loses_nothing(scenario, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "GRACE_SECONDS", 0.05)
    some = scenario("ada")
    [dispatcher] = some.backend.dispatchers.all()
    topic = some.backend.fragments["f0"].topic
    topic.join("kept", 0)  # so that no batch is trimmed
    some.go()
    until(lambda: some.got("ada") == ALL)
    free, got = threading.Event(), []

    def slow(stream, batch):
        free.wait(20)
        got.extend(batch["value"].to_pylist())

    submission, _ = build_submission(
        "bob", dataflow("bob", (0, 1000)), ro.MemorySource(ROWS), ro.CallbackSink(slow), True
    )
    bob = Subscriber(
        submission, {"f0": Subscription({"range_filter.1": ["t0"]}, {})}, Progress({"t0": "range_filter.1"})
    )
    dispatcher.add([bob], {"f0": topic}, {"f0": 3})
    assert sorted(some.dispatchers()) == [["ada"], ["bob"]] and not got
    assert topic.readers()[some.backend.dispatchers.by_dataflow["bob"].cursor.reader] == 3, (
        "the batches before count as read"
    )
    free.set()
    until(lambda: got and got[-1] == ALL[-1])
    first = sum(
        file.rows for n in topic.batches() if n < 3 for file in topic.marker(n).files if "filter" in file.stream
    )
    assert got == ALL[first:] and 0 <= first < 200
    some.backend.dispatchers.drain(bob)
    some.backend.dispatchers.await_drained("bob")


def test_failed_submission_leaves_the_dispatcher_unchanged(scenario, monkeypatch):
    some = scenario("ada")
    assign = DispatcherPool.assign

    def full(*given):
        assign(*given)
        raise OSError("no more room")

    monkeypatch.setattr(DispatcherPool, "assign", full)
    some.sinks["bob"] = ro.MemorySink()
    before = some.manager.state(), some.backend.running_steps()
    with pytest.raises(EnactError, match="no more room"):
        some.manager.submit_all(some.requests(["bob"]))
    assert some.dispatchers() == [["ada"]] and set(some.backend.dispatchers.by_dataflow) == {"ada"}
    assert (some.manager.state(), some.backend.running_steps()) == before
    monkeypatch.undo()
    some.manager.submit_all(some.requests(["bob"]))
    some.go()
    assert some.backend.wait("10s") and some.got("ada") == some.got("bob") == ALL


def test_reassignment_includes_a_dataflow_moving_to_its_own_dispatcher():
    class Stub:
        def __init__(self):
            self.lock, self.got, self.cursor = (
                threading.RLock(),
                {},
                SimpleNamespace(reader=str(id(self)), topics={"new"}),
            )

        def reassign(self, replacements):
            self.got |= replacements

    first, own = Stub(), Stub()
    pool = DispatcherPool(1, 1.0)
    pool.by_dataflow.update(ada=first, bob=first)

    class MovingLock:
        """While the pool waits for this lock, bob moves to a dispatcher of its own."""

        def __enter__(self):
            pool.by_dataflow["bob"] = own

        def __exit__(self, *error):
            pass

    first.lock = MovingLock()
    left = []
    new = SimpleNamespace(leave=left.append)
    pool.reassign({"ada": ("new", new), "bob": ("new", new)}, {("new", first.cursor.reader), ("new", "gone")})
    assert first.got.keys() == {"ada"} and own.got.keys() == {"bob"} and left == ["gone"]
