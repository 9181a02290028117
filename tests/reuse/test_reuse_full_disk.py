"""Actions whose lines the log cannot take: each has taken place, or has changed nothing."""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.reuse import LocalBackend, NullBackend, ReuseManager, errors, log
from tests.reuse.test_reuse_log import told
from tests.search import depth

SOURCE = ro.MemorySource([{"value": 1.0}])
BACKENDS = {"null": NullBackend, "local": LocalBackend}
NAMES = ("a", "b", "c")


def flow(name):
    """Of all the source and the average are the same; of a and b what is behind them too."""
    made = ro.Dataflow(name)
    average = made.source("in", schema={"value": "double"}).to(t.BlockAverage(window=2), id="average")
    return made.sink("out", average.to(t.KalmanFilter(process_noise=1.0 + (name == "c")), id="smooth"))


def rebound(name, flow):
    return SOURCE, ro.MemorySink()


def seen(manager):
    """All that actions change."""
    state = {one["name"]: one["paused"] for one in manager.state()["dataflows"]}
    running = manager.backend.running()
    assert running >= {step for name in state for step in manager._shared.placed[name].values()}
    return state, manager.canonical()


class Disk:
    """Takes no line where it is told so."""

    def __init__(self):
        self.faults, self.n = frozenset(), 0

    def fsync(self, file):
        self.n += 1
        if self.n - 1 in self.faults:
            raise OSError(errno.ENOSPC, "No space left on device")


def act(manager, op, name):
    if op == "submit":
        manager.submit(flow(name), SOURCE, ro.MemorySink())
    else:
        getattr(manager, op)(name)


def after(state, op, name):
    """What is there where an action has taken place."""
    if op == "remove":
        return {one: paused for one, paused in state.items() if one != name}
    return {**state, name: op == "pause"}


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    actions=st.lists(
        st.tuples(st.sampled_from(["submit", "remove", "pause", "resume"]), st.sampled_from(NAMES)), max_size=12
    ),
    faults=st.frozensets(st.integers(0, 30), max_size=6),
)
@settings(max_examples=depth(150))
def test_whatever_lines_are_refused(backend, actions, faults):
    disk = Disk()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(log.os, "fsync", disk.fsync)
        path = Path(folder) / "log"
        manager = ReuseManager(BACKENDS[backend](), log=path)
        disk.faults, disk.n = faults, 0
        for op, name in actions:
            before = seen(manager)
            try:
                act(manager, op, name)
            except (ConfigError, ConnectorError):
                assert seen(manager) == before, "it has changed nothing"
            else:
                assert seen(manager)[0] == after(before[0], op, name), "it has taken place"
        last = seen(manager)
        disk.faults = frozenset()
        manager.close()
        again = ReuseManager(BACKENDS[backend](), log=path, rebind=rebound)
        assert seen(again) == last
        again.close()


def test_what_could_not_be_noted_is_noted_before_the_next_action(tmp_path, monkeypatch, caplog):
    disk = Disk()
    monkeypatch.setattr(log.os, "fsync", disk.fsync)
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit(flow("a"))
    disk.faults, disk.n = {1, 2, 3}, 0
    manager.remove("a")
    assert manager.names == [] and "the last action is enacted is not noted yet" in caplog.text
    assert told(tmp_path / "log")[-1] == ("remove", ["intent"]), "who takes it up brings it to its end"
    with pytest.raises(ConnectorError, match="cannot be written"):
        manager.submit(flow("b"))
    assert manager.names == []
    manager.submit(flow("b"))
    assert told(tmp_path / "log")[1:] == [(do, ["intent", "enacted", "committed"]) for do in ("remove", "submit")]


def test_half_a_line_that_stays_is_the_last(tmp_path, monkeypatch):
    manager = ReuseManager(log=tmp_path / "log")
    manager.submit(flow("a"))
    file = manager._journal.log._file

    class Stuck:
        closed = False

        def __getattr__(self, name):
            return getattr(file, name)

        def truncate(self, size):
            raise OSError(errno.EIO, "Input/output error")

        def close(self):
            self.closed = True

    manager._journal.log._file = Stuck()
    with monkeypatch.context() as patch:
        patch.setattr(log.os, "fsync", lambda file: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(ConnectorError, match="Input/output error"):
            manager.submit(flow("b"))
    with pytest.raises(ConnectorError, match="half a line that could not be taken back"):
        manager.submit(flow("b"))
    assert manager.names == ["a"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_of_which_something_cannot_be_taken_up_leaves_nothing(tmp_path, backend):
    whole = ReuseManager(BACKENDS[backend]())
    for name in NAMES:
        act(whole, "submit", name)
    whole.pause("b")
    state = json.loads(json.dumps(whole.state()))

    def rebind(name, flow):
        if name == "c":
            raise OSError("no such broker")
        return rebound(name, flow)

    manager = ReuseManager(BACKENDS[backend](), log=tmp_path / "log", rebind=rebind)
    nothing = seen(manager)
    with pytest.raises(errors.EnactError, match="no such broker"):
        manager.restore(state)
    assert seen(manager) == nothing and manager.backend.running() == set()
    manager._rebind = rebound
    manager.restore(state)
    assert seen(manager) == seen(whole)
    manager.close()
    assert seen(ReuseManager(BACKENDS[backend](), log=tmp_path / "log", rebind=rebound)) == seen(whole)


def test_a_state_whose_pause_fails_leaves_nothing(monkeypatch):
    whole = ReuseManager()
    for name in NAMES:
        act(whole, "submit", name)
    whole.pause("b")
    manager = ReuseManager()
    with monkeypatch.context() as patch:
        patch.setattr(manager.backend, "rest", lambda rest: (_ for _ in ()).throw(OSError("no memory")))
        with pytest.raises(errors.EnactError, match="no memory"):
            manager.restore(whole.state())
    assert manager.names == [] and manager.backend.running() == set()
