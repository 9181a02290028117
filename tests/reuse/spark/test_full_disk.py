"""Actions on queries while the disk is full: each is done completely or undone, and a removal is always done."""

from __future__ import annotations

import functools
import itertools
import operator
import threading
import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core import paths
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.spark.source import NON_BLOCKING
from tests.reuse.spark.dataflows import ROWS, dataflow, until, values
from tests.reuse.spark.fake_spark import FakeSpark, Gated
from tests.search import stride

WANTED = {
    "ada": ("t0", [float(i) for i in range(151)]),
    "bob": ("t1", [float(i) for i in range(101)]),
    "cyd": ("mean", [i + 0.5 for i in range(0, 200, 2)]),
}


class Disk:
    """Refuses the writes of this thread with the given numbers."""

    last = 0

    def __init__(self, monkeypatch, fails):
        self.fails, self.thread = fails, threading.current_thread()
        Disk.last = 0
        monkeypatch.setattr(paths, "sync", lambda path, real=paths.sync: self.write(path, real))

    def write(self, path, real):
        if threading.current_thread() is self.thread and not path.is_dir():
            Disk.last += 1
            if Disk.last in self.fails:
                raise OSError("no space left on device")
        real(path)


class Full:
    """Refuses the progress files, or reader positions, that dispatchers write to folders of a name, in any thread."""

    def __init__(self, monkeypatch, folder):
        self.folder, self.refused = folder, 0
        monkeypatch.setattr(paths, "sync", lambda path, real=paths.sync: self.write(path, real))

    def write(self, path, real):
        if path.parent.name == self.folder and (self.folder == "dataflows" or path.name.startswith(f".{NON_BLOCKING}")):
            self.refused += 1
            raise OSError("no space left on device")
        real(path)


def succeeds(monkeypatch, number, action, times=1):
    """Return whether an action succeeds if ``times`` writes from one on are refused."""
    with monkeypatch.context() as patch:
        Disk(patch, {*range(number, number + times)})
        try:
            action()
        except ro.RiotError:
            return False
        return True


def has_expected_readers(manager):
    """Return whether the readers of topics are exactly their dispatchers and the fragments that read them."""
    backend = manager.backend
    dispatchers = backend.dispatchers.all() | {*backend.dispatchers.draining}
    for name, fragment in backend.fragments.items():
        readers = {one.cursor.reader for one in dispatchers if name in one.cursor.topics}
        readers |= {one.name for one in backend.fragments.values() if name in one.spec.topics}
        if {*fragment.topic.readers()} != readers:
            return False
    return True


def flows():
    mean = ro.Dataflow("cyd")
    mean.sink("out", mean.source("in", schema={"value": "double"}).to(t.MovingAverage(by=(), window=2), id="mean"))
    return {"ada": dataflow("ada", (0, 150)), "bob": dataflow("bob", (0, 150), (0, 100)), "cyd": mean}


def empty_manager(place, **options):
    source = Gated(ro.MemorySource(ROWS), place / "gate")
    backend = FakeSpark(place / "back", max_records=10, **options)
    return ReuseManager(backend), source, {name: ro.MemorySink() for name in WANTED}


def filled_manager(place, blocking=None):
    manager, source, sinks = empty_manager(place)
    for name, flow in flows().items():
        manager.submit(flow, source, sinks[name], on_slow="block" if name == blocking else "detach")
    return manager, sinks


def summary(manager):
    found = manager.stats()
    return manager.canonical(), manager.names, {k: found[k] for k in ("fragments", "queries", "failed", "dropped")}


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 100], ids=["once", "and later ones"])
@pytest.mark.parametrize("blocking", [None, "bob"])
@pytest.mark.parametrize("name", ["ada", "bob", "cyd"])
def test_removal_is_complete_despite_refused_writes(tmp_path, monkeypatch, name, blocking, times):
    for number in itertools.count(1, stride(4 if times == 1 else 6)):
        place = tmp_path / str(number)
        place.mkdir()
        manager, sinks = filled_manager(place, blocking)
        assert succeeds(monkeypatch, number, lambda: manager.remove(name), times)  # noqa: B023
        assert manager.names == [one for one in sinks if one != name]
        assert manager.backend.running_steps() == {*manager.ledger.steps}
        until(lambda: has_expected_readers(manager))  # noqa: B023
        (place / "gate").touch()
        assert manager.backend.wait("20s")
        for other, (stream, wanted) in WANTED.items():
            assert values(sinks[other], stream) == ([] if other == name else wanted)
        assert not manager.stats()["failed"] and not manager.stats()["dropped"]
        manager.close()
        if Disk.last < number:
            break
    assert number > 1, "no write was refused"


@pytest.mark.long
@pytest.mark.parametrize("name", ["ada", "bob", "cyd"])
@pytest.mark.parametrize("back", [False, True], ids=["pause", "resume"])
def test_pause_is_complete_or_undone_after_refused_writes(tmp_path, monkeypatch, name, back):
    action = operator.attrgetter("resume" if back else "pause")
    for number in itertools.count(1, stride(4)):
        place = tmp_path / str(number)
        place.mkdir()
        manager, sinks = filled_manager(place)
        if back:
            manager.pause(name)
        before = summary(manager)
        assert succeeds(monkeypatch, number, lambda: action(manager)(name)) or summary(manager) == before  # noqa: B023
        paused = name in manager.ledger.paused
        until(lambda: has_expected_readers(manager))  # noqa: B023
        (place / "gate").touch()
        assert manager.backend.wait("20s")
        for other, (stream, wanted) in WANTED.items():
            assert values(sinks[other], stream) == ([] if other == name and paused else wanted)
        manager.close()
        if Disk.last < number:
            break
    assert number > 1, "no write was refused"


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 100], ids=["once", "and later ones"])
@pytest.mark.parametrize(("name", "join"), [("ada", False), ("bob", False), ("bob", True), ("cyd", True)])
def test_submission_is_complete_or_undone_after_refused_writes(tmp_path, monkeypatch, name, join, times):
    for number in itertools.count(1, stride(4 if times == 1 else 6)):
        place = tmp_path / str(number)
        place.mkdir()
        manager, source, sinks = empty_manager(place, join=join)
        for other, flow in flows().items():
            if other != name:
                manager.submit(flow, source, sinks[other])
        before = summary(manager)
        submit = functools.partial(manager.submit, flows()[name], source, sinks[name])
        submitted = succeeds(monkeypatch, number, submit, times)
        assert submitted or summary(manager) == before
        if not submitted and number % 2:  # submit it again
            submitted = bool(submit())
        assert (name in manager.names) == submitted and manager.backend.running_steps() == {*manager.ledger.steps}
        until(lambda: has_expected_readers(manager))  # noqa: B023
        (place / "gate").touch()
        assert manager.backend.wait("20s")
        for other, (stream, wanted) in WANTED.items():
            assert values(sinks[other], stream) == (wanted if other != name or submitted else [])
        manager.close()
        if Disk.last < number:
            break


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 100], ids=["once", "and later ones"])
def test_defragmentation_is_complete_or_undone_after_refused_writes(tmp_path, monkeypatch, times):
    for number in itertools.count(1, stride(6 if times == 1 else 9)):
        place = tmp_path / str(number)
        place.mkdir()
        manager, source, sinks = empty_manager(place)
        for name, flow in flows().items():
            manager.submit(flow, source, sinks[name])
        before = summary(manager)
        assert succeeds(monkeypatch, number, manager.defragment, times) or summary(manager) == before
        until(lambda: has_expected_readers(manager))  # noqa: B023
        (place / "gate").touch()
        assert manager.backend.wait("20s")
        for name, (stream, wanted) in WANTED.items():
            assert sorted(values(sinks[name], stream)) == wanted
        assert not manager.stats()["failed"] and not manager.stats()["dropped"]
        manager.close()
        if Disk.last < number:
            break


@pytest.mark.long
@pytest.mark.parametrize("folder", ["dataflows", "readers"])
def test_nothing_is_delivered_while_progress_cannot_be_saved(tmp_path, monkeypatch, caplog, folder):
    manager, sinks = filled_manager(tmp_path)
    with monkeypatch.context() as patch:
        full = Full(patch, folder)
        (tmp_path / "gate").touch()
        until(lambda: full.refused > 1)
        got = manager.stats()["rows"]
        time.sleep(0.3)
        assert manager.stats()["rows"] == got and sum(got.values()) < 351
        assert not manager.stats()["failed"]
    assert manager.backend.wait("20s")
    for name, (stream, wanted) in WANTED.items():
        assert values(sinks[name], stream) == wanted
    assert not manager.stats()["failed"] and not manager.stats()["dropped"]
    assert "get no records until their progress can be written" in caplog.text
    manager.close()
