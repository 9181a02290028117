"""What a disk that is full for a moment does to actions on queries: whole, or as it was; and a removal always."""

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
from riot_ops.reuse import ReuseManager, topic
from riot_ops.reuse.spark.source import APART
from tests.reuse.queries import FakeSpark, Gated
from tests.reuse.test_reuse_queries import ROWS, dataflow, until, values

WANTED = {
    "ada": ("t0", [float(i) for i in range(151)]),
    "bob": ("t1", [float(i) for i in range(101)]),
    "cyd": ("mean", [i + 0.5 for i in range(0, 200, 2)]),
}


class Disk:
    """Refuses the writes of those numbers that this thread makes."""

    last = 0

    def __init__(self, monkeypatch, fails):
        self.fails, self.thread = fails, threading.current_thread()
        Disk.last = 0
        for module in (paths, topic):
            monkeypatch.setattr(module, "sync", lambda path, real=module.sync: self.write(path, real))

    def write(self, path, real):
        if threading.current_thread() is self.thread and not path.is_dir():
            Disk.last += 1
            if Disk.last in self.fails:
                raise OSError("no space left on device")
        real(path)


class Full:
    """Refuses what carriers note in files of a folder of that name, of whatever thread."""

    def __init__(self, monkeypatch, folder):
        self.folder, self.refused = folder, 0
        for module in (paths, topic):
            monkeypatch.setattr(module, "sync", lambda path, real=module.sync: self.write(path, real))

    def write(self, path, real):
        if path.parent.name == self.folder and (self.folder == "dataflows" or path.name.startswith(f".{APART}")):
            self.refused += 1
            raise OSError("no space left on device")
        real(path)


def done(monkeypatch, number, action, times=1):
    """Whether an action is done, in which so many writes from one on cannot be made."""
    with monkeypatch.context() as patch:
        Disk(patch, {*range(number, number + times)})
        try:
            action()
        except ro.RiotError:
            return False
        return True


def tidy(manager):
    """Whether topics have as readers just those that carry of them, and the fragments that read them."""
    backend = manager.backend
    carriers = backend._carriers.all() | {*backend._carriers.leaving}
    for name, fragment in backend._fragments.items():
        of = {one.mark.reader for one in carriers if name in one.mark.topics}
        of |= {one.name for one in backend._fragments.values() if name in one.spec.topics}
        if {*fragment.topic.readers()} != of:
            return False
    return True


def flows():
    mean = ro.Dataflow("cyd")
    mean.sink("out", mean.source("in", schema={"value": "double"}).to(t.MovingAverage(by=(), window=2), id="mean"))
    return {"ada": dataflow("ada", (0, 150)), "bob": dataflow("bob", (0, 150), (0, 100)), "cyd": mean}


def begun(place, **options):
    source = Gated(ro.MemorySource(ROWS), place / "gate")
    backend = FakeSpark(place / "back", max_records=10, **options)
    return ReuseManager(backend), source, {name: ro.MemorySink() for name in WANTED}


def opened(place, apart=None):
    manager, source, sinks = begun(place)
    for name, flow in flows().items():
        manager.submit(flow, source, sinks[name], on_slow="block" if name == apart else "detach")
    return manager, sinks


def told(manager):
    found = manager.stats()
    return manager.canonical(), manager.names, {k: found[k] for k in ("fragments", "queries", "failed", "dropped")}


@pytest.mark.parametrize("times", [1, 100], ids=["once", "and from then on"])
@pytest.mark.parametrize("apart", [None, "bob"])
@pytest.mark.parametrize("name", ["ada", "bob", "cyd"])
def test_a_removal_is_whole_whatever_cannot_be_written(tmp_path, monkeypatch, name, apart, times):
    for number in itertools.count(1, 1 if times == 1 else 3):
        place = tmp_path / str(number)
        place.mkdir()
        manager, sinks = opened(place, apart)
        assert done(monkeypatch, number, lambda: manager.remove(name), times)  # noqa: B023
        assert manager.names == [one for one in sinks if one != name]
        assert manager.backend.running() == {*manager._shared.steps}
        until(lambda: tidy(manager))  # noqa: B023
        (place / "gate").touch()
        assert manager.backend.wait(20)
        for other, (stream, wanted) in WANTED.items():
            assert values(sinks[other], stream) == ([] if other == name else wanted)
        assert not manager.stats()["failed"] and not manager.stats()["dropped"]
        manager.close()
        if Disk.last < number:
            break
    assert number > 1, "nothing is written"


@pytest.mark.parametrize("name", ["ada", "bob", "cyd"])
@pytest.mark.parametrize("back", [False, True], ids=["pause", "resume"])
def test_a_pause_is_whole_or_as_it_was_whatever_cannot_be_written(tmp_path, monkeypatch, name, back):
    act = operator.attrgetter("resume" if back else "pause")
    for number in itertools.count(1):
        place = tmp_path / str(number)
        place.mkdir()
        manager, sinks = opened(place)
        if back:
            manager.pause(name)
        before = told(manager)
        assert done(monkeypatch, number, lambda: act(manager)(name)) or told(manager) == before  # noqa: B023
        rests = name in manager._shared.paused
        until(lambda: tidy(manager))  # noqa: B023
        (place / "gate").touch()
        assert manager.backend.wait(20)
        for other, (stream, wanted) in WANTED.items():
            assert values(sinks[other], stream) == ([] if other == name and rests else wanted)
        manager.close()
        if Disk.last < number:
            break
    assert number > 1, "nothing is written"


@pytest.mark.parametrize("times", [1, 100], ids=["once", "and from then on"])
@pytest.mark.parametrize(("name", "join"), [("ada", False), ("bob", False), ("bob", True), ("cyd", True)])
def test_a_submission_is_whole_or_as_it_was_whatever_cannot_be_written(tmp_path, monkeypatch, name, join, times):
    for number in itertools.count(1, 1 if times == 1 else 3):
        place = tmp_path / str(number)
        place.mkdir()
        manager, source, sinks = begun(place, join=join)
        for other, flow in flows().items():
            if other != name:
                manager.submit(flow, source, sinks[other])
        before = told(manager)
        submit = functools.partial(manager.submit, flows()[name], source, sinks[name])
        come = done(monkeypatch, number, submit, times)
        assert come or told(manager) == before
        if not come and number % 2:  # as if nothing had been
            come = bool(submit())
        assert (name in manager.names) == come and manager.backend.running() == {*manager._shared.steps}
        until(lambda: tidy(manager))  # noqa: B023
        (place / "gate").touch()
        assert manager.backend.wait(20)
        for other, (stream, wanted) in WANTED.items():
            assert values(sinks[other], stream) == (wanted if other != name or come else [])
        manager.close()
        if Disk.last < number:
            break


@pytest.mark.parametrize("times", [1, 100], ids=["once", "and from then on"])
def test_a_defragmentation_is_whole_or_as_it_was_whatever_cannot_be_written(tmp_path, monkeypatch, times):
    for number in itertools.count(1, 1 if times == 1 else 3):
        place = tmp_path / str(number)
        place.mkdir()
        manager, source, sinks = begun(place)
        for name, flow in flows().items():
            manager.submit(flow, source, sinks[name])
        before = told(manager)
        assert done(monkeypatch, number, manager.defragment, times) or told(manager) == before
        until(lambda: tidy(manager))  # noqa: B023
        (place / "gate").touch()
        assert manager.backend.wait(20)
        for name, (stream, wanted) in WANTED.items():
            assert sorted(values(sinks[name], stream)) == wanted
        assert not manager.stats()["failed"] and not manager.stats()["dropped"]
        manager.close()
        if Disk.last < number:
            break


@pytest.mark.parametrize("folder", ["dataflows", "readers"])
def test_what_cannot_be_noted_for_a_while_ends_nobody_and_nothing_is_carried_meanwhile(
    tmp_path, monkeypatch, caplog, folder
):
    manager, sinks = opened(tmp_path)
    with monkeypatch.context() as patch:
        full = Full(patch, folder)
        (tmp_path / "gate").touch()
        until(lambda: full.refused > 1)
        got = manager.stats()["rows"]
        time.sleep(0.3)
        assert manager.stats()["rows"] == got and sum(got.values()) < 351
        assert not manager.stats()["failed"]
    assert manager.backend.wait(20)
    for name, (stream, wanted) in WANTED.items():
        assert values(sinks[name], stream) == wanted
    assert not manager.stats()["failed"] and not manager.stats()["dropped"]
    assert "get nothing more until it can be noted what they have" in caplog.text
    manager.close()
