"""One carrier for dataflows that came at once: nobody waits for who is slow, fails, pauses or goes. Without Spark."""

from __future__ import annotations

import os
import threading
import time

import pytest

import riot_ops as ro
from riot_ops.core.errors import RiotError
from riot_ops.reuse import Request, ReuseManager
from riot_ops.reuse.errors import EnactError
from riot_ops.reuse.spark import backend
from riot_ops.reuse.spark import carrier as carriers
from riot_ops.reuse.spark.recipient import Progress, Recipient, Wanted
from riot_ops.reuse.submission import submitted
from tests.reuse.queries import FakeSpark, Gated
from tests.reuse.test_reuse_queries import ROWS, dataflow, until, values

ALL = [float(i) for i in range(200)]


class Together:
    """Some dataflows that come at once, each with all records, and what they get."""

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

    def carriers(self):
        return [sorted(one.name for one in carrier.recipients) for carrier in self.backend._carriers.all()]


@pytest.fixture
def together(tmp_path):
    made = []

    def open(*names, **options):
        made.append(Together(tmp_path, names, **options))
        return made[-1]

    yield open
    for one in made:
        one.manager.close()


def reader_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("riot_ops-to-")]


def test_thirty_cost_one_thread_one_reader_and_one_note(together, tmp_path):
    names = [f"d{i}" for i in range(30)]
    all_of = together(*names)
    all_of.go()
    assert all_of.backend.wait(20)
    assert all(all_of.got(name) == ALL for name in names)
    assert len(reader_threads()) <= 2, "the carrier's, and one for a pass"
    assert len(list((tmp_path / "back" / "dataflows").glob("*.json"))) == 1
    assert len(all_of.backend._fragments["f0"].topic.readers()) == 1


def test_each_choice_for_slow_sinks_has_a_carrier(together):
    some = together("ada", "bob")
    requests = some.requests(["cyd", "dan"], on_slow="drop_oldest") + some.requests(["eve"], on_slow="block")
    for request in requests:
        some.sinks[request.flow.name] = ro.MemorySink()
    some.manager.submit_all(
        Request(r.flow, some.bound(r.flow.name)[0], some.sinks[r.flow.name], on_slow=r.on_slow) for r in requests
    )
    assert sorted(some.carriers()) == [["ada", "bob"], ["cyd", "dan"], ["eve"]]
    some.go()
    assert some.backend.wait(10)
    assert all(some.got(name) == ALL for name in some.sinks)


def test_one_that_takes_long_has_a_carrier_of_its_own(together, monkeypatch):
    monkeypatch.setattr(carriers, "GRACE_SECONDS", 0.1)
    free = threading.Event()
    got = []

    def slow(stream, batch):
        free.wait(20)
        got.extend(batch["value"].to_pylist())

    some = together("ada", "bob", "cyd", slow={"bob": ro.CallbackSink(slow)})
    some.go()
    until(lambda: some.got("ada") == some.got("cyd") == ALL)
    assert sorted(some.carriers()) == [["ada", "cyd"], ["bob"]] and not got
    assert some.manager.stats()["slow"]["bob"] > 0 and not some.manager.stats()["failed"]
    free.set()
    assert some.backend.wait(10) and got == ALL
    assert some.manager.stats()["rows"] == {"ada": 200, "bob": 200, "cyd": 200}
    some.manager.remove("bob")
    assert some.carriers() == [["ada", "cyd"]]


def test_all_may_take_long(together, monkeypatch):
    monkeypatch.setattr(carriers, "GRACE_SECONDS", 0.05)
    got = {name: [] for name in ("ada", "bob", "cyd")}

    def slow(name):
        def take(stream, batch):
            if not got[name]:
                time.sleep(0.3)
            got[name].extend(batch["value"].to_pylist())

        return ro.CallbackSink(take)

    some = together("ada", "bob", "cyd", slow={name: slow(name) for name in got})
    some.go()
    assert some.backend.wait(20)
    assert got == dict.fromkeys(got, ALL)
    until(lambda: len(list((some.folder / "back" / "dataflows").iterdir())) == len(some.carriers()))


def test_one_that_fails_is_nobody_elses_matter(together):
    def full(stream, batch):
        raise OSError("disk full")

    some = together("ada", "bob", "cyd", slow={"bob": ro.CallbackSink(full)})
    some.go()
    assert some.backend.wait(10)
    assert some.got("ada") == some.got("cyd") == ALL
    assert some.manager.stats()["failed"] == {"bob": "OSError: disk full"}
    assert some.manager.stats()["dropped"]["bob"]["t0"] > 0


def test_who_pauses_goes_or_resumes_leaves_the_others_theirs(together):
    some = together("ada", "bob", "cyd", "dan")
    some.manager.pause("bob")
    some.manager.remove("cyd")
    some.go()
    assert some.backend.wait(10)
    assert some.got("ada") == some.got("dan") == ALL and some.got("bob") == some.got("cyd") == []
    some.manager.resume("bob")
    assert some.backend.wait(10) and some.got("bob") == [], "what came meanwhile"
    for name in ("bob", "dan", "ada"):
        some.manager.remove(name)
    assert not list((some.folder / "back" / "dataflows").iterdir()) and not some.backend._carriers.of


@pytest.mark.parametrize("slow", [False, True])
def test_after_a_kill_each_has_all_once(tmp_path, monkeypatch, slow):
    monkeypatch.setattr(carriers, "GRACE_SECONDS", 0.05)
    names = ["ada", "bob", "cyd"]
    some = Together(tmp_path, [])
    some.sinks = {name: ro.ParquetSink(tmp_path / name) for name in names}
    if slow:
        write = ro.ParquetSink.commit
        monkeypatch.setattr(
            ro.ParquetSink, "commit",
            lambda self, *given: time.sleep(0.2 * (self.directory.name == "bob")) or write(self, *given),
        )  # fmt: skip
    some.manager.submit_all(some.requests(names))
    some.go()
    for _ in range(2):
        time.sleep(0.3)
        some.backend.kill()
        some.manager._journal.close()
        some.open()
        assert some.manager.names == names
    assert some.backend.wait(20)
    for name in names:
        assert sorted(some.got(name)) == ALL
    some.manager.close()


def test_what_cannot_be_read_fails_those_who_want_it(together):
    some = together("ada", "bob", max_records=1000)
    for carrier in some.backend._carriers.all():
        carrier.halt()  # until there is something, and it is damaged
    some.go()
    topic = some.backend._fragments["f0"].topic
    until(lambda: some.backend._fragments["f0"].ended)
    [file] = [f for n in topic.batches() for f in topic.marker(n).files if f.stream.startswith("range_filter.3")][:1]
    data = bytearray((topic.folder / file.path).read_bytes())
    data[file.at : file.at + file.size] = os.urandom(file.size)
    (topic.folder / file.path).write_bytes(data)
    [carrier] = some.backend._carriers.all()
    while carrier.turn():
        pass
    assert some.got("ada") == ALL and "damaged" in some.manager.stats()["failed"]["bob"]
    assert "ada" not in some.manager.stats()["failed"]


@pytest.mark.parametrize("place", [0, -1], ids=["oldest", "newest"])
def test_a_batch_that_is_gone_before_it_was_read_is_told(together, place):
    some = together("ada")
    [carrier] = some.backend._carriers.all()
    carrier.halt()
    some.go()
    topic = some.backend._fragments["f0"].topic
    until(lambda: some.backend._fragments["f0"].ended)
    (topic.folder / f"batch-{topic.batches()[place]:06d}.json").unlink()
    while carrier.turn():
        pass
    assert "is gone" in some.manager.stats()["failed"]["ada"]
    assert some.backend.wait(10)


def test_fragments_become_one_under_a_carrier_for_several(together):
    some = together("ada", "bob", join=False)
    flow = dataflow("cyd", (0, 1000), (0, 50))
    some.sinks["cyd"] = ro.MemorySink()
    some.manager.submit(flow, *some.bound("cyd"))
    assert some.manager.stats()["fragments"] == 2
    some.manager.defragment()
    assert some.manager.stats()["fragments"] == 1 and some.carriers() == [["ada", "bob", "cyd"]]
    some.go()
    assert some.backend.wait(10)
    assert some.got("ada") == some.got("bob") == ALL and values(some.sinks["cyd"], "t1") == ALL[:51]


def test_a_removal_does_not_wait_for_who_hangs(together, monkeypatch):
    monkeypatch.setattr(carriers, "GRACE_SECONDS", 0.1)
    free = threading.Event()
    some = together("ada", "bob", slow={"bob": ro.CallbackSink(lambda stream, batch: free.wait(20))}, patience_s=0.3)
    some.go()
    until(lambda: some.got("ada") == ALL)
    begin = time.monotonic()
    some.manager.remove("bob")
    some.manager.remove("ada")
    assert time.monotonic() - begin < 5
    free.set()
    with pytest.raises(RiotError):
        some.manager.remove("bob")


@pytest.mark.parametrize("order", [("ada", "bob"), ("bob", "ada")])
def test_a_removal_waits_for_sinks_to_end_whoever_shared_their_carrier(together, order):
    ended = []

    class Late(ro.CallbackSink):
        def end(self, schemas):
            time.sleep(0.3)
            ended.append(self.owner)

    slow = {name: Late(lambda stream, batch: None) for name in order}
    for name in order:
        slow[name].owner = name
    some = together("ada", "bob", slow=slow)
    for n, name in enumerate(order, 1):
        some.manager.remove(name)
        assert ended == [*order[:n]]
    assert not list((some.folder / "back" / "fragments").iterdir())


def test_newcomers_have_the_carrier_of_those_who_are_there(together):
    some = together("ada")
    some.backend._fragments["f0"].query.delay_s = 0.03  # so that there is something left when they come
    some.go()
    firsts = {"ada": 0}
    for i in range(12):
        until(lambda i=i: len(some.got("ada")) > 12 * i)
        some.sinks[f"d{i}"] = ro.MemorySink()
        [request] = some.requests([f"d{i}"])
        [report] = some.manager.submit_all([request])
        firsts[f"d{i}"] = report.first["in"]
    assert some.backend.wait(10)
    assert len(some.carriers()) == 1 and len(reader_threads()) <= 2
    for name, first in firsts.items():
        assert some.got(name) == ALL[first:], "lost, or had twice"
    assert 0 < firsts["d5"] < 200, "they came before or behind all records"


def test_a_newcomer_that_takes_long_holds_up_nobody_and_loses_nothing(together, monkeypatch):
    monkeypatch.setattr(carriers, "GRACE_SECONDS", 0.05)
    some = together("ada")
    [carrier] = some.backend._carriers.all()
    topic = some.backend._fragments["f0"].topic
    topic.join("kept", 0)  # no batch goes
    some.go()
    until(lambda: some.got("ada") == ALL)
    free, got = threading.Event(), []

    def slow(stream, batch):
        free.wait(20)
        got.extend(batch["value"].to_pylist())

    submission, _ = submitted("bob", dataflow("bob", (0, 1000)), ro.MemorySource(ROWS), ro.CallbackSink(slow), True)
    bob = Recipient(submission, {"f0": Wanted({"range_filter.1": ["t0"]}, {})}, Progress({"t0": "range_filter.1"}))
    carrier.take_in([bob], {"f0": topic}, {"f0": 3})
    assert sorted(some.carriers()) == [["ada"], ["bob"]] and not got
    assert topic.readers()[some.backend._carriers.of["bob"].mark.reader] == 3, "it is noted as had"
    free.set()
    until(lambda: got and got[-1] == ALL[-1])
    first = sum(
        file.rows for n in topic.batches() if n < 3 for file in topic.marker(n).files if "filter" in file.stream
    )
    assert got == ALL[first:] and 0 <= first < 200
    some.backend._carriers.end(bob)
    some.backend._carriers.settled("bob")


def test_who_does_not_come_after_all_leaves_the_carrier_as_it_was(together, monkeypatch):
    some = together("ada")
    bring = backend.bring

    def full(*given):
        bring(*given)
        raise OSError("no more room")

    monkeypatch.setattr(backend, "bring", full)
    some.sinks["bob"] = ro.MemorySink()
    before = some.manager.state(), some.backend.running()
    with pytest.raises(EnactError, match="no more room"):
        some.manager.submit_all(some.requests(["bob"]))
    assert some.carriers() == [["ada"]] and set(some.backend._carriers.of) == {"ada"}
    assert (some.manager.state(), some.backend.running()) == before
    monkeypatch.undo()
    some.manager.submit_all(some.requests(["bob"]))
    some.go()
    assert some.backend.wait(10) and some.got("ada") == some.got("bob") == ALL
