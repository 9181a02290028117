"""Sinks that are slow, hang or fail: queries, actions and other sinks go on. Without Spark."""

from __future__ import annotations

import signal
import threading
import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.errors import EnactError
from riot_ops.reuse.spark import dispatcher as dispatcher_module
from riot_ops.reuse.spark.dispatcher_pool import DispatcherPool
from tests.reuse.spark.dataflows import ALL, ROWS, dataflow, until, values
from tests.reuse.spark.fake_spark import FakeSpark, Gated


class Hanging(ro.CallbackSink):
    """Takes no records before it is freed."""

    def __init__(self):
        super().__init__(self._take)
        self.entered, self.freed, self.got = threading.Event(), threading.Event(), []

    def _take(self, stream, batch):
        self.entered.set()
        self.freed.wait()
        self.got += batch["value"].to_pylist()


class Scenario:
    """A manager with the dataflow ada, whose sink hangs, so that ada gets a dispatcher of its own."""

    def __init__(self, folder, **options):
        self.folder, self.ada = folder, Hanging()
        choices = {name: options.pop(name) for name in ("on_slow",) if name in options}
        self.backend = FakeSpark(folder / "back", **{"max_records": 10, **options})
        self.manager = ReuseManager(self.backend)
        self.source = Gated(ro.MemorySource(ROWS), folder / "gate")
        self.submit("ada", self.ada, **choices)
        [self.first] = self.backend.dispatchers.all()

    def submit(self, name, sink, *more, **choices):
        self.manager.submit(dataflow(name, (0, 1000), *more), self.source, sink, **choices)
        return sink

    def hang(self):
        (self.folder / "gate").touch()
        assert self.ada.entered.wait(20)

    def subscriber(self, name):
        return self.backend.subscribers[name]


def within(action, seconds=20):
    """Run an action that must not wait for a hanging sink."""
    found = []
    thread = threading.Thread(target=lambda: found.append(action()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the action waits for a sink"
    assert found, "the action failed"
    return found[0]


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "GRACE_SECONDS", 0.05)
    scenarios = []

    def open(**options):
        scenarios.append(Scenario(tmp_path, **options))
        return scenarios[-1]

    yield open
    for one in scenarios:
        one.ada.freed.set()
        one.manager.close()


@pytest.mark.long
def test_query_waits_for_blocking_sinks(opened):
    manager, source, go = opened(max_queue_bytes=2000)
    free = threading.Event()
    got = []

    def slow(stream, batch):
        free.wait(10)
        got.extend(batch["value"].to_pylist())

    manager.submit(dataflow("ada"), source, ro.CallbackSink(slow), on_slow="block")
    go()
    until(lambda: manager.stats()["unread_bytes"]["f0"] > 2000)
    time.sleep(0.2)
    assert manager.stats()["records"]["in.0"] < 200 and manager.stats()["slow"]["ada"] > 0
    free.set()
    assert manager.backend.wait("10s") and got == [float(i) for i in range(200)]
    assert not manager.stats()["slow"]


def test_failed_sink_is_not_synced(opened):
    class Bad(ro.CallbackSink):
        def sync(self, batch_id):
            raise OSError("disk gone")

    def take(stream, batch):
        raise OSError("disk gone")

    manager, source, go = opened()
    flow, good = ro.Dataflow("ada"), ro.MemorySink()
    kept = flow.source("in", schema={"value": "double"}).to(
        t.RangeFilter(bounds={"value": (0, 1000)}, by=None), id="t0"
    )
    flow.sink("bad", kept).sink("out", kept)
    manager.submit(flow, source, {"bad": Bad(take), "out": good})
    go()
    assert manager.backend.wait("10s") and len(values(good, "t0")) == 200
    assert manager.stats()["failed"] == {"ada": "OSError: disk gone"}


@pytest.mark.long
def test_hanging_blocking_sink_is_abandoned(opened):
    manager, source, go = opened(max_queue_bytes=2000, patience="600ms")
    free = threading.Event()
    bob = ro.MemorySink()
    manager.submit(dataflow("ada"), source, ro.CallbackSink(lambda stream, batch: free.wait(30)), on_slow="block")
    manager.submit(dataflow("bob", (0, 300)), source, bob)
    go()
    assert manager.backend.wait("10s") and len(values(bob, "t0")) == 200
    assert "took nothing for 0.6 s" in manager.stats()["failed"]["ada"]
    manager.remove("ada")
    free.set()


@pytest.mark.parametrize("on_slow", ["drop_oldest", "detach"])
def test_sink_beyond_its_lag_limit_drops_records_or_fails(opened, on_slow):
    manager, source, go = opened(max_lag_bytes=3000)
    free = threading.Event()
    got = []

    def slow(stream, batch):
        free.wait(10)
        got.extend(batch["value"].to_pylist())

    manager.submit(dataflow("ada"), source, ro.CallbackSink(slow), on_slow=on_slow)
    go()
    until(lambda: manager.backend.fragments["f0"].ended)
    free.set()
    assert manager.backend.wait("10s")
    stats = manager.stats()
    if on_slow == "detach":
        assert "its sinks lag by" in stats["failed"]["ada"] and len(got) < 200
    else:
        assert stats["dropped"] == {"ada": {"in": 200 - len(got)}} and 0 < len(got) < 200 and got[-1] == 199.0


def test_failing_sink_affects_no_other_dataflow(opened):
    manager, source, go = opened()

    def full(stream, batch):
        raise OSError("disk full")

    bob = ro.MemorySink()
    manager.submit(dataflow("ada"), source, ro.CallbackSink(full))
    manager.submit(dataflow("bob", (0, 300)), source, bob)
    go()
    assert manager.backend.wait("10s") and len(values(bob, "t0")) == 200
    assert manager.stats()["failed"] == {"ada": "OSError: disk full"} and manager.stats()["dropped"]["ada"]["in"] > 0
    manager.remove("ada")
    assert not manager.stats()["failed"]


def test_other_dataflows_start_pause_and_end_while_a_sink_hangs(scenario):
    some = scenario()
    some.hang()
    bob = ro.MemorySink()
    within(lambda: some.submit("bob", bob, (0, 50)))
    within(lambda: (some.manager.pause("bob"), some.manager.resume("bob"), some.manager.stats()))
    within(lambda: (some.manager.remove("bob"), some.submit("cyd", bob)))
    assert some.backend.dispatchers.by_dataflow["cyd"] is not some.backend.dispatchers.by_dataflow["ada"]
    assert not some.ada.got and some.ada.freed.set() is None
    assert some.backend.wait("20s") and some.ada.got == ALL


@pytest.mark.long
def test_pause_of_a_hanging_sink_loses_no_earlier_records(scenario):
    some = scenario()
    some.backend.fragments["f0"].query.delay_s = 0.02  # so that records are left when it pauses
    some.hang()
    pause = within(lambda: some.manager.pause("ada"))["in"]
    resume = within(lambda: some.manager.resume("ada"))["in"]
    assert some.subscriber("ada").progress.epoch == 0, "the progress excludes undelivered records"
    some.ada.freed.set()
    assert some.backend.wait("20s") and some.ada.got == [float(i) for i in range(200) if not pause <= i < resume]
    assert some.subscriber("ada").progress.epoch > 0


@pytest.mark.long
def test_hanging_sink_is_abandoned_while_locks_are_held(scenario):
    some = scenario(on_slow="block", patience="200ms")
    some.hang()
    with some.backend.lock, some.backend.dispatchers.locked("ada"):
        until(lambda: some.subscriber("ada").abandoned)
    assert "took nothing for 0.2 s" in some.manager.stats()["failed"]["ada"]


def test_dispatcher_without_subscribers_accepts_none(scenario):
    some = scenario()
    some.hang()
    until(lambda: not some.first.subscribers)
    cyd = some.submit("cyd", ro.MemorySink())
    topic = some.backend.fragments["f0"].topic
    assert not some.first.add([some.subscriber("cyd")], {"f0": topic}, {"f0": 0})
    assert some.backend.dispatchers.by_dataflow["cyd"] is not some.first
    some.ada.freed.set()
    assert some.backend.wait("20s") and values(cyd, "t0") in ([], ALL[-len(values(cyd, "t0")) :])


def test_closed_dispatcher_delivers_nothing_after_a_sink_is_freed(scenario):
    some = scenario(patience="200ms")
    some.backend.fragments["f0"].query.delay_s = 0.05  # so that records are left when it is closed
    some.hang()
    until(lambda: some.backend.dispatchers.by_dataflow["ada"].dedicated)
    within(some.manager.close)
    some.ada.freed.set()
    assert some.backend.dispatchers.by_dataflow["ada"].join(20) and len(some.ada.got) < 200


def test_defragmentation_does_not_wait_for_a_hanging_sink(scenario, tmp_path):
    some = scenario(join=False, patience="1min")
    bob = some.submit("bob", ro.MemorySink(), (0, 150))
    some.hang()
    until(lambda: len(values(bob, "t1")) > 20)
    within(some.manager.defragment)
    assert some.manager.stats()["fragments"] == 1 and not some.ada.got
    assert {path.name for path in (tmp_path / "back" / "fragments").iterdir()} == {"f0", "f2"}
    until(lambda: values(bob, "t1") == ALL[:151])
    within(some.manager.defragment)  # a second replacement before the first topic is read
    some.ada.freed.set()
    assert some.backend.wait("20s") and some.ada.got == ALL
    until(lambda: len([*(tmp_path / "back" / "fragments").iterdir()]) == 1)
    assert (
        not some.subscriber("ada").progress.before
        and len(some.backend.dispatchers.by_dataflow["ada"].cursor.topics) == 1
    )


def test_hanging_sink_gets_records_in_order_after_defragmentations_and_pauses(scenario):
    some = scenario(join=False, patience="1min")
    bob = some.submit("bob", ro.MemorySink(), (0, 150))
    for fragment in some.backend.fragments.values():
        fragment.query.delay_s = 0.02
    some.hang()
    until(lambda: len(values(bob, "t1")) > 20)
    pause = some.manager.pause("ada")["in"]
    within(some.manager.defragment)
    resume = some.manager.resume("ada")["in"]
    some.ada.freed.set()
    assert some.backend.wait("20s") and some.ada.got == [float(i) for i in range(200) if not pause <= i < resume]
    assert 20 < pause <= resume and values(bob, "t1") == ALL[:151]


@pytest.mark.long
@pytest.mark.parametrize("saved", [True, False])
def test_hanging_sink_gets_its_records_after_a_kill(tmp_path, monkeypatch, saved):
    monkeypatch.setattr(dispatcher_module, "GRACE_SECONDS", 0.05)
    write, freed, entered = ro.ParquetSink.commit, threading.Event(), threading.Event()

    def commit(self, batch_id, messages):
        if self.folder.name == "ada":
            entered.set()
            freed.wait()
        return write(self, batch_id, messages)

    monkeypatch.setattr(ro.ParquetSink, "commit", commit)
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in ("ada", "bob")}
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")
    backend = FakeSpark(tmp_path / "back", max_records=10, join=False, patience="1.5s")
    manager = ReuseManager(backend)
    manager.submit(dataflow("ada", (0, 1000)), source, sinks["ada"])
    manager.submit(dataflow("bob", (0, 1000), (0, 150)), source, sinks["bob"])
    (tmp_path / "gate").touch()
    assert entered.wait(20)
    until(lambda: len(values(sinks["bob"], "t1")) > 20)
    with monkeypatch.context() as patched:
        if not saved:  # the kill is after the new fragment counts, before any other change
            patched.setattr(dispatcher_module.Dispatcher, "reassign", lambda self, replacements: 1 / 0)
            with pytest.raises(EnactError):
                manager.defragment()
        else:
            manager.defragment()
    state = manager.state()
    backend.kill()
    freed.set()
    assert backend.dispatchers.by_dataflow["ada"].join(20)
    backend.subscribers["ada"].writer.halt()
    again = ReuseManager(FakeSpark(tmp_path / "back", max_records=10), rebind=lambda name, flow: (source, sinks[name]))
    again.restore(state)
    assert again.stats()["fragments"] == 1 and again.backend.wait("20s")
    assert values(sinks["ada"], "t0") == ALL and values(sinks["bob"], "t1") == ALL[:151]
    until(lambda: [path.name for path in (tmp_path / "back" / "fragments").iterdir()] == ["f2"])
    again.close()


def test_removed_dataflow_with_a_slow_sink_gets_all_records_while_others_act(scenario, tmp_path):
    some = scenario(patience="30s")
    some.hang()
    until(lambda: some.backend.fragments["f0"].ended)
    removing = threading.Thread(target=lambda: some.manager.remove("ada"), daemon=True)
    removing.start()
    until(lambda: some.manager.names == [])
    bob = within(lambda: some.submit("bob", ro.MemorySink()))
    assert some.backend.wait("20s") and values(bob, "t0") == ALL
    assert removing.is_alive() and not some.ada.got
    some.ada.freed.set()
    removing.join(20)
    assert not removing.is_alive() and some.ada.got == ALL
    assert {path.name for path in (tmp_path / "back" / "fragments").iterdir()} == {"f1"}
    assert len([*(tmp_path / "back" / "dataflows").iterdir()]) == 1 and not some.backend.dispatchers.draining


@pytest.mark.long
def test_removed_dataflow_gets_exactly_the_available_batches(scenario, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "GRACE_SECONDS", 10)
    some = scenario(max_records=5)
    some.ada.freed.set()
    bob = some.submit("bob", ro.MemorySink())
    some.backend.fragments["f0"].query.delay_s = 0.02
    some.hang()
    until(lambda: len(values(bob, "t0")) > 20)
    topic = some.backend.fragments["f0"].topic
    with some.backend.dispatchers.locked("ada") as dispatcher:
        until(lambda: topic.head().batch > dispatcher.cursor.at["f0"] + 1)
        some.backend.dispatchers.drain(some.subscriber("ada"))
        rows = [sum(file.rows for file in topic.marker(n).files) for n in topic.batches(dispatcher.cursor.at["f0"])]
        had = len(values(bob, "t0"))
    some.backend.dispatchers.await_drained("ada")
    assert 0 < had + rows[0] <= len(some.ada.got) <= had + sum(rows) < 200 and some.ada.got == ALL[: len(some.ada.got)]
    del some.backend.subscribers["ada"]
    assert some.backend.wait("20s") and values(bob, "t0") == ALL


@pytest.mark.long
def test_hanging_sink_of_a_removed_dataflow_is_abandoned_with_a_warning(scenario, caplog):
    some = scenario(patience="200ms")
    some.hang()
    until(lambda: some.backend.fragments["f0"].ended)
    within(lambda: some.manager.remove("ada"))
    until(lambda: "the sinks of ada, which was removed, took nothing for 0.2 s" in caplog.text)
    until(lambda: [*(some.folder / "back" / "fragments").iterdir()] == [])
    some.ada.freed.set()
    until(lambda: not some.backend.dispatchers.draining)


def test_ctrl_c_during_a_removal_completes_it(scenario, monkeypatch):
    some = scenario()
    bob = some.submit("bob", ro.MemorySink())
    drain = some.backend.dispatchers.drain

    def interrupted(one):
        signal.raise_signal(signal.SIGINT)
        drain(one)

    monkeypatch.setattr(DispatcherPool, "drain", lambda self, one: interrupted(one))
    with pytest.raises(KeyboardInterrupt):
        some.manager.remove("ada")
    assert some.manager.names == ["bob"] and {*some.backend.subscribers} == {*some.backend.dispatchers.by_dataflow} == {
        "bob"
    }
    (some.folder / "gate").touch()
    assert some.backend.wait("20s") and values(bob, "t0") == ALL
