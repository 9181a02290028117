"""Sinks that are slow, hang or fail hold nobody else up, and nothing is dropped in silence."""

from __future__ import annotations

import threading
import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.reuse import Limits, LocalBackend, ReuseManager, spool

SCHEMA = {"value": "double"}
ROWS = 400
#: A record of these takes 16 bytes: 10 records in memory, 2 of them per batch.
SMALL = {"grace_s": 0.05, "queue_bytes": 160}


class Gate(ro.CallbackSink):
    """A sink that takes nothing until it is let, and notes what it takes."""

    def __init__(self, pause_s=None):
        super().__init__(self._take)
        self.opened, self.pause_s, self.seen = threading.Event(), pause_s, []

    def _take(self, stream, batch):
        if self.pause_s is None:
            assert self.opened.wait(60)
        else:
            time.sleep(self.pause_s)
        self.seen += batch.column("seq").to_pylist()


class Files(ro.CallbackSink):
    """A sink that notes what is committed, and ends; the batch with this record it cannot take."""

    def __init__(self, breaks=None):
        super().__init__(lambda stream, batch: None)
        self.breaks, self.seen, self.ended = breaks, [], False

    def writer(self, batch_id, partition):
        return _Held(self)

    def commit(self, batch_id, messages):
        self.seen += [n for message in messages for n in message["seq"]]

    def end(self, schemas):
        self.ended = True


class _Held:
    def __init__(self, sink):
        self.sink, self.seq = sink, []

    def write(self, stream, batch):
        found = batch.column("seq").to_pylist()
        if self.sink.breaks in found:
            raise OSError("disk full")
        self.seq += found

    def finish(self):
        return {"seq": self.seq}

    def abort(self):
        self.seq = []


def flow(name, *sinks):
    made = ro.Dataflow(name)
    stream = made.source("values", schema=SCHEMA)
    for sink in sinks or ("out",):
        made.sink(sink, stream)
    return made


def log(rows=ROWS):
    return ro.MemorySource([{"value": float(i)} for i in range(rows)])


def shared(sink, **choices):
    """A quick and a slow user of one log."""
    limits = Limits(**{**SMALL, **choices.pop("limits", {})})
    manager = ReuseManager(LocalBackend(batch_size=2, limits=limits))
    source, quick = log(), ro.MemorySink()
    manager.submit(flow("quick"), source, quick)
    manager.submit(flow("slow"), source, sink, **choices)
    return manager, quick


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_one_that_hangs_goes_on_from_where_it_is():
    sink = Gate()
    manager, quick = shared(sink)
    manager.backend.run()  # which does not wait for it
    assert quick.table("values").num_rows == ROWS and not sink.seen
    found = manager.stats()
    assert found["slow"]["slow"] > 160 and "quick" not in found["slow"] and not found["dropped"]
    sink.opened.set()
    manager.close()
    assert sink.seen == list(range(ROWS))
    found = manager.backend.stats()
    assert not found["slow"] and not found["failed"] and not found["dropped"]


def test_one_that_has_caught_up_needs_no_files():
    sink = Gate()
    manager, _ = shared(sink)
    for _ in range(50):
        manager.backend.turn()
    sink.opened.set()
    until(lambda: sink.seen == list(range(100)))
    outlet = manager.backend._outlets.of["slow"]
    until(lambda: outlet._spool is None)
    manager.backend.run()
    manager.close()
    assert sink.seen == list(range(ROWS))


def test_one_that_is_too_far_behind_is_given_up():
    sink = Gate()
    manager, quick = shared(sink, limits={"behind_bytes": 1000})
    manager.backend.run()
    assert quick.table("values").num_rows == ROWS
    found = manager.stats()
    assert "behind" in found["failed"]["slow"]
    sink.opened.set()
    manager.close()
    assert len(sink.seen) + manager.backend.stats()["dropped"]["slow"]["values"] == ROWS


@pytest.mark.parametrize("method", ["put", "take"])
def test_a_full_disk_is_the_matter_of_the_one_that_is_behind(monkeypatch, method):
    def full(*_):
        raise ConnectorError("no space left")

    monkeypatch.setattr(spool.Spool, method, full)
    sink = Gate()
    manager, quick = shared(sink)
    for _ in range(20):
        manager.backend.turn()
    sink.opened.set()
    until(lambda: "no space left" in manager.stats()["failed"].get("slow", ""))
    manager.backend.run()
    manager.close()
    assert quick.table("values").num_rows == ROWS
    assert len(sink.seen) + manager.backend.stats()["dropped"]["slow"]["values"] == ROWS


def test_the_oldest_are_dropped_and_counted():
    sink = Gate()
    manager, quick = shared(sink, on_slow="drop_oldest")
    manager.backend.run()
    assert quick.table("values").num_rows == ROWS
    dropped = manager.stats()["dropped"]
    sink.opened.set()
    manager.close()
    assert dropped == {"slow": {"values": ROWS - len(sink.seen)}} and 0 < len(sink.seen) <= 14
    assert sink.seen[-4:] == list(range(ROWS - 4, ROWS)) and sink.seen == sorted(sink.seen)
    assert not manager.backend.stats()["failed"]


def test_who_asks_for_it_holds_the_others_up_but_loses_nothing():
    sink = Gate(pause_s=0.03)
    manager, quick = shared(sink, on_slow="block")
    most = []
    for _ in range(20):
        manager.backend.turn()
        most.append(quick.table("values").num_rows - len(sink.seen))
    assert max(most) <= 14  # what is in memory, and what it has in hand
    manager.close()
    assert sink.seen == list(range(40)) and not manager.backend.stats()["dropped"]


def test_nobody_waits_for_one_that_takes_nothing():
    sink = Gate()
    manager, quick = shared(sink, on_slow="block", limits={"patience_s": 0.3})
    begin = time.monotonic()
    manager.backend.run()
    assert time.monotonic() - begin < 15
    assert quick.table("values").num_rows == ROWS
    found = manager.stats()
    assert "took nothing for 0.3 s" in found["failed"]["slow"]
    assert found["dropped"]["slow"]["values"] == ROWS - 2
    sink.opened.set()
    manager.close()


def test_one_that_was_idle_is_not_taken_for_one_that_hangs():
    sink = Gate(pause_s=0.1)
    manager, _ = shared(sink, on_slow="block", limits={"patience_s": 1.0})
    manager.backend.turn()
    until(lambda: len(sink.seen) == 2)
    time.sleep(1.2)
    for _ in range(8):
        manager.backend.turn()
    manager.close()
    assert sink.seen == list(range(18)) and not manager.backend.stats()["failed"]


def test_others_come_and_go_while_one_hangs():
    sink = Gate()
    manager, quick = shared(sink)
    manager.backend.turn()
    manager.submit(flow("late"), log(), late := ro.MemorySink())
    begin = time.monotonic()
    manager.remove("slow")
    assert time.monotonic() - begin < 5
    manager.backend.run()
    assert late.table("values").num_rows == ROWS - 2 and quick.table("values").num_rows == ROWS
    assert not sink.seen and manager.stats()["slow"] == {"slow": pytest.approx(0, abs=32)}
    sink.opened.set()
    until(lambda: not manager.stats()["slow"])
    assert sink.seen == [0, 1]
    manager.close()


def test_at_the_end_nobody_waits_for_ever(caplog):
    sink = Gate()
    manager, _ = shared(sink, limits={"patience_s": 0.2})
    manager.backend.run()
    manager.close()
    found = manager.backend.stats()
    assert "at the end" in found["failed"]["slow"]
    assert found["dropped"] == {"slow": {"values": ROWS - 2}}
    assert f"'slow' gets nothing more, {ROWS - 2} records were dropped" in caplog.text
    sink.opened.set()


@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_of_a_sink_that_fails_the_others_go_on_unless_it_asks_to_stop(on_failure):
    manager = ReuseManager(LocalBackend(batch_size=2, epoch_s=0.0))
    bad, good, quick = Files(breaks=7), Files(), ro.MemorySink()
    source = log(20)
    manager.submit(flow("quick"), source, quick)
    manager.submit(flow("two", "bad", "good"), source, {"bad": bad, "good": good}, on_failure=on_failure)
    manager.backend.run()
    assert quick.table("values").num_rows == 20
    found = manager.stats()
    assert found["failed"] == {"two": "OSError: disk full"}
    assert bad.seen == list(range(6))
    assert found["dropped"] == {"two": {"values": 14}}
    assert good.seen == (list(range(20)) if on_failure == "detach" else list(range(6)))
    assert good.ended == (on_failure == "stop")
    assert found["rows"]["two"] == 6
    manager.close()
    assert good.ended and not bad.ended


@pytest.mark.parametrize("on_failure", ["detach", "stop"])
def test_of_a_step_that_raises_other_branches_go_on_unless_it_asks_to_stop(on_failure):
    calls = []

    def picky(batch):
        calls.append(batch)
        if len(calls) > 2:
            raise MemoryError("not that one")
        return batch

    made = ro.Dataflow("two")
    stream = made.source("values", schema=SCHEMA)
    made.sink("checked", stream.to(ro.map_batches(picky), id="check"))
    made.sink("all", stream.to(t.KalmanFilter(), id="smooth"))
    manager = ReuseManager(LocalBackend(batch_size=2))
    sinks = {"checked": ro.MemorySink(), "all": ro.MemorySink()}
    manager.submit(made, log(20), sinks, on_failure=on_failure)
    manager.backend.run()
    assert sinks["checked"].table("check").num_rows == 4
    assert sinks["all"].table("smooth").num_rows == (20 if on_failure == "detach" else 4)
    assert manager.stats()["failed"] == {"two": "MemoryError: not that one"}


def test_what_failed_is_forgotten_when_its_name_is_used_again():
    manager = ReuseManager(LocalBackend())
    manager.submit(flow("a"), log(4), Files(breaks=0))
    manager.backend.run()
    assert set(manager.stats()["failed"]) == set(manager.stats()["dropped"]) == {"a"}
    manager.remove("a")
    assert set(manager.stats()["failed"]) == {"a"}
    manager.submit(flow("a"), log(4), Files())
    assert not manager.stats()["failed"] and not manager.stats()["dropped"]


def test_the_choice_is_kept(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit(flow("a"), on_slow="block", on_failure="stop")
    manager.close()
    for again in (ReuseManager(log=tmp_path / "log"), ReuseManager()):
        if not again.names:
            again.restore(manager.state())
        [what] = again.state()["dataflows"]
        assert (what["on_slow"], what["on_failure"]) == ("block", "stop")


@pytest.mark.parametrize("wrong", [{"on_slow": "stop"}, {"on_failure": "block"}])
def test_an_unknown_choice_is_refused(wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(ConfigError, match=f"{name} must be 'detach' or .*got '{value}'"):
        ReuseManager().submit(flow("a"), **wrong)


@pytest.mark.parametrize("name", ["grace_s", "patience_s", "queue_bytes", "behind_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1"])
def test_limits_are_above_0_and_can_be_waited_for(name, value):
    with pytest.raises(ConfigError, match=f"{name} must be .*, got '?{value}"):
        Limits(**{name: value})
    assert getattr(Limits(**{name: 1}), name) == 1
