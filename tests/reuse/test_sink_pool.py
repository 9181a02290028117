"""Slow, hanging and failing sinks delay no other dataflow, and dropped records are counted."""

from __future__ import annotations

import time

import pytest

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.reuse import Limits, LocalBackend, ReuseManager, sink_queue
from tests.reuse.slow_sinks import ROWS, Files, Gate, flow, log, until

#: A record takes 16 bytes: 10 records fit into memory, in batches of 2.
SMALL = {"grace": "50ms", "max_queue_bytes": 160}


def shared(sink, **choices):
    """A quick and a slow dataflow over one log."""
    limits = Limits(**{**SMALL, **choices.pop("limits", {})})
    manager = ReuseManager(LocalBackend(batch_size=2, limits=limits))
    source, quick = log(), ro.MemorySink()
    manager.submit(flow("quick"), source, quick)
    manager.submit(flow("slow"), source, sink, **choices)
    return manager, quick


def test_hanging_sink_continues_at_its_position():
    sink = Gate()
    manager, quick = shared(sink)
    manager.backend.run()  # does not wait for the sink
    assert quick.table("values").num_rows == ROWS and not sink.seen
    found = manager.stats()
    assert found["slow"]["slow"] > 160 and "quick" not in found["slow"] and not found["dropped"]
    sink.opened.set()
    manager.close()
    assert sink.seen == list(range(ROWS))
    found = manager.backend.stats()
    assert not found["slow"] and not found["failed"] and not found["dropped"]


def test_spool_is_removed_when_the_sink_has_caught_up():
    sink = Gate()
    manager, _ = shared(sink)
    for _ in range(50):
        manager.backend.turn()
    sink.opened.set()
    until(lambda: sink.seen == list(range(100)))
    outlet = manager.backend.sinks.queues["slow"]
    until(lambda: outlet.spool is None)
    manager.backend.run()
    manager.close()
    assert sink.seen == list(range(ROWS))


def test_sink_beyond_its_lag_limit_is_abandoned():
    sink = Gate()
    manager, quick = shared(sink, limits={"max_lag_bytes": 1000})
    manager.backend.run()
    assert quick.table("values").num_rows == ROWS
    found = manager.stats()
    assert "its sinks lag by" in found["failed"]["slow"]
    sink.opened.set()
    manager.close()
    assert len(sink.seen) + manager.backend.stats()["dropped"]["slow"]["values"] == ROWS


@pytest.mark.parametrize("method", ["put", "take"])
def test_full_disk_concerns_only_the_slow_dataflow(monkeypatch, method):
    def full(*_):
        raise ConnectorError("no space left")

    monkeypatch.setattr(sink_queue.Spool, method, full)
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


def test_oldest_records_are_dropped_and_counted():
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


@pytest.mark.long
def test_blocking_sink_delays_others_and_loses_nothing():
    sink = Gate(pause_s=0.03)
    manager, quick = shared(sink, on_slow="block")
    most = []
    for _ in range(20):
        manager.backend.turn()
        most.append(quick.table("values").num_rows - len(sink.seen))
    assert max(most) <= 14  # the queue, and the batches being written
    manager.close()
    assert sink.seen == list(range(40)) and not manager.backend.stats()["dropped"]


def test_hanging_blocking_sink_is_abandoned():
    sink = Gate()
    manager, quick = shared(sink, on_slow="block", limits={"patience": "300ms"})
    begin = time.monotonic()
    manager.backend.run()
    assert time.monotonic() - begin < 15
    assert quick.table("values").num_rows == ROWS
    found = manager.stats()
    assert "took nothing for 0.3 s" in found["failed"]["slow"]
    assert found["dropped"]["slow"]["values"] == ROWS - 2
    sink.opened.set()
    manager.close()


@pytest.mark.long
def test_idle_sink_does_not_count_as_hanging():
    sink = Gate(pause_s=0.1)
    manager, _ = shared(sink, on_slow="block", limits={"patience": "1s"})
    manager.backend.turn()
    until(lambda: len(sink.seen) == 2)
    time.sleep(1.2)
    for _ in range(8):
        manager.backend.turn()
    manager.close()
    assert sink.seen == list(range(18)) and not manager.backend.stats()["failed"]


def test_actions_pass_while_a_sink_hangs():
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


def test_close_waits_within_limits(caplog):
    sink = Gate()
    manager, _ = shared(sink, limits={"patience": "200ms"})
    manager.backend.run()
    manager.close()
    found = manager.backend.stats()
    assert "at the end" in found["failed"]["slow"]
    assert found["dropped"] == {"slow": {"values": ROWS - 2}}
    assert f"'slow' gets nothing more, {ROWS - 2} records were dropped" in caplog.text
    sink.opened.set()


def test_failure_is_forgotten_when_its_name_is_reused():
    manager = ReuseManager(LocalBackend())
    manager.submit(flow("a"), log(4), Files(breaks=0))
    manager.backend.run()
    assert set(manager.stats()["failed"]) == set(manager.stats()["dropped"]) == {"a"}
    manager.remove("a")
    assert set(manager.stats()["failed"]) == {"a"}
    manager.submit(flow("a"), log(4), Files())
    assert not manager.stats()["failed"] and not manager.stats()["dropped"]
