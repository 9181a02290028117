"""Failures of the back end or the log change nothing; an action that cannot be undone counts as done."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, RiotError
from riot_ops.reuse import LocalBackend, NullBackend, Request, ReuseManager, errors
from tests.random_flows import SCHEMA
from tests.reuse.sharing import overlapping_flow
from tests.search import depth, stride

TIME = datetime(2024, 1, 1, tzinfo=UTC)
ROWS = [{"event_time": TIME, "device": "ab"[i % 2], "obs_type": "light", "value": i / 2} for i in range(4)]


class Disk:
    """The file of a log in which some writes fail: after half a line, before it, or at the sync."""

    def __init__(self, file, shortens=True):
        self._file, self.fails, self.shortens, self.left, self.part = file, set(), shortens, 0, 0.5
        self.writes = 0

    def write(self, line):
        self.writes += 1
        if self.writes not in self.fails:
            return self._file.write(line)
        self._file.write(line[: int(self.part * len(line))])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, size):
        if not self.shortens:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._file.truncate(size)

    def __getattr__(self, name):
        return getattr(self._file, name)


class Faulty:
    """Wraps a back end; some of its calls fail without a change."""

    def __init__(self, backend):
        self._backend, self.fails, self.calls = backend, set(), 0

    def __getattr__(self, name):
        found = getattr(self._backend, name)
        if name not in ("extend", "reduce", "apply_pause", "defragment"):
            return found

        def call(*given):
            self.calls += 1
            if self.calls in self.fails:
                raise OSError("the back end is out of order")
            return found(*given)

        return call


def bound(name, flow):
    names = [node.id for node in flow.nodes_of_kind("source")]
    return {one: ro.MemorySource(ROWS) for one in names}, ro.MemorySink()


BACKENDS = {"null": NullBackend, "local": LocalBackend}


def manager_over(kind, log=None):
    backend = Faulty(BACKENDS[kind]())
    manager = ReuseManager(backend, log=log, rebind=bound if kind == "local" else None)
    if log is not None:
        manager.journal.log.file = Disk(manager.journal.log.file)
    return manager, backend


def bound_as(kind, flow):
    return bound(flow.name, flow) if kind == "local" else (None, None)


def reported(manager):
    """What runs according to the manager and the back end."""
    shares = {name: manager.sink_map(name) for name in manager.names}
    return manager.canonical(), manager.names, shares, manager.backend.running_steps(), manager.stats()["dataflows"]


def check_log(path, manager, kind):
    """Check that another manager over the log reaches the same state."""
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.with_name(f"{copy.name}.end").unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.copy(path.with_name(f"{path.name}.end"), copy.with_name(f"{copy.name}.end"))
    again = ReuseManager(BACKENDS[kind](), log=copy, rebind=bound if kind == "local" else None)
    assert again.canonical() == manager.canonical() and set(again.names) == set(manager.names)
    assert again.backend.running_steps() == manager.backend.running_steps()
    again.close()


def flow(name, window=5):
    made = ro.Dataflow(name)
    stream = made.source("north", schema=SCHEMA).to(t.KalmanFilter(value="value"), id="k")
    return made.sink("out", stream.to(t.MovingAverage(value="value", window=window), id="mean"))


def actions(kind):
    """Actions by name over two dataflows, the second one paused."""
    return {
        "submit": lambda m: m.submit(flow("c", 7), *bound_as(kind, flow("c"))),
        "several": lambda m: m.submit_all(
            [Request(flow(n, w), *bound_as(kind, flow(n))) for n, w in (("c", 7), ("d", 5))]
        ),
        "remove": lambda m: m.remove("a"),
        "pause": lambda m: m.pause("a"),
        "resume": lambda m: m.resume("b"),
        "defragment": lambda m: m.defragment(),
    }


def begun(manager, kind):
    for name, window in (("a", 5), ("b", 6)):
        manager.submit(flow(name, window), *bound_as(kind, flow(name)))
    manager.pause("b")


@pytest.mark.long
@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("act", actions("null"))
@pytest.mark.parametrize("failing", [{1}, {2}, {3}, {2, 3}, {1, 2, 3}, {3, 4, 5}, set(range(2, 90))])
@pytest.mark.parametrize("part", [0, 0.5, 1][:: stride(2)])
def test_action_is_atomic_for_any_failed_write(tmp_path, kind, act, failing, part):
    manager, _ = manager_over(kind, tmp_path / "log")
    begun(manager, kind)
    disk, before = manager.journal.log.file, reported(manager)
    disk.fails, disk.part = {disk.writes + k for k in failing}, part
    try:
        actions(kind)[act](manager)
    except RiotError as error:
        assert "No space left on device" in str(error) and reported(manager) == before
    else:
        assert act == "defragment" or reported(manager) != before
    check_log(tmp_path / "log", manager, kind)
    disk.fails = set()
    manager.submit(flow("e", 9), *bound_as(kind, flow("e")))
    check_log(tmp_path / "log", manager, kind)
    manager.close()


def test_unwritten_outcome_blocks_further_actions(tmp_path):
    manager, _ = manager_over("null", tmp_path / "log")
    begun(manager, "null")
    disk = manager.journal.log.file
    disk.fails = set(range(disk.writes + 2, 1000))
    assert manager.remove("a").name == "a" and manager.names == ["b"]
    before = reported(manager)
    for act in ("submit", "resume", "defragment"):
        with pytest.raises(
            ConnectorError, match=r"last one's outcome is in the log: .*No space left on device; make room"
        ):
            actions("null")[act](manager)
        assert reported(manager) == before
        check_log(tmp_path / "log", manager, "null")
    disk.fails = set()
    manager.resume("b")
    manager.close()
    assert ReuseManager(log=tmp_path / "log").names == ["b"]


def test_unwritable_log_blocks_actions_until_it_is_writable(tmp_path):
    manager, backend = manager_over("null", tmp_path / "log")
    begun(manager, "null")
    disk, before = manager.journal.log.file, reported(manager)
    backend.fails, disk.fails, disk.shortens = {backend.calls + 1}, set(range(disk.writes + 2, 1000)), False
    with pytest.raises(errors.EnactError, match="out of order"):
        manager.remove("a")
    for _ in range(2):
        with pytest.raises(ConnectorError, match="last one's outcome is in the log"):
            manager.pause("a")
        assert reported(manager) == before
    disk.fails, disk.shortens = set(), True
    manager.close()
    assert ReuseManager(log=tmp_path / "log").names == ["a", "b"]


def test_irreversible_submission_counts_as_submitted(tmp_path):
    manager, backend = manager_over("null", tmp_path / "log")
    begun(manager, "null")
    disk = manager.journal.log.file
    disk.fails, backend.fails = {disk.writes + 2}, {backend.calls + 2}
    assert manager.submit(flow("c", 7)).name == "c"
    assert manager.names == ["a", "b", "c"] and manager.backend.running_steps() == set(manager.ledger.steps)
    check_log(tmp_path / "log", manager, "null")


def test_irreversible_submissions_count_as_submitted(tmp_path):
    manager, backend = manager_over("null", tmp_path / "log")
    begun(manager, "null")
    disk = manager.journal.log.file
    disk.fails, backend.fails = {disk.writes + 2}, {backend.calls + 3}  # extend, reduce of d, reduce of c
    actions("null")["several"](manager)
    assert manager.names == ["a", "b", "c", "d"] and manager.backend.running_steps() == set(manager.ledger.steps)
    check_log(tmp_path / "log", manager, "null")


@pytest.mark.long
@given(st.integers(0, 2**32).map(random.Random))
@settings(max_examples=depth(40))
@pytest.mark.parametrize("kind", BACKENDS)
def test_ledger_back_end_and_log_agree_after_failures(tmp_path_factory, kind, choose):
    path = tmp_path_factory.mktemp("failing") / "log"
    manager, backend = manager_over(kind, path)
    disk = manager.journal.log.file
    for n in range(8):
        disk.fails = {disk.writes + k for k in range(1, 5) if choose.random() < 0.25}
        backend.fails = {backend.calls + 1} if choose.random() < 0.2 else set()
        disk.part = choose.choice([0, 0.5, 1])
        before = reported(manager)
        do = choose.choice(["submit", "remove", "pause", "resume", "defragment"])
        try:
            if do == "submit" or not manager.names:
                new = [overlapping_flow(choose, f"d{n}.{i}") for i in range(choose.randint(1, 3))]
                manager.submit_all(Request(one, *bound_as(kind, one)) for one in new)
            elif do == "defragment":
                manager.defragment()
            else:
                getattr(manager, do)(choose.choice(manager.names))
        except RiotError as error:
            assert "No space left" in str(error) or "out of order" in str(error)
            assert reported(manager) == before
        if kind == "local" and choose.random() < 0.5:
            backend.turn()
        assert backend.running_steps() == set(manager.ledger.steps)
        check_log(path, manager, kind)
    manager.close()


# -- saved state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BACKENDS)
def test_state_is_restored_completely_or_not_at_all(tmp_path, kind):
    manager, _ = manager_over(kind)
    begun(manager, kind)
    manager.submit(flow("c", 7), *bound_as(kind, flow("c")))
    manager.pause("c")
    state = manager.state()
    kept = reported(manager)[0]
    calls = []

    def rebind(name, made):
        calls.append(name)
        if name == "c" and len(calls) < 4:
            raise ConfigError("c is nobody's")
        return bound(name, made)

    again = ReuseManager(Faulty(BACKENDS[kind]()), log=tmp_path / "log", rebind=rebind if kind == "local" else None)
    disk = again.journal.log.file = Disk(again.journal.log.file)
    nothing = reported(again)
    if kind == "local":
        with pytest.raises(ConfigError, match="c is nobody's"):
            again.restore(state)
        assert reported(again) == nothing and not disk.writes
    # the back end at the submission and the pause; the log at each line
    for call, line in ((1, 0), (2, 0), (3, 0), (0, 1), (0, 2)):
        again.backend.fails = {again.backend.calls + call} if call else set()
        disk.fails = {disk.writes + line} if line else set()
        with pytest.raises(RiotError, match=r"out of order|No space left"):
            again.restore(state)
        assert reported(again) == nothing
        check_log(tmp_path / "log", again, kind)
    again.restore(state)
    assert reported(again)[0] == kept and again.state() == state
    check_log(tmp_path / "log", again, kind)


def wrong(change):
    manager = ReuseManager()
    begun(manager, "null")
    state = manager.state()
    change(state["dataflows"])
    return state


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.append(7), r"dataflows\[2\] must be an object, got 7"),
        (lambda d: d[1].pop("paused"), r"dataflows\[1\].paused must be true or false, got None"),
        (lambda d: d[1].update(name="a"), "2 dataflows 'a'"),
        (lambda d: d[1].update(on_slow="wait"), "on_slow must be"),
        (lambda d: d[1]["placed"].pop("k"), "'b': placed must name a step for each of its nodes, not so for k"),
        (lambda d: d[1]["placed"].update(k=3), r"'b': the step of k must be NAME.NUMBER, got 3"),
        (lambda d: d[1]["placed"].update(k="kalman"), r"must be NAME.NUMBER, got 'kalman'"),
    ],
)
def test_malformed_state_is_refused(change, text):
    manager = ReuseManager()
    before = reported(manager)
    with pytest.raises(ConfigError, match=text):
        manager.restore(wrong(change))
    assert reported(manager) == before
    with pytest.raises(ConfigError, match="dataflows must be a list"):
        manager.restore({**wrong(list), "dataflows": 5})


def test_closed_manager_refuses_actions(tmp_path):
    manager = ReuseManager(log=tmp_path / "log")
    manager.close()
    with pytest.raises(ConnectorError, match="is closed"):
        manager.submit(flow("a"))


def test_failed_resumption_leaves_the_dataflow_paused(tmp_path, monkeypatch):
    backend = LocalBackend(folder=tmp_path / "back")
    manager = ReuseManager(backend, log=tmp_path / "log")
    sinks = {name: ro.MemorySink() for name in "ab"}
    for name, window in (("a", 4), ("b", 3)):
        manager.submit(flow(name, window), ro.MemorySource(ROWS), sinks[name])
    manager.pause("b")
    backend.run()
    before = reported(manager), backend.sinks.queues["b"].paused, backend.engine.disabled
    takes, take = [], backend.checkpoint.save

    def full(*given):
        takes.append(given)
        if len(takes) == 2:  # the checkpoint after the end of the source
            raise ConnectorError("no room")
        take(*given)

    with monkeypatch.context() as patch:
        patch.setattr(backend.checkpoint, "save", full)
        with pytest.raises(ConnectorError, match="no room"):
            manager.resume("b")
    assert len(takes) == 2
    assert (reported(manager), backend.sinks.queues["b"].paused, backend.engine.disabled) == before
    manager.resume("b")
    assert not backend.sinks.queues["b"].paused
    manager.close()
