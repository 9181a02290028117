"""Fixtures for tests of queries without Spark."""

from __future__ import annotations

import fcntl

import pytest

import riot_ops as ro
from riot_ops.core.errors import ConnectorError
from riot_ops.core.source import WrappedSource
from riot_ops.reuse import ReuseManager
from tests.reuse.spark.dataflows import ROWS, dataflow
from tests.reuse.spark.fake_spark import FakeSpark, Gated


class Exclusive(WrappedSource):
    """A source that allows one reader at a time, until it is closed."""

    def __init__(self, source, lock):
        super().__init__(source)
        self.lock, self._file = lock, None

    def description(self):
        return self.source.description()

    def consumed_resources(self):
        return frozenset({str(self.lock)})

    def latest(self, start, limit=None):
        if self._file is None:
            file = open(self.lock, "wb")  # noqa: SIM115
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise ConnectorError("the source has another reader") from None
            self._file = file
        return self.source.latest(start, limit)

    def finished(self, offset):
        return self.source.finished(offset)

    def close(self):
        if self._file is not None:
            self._file.close()
            self._file = None


@pytest.fixture
def opened(tmp_path):
    """Opens a manager; returns it with a source of ROWS, and a function that lets this source give records."""
    managers = []

    def open(**options):
        backend = FakeSpark(tmp_path / "back", **{"max_records": 10, **options})
        managers.append(ReuseManager(backend))
        return managers[-1], Gated(ro.MemorySource(ROWS), tmp_path / "gate"), (tmp_path / "gate").touch

    yield open
    for manager in managers:
        manager.close()


@pytest.fixture
def two_queries(tmp_path):
    """Return a manager with two dataflows in two queries, their sinks, and a function that lets the source give records."""
    source = Exclusive(Gated(ro.MemorySource(ROWS), tmp_path / "gate"), tmp_path / "lock")
    manager = ReuseManager(FakeSpark(tmp_path / "back", max_records=10, tries=0, join=False))
    sinks = {"ada": ro.MemorySink(), "bob": ro.MemorySink()}
    manager.submit(dataflow("ada", (0, 1000)), source, sinks["ada"])
    manager.submit(dataflow("bob", (0, 1000), (0, 2000)), source, sinks["bob"])
    assert manager.stats()["queries"] == 2
    yield manager, sinks, (tmp_path / "gate").touch
    manager.close()
