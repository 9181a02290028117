"""The fault suite."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from riot_bench.harness.numbered_lines import write_numbered
from riot_bench.suites.streambench import driver_loss
from riot_bench.suites.streambench import faults as streambench_faults

from riot_ops.core.errors import RiotError


@pytest.mark.parametrize(
    ("named", "lost"), [((), ["grep", "sample"]), (("distinct", "grep", "distinct"), ["distinct", "grep"])]
)
def test_faults_run_the_chosen_programs(
    named: tuple[str, ...], lost: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    errors: list[str] = []
    monkeypatch.setattr(streambench_faults, "Cluster", lambda _: contextlib.nullcontext(SimpleNamespace(url="")))
    monkeypatch.setattr(streambench_faults, "cluster_session", lambda *_: contextlib.nullcontext(None))
    monkeypatch.setattr(streambench_faults, "_lost_worker", lambda *of: asked.append(of[2]) or iter(()))
    monkeypatch.setattr(streambench_faults, "_crashed_executor", lambda *of: errors.append(of[1]) or iter(()))
    monkeypatch.setattr(streambench_faults, "_lost_driver", lambda *of: errors.append(of[0]) or iter(()))
    sizes = replace(SMALL, programs=("grep", "sample"), crashing=("grep", "wordcount"))
    assert list(streambench_faults.faults(True, named, 1.0, sizes)) == []
    assert (asked, errors) == (lost, ["grep", "grep"])


#: Lines, micro-batches and repetitions of runs that are none.
SMALL = streambench_faults.Sizes(40, 4, 2, ("grep",), (), 30.0, 1.0)


@pytest.mark.parametrize("difference", [(0, 0), (3, 0), (0, 1)])
def test_cost_of_a_failure_needs_exact_results(
    difference: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = write_numbered("searches", tmp_path / "lines", 5, 40)
    seconds = {"warm-0": 1.0, "whole": 1.0, "failing": 4.0, "fewer": 3.0}

    def run(_: Any, name: str, some: Any, at: Path, sizes: Any, strike: Any = None, parts: int = 1) -> Any:
        return streambench_faults.FaultRun((seconds[at.name],) * 4, some.batch, at / "out")

    class Held:
        def __init__(self, *_: Any) -> None:
            self.left = [(0, 0), difference]

        def difference(self, _: Any) -> tuple[int, int]:
            return self.left.pop() if self.left else (0, 0)

    latencies = itertools.cycle([1.0, 6.0, 3.0])  # without failure, with one, with one worker less
    nodes = SimpleNamespace(add=lambda: None)
    monkeypatch.setattr(streambench_faults, "_run", run)
    monkeypatch.setattr(streambench_faults, "completed_tasks", lambda _: {})
    monkeypatch.setattr(streambench_faults, "_mean_latency", lambda *_: next(latencies))
    monkeypatch.setattr(streambench_faults, "ExpectedResults", Held)
    monkeypatch.setattr(streambench_faults, "wait_for_executors", lambda *_: None)
    monkeypatch.setattr(streambench_faults, "idle_executors", lambda _: [])
    monkeypatch.setattr(
        streambench_faults, "run_with_lost_driver", lambda *_: driver_loss.RestartedRun(tmp_path / "out", 2.0)
    )
    worker = list(streambench_faults._lost_worker(None, nodes, "grep", data, tmp_path, SMALL))  # type: ignore[arg-type]
    latencies = itertools.cycle([1.0, 4.0])
    crash = list(streambench_faults._crashed_executor(None, "grep", data, tmp_path, SMALL))
    driver = list(streambench_faults._lost_driver("grep", data, tmp_path, SMALL))
    costs = [] if any(difference) else ["tpf", "lpf"]
    assert [one.measure.rpartition("/")[2] for one in worker] == ["lost", "doubled", "failed-queries", *costs]
    assert [one.measure.rpartition("/")[2] for one in crash] == ["lost", "doubled", *costs]
    assert (worker[0].value, worker[1].value) == difference
    for found in (worker, crash, driver):
        assert [one.published for one in found[:2]] == [0.0 if found is worker else None, None]
    if costs:
        rate = {name: 1 / s for name, s in seconds.items()}
        assert worker[3].values == pytest.approx((rate["failing"] / ((rate["whole"] + rate["fewer"]) / 2),) * 2)
        assert (worker[4].values, crash[3].values) == ((3.0, 3.0), (4.0, 4.0))  # of their own clock
        assert "from when each is due until its micro-batch is committed, 1 s at 50 % of" in worker[4].against


@pytest.mark.parametrize("left", [0, 2])
def test_executors_are_warm_before_a_run_without_failure(
    left: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The new one may get nothing to do in the first runs: there are more, until it has."""
    data = write_numbered("searches", tmp_path / "lines", 5, 40)
    done: list[str] = []

    def run(_: Any, name: str, some: Any, at: Path, sizes: Any, strike: Any = None, parts: int = 1) -> Any:
        what = at.name.partition("-")[0]
        done.append(what)
        assert (parts, some.total) == ((2, 80) if what == "warm" else (1, 200))
        return streambench_faults.FaultRun((1.0,) * 4, some.batch, at / "out")

    def cold(_: Any) -> list[str]:
        warm = itertools.takewhile("warm".__eq__, reversed(done))
        return ["3"] if len(list(warm)) <= left else []

    nodes = SimpleNamespace(add=lambda: done.append("add"))
    monkeypatch.setattr(streambench_faults, "_run", run)
    monkeypatch.setattr(streambench_faults, "completed_tasks", lambda _: {})
    monkeypatch.setattr(streambench_faults, "_mean_latency", lambda *_: 1.0)
    monkeypatch.setattr(streambench_faults, "idle_executors", cold)
    monkeypatch.setattr(streambench_faults, "ExpectedResults", lambda *_: SimpleNamespace(difference=lambda _: (0, 0)))
    monkeypatch.setattr(streambench_faults, "wait_for_executors", lambda *_: None)
    assert list(streambench_faults._lost_worker(None, nodes, "grep", data, tmp_path, SMALL))  # type: ignore[arg-type]
    warm = ["warm"] * (left + 1)
    assert done == [*warm, "whole", "failing", "fewer", "add", *warm, "add"] * 2
    done.clear()
    assert list(streambench_faults._crashed_executor(None, "grep", data, tmp_path, SMALL))
    assert done == [*warm, "whole", "failing", *warm, "warm", "whole", "failing", *warm]
    monkeypatch.setattr(streambench_faults, "idle_executors", lambda _: ["3", "4"])
    with pytest.raises(RiotError, match="grep on a cluster: the executors 3, 4 completed no task in 10 runs"):
        streambench_faults._warm_up(None, "grep", data, tmp_path, SMALL)


@pytest.mark.parametrize("fails", [1, 2])
def test_run_that_ends_too_soon_is_repeated_with_twice_the_lines(fails: int, tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "lines", 5, 40)
    asked: list[tuple[Any, ...]] = []

    def runs(some: Any, base: Path, sizes: Any) -> Any:
        asked.append((some.total // some.batch, base, sizes.batches, sizes.limit_s))
        yield "told before"
        if len(asked) <= fails:
            raise driver_loss.TooSoonError("give more records")
        yield "told"

    again = pytest.raises(RiotError, match="give more records") if fails > 1 else contextlib.nullcontext()
    with again:
        assert streambench_faults._retry_longer(runs, data, tmp_path, SMALL) == ["told before", "told"]
    assert asked == [(5, tmp_path, 4, 30.0), (9, tmp_path / "twice", 8, 60.0)]


def test_busiest_worker_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "lines", 5, 40)
    tasks = iter([{"127.0.0.2:9": 50, "127.0.0.3:9": 7}, {"127.0.0.2:9": 51, "127.0.0.3:9": 10}] * 2)
    killed: list[str] = []

    def run(_: Any, name: str, some: Any, at: Path, sizes: Any, strike: Any = None, parts: int = 1) -> Any:
        if strike is not None:
            strike()
        return streambench_faults.FaultRun((1.0,) * 4, some.batch, at / "out")

    nodes = SimpleNamespace(add=lambda: None, kill=killed.append, worker_at={"127.0.0.3": "worker-1"}.__getitem__)
    monkeypatch.setattr(streambench_faults, "_run", run)
    monkeypatch.setattr(streambench_faults, "completed_tasks", lambda _: next(tasks))
    monkeypatch.setattr(streambench_faults, "_warm_up", lambda *_: None)
    monkeypatch.setattr(streambench_faults, "ExpectedResults", lambda *_: SimpleNamespace(difference=lambda _: (0, 0)))
    monkeypatch.setattr(streambench_faults, "wait_for_executors", lambda *_: None)

    def latency(spark: Any, name: str, rate: float, sizes: Any, strike: Any = None) -> float:
        if strike is not None:
            strike()
        return 1.0

    monkeypatch.setattr(streambench_faults, "_mean_latency", latency)
    once = replace(SMALL, repetitions=1)
    found = list(streambench_faults._lost_worker(None, nodes, "grep", data, tmp_path, once))  # type: ignore[arg-type]
    assert killed == ["worker-1", "worker-1"]
    assert (found[2].value, found[2].met) == (0, True)
    assert "75 % of them or more" in found[3].against
    with pytest.raises(RiotError, match="no executor has completed a task of this run"):
        streambench_faults.busiest_executor({"a:1": 3}, {"a:1": 3})


def test_failed_query_of_a_lost_worker_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "lines", 5, 40)

    def run(_: Any, name: str, some: Any, at: Path, sizes: Any, strike: Any = None, parts: int = 1) -> Any:
        if strike is not None and at.parent.name == "0":
            raise RiotError("no second try")
        return streambench_faults.FaultRun((1.0,) * 4, some.batch, at / "out")

    monkeypatch.setattr(streambench_faults, "_run", run)
    monkeypatch.setattr(streambench_faults, "completed_tasks", lambda _: {})
    monkeypatch.setattr(streambench_faults, "_warm_up", lambda *_: None)
    monkeypatch.setattr(streambench_faults, "_mean_latency", lambda *_: 1.0)
    monkeypatch.setattr(streambench_faults, "ExpectedResults", lambda *_: SimpleNamespace(difference=lambda _: (0, 0)))
    monkeypatch.setattr(streambench_faults, "wait_for_executors", lambda *_: None)
    nodes: Any = SimpleNamespace(add=lambda: None)
    found = {
        m.measure.rpartition("/")[2]: m
        for m in streambench_faults._lost_worker(None, nodes, "grep", data, tmp_path, SMALL)
    }
    failed = found["failed-queries"]
    assert (failed.value, failed.met, failed.against.partition(": ")[2]) == (1, False, "no second try")
    assert (len(found["tpf"].values), len(found["lpf"].values)) == (1, 2)


CLUSTER_JOB = """
from riot_bench.suites.streambench.faults import Sizes, faults
for measure in faults(True, ["wordcount"], 2.0, Sizes(400, 6, 1, ("wordcount",), (), 200.0, 6.0)):
    print(measure.to_json(), flush=True)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_lost_worker_loses_no_result(tmp_path: Path) -> None:
    """In a process of its own, since the session of all tests has another master."""
    from riot_bench.harness.measure import Measure

    done = subprocess.run([sys.executable, "-c", CLUSTER_JOB], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {m.measure.rpartition("/")[2]: m for m in map(Measure.from_json, done.stdout.splitlines())}
    assert (found["lost"].value, found["doubled"].value) == (0, 0)
    assert found["failed-queries"].value <= 2  # Spark may refuse to repeat half of a shuffle
    if not found["failed-queries"].value:
        assert 0 < found["tpf"].value < 10 > found["lpf"].value > 0
        assert (found["tpf"].reach, found["lpf"].reach, found["lpf"].at_most) == (0.9, 1.3, True)
        assert "6 micro-batches of 800 records" in found["tpf"].against


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", ["identity", "wordcount"])
def test_lost_driver_loses_no_result(name: str, tmp_path: Path) -> None:
    stream = "searches"
    data = write_numbered(stream, tmp_path / "lines", 21, 2_000)
    sizes = streambench_faults.Sizes(2_000, 20, 1, (), (name,), 120.0, 6.0)
    found = {m.measure.rpartition("/")[2]: m for m in streambench_faults._lost_driver(name, data, tmp_path, sizes)}
    assert (found["lost"].value, found["doubled"].value) == (0, 0)
    assert 0 < found["recovery"].value < 120


def test_failure_is_injected_half_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Fake:
        """Eleven micro-batches; several may be reported at once."""

        def __init__(self, *told: int) -> None:
            self.summary, self.streaming, self.active, self.told = SimpleNamespace(batches=0), None, True, told

        def start(self, *_: Any, **__: Any) -> Any:
            return self

        def wait(self, _: float, watch: Any) -> None:
            for batches in self.told:
                self.summary.batches = batches
                watch(self)
            self.active = False
            watch(self)

        def __getitem__(self, _: str) -> list[Any]:
            return []

    data = write_numbered("searches", tmp_path / "lines", 11, 4)
    sizes, struck = streambench_faults.QUICK, list[int]()
    monkeypatch.setattr(streambench_faults, "durations", lambda _: [9.0, 2.0, 4.0])
    for told, wanted in (((1, 5, 6, 7, 11), [6]), ((3, 8, 9), [8]), ((1, 2, 5), None)):
        query = Fake(*told)
        monkeypatch.setattr(streambench_faults, "program_flow", lambda _, query=query: query)

        def run(query: Fake = query) -> streambench_faults.FaultRun:
            strike = lambda: struck.append(query.summary.batches)  # noqa: E731
            return streambench_faults._run(None, "identity", data, tmp_path, sizes, strike)

        if wanted is None:
            with pytest.raises(RiotError, match=r"identity was done before a worker was to be killed: .*--scale 10"):
                run()
            break
        struck.clear()
        outcome = run()
        assert struck == wanted
        assert (outcome.rate, outcome.out) == (8 / 6, tmp_path / "out")
