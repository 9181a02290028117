"""What is gone while queries run, or before they do: batches, Spark, what only one may have. Without Spark."""

from __future__ import annotations

import fcntl
import time
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.core.source import WrappedSource
from riot_ops.reuse import ReuseManager, SparkBackend
from riot_ops.reuse.errors import EnactError
from riot_ops.reuse.spark import backend
from riot_ops.reuse.spark.bringing import switch
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.session import _Query
from tests.reuse.queries import FakeSpark, Gated
from tests.reuse.test_reuse_queries import ROWS, dataflow, until, values

ALL = [float(i) for i in range(200)]


class Owned(WrappedSource):
    """Whoever reads it has it, until it is closed."""

    def __init__(self, source, lock):
        super().__init__(source)
        self.lock, self._file = lock, None

    def description(self):
        return self.source.description()

    def consumed(self):
        return frozenset({str(self.lock)})

    def latest(self, start, limit=None):
        if self._file is None:
            file = open(self.lock, "wb")  # noqa: SIM115
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise ConnectorError("another has it") from None
            self._file = file
        return self.source.latest(start, limit)

    def finished(self, offset):
        return self.source.finished(offset)

    def close(self):
        if self._file is not None:
            self._file.close()
            self._file = None


@pytest.fixture
def two(tmp_path):
    """Two dataflows, each with a query, and what they get."""
    source = Owned(Gated(ro.MemorySource(ROWS), tmp_path / "gate"), tmp_path / "lock")
    manager = ReuseManager(FakeSpark(tmp_path / "back", max_records=10, tries=0, join=False))
    sinks = {"ada": ro.MemorySink(), "bob": ro.MemorySink()}
    manager.submit(dataflow("ada", (0, 1000)), source, sinks["ada"])
    manager.submit(dataflow("bob", (0, 1000), (0, 2000)), source, sinks["bob"])
    assert manager.stats()["queries"] == 2
    yield manager, sinks, (tmp_path / "gate").touch
    manager.close()


def no_room(*given):
    raise OSError("no room")


# -- what only one may have ------------------------------------------------------------------------


def begun(manager, go):
    """Some records have come, and there are more."""
    for fragment in manager.backend._fragments.values():
        fragment.query.delay_s = 0.02
    go()
    until(lambda: manager.stats()["rows"]["bob"])


def finished(manager, sinks):
    assert manager.backend.wait(20)
    assert manager.stats()["failed"] == manager.stats()["restarts"] == {}
    assert values(sinks["ada"], "t0") == values(sinks["bob"], "t1") == ALL


def test_queries_become_one_where_only_one_may_read_the_source(two, monkeypatch):
    manager, sinks, go = two
    begun(manager, go)
    # who goes on is there before those whom it replaces are ended, as these take their time on Spark
    monkeypatch.setattr(backend, "switch", lambda *given: time.sleep(0.3) or switch(*given))
    manager.defragment()
    assert manager.stats()["queries"] == 1
    finished(manager, sinks)


def test_queries_that_made_way_come_back_where_they_do_not_become_one(two, monkeypatch):
    manager, sinks, go = two
    begun(manager, go)
    with monkeypatch.context() as patch:
        patch.setattr(Fragment, "begin", no_room)
        with pytest.raises(EnactError, match="no room"):
            manager.defragment()
    assert manager.stats()["queries"] == 2
    finished(manager, sinks)


# -- batches ---------------------------------------------------------------------------------------


def test_a_query_fails_where_a_batch_is_gone_that_it_has_not_read(two):
    manager, _, go = two
    above, below = manager.backend._fragments.values()
    below.stop()
    go()
    until(lambda: above.ended and not manager.backend._carriers.behind())
    (above.topic.folder / f"batch-{above.topic.batches()[-1]:06d}.json").unlink()
    manager.backend._care.start(below)
    with pytest.raises(ConnectorError, match=r"batch \d+ is gone"):
        manager.backend.wait(10)
    assert [*manager.stats()["failed"]] == ["bob"]


# -- Spark -----------------------------------------------------------------------------------------


class Gone:
    """A query, or a context, of a JVM that was killed."""

    def __getattr__(self, name):
        raise Py4JNetworkError("Answer from Java side is empty")


def test_where_spark_is_gone_all_have_failed(two, monkeypatch):
    manager, _, _ = two

    def launch(fragment):
        raise Py4JNetworkError("Connection refused")

    monkeypatch.setattr(manager.backend._care, "_launch", launch)
    for fragment in manager.backend._fragments.values():
        fragment.query.stop()
        fragment.query = _Query(Gone())
    with pytest.raises(ConnectorError, match="Spark is gone"):
        manager.backend.wait(10)
    assert {*manager.stats()["failed"]} == {"ada", "bob"}


def test_a_back_end_tells_that_its_spark_is_gone():
    one = object.__new__(SparkBackend)
    there = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    for context, wanted in ((there, False), (Gone(), True)):
        one._spark = SimpleNamespace(_jsc=context, sparkContext=SimpleNamespace(_jsc=context))
        assert (one.error is not None) == wanted


def test_whatever_goes_wrong_as_queries_are_looked_after_they_are_again(two, monkeypatch, caplog):
    manager, sinks, go = two
    care, revive = manager.backend._care, manager.backend._care.revive
    calls = []

    def fails():
        calls.append(0)
        if len(calls) < 3:
            raise RuntimeError("what nobody thought of")
        revive()

    monkeypatch.setattr(care, "revive", fails)
    until(lambda: len(calls) > 2)
    assert manager.backend._watch.is_alive() and "could not be looked after: what nobody thought of" in caplog.text
    go()
    finished(manager, sinks)


# -- a folder --------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_opened_is_free_again(tmp_path):
    FakeSpark(tmp_path).close()
    wrong = tmp_path / "dataflows" / "wrong.json"
    wrong.write_text("{")
    with pytest.raises(ConnectorError, match="is damaged") as kept:  # whose traceback has the back end
        FakeSpark(tmp_path)
    wrong.unlink()
    FakeSpark(tmp_path).close()
    del kept
