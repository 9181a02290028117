"""Failures of a cluster."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from riot_bench.harness.measure import Measure
from riot_bench.suites.threat import cluster_failures as threat_cluster
from riot_bench.suites.threat import job_failures


class Parts:
    """A fake cluster that records the calls."""

    url = "there"

    def __init__(self, workers: int) -> None:
        self.pids = dict.fromkeys(["master", *(f"worker-{n}" for n in range(workers))], 0)
        self.done: list[str] = []

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def kill(self, name: str) -> None:
        self.done.append(f"kill {name}")

    def crash(self, name: str) -> None:
        self.done.append(f"crash {name}")

    def add(self) -> None:
        self.done.append("add")


def test_failures_kill_their_process_and_recover(monkeypatch: pytest.MonkeyPatch) -> None:
    one, asked = Parts(2), list[tuple[str, list[str], float]]()
    monkeypatch.setattr(threat_cluster, "Cluster", lambda workers: one)
    monkeypatch.setattr(threat_cluster, "cluster_session", lambda *_, copies: contextlib.nullcontext())
    monkeypatch.setattr(threat_cluster, "wait_for_executors", lambda *_: one.done.append("wait"))
    monkeypatch.setattr(threat_cluster, "_half_of_peak_rate", lambda *_: 5.0)

    def run(_: object, where: str, how: str, rate: float, sizes: object, strike: Any, mend: Any) -> list[Measure]:
        one.done.clear()
        strike(), mend()
        asked.append((where, list(one.done), rate))
        assert how.startswith("2 workers of one core, after 50 s ")
        return []

    monkeypatch.setattr(threat_cluster, "_run", run)
    assert list(threat_cluster.cluster_failures(True, job_failures.FULL)) == []
    assert asked == [("spark", ["kill worker-1", "add"], 5.0)]
    asked.clear()
    assert list(threat_cluster.cluster_failures(False)) == []
    assert [where for where, *_ in asked] == ["spark", "spark-executor", "spark-node"]
    assert [done for _, done, _ in asked[1:]] == [["crash worker-1"], ["kill worker-1"]]


def test_quick_form_runs_at_half_of_the_peak_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch takes 0.2 s plus 1 s per 400,000 messages: small ones show a fraction of the capacity."""

    class Flow:
        def start(self, _: object, source: int, *, max_records: int = 0, **__: Any) -> Flow:
            self.streaming = max_records
            return self

        def wait(self, _: float) -> None:
            pass

    monkeypatch.setattr(threat_cluster, "dataflows", SimpleNamespace(threat=Flow))
    monkeypatch.setattr(threat_cluster, "open_stream", lambda messages: messages)
    monkeypatch.setattr(threat_cluster, "durations", lambda messages: [0.2 + messages / 400_000] * 4)
    for sizes in (job_failures.QUICK, job_failures.FULL):
        assert threat_cluster._half_of_peak_rate(None, sizes) == pytest.approx(100_000 / 0.45 / 2)
        assert sizes.batch_note == " in micro-batches of 100,000 messages"


@pytest.mark.parametrize("then", [{"a"}, {"a", "c"}, {"a", "c", "d"}])
def test_failure_is_detected_despite_an_immediate_replacement(monkeypatch: pytest.MonkeyPatch, then: set[str]) -> None:
    there = iter([{"a", "b"}, {"a", "b", "c"}, then])
    monkeypatch.setattr(threat_cluster, "executor_addresses", lambda _: next(there))
    begun = time.time()
    assert begun <= threat_cluster._wait_for_detection(None, {"a", "b"}, begun) <= begun + 10
    assert next(there, None) is None
    monkeypatch.setattr(threat_cluster, "executor_addresses", lambda _: {"a", "b"})
    monkeypatch.setattr(threat_cluster, "DETECTION_TIMEOUT_S", 0.1)
    assert threat_cluster._wait_for_detection(None, {"a"}, time.time()) >= begun + 0.1


JOB = """
from riot_bench.suites.threat.cluster_failures import CRASHED_EXECUTOR, LOST_NODE, LOST_WORKER, cluster_failures, driver_loss, executor_crash
from riot_bench.suites.threat.job_failures import Sizes
sizes = Sizes(35.0, 8.0, 1.0, 0, 20_000)
for measure in {}:
    print(measure.to_json(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("where", "run"),
    [
        ("spark", "cluster_failures(True, sizes, LOST_WORKER)"),
        ("spark-executor", "cluster_failures(True, sizes, CRASHED_EXECUTOR)"),
        ("spark-node", "cluster_failures(True, sizes, LOST_NODE)"),
        ("spark-crash", "executor_crash(sizes)"),
        ("spark-driver", "driver_loss(sizes)"),
    ],
)
def test_lost_executor_is_replaced(where: str, run: str) -> None:
    """In a process of its own, since the session of all tests has another master.

    The benchmark measures when its rate recovers: on a busy machine that may be after the last message.
    """
    job = [sys.executable, "-c", JOB.format(run)]
    done = subprocess.run(job, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    measures = [Measure.from_json(line) for line in done.stdout.splitlines()]
    assert "half of the peak rate in micro-batches of 5,000 messages" in measures[0].against
    found = {one.measure.removeprefix(f"threat/failure/{where}/"): one.value for one in measures}
    assert found["lost"] == found["doubled"] == 0
    assert 0 <= found["detection"] < 30
    assert not found["recovery"] < 0
    assert len([name for name in found if name.startswith("analysed/")]) >= 25
