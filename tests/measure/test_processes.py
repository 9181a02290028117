"""CPU and memory of a tree of processes, with real processes and with given CPU times."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.measure import processes
from riot_ops.measure.processes import CpuAccount, ProcessTree

BUSY = "import time\nwhile time.process_time() < {s}: pass"  # of CPU, which a loaded machine gives late


@pytest.mark.long
def test_tree_includes_cpu_and_memory_of_child() -> None:
    with ProcessTree(every="100ms") as tree:
        child = subprocess.Popen([sys.executable, "-c", "x = bytearray(400_000_000)\n" + BUSY.format(s=1.5)])
        time.sleep(1.0)
        child.wait()
    usage = tree.usage()
    assert usage.cpu.max() > 0.2  # this process only waits
    # others of the tree, such as a Spark that another test left, may grow and shrink between two tests, and of one
    # process that is alone the pages are counted whole which it shares with others of the machine
    assert usage.memory.max() - usage.memory.min() > 200e6


def test_single_process_is_sampled_without_page_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(processes, "proportional_set_size", lambda pid: asked.append(pid) or 1)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        alone = ProcessTree(every="1min", pid=sleeper.pid)
        with alone:
            pass
        assert not asked
        assert 1e6 < alone.usage().memory[0] <= psutil.Process(sleeper.pid).memory_info().rss
        with ProcessTree(every="1min"):
            pass
        assert {sleeper.pid, os.getpid()} <= set(asked)
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.long
def test_child_ended_between_samples_is_counted() -> None:
    with ProcessTree(every="1min") as tree:
        before = tree.cpu_seconds()
        subprocess.run([sys.executable, "-c", BUSY.format(s=0.5)], check=True)
        assert 0.05 < tree.cpu_seconds() - before < 5
    usage = tree.usage()
    spent = float(usage.cpu[0]) * 1.0
    assert usage.cpu.size == 1
    assert spent > 0.05


class FakeProcess:
    """A process with given CPU times."""

    def __init__(self, pid: int, parent: int, own: float, of_children: float = 0.0) -> None:
        self.pid, self.parent, self.own, self.of_children = pid, parent, own, of_children
        self.gone = False

    def oneshot(self) -> Any:
        return contextlib.nullcontext()

    def cpu_times(self) -> Any:
        if self.gone:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(user=self.own, system=0.0, children_user=0.0, children_system=self.of_children)

    def ppid(self) -> int:
        return self.parent


def test_time_of_ended_process_counts_once() -> None:
    account = CpuAccount(psutil.Error)
    root, jvm, daemon, worker = (
        FakeProcess(1, 0, 5.0),
        FakeProcess(2, 1, 10.0),
        FakeProcess(3, 2, 1.0),
        FakeProcess(4, 3, 8.0),
    )
    tree = [root, jvm, daemon, worker]
    assert account.update(tree) == pytest.approx(24)
    worker.gone, daemon.of_children, jvm.own = True, 8.5, 11.0  # waited for: half a second of it was not seen
    assert account.update(tree) == pytest.approx(25.5)
    again = FakeProcess(5, 3, 2.0)
    assert account.update([root, jvm, daemon, again]) == pytest.approx(27.5)
    jvm.of_children = 0.3  # a short-lived process
    assert account.update([root, jvm, again]) == pytest.approx(27.8), "no process has waited for the daemon"
    jvm.own = 12.0
    assert account.update([root, jvm]) == pytest.approx(28.8), "nor for its worker"


def test_time_of_ended_branch_counts_once() -> None:
    account = CpuAccount(psutil.Error)
    root, daemon, worker = FakeProcess(1, 0, 0.0), FakeProcess(2, 1, 1.0), FakeProcess(3, 2, 8.0)
    assert account.update([root, daemon, worker]) == pytest.approx(9)
    root.of_children = 9.5  # the daemon waited for its worker, the root for the daemon
    assert account.update([root]) == pytest.approx(9.5)


def test_child_ended_during_a_sample_counts_once() -> None:
    account = CpuAccount(psutil.Error)
    root, child = FakeProcess(1, 0, 0.0), FakeProcess(2, 1, 3.0)
    assert account.update([root, child]) == pytest.approx(3)
    child.gone = True  # after the root was asked
    assert account.update([root, child]) == pytest.approx(3)
    root.of_children = 3.0
    assert account.update([root]) == pytest.approx(3)


def test_ended_root_gives_no_samples() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    tree = ProcessTree(every="50ms", pid=child.pid)
    child.wait()
    with tree:
        time.sleep(0.15)
    assert tree.usage().cpu.size == 0


def test_interval_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="every must be > 0 and at most 1e\\+09 seconds, got 0"):
        ProcessTree(every="0s")
