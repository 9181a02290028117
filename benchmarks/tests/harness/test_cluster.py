"""A cluster of local processes."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from riot_bench.harness import cluster
from riot_bench.harness.cluster import Cluster

from riot_ops.core.errors import ConfigError, RiotError


def test_idle_executors() -> None:
    every = {"driver": 0, "0": 7, "1": 0}
    stages = [SimpleNamespace(id=lambda i=i: i, completedTasks=lambda n=n: n) for i, n in every.items()]
    found = SimpleNamespace(size=lambda: len(stages), apply=stages.__getitem__)
    store = SimpleNamespace(executorList=lambda active: found if active else None)
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store)))
    assert cluster.idle_executors(SimpleNamespace(sparkContext=context)) == ["1"]


def test_closed_cluster_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With stand-ins for Spark's processes; one ignores the signal and has a child."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "spark-class"
    script.write_text("#!/bin/bash\ntrap '' TERM\necho \"$@\"\nsleep 60 &\nwait\nsleep 60\n")
    script.chmod(0o755)
    monkeypatch.setattr(cluster, "_spark_home", lambda: tmp_path)
    monkeypatch.setattr(cluster, "SHUTDOWN_S", 0.2)
    monkeypatch.setattr(Cluster, "_wait_for_port", lambda *_: None)

    def groups(pids: list[int]) -> list[int]:
        found = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, 0)
                found.append(pid)
        return found

    def until_gone(pids: list[int]) -> None:
        until = time.monotonic() + 10
        while groups(pids) and time.monotonic() < until:
            time.sleep(0.02)
        assert groups(pids) == []

    with pytest.raises(KeyboardInterrupt), Cluster(2) as one:  # noqa: PT012 (all of it is what ends)
        pids = one.pids
        assert list(pids) == ["master", "worker-0", "worker-1"]
        assert len(groups(list(pids.values()))) == 3
        one.kill("worker-0")
        until_gone([pids["worker-0"]])
        assert one.add() == "worker-2"
        assert list(one.pids) == ["master", "worker-1", "worker-2"]
        with pytest.raises(ConfigError, match="name must be one of master, worker-1, worker-2, got 'worker-0'"):
            one.kill("worker-0")
        folder = one._folder
        pids |= one.pids
        raise KeyboardInterrupt
    until_gone(list(pids.values()))
    assert one.pids == {}
    assert not folder.exists()


@pytest.mark.parametrize("copies", [False, True])
def test_cluster_session_settings(copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, str] = {}

    def session(cores: int, *, settings: dict[str, str]) -> Any:
        asked.update(settings, cores=str(cores))
        return contextlib.nullcontext("a session")

    waited: list[Any] = []
    monkeypatch.setattr("riot_bench.harness.session.spark_session", session)
    monkeypatch.setattr(cluster, "wait_for_executors", lambda *of: waited.append(of))
    with cluster.cluster_session("spark://there", 3, copies=copies) as spark:
        assert spark == "a session"
    assert waited == [("a session", 3)]
    assert (asked["spark.master"], asked["cores"], asked["spark.executor.cores"]) == ("spark://there", "3", "1")
    assert asked.get("spark.speculation") == ("true" if copies else None)
    assert asked["spark.locality.wait"] == "100ms", "state does not wait for seconds for an executor that is lost"


def test_workers_have_separate_addresses() -> None:
    found = {cluster._loopback_address(number) for number in range(250)}
    assert len(found) == 250 or found == {"127.0.0.1"}
    assert cluster._loopback_address(3) == cluster._loopback_address(253)


def test_killed_executor_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "spark-class"
    script.write_text("#!/bin/bash\n(exec -a CoarseGrainedExecutorBackend sleep 60) &\nsleep 60 &\nwait\n")
    script.chmod(0o755)
    monkeypatch.setattr(cluster, "_spark_home", lambda: tmp_path)
    monkeypatch.setattr(Cluster, "_wait_for_port", lambda *_: None)

    def below(pid: int) -> list[str]:
        return sorted(p.cmdline()[0] for p in psutil.Process(pid).children() if p.status() != psutil.STATUS_ZOMBIE)

    with Cluster(2) as one:
        first, second = one.pids["worker-0"], one.pids["worker-1"]
        until = time.monotonic() + 10
        while below(first) + below(second) != ["CoarseGrainedExecutorBackend", "sleep"] * 2:
            assert time.monotonic() < until
            time.sleep(0.02)
        one.crash("worker-1")
        assert below(first) == ["CoarseGrainedExecutorBackend", "sleep"]
        while below(second) != ["sleep"]:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert list(one.pids) == ["master", "worker-0", "worker-1"]
        with pytest.raises(RiotError, match="worker-1 has no executor"):
            one.crash("worker-1")
        for wrong in ("worker-2", "master"):
            with pytest.raises(ConfigError, match=f"name must be one of worker-0, worker-1, got '{wrong}'"):
                one.crash(wrong)


def test_master_start_failure_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "spark-class"
    script.write_text("#!/bin/bash\necho no such class $1\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(cluster, "_spark_home", lambda: tmp_path)
    with pytest.raises(RiotError, match="Spark's master did not start: no such class org"):
        Cluster(1).__enter__()
    with pytest.raises(ConfigError, match="workers must be >= 1, got 0"):
        Cluster(0)
