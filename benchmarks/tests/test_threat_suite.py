"""The suite of threat detection: series and recovery by hand, sources, and each part at a small size."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riot_bench.harness.measure import Measure
from riot_bench.harness.recovery import CommitHistory, count_lost_and_duplicated, read_commits
from riot_bench.suites import registry
from riot_bench.suites.threat import cluster_failures as threat_cluster
from riot_bench.suites.threat import job as threat_job
from riot_bench.suites.threat import job_failures as threat_failure
from riot_bench.suites.threat import suite as threat
from riot_bench.suites.threat.job import AtMostOnceBroker, Broker, open_stream

from riot_ops.core.errors import ConfigError, RiotError

# -- series ------------------------------------------------------------------------------------------


def steady(outage: float = 0.0, rate: float = 100.0) -> CommitHistory:
    """A commit each half second for ten seconds, then none for so long, then what had come meanwhile, and so on."""
    times = [0.5 * i for i in range(1, 21)] + [10.0 + max(outage, 0.5) + 0.5 * i for i in range(21)]
    counts = [rate * t for t in times]
    return CommitHistory((0.0, *times), (0, *map(int, counts)))


def test_rates_between_commits() -> None:
    run = CommitHistory.of([(4.0, 30), (2.0, 10)], begun=0.0)
    assert [run.rate(a, b) for a, b in ((0.0, 2.0), (2.0, 4.0), (1.0, 3.0), (0.0, 4.0))] == [5.0, 15.0, 10.0, 10.0]
    assert list(run.series(0.0, 4.0, 2.0)) == [(0.0, 5.0), (2.0, 15.0)]
    assert CommitHistory.of([(-3.0, 7)], begun=0.0).times == (0.0, 0.0), (
        "what is older than the run belongs to its begin"
    )
    with pytest.raises(ConfigError, match="end must be after start"):
        run.rate(2.0, 2.0)


def test_no_failure_has_no_dip() -> None:
    run = steady()
    assert run.dip(10.0, 100.0) == pytest.approx(1.0) and run.recovery_s(10.0, 100.0) == 0.0


def test_an_outage_and_what_comes_behind_it() -> None:
    # nothing is committed from 10 to 16; a commit of few records comes then, and the rest half a second later
    times = (*(0.5 * i for i in range(21)), 16.0, 16.5, *(16.5 + 0.5 * i for i in range(1, 20)))
    counts = (*(50 * i for i in range(21)), 1060, 1650, *(1650 + 50 * i for i in range(1, 20)))
    run = CommitHistory(times, counts)
    assert run.rate(5.0, 10.0) == 100.0
    assert run.dip(10.0, 100.0) == pytest.approx(0.1)
    assert 5.4 < run.recovery_s(10.0, 100.0) <= 6.0
    assert math.isnan(CommitHistory((0.0, 10.0, 40.0), (0, 1000, 2500)).recovery_s(10.0, 100.0))


@given(st.lists(st.tuples(st.floats(0.1, 50.0), st.integers(0, 1000)), min_size=1))
def test_nothing_is_analysed_twice_nor_passed_over(commits: list[tuple[float, int]]) -> None:
    run = CommitHistory.of(commits, begun=0.0)
    total = sum(rate for _, rate in run.series(0.0, 60.0, 0.5)) * 0.5
    assert total == pytest.approx(sum(n for _, n in commits), abs=1e-6)


def test_files_of_results(tmp_path: Path) -> None:
    for name, seq in (("a", [0, 1, 2]), ("b", [2, 5]), (".c", [7])):
        pq.write_table(pa.table({"seq": seq}), tmp_path / f"{name}.parquet")
        os.utime(tmp_path / f"{name}.parquet", (100.0 + len(seq),) * 2)
    assert sorted(read_commits(tmp_path)) == [(102.0, 2), (103.0, 3)]
    (tmp_path / ".c.parquet").unlink()
    assert count_lost_and_duplicated([tmp_path], 6) == (2, 1)
    assert count_lost_and_duplicated([], 6) == (6, 0)


# -- sources -----------------------------------------------------------------------------------------


def test_a_broker_keeps_what_comes_while_nobody_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now, opened = [100.0], tmp_path / "opened"
    monkeypatch.setattr(threat_job.time, "time", lambda: now[0])
    source = Broker(open_stream(1_000), opened, rate=10.0)
    assert source.waits() and not opened.exists()
    source.latest({"message": 0})
    assert opened.exists(), "messages come from when they are asked for"
    os.utime(opened, (101.0,) * 2)
    assert source.latest({"message": 0}) == {"message": 0}
    now[0] = 103.0
    assert source.latest({"message": 0}) == {"message": 20}
    assert source.latest({"message": 5}, 3) == {"message": 8}
    assert source.latest({"message": 20}) == {"message": 20}
    again = Broker(open_stream(1_000), opened, rate=10.0)
    now[0] = 1e6
    assert again.latest({"message": 20}) == {"message": 1_000} and again.finished({"message": 1_000})


def test_a_forgetful_one_goes_on_behind_what_it_handed_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(threat_job.time, "time", lambda: 110.0)
    (opened := tmp_path / "opened").touch()
    os.utime(opened, (100.0,) * 2)
    first = AtMostOnceBroker(open_stream(1_000), opened, 10.0, tmp_path / "position.json")
    assert first.initial() == {"message": 0} and first.latest({"message": 0}, 30) == {"message": 30}
    assert AtMostOnceBroker(open_stream(1_000), opened, 10.0, tmp_path / "position.json").initial() == {"message": 30}


@pytest.mark.parametrize("mode", ["replayed", "forgotten"])
def test_the_job_analyses_all_messages(mode: str, tmp_path: Path) -> None:
    threat_job.main(tmp_path, mode, 3_000.0, 3_000)
    (out,) = [path / "threats" for path in tmp_path.iterdir() if path.name.startswith("out")]
    assert count_lost_and_duplicated([out], 3_000) == (0, 0)


# -- parts -------------------------------------------------------------------------------------------


def test_the_parts_are_experiments() -> None:
    found = registry.find_experiments("threat")
    assert [one.key for one in found] == [f"threat/{name}" for name in threat.PARTS]
    with pytest.raises(ConfigError, match=r'--suite must be one of classifier.*did you mean "failure"'):
        list(threat.measures(suite="failur"))


def test_the_classifier() -> None:
    sizes = threat.Sizes(1, 0, 0, 0, (), ())
    found = {one.measure: one for one in threat.classifier(True, sizes)}
    assert 0.95 <= found["threat/classifier/accuracy"].value <= 0.99
    assert found["threat/classifier/difference"].met
    counts = [one.value for name, one in found.items() if "/confusion/" in name]
    assert sum(counts) == 3_000 and len(counts) == 9
    figure = registry.find_experiments("threat")[0].figures[0]
    assert {(series, x) for series, x, _ in figure.points(found.values())} == {
        (series, x) for series in ("precision", "recall", "f1") for x in ("normal", "dos", "scan")
    }


def test_throughput_in_process() -> None:
    sizes = threat.Sizes(0, 400, 2, 2, (), ())
    found = {one.measure: one for one in threat.throughput(True, sizes)}
    assert set(found) == {
        *(f"threat/throughput/local/{p}" for p in (1, 2)), "threat/speedup/local/2", "threat/efficiency/local/2",
    }  # fmt: skip
    assert len(found["threat/throughput/local/1"].values) == 2
    gain = found["threat/throughput/local/2"].value / found["threat/throughput/local/1"].value
    assert found["threat/speedup/local/2"].value == pytest.approx(gain)
    assert found["threat/efficiency/local/2"].value == pytest.approx(gain / 2)


@pytest.mark.parametrize("trigger", [None, "0.5 seconds"])
def test_throughput_on_spark_is_from_end_to_end_of_micro_batches(
    monkeypatch: pytest.MonkeyPatch, trigger: str | None
) -> None:
    """Four micro-batches of 0.1 s each, one every half second: 400 messages in that time, whatever each takes."""
    asked = list[str | None]()

    class Flow:
        streaming = SimpleNamespace(
            recentProgress=[
                {
                    "batchId": n,
                    "timestamp": f"2026-01-01T00:00:0{n / 2}00Z",
                    "durationMs": {"triggerExecution": 100},
                    "numInputRows": 400,
                }
                for n in range(4)
            ]
        )

        def start(self, *_: Any, trigger: str | None = None, **__: Any) -> Flow:
            asked.append(trigger)
            return self

        def run(self, *_: Any, **__: Any) -> Flow:
            return self

        def wait(self) -> None:
            pass

    monkeypatch.setattr(threat, "spark_session", lambda _: contextlib.nullcontext(None))
    monkeypatch.setattr(threat, "dataflows", SimpleNamespace(threat=Flow))
    monkeypatch.setattr(threat, "_results", lambda _: [])
    monkeypatch.setattr(threat, "_in_process", lambda *_: (9.0, 9.0))
    sizes = threat.Sizes(0, 400, 3, 2, (1,), (trigger,))
    found = {one.measure: one for one in threat.throughput(True, sizes)}
    one = found[f"threat/throughput/spark{'-interval' * bool(trigger)}/1"]
    assert one.value == pytest.approx(60 * 400 / 0.5)
    assert asked[1::2] == [trigger]
    # micro-batches of one run are no runs
    assert one.values == () and one.sample == pytest.approx((48_000.0,) * 3)
    local = found["threat/throughput/local/1"]
    assert (local.values, local.sample) == ((9.0, 9.0), ())


def test_what_the_paper_lost_stands_beside_a_lost_worker_alone() -> None:
    run = steady()
    for where, published in (("spark", 0.0), ("spark-executor", None), ("spark-driver", None), ("local", None)):
        given = (where, run, (0.0, 10.0, 10.5), (1, 0, 50), threat_failure.FULL, "how")
        found = {one.measure: one for one in threat_failure.failure_measures(*given)}
        loss = found[f"threat/failure/{where}/loss"]
        assert (loss.value, loss.published) == (2.0, published)
        steps = [float(name.rpartition("/")[2]) for name in found if "/analysed/" in name]
        assert steps == [float(n) for n in range(20)], "each second, in the full form as well"


def test_what_is_forgotten_is_told_in_seconds_too() -> None:
    found = {
        one.measure.rpartition("/")[2]: one
        for one in threat_failure._at_most_once_measures((50, 0, 1000), 100.0, "killed")
    }
    assert {name: one.value for name, one in found.items()} == {
        "lost": 50, "lost-seconds": 0.5, "loss": 5.0, "doubled": 0,
    }  # fmt: skip
    assert all(one.published is None and "written every 0.5 s" in one.against for one in found.values())
    assert found["loss"].against.startswith("share of the messages of 10 s; killed; ")
    assert "22.2 %" in registry.find_experiments("threat")[-1].about


@pytest.mark.slow
def test_a_process_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = threat_failure.Sizes(26.0, 8.0, 1.0, 20_000, 0)
    monkeypatch.setattr(threat_failure, "_peak_rate", lambda sizes: 4_000.0)
    found = {one.measure: one for one in threat_failure.job_failure(True, sizes)}
    for name in ("lost", "doubled", "recovery"):
        assert found[f"threat/failure/local/{name}"].met, found[f"threat/failure/local/{name}"]
    assert found["threat/failure/local/dip"].value < 0.9
    assert len([name for name in found if "/analysed/" in name]) >= 15
    found = {one.measure: one for one in threat_failure.at_most_once(True, sizes)}
    assert found["threat/at-most-once/lost"].met and found["threat/at-most-once/doubled"].met


def test_a_process_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(threat_failure, "_peak_rate", lambda sizes: 4_000.0)
    sizes = threat_failure.Sizes(10.0, 4.0, 1.0, 0, 0)
    with pytest.raises(RiotError, match="before it was to be killed"):
        list(threat_failure.run_killed_job(tmp_path / "no" / "folder", "forgotten", 100.0, sizes))


class Waiting:
    """A process that goes on for ever."""

    def poll(self) -> None:
        pass

    def wait(self, limit_s: float) -> int:
        raise subprocess.TimeoutExpired("threat_job", limit_s)


def test_a_process_that_does_not_begin_or_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed = list[Any]()
    monkeypatch.setattr(threat_failure, "module_process", lambda *_: contextlib.nullcontext(Waiting()))
    monkeypatch.setattr(threat_failure, "kill_group", killed.append)
    monkeypatch.setattr(threat_failure, "START_S", 0.1)
    sizes = threat_failure.Sizes(0.2, 0.1, 1.0, 0, 0)
    with pytest.raises(RiotError, match=r"threat detection did not begin within 0\.1 s"):
        list(threat_failure.run_killed_job(tmp_path, "replayed", 100.0, sizes))
    assert killed == []
    (tmp_path / threat_job.OPENED).touch()
    with pytest.raises(RiotError, match=r"threat detection, restarted, was not done in 0\.3 s"):
        list(threat_failure.run_killed_job(tmp_path, "replayed", 100.0, sizes))
    assert len(killed) == 1


def test_a_dip_behind_the_moment_of_failure() -> None:
    # the rate holds for two seconds behind the failure, since what was under way is still put out
    times = (*map(float, range(13)), 18.0, 19.0, *map(float, range(20, 40)))
    counts = (*(100 * i for i in range(13)), 1260, 1900, *(2000 + 100 * i for i in range(20)))
    run = CommitHistory(times, counts)
    assert run.dip(10.0, 100.0) == pytest.approx(0.1)
    assert 7.0 < run.recovery_s(10.0, 100.0) <= 8.0
    later = CommitHistory((*map(float, range(41)), 60.0), (*(100 * i for i in range(41)), 4010))
    assert later.recovery_s(10.0, 100.0) == 0.0, "what happens long after is not of the failure"


class Parts:
    """Stands in for a cluster, and notes what is done to it."""

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


def test_what_is_killed_and_what_is_done_then(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert list(threat_cluster.cluster_failures(True, threat_failure.FULL)) == []
    assert asked == [("spark", ["kill worker-1", "add"], 5.0)]
    asked.clear()
    assert list(threat_cluster.cluster_failures(False)) == []
    assert [where for where, *_ in asked] == ["spark", "spark-executor", "spark-node"]
    assert [done for _, done, _ in asked[1:]] == [["crash worker-1"], ["kill worker-1"]]


def test_the_quick_form_runs_at_half_of_the_most_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch takes 0.2 s by itself, and 400,000 messages a second: small ones tell a fraction of what can be."""

    class Flow:
        def start(self, _: object, source: int, *, max_records: int = 0, **__: Any) -> Flow:
            self.streaming = max_records
            return self

        def wait(self, _: float) -> None:
            pass

    monkeypatch.setattr(threat_cluster, "dataflows", SimpleNamespace(threat=Flow))
    monkeypatch.setattr(threat_cluster, "open_stream", lambda messages: messages)
    monkeypatch.setattr(threat_cluster, "durations", lambda messages: [0.2 + messages / 400_000] * 4)
    for sizes in (threat_failure.QUICK, threat_failure.FULL):
        assert threat_cluster._half_of_peak_rate(None, sizes) == pytest.approx(100_000 / 0.45 / 2)
        assert sizes.batch_note == " in micro-batches of 100,000 messages"


@pytest.mark.parametrize("then", [{"a"}, {"a", "c"}, {"a", "c", "d"}])
def test_a_failure_is_noticed_also_where_another_executor_comes_at_once(
    monkeypatch: pytest.MonkeyPatch, then: set[str]
) -> None:
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
def test_what_is_lost_comes_back(where: str, run: str) -> None:
    """In a process of its own, since the session of all tests has another master.

    How soon its rate comes back is for the benchmark to tell: on a busy machine it may not while messages come.
    """
    job = [sys.executable, "-c", JOB.format(run)]
    done = subprocess.run(job, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    measures = [Measure.from_json(line) for line in done.stdout.splitlines()]
    assert "half of the most in micro-batches of 5,000 messages" in measures[0].against
    found = {one.measure.removeprefix(f"threat/failure/{where}/"): one.value for one in measures}
    assert found["lost"] == found["doubled"] == 0
    assert 0 <= found["detection"] < 30
    assert not found["recovery"] < 0
    assert len([name for name in found if name.startswith("analysed/")]) >= 25
