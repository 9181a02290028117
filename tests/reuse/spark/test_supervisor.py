"""Queries that fail, and are restarted or fail for good. Without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.reuse import SparkBackend
from riot_ops.reuse.spark.spark_backend import SparkQuery
from tests.reuse.spark.dataflows import check_complete, dataflow, until, values


def test_failed_query_is_restarted_from_its_checkpoint(opened, caplog):
    manager, source, go = opened()
    sink = ro.MemorySink()
    manager.submit(dataflow("ada", (0, 300)), source, sink)
    manager.backend.fragments["f0"].query.harm = ConnectorError("no disk")
    go()
    assert manager.backend.wait("10s") and values(sink, "t0") == [float(i) for i in range(200)]
    assert "the query f0 of ada has failed and is restarted: ConnectorError: no disk" in caplog.text


def test_permanently_failed_query_fails_its_dataflows(opened, caplog):
    manager, source, go = opened(tries=0)
    manager.submit(dataflow("ada", (0, 300)), source, ro.MemorySink())
    manager.backend.fragments["f0"].query.harm = ConnectorError("no disk")
    go()
    with pytest.raises(ConnectorError, match="the query f0 has failed: ConnectorError: no disk"):
        manager.backend.wait("10s")
    assert manager.stats()["failed"] == {"ada": "ConnectorError: no disk"}
    assert "the query f0 of ada has failed for good" in caplog.text
    sink = ro.MemorySink()
    assert not manager.submit(dataflow("bob", (0, 300)), source, sink).reused, "a later dataflow has steps of its own"
    manager.remove("ada")
    assert manager.backend.wait("10s") and len(values(sink, "t0")) == 200


@pytest.mark.long
def test_no_query_waits_for_a_permanently_failed_one(opened):
    manager, source, go = opened(tries=0, join=False, max_queue_bytes=2000)
    ada, bob = ro.MemorySink(), ro.MemorySink()
    manager.submit(dataflow("ada", (0, 300)), source, ada)
    manager.submit(dataflow("bob", (0, 300), (0, 100)), source, bob)
    manager.backend.fragments["f1"].query.harm = ConnectorError("no disk")
    go()
    until(lambda: len(values(ada, "t0")) == 200)
    assert manager.stats()["failed"] == {"bob": "ConnectorError: no disk"} and values(bob, "t1") == []
    assert manager.pause("bob") == {} and manager.resume("bob") == {}, "a failed dataflow has no borders"
    manager.remove("bob")
    assert manager.backend.wait("10s")


def test_missing_unread_batch_fails_the_query(two_queries):
    manager, _, go = two_queries
    above, below = manager.backend.fragments.values()
    below.stop()
    go()
    until(lambda: above.ended and not manager.backend.dispatchers.lags())
    (above.topic.folder / f"batch-{above.topic.batches()[-1]:06d}.json").unlink()
    manager.backend.supervisor.start(below)
    with pytest.raises(ConnectorError, match=r"batch \d+ is gone"):
        manager.backend.wait("10s")
    assert [*manager.stats()["failed"]] == ["bob"]


class Gone:
    """A query, or the context, of a killed JVM."""

    def __getattr__(self, name):
        raise Py4JNetworkError("Answer from Java side is empty")


def test_lost_spark_fails_all_queries(two_queries, monkeypatch):
    manager, _, _ = two_queries

    def launch(fragment):
        raise Py4JNetworkError("Connection refused")

    monkeypatch.setattr(manager.backend.supervisor, "launch", launch)
    for fragment in manager.backend.fragments.values():
        fragment.query.stop()
        fragment.query = SparkQuery(Gone())
    with pytest.raises(ConnectorError, match="Spark is gone"):
        manager.backend.wait("10s")
    assert {*manager.stats()["failed"]} == {"ada", "bob"}


def test_back_end_reports_a_lost_spark():
    one = object.__new__(SparkBackend)
    there = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    for context, wanted in ((there, False), (Gone(), True)):
        one.spark = SimpleNamespace(_jsc=context, sparkContext=SimpleNamespace(_jsc=context))
        assert (one.error is not None) == wanted


@pytest.mark.long
def test_supervision_continues_after_any_error(two_queries, monkeypatch, caplog):
    manager, sinks, go = two_queries
    supervisor, restart_failed = manager.backend.supervisor, manager.backend.supervisor.restart_failed
    calls = []

    def fails():
        calls.append(0)
        if len(calls) < 3:
            raise RuntimeError("unexpected error")
        restart_failed()

    monkeypatch.setattr(supervisor, "restart_failed", fails)
    until(lambda: len(calls) > 2)
    assert manager.backend.watch.is_alive() and "could not be supervised: unexpected error" in caplog.text
    go()
    check_complete(manager, sinks)
