"""Sinks on Spark that hang, or take long: whoever else acts goes on. Without Spark."""

from __future__ import annotations

import signal
import threading

import pytest

import riot_ops as ro
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.errors import EnactError
from riot_ops.reuse.spark import carrier as carriers
from riot_ops.reuse.spark.carriers import Carriers
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
    some.backend._fragments["f0"].query.delay_s = 0.05  # so that there is something left when it is closed
    some.hang()
    until(lambda: some.backend._carriers.of["ada"].apart)
    within(some.manager.close)
    some.ada.freed.set()
    thread = some.backend._carriers.of["ada"]._thread
    thread.join(20)
    assert not thread.is_alive() and len(some.ada.got) < 200


def test_a_defragmentation_does_not_wait_for_one_that_hangs_and_it_loses_nothing(shared, tmp_path):
    some = shared(join=False, patience_s=60)
    bob = some.submit("bob", ro.MemorySink(), (0, 150))
    some.hang()
    until(lambda: len(values(bob, "t1")) > 20)
    within(some.manager.defragment)
    assert some.manager.stats()["fragments"] == 1 and not some.ada.got
    assert {path.name for path in (tmp_path / "back" / "fragments").iterdir()} == {"f0", "f2"}
    until(lambda: values(bob, "t1") == ALL[:151])
    within(some.manager.defragment)  # once more
    some.ada.freed.set()
    assert some.backend.wait(20) and some.ada.got == ALL
    until(lambda: len([*(tmp_path / "back" / "fragments").iterdir()]) == 1)
    assert not some.recipient("ada").progress.before and len(some.backend._carriers.of["ada"].mark.topics) == 1


def test_what_hangs_comes_behind_defragmentations_and_pauses_in_order(shared):
    some = shared(join=False, patience_s=60)
    bob = some.submit("bob", ro.MemorySink(), (0, 150))
    for fragment in some.backend._fragments.values():
        fragment.query.delay_s = 0.02
    some.hang()
    until(lambda: len(values(bob, "t1")) > 20)
    rests = some.manager.pause("ada")["in"]
    within(some.manager.defragment)
    wakes = some.manager.resume("ada")["in"]
    some.ada.freed.set()
    assert some.backend.wait(20) and some.ada.got == [float(i) for i in range(200) if not rests <= i < wakes]
    assert 20 < rests <= wakes and values(bob, "t1") == ALL[:151]


@pytest.mark.parametrize("noted", [True, False])
def test_what_one_that_hangs_has_not_taken_is_there_after_a_kill(tmp_path, monkeypatch, noted):
    monkeypatch.setattr(carriers, "GRACE_SECONDS", 0.05)
    write, freed, entered = ro.ParquetSink.commit, threading.Event(), threading.Event()

    def commit(self, batch_id, messages):
        if self.directory.name == "ada":
            entered.set()
            freed.wait()
        return write(self, batch_id, messages)

    monkeypatch.setattr(ro.ParquetSink, "commit", commit)
    sinks = {name: ro.ParquetSink(tmp_path / name) for name in ("ada", "bob")}
    source = Gated(ro.MemorySource(ROWS), tmp_path / "gate")
    backend = FakeSpark(tmp_path / "back", max_records=10, join=False, patience_s=1.5)
    manager = ReuseManager(backend)
    manager.submit(dataflow("ada", (0, 1000)), source, sinks["ada"])
    manager.submit(dataflow("bob", (0, 1000), (0, 150)), source, sinks["bob"])
    (tmp_path / "gate").touch()
    assert entered.wait(20)
    until(lambda: len(values(sinks["bob"], "t1")) > 20)
    with monkeypatch.context() as patched:
        if not noted:  # it is killed when the new one counts, and nothing else has changed
            patched.setattr(carriers.Carrier, "switch", lambda self, to: 1 / 0)
            with pytest.raises(EnactError):
                manager.defragment()
        else:
            manager.defragment()
    state = manager.state()
    backend.kill()
    freed.set()
    ended = backend._carriers.of["ada"]._thread
    ended.join(20)
    assert not ended.is_alive()
    backend._recipients["ada"].delivery.halt()
    again = ReuseManager(FakeSpark(tmp_path / "back", max_records=10), rebind=lambda name, flow: (source, sinks[name]))
    again.restore(state)
    assert again.stats()["fragments"] == 1 and again.backend.wait(20)
    assert values(sinks["ada"], "t0") == ALL and values(sinks["bob"], "t1") == ALL[:151]
    until(lambda: [path.name for path in (tmp_path / "back" / "fragments").iterdir()] == ["f2"])
    again.close()


def test_a_removal_of_one_that_is_slow_keeps_nobody_from_acting_and_it_still_gets_all(shared, tmp_path):
    some = shared(patience_s=30)
    some.hang()
    until(lambda: some.backend._fragments["f0"].ended)
    removing = threading.Thread(target=lambda: some.manager.remove("ada"), daemon=True)
    removing.start()
    until(lambda: some.manager.names == [])
    bob = within(lambda: some.submit("bob", ro.MemorySink()))
    assert some.backend.wait(20) and values(bob, "t0") == ALL
    assert removing.is_alive() and not some.ada.got
    some.ada.freed.set()
    removing.join(20)
    assert not removing.is_alive() and some.ada.got == ALL
    assert {path.name for path in (tmp_path / "back" / "fragments").iterdir()} == {"f1"}
    assert len([*(tmp_path / "back" / "dataflows").iterdir()]) == 1 and not some.backend._carriers.leaving


def test_who_is_removed_from_among_others_gets_what_there_is_and_no_more(shared, monkeypatch):
    monkeypatch.setattr(carriers, "GRACE_SECONDS", 10)
    some = shared(max_records=5)
    some.ada.freed.set()
    bob = some.submit("bob", ro.MemorySink())
    some.backend._fragments["f0"].query.delay_s = 0.02
    some.hang()
    until(lambda: len(values(bob, "t0")) > 20)
    topic = some.backend._fragments["f0"].topic
    with some.backend._carriers.still("ada") as carrier:
        until(lambda: topic.head().batch > carrier.mark.at["f0"] + 1)
        some.backend._carriers.end(some.recipient("ada"))
        rows = [sum(file.rows for file in topic.marker(n).files) for n in topic.batches(carrier.mark.at["f0"])]
        had = len(values(bob, "t0"))
    some.backend._carriers.settled("ada")
    assert 0 < had + rows[0] <= len(some.ada.got) <= had + sum(rows) < 200 and some.ada.got == ALL[: len(some.ada.got)]
    del some.backend._recipients["ada"]
    assert some.backend.wait(20) and values(bob, "t0") == ALL


def test_who_is_removed_and_takes_nothing_is_given_up_and_that_is_said(shared, caplog):
    some = shared(patience_s=0.2)
    some.hang()
    until(lambda: some.backend._fragments["f0"].ended)
    within(lambda: some.manager.remove("ada"))
    until(lambda: "the sinks of ada, which was removed, took nothing for 0.2 s" in caplog.text)
    until(lambda: [*(some.folder / "back" / "fragments").iterdir()] == [])
    some.ada.freed.set()
    until(lambda: not some.backend._carriers.leaving)


def test_ctrl_c_in_the_midst_of_a_removal_leaves_the_dataflow_gone(shared, monkeypatch):
    some = shared()
    bob = some.submit("bob", ro.MemorySink())
    end = some.backend._carriers.end

    def interrupted(one):
        signal.raise_signal(signal.SIGINT)
        end(one)

    monkeypatch.setattr(Carriers, "end", lambda self, one: interrupted(one))
    with pytest.raises(KeyboardInterrupt):
        some.manager.remove("ada")
    assert some.manager.names == ["bob"] and {*some.backend._recipients} == {*some.backend._carriers.of} == {"bob"}
    (some.folder / "gate").touch()
    assert some.backend.wait(20) and values(bob, "t0") == ALL
