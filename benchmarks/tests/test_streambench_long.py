"""The suites of StreamBench that take long: their formulas, the cluster, marks and knobs."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riot_bench.harness import cluster
from riot_bench.harness.child_process import die_with_parent, kill_group, module_process, wait_for_exit
from riot_bench.harness.cluster import Cluster
from riot_bench.harness.numbered_lines import write_numbered
from riot_bench.harness.peak_rate import PeakRate
from riot_bench.suites.streambench import driver_loss as streambench_driver
from riot_bench.suites.streambench import durability as streambench_durability
from riot_bench.suites.streambench import factorial as streambench_factorial
from riot_bench.suites.streambench import faults as streambench_faults
from riot_bench.suites.streambench import recipients as streambench_recipients
from riot_bench.suites.streambench import saturation as streambench_saturation
from riot_bench.suites.streambench import tuning as streambench_knobs
from riot_bench.suites.streambench.durability import LIMIT_S, MarkedSource, MarkObserver
from riot_bench.suites.streambench.formulas import (
    availability,
    count_lost_and_duplicated,
    pareto_front,
    penalty,
    relative_slope,
)
from riot_bench.suites.streambench.programs import PROGRAMS
from riot_bench.suites.streambench.result_check import ExpectedResults, NumberedResults, read_results
from riot_bench.suites.streambench.runs import program_flow

from riot_ops import streams
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.dataflows import application
from riot_ops.dataflows.streambench import wordcount
from riot_ops.ingest.pace import PacedSource
from riot_ops.measure.processes import Usage

# -- formulas ----------------------------------------------------------------------------------------


def test_penalty() -> None:
    assert penalty(120.0, 200.0, 100.0) == 0.8
    assert penalty(7.0, 7.0, 7.0) == 1.0
    for wrong in (0.0, -1.0, math.nan, math.inf):
        for place, name in enumerate(("failing", "whole", "fewer")):
            values = [1.0, 1.0, 1.0]
            values[place] = wrong
            with pytest.raises(ConfigError, match=f"{name} must be a finite number > 0, got {wrong}"):
                penalty(*values)


def test_availability() -> None:
    assert availability([0.0, 30.0, 30.1, None], 30.0) == 50.0
    assert availability([None], 1.0) == 0.0
    assert availability([1.0, 2.0], 2.0) == 100.0
    with pytest.raises(ConfigError, match="delays_s must have at least one slot"):
        availability([], 1.0)
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ConfigError, match=f"limit_s must be > 0, got {wrong}"):
            availability([1.0], wrong)


def test_lost_and_doubled() -> None:
    assert count_lost_and_duplicated("aabc", "abccd") == (1, 2)
    assert count_lost_and_duplicated([], []) == (0, 0)


def test_slope() -> None:
    assert relative_slope([0.0, 60.0], [100.0, 102.0]) == pytest.approx(100 * 2 / 101)
    assert relative_slope([0, 60, 120, 180], [100, 100, 100, 100]) == 0
    assert relative_slope([0, 60, 120, 180, 240], [100, 100, 900, 100, 100]) == 0  # one sample says nothing
    assert relative_slope([0.0, 60.0, 60.0], [101.0, 100.0, 99.0]) == pytest.approx(-1.5)
    for times, values, said in (
        ([1.0], [1.0], "must have the same length of at least 2, got 1 and 1"),
        ([1.0, 2.0], [1.0], "must have the same length of at least 2, got 2 and 1"),
        ([0.0, 1.0], [0.0, 0.0], "the mean of the values must be > 0"),
        ([1.0, 1.0], [2.0, 3.0], "times_s must differ"),
    ):
        with pytest.raises(ConfigError, match=said):
            relative_slope(times, values)


def test_slope_of_many_samples() -> None:
    """Of two days there are 130,000 samples, and more pairs than any memory holds."""
    random = np.random.default_rng(1)
    times = np.cumsum(random.uniform(0.5, 1.5, 1_500))
    values = 1e6 + 40.0 * times + random.normal(0, 3e3, times.size)
    values[::50] = 9e6  # which say nothing
    first, second = np.triu_indices(times.size, 1)
    rises = (values[second] - values[first]) / (times[second] - times[first])
    pairs = 100 * 60 * float(np.median(rises)) / float(np.mean(values))
    assert relative_slope(times.tolist(), values.tolist()) == pytest.approx(pairs, rel=0.05)
    seconds = [float(n) for n in range(130_000)]
    assert relative_slope(seconds, [1e6 + 2 * s for s in seconds]) == pytest.approx(100 * 60 * 2 / (1e6 + 129_999))


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_pareto(points: dict[str, tuple[int, int]]) -> None:
    best = pareto_front(points)
    for name, (rate, latency) in points.items():
        better = [o for o in points.values() if (o[0] > rate and o[1] <= latency) or (o[0] >= rate and o[1] < latency)]
        assert (name in best) == (not better)


def test_effect() -> None:
    assert [streambench_knobs.relative_effect(100.0, x) for x in (100.0, 50.0, 169.0)] == [0.0, -50.0, 69.0]
    with pytest.raises(ConfigError, match="first must be > 0, got 0"):
        streambench_knobs.relative_effect(0.0, 1.0)


# -- results lost and doubled ---------------------------------------------------------------------------


def test_lost_and_doubled_of_many_numbers_in_five_bytes_each() -> None:
    lines, each = 2_000_000, 100_000
    numbers = NumberedResults(lines)
    for first in range(0, lines, each):
        numbers.want(np.arange(first, first + each), (b"%d" % n for n in range(first, first + each)))
    assert numbers.wanted.nbytes == 4 * lines

    def parts() -> Any:
        for first in range(0, lines, each):
            kept = [n for n in range(first, first + each) if n % 1_000]  # 2,000 are lost
            yield kept, [b"%d" % n for n in kept]
        yield [7, 7, lines, -1, 2_000], [b"7", b"7", b"x", b"y", b"wrong"]

    assert numbers.difference(parts()) == (2_000, 5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_folder_holds_is_held_against_a_run_in_process(name: str, tmp_path: Path) -> None:
    data = write_numbered(application(name).inputs["lines"], tmp_path / "lines", 2, 400)
    wanted = ExpectedResults(name, data)
    program_flow(name).run(data.source(), out=tmp_path / "out")
    whole = list(read_results(name, tmp_path / "out"))
    assert wanted.difference(whole) == (0, 0)
    lost, doubled = wanted.difference([])
    assert (lost > 0, doubled) == (True, 0)
    if PROGRAMS[name].key is None:
        assert wanted.difference([*whole, whole[0].slice(0, 3)]) == (0, 3)
    if name == "distinct":
        at = whole[0].schema.get_field_index("count")
        stays = [one.set_column(at, one.schema.field(at), pa.array([1] * one.num_rows)) for one in whole]
        assert wanted.difference(stays) == (1, 1), "a size that is not told is lost"


def test_the_limit_of_a_run_grows_with_the_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(streambench_faults, "Cluster", lambda _: contextlib.nullcontext(SimpleNamespace(url="")))
    monkeypatch.setattr(streambench_faults, "cluster_session", lambda *_: contextlib.nullcontext(None))
    monkeypatch.setattr(streambench_faults, "_lost_worker", lambda *of: limits.append(of[-1].limit_s) or iter(()))
    sizes = streambench_faults.Sizes(40, 2, 1, ("grep",), (), 30.0)
    for scale in (0.5, 1.0, 50.0):
        assert list(streambench_faults.faults(True, ["grep"], scale, sizes)) == []
    assert limits == [30.0, 30.0, 1500.0]
    limits.clear()
    noted = lambda *of, **_: limits.append(of[3]) or streambench_knobs.Run((1.0,), 40, (1.0,))  # noqa: E731
    for name in ("spark_session", "check_implementations", "check_on_spark"):
        monkeypatch.setattr(streambench_recipients, name, lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(streambench_recipients, "run_packed", noted)
    for scale in (0.5, 20.0):
        few = streambench_recipients.Sizes(4, 1, ("grep",), 30.0)
        assert list(streambench_recipients.recipients(True, ["grep"], scale, few))
    assert limits == [30.0] * 4 + [600.0] * 4


@pytest.mark.parametrize(
    ("named", "lost"), [((), ["grep", "sample"]), (("distinct", "grep", "distinct"), ["distinct", "grep"])]
)
def test_faults_are_of_the_programs_that_are_named(
    named: tuple[str, ...], lost: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    dead: list[str] = []
    monkeypatch.setattr(streambench_faults, "Cluster", lambda _: contextlib.nullcontext(SimpleNamespace(url="")))
    monkeypatch.setattr(streambench_faults, "cluster_session", lambda *_: contextlib.nullcontext(None))
    monkeypatch.setattr(streambench_faults, "_lost_worker", lambda *of: asked.append(of[2]) or iter(()))
    monkeypatch.setattr(streambench_faults, "_crashed_executor", lambda *of: dead.append(of[1]) or iter(()))
    monkeypatch.setattr(streambench_faults, "_lost_driver", lambda *of: dead.append(of[0]) or iter(()))
    sizes = replace(SMALL, programs=("grep", "sample"), crashing=("grep", "wordcount"))
    assert list(streambench_faults.faults(True, named, 1.0, sizes)) == []
    assert (asked, dead) == (lost, ["grep", "grep"])


#: Lines, micro-batches and repetitions of runs that are none.
SMALL = streambench_faults.Sizes(40, 4, 2, ("grep",), (), 30.0)


@pytest.mark.parametrize("difference", [(0, 0), (3, 0), (0, 1)])
def test_what_a_failure_costs_is_told_where_no_result_is_lost_or_doubled(
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

    nodes = SimpleNamespace(pids={"worker-0": 1}, add=lambda: None)
    monkeypatch.setattr(streambench_faults, "_run", run)
    monkeypatch.setattr(streambench_faults, "ExpectedResults", Held)
    monkeypatch.setattr(streambench_faults, "wait_for_executors", lambda *_: None)
    monkeypatch.setattr(streambench_faults, "idle_executors", lambda _: [])
    monkeypatch.setattr(
        streambench_faults, "run_with_lost_driver", lambda *_: streambench_driver.RestartedRun(tmp_path / "out", 2.0)
    )
    worker = list(streambench_faults._lost_worker(None, nodes, "grep", data, tmp_path, SMALL))  # type: ignore[arg-type]
    crash = list(streambench_faults._crashed_executor(None, "grep", data, tmp_path, SMALL))
    driver = list(streambench_faults._lost_driver("grep", data, tmp_path, SMALL))
    costs = [] if any(difference) else ["tpf", "lpf"]
    assert [one.measure.rpartition("/")[2] for one in worker] == ["lost", "doubled", *costs]
    assert [one.measure.rpartition("/")[2] for one in crash] == ["lost", "doubled", *costs]
    assert (worker[0].value, worker[1].value) == difference
    for found in (worker, crash, driver):
        assert [one.published for one in found[:2]] == [0.0 if found is worker else None, None]
    if costs:
        rate = {name: 1 / s for name, s in seconds.items()}
        assert worker[2].values == pytest.approx((rate["failing"] / ((rate["whole"] + rate["fewer"]) / 2),) * 2)
        assert (worker[3].values, crash[3].values) == ((2.0, 2.0), (4.0, 4.0))


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

    nodes = SimpleNamespace(pids={"worker-0": 1}, add=lambda: done.append("add"))
    monkeypatch.setattr(streambench_faults, "_run", run)
    monkeypatch.setattr(streambench_faults, "idle_executors", cold)
    monkeypatch.setattr(streambench_faults, "ExpectedResults", lambda *_: SimpleNamespace(difference=lambda _: (0, 0)))
    monkeypatch.setattr(streambench_faults, "wait_for_executors", lambda *_: None)
    assert list(streambench_faults._lost_worker(None, nodes, "grep", data, tmp_path, SMALL))  # type: ignore[arg-type]
    warm = ["warm"] * (left + 1)
    assert done == [*warm, "whole", "failing", "fewer", "add"] * 2
    done.clear()
    assert list(streambench_faults._crashed_executor(None, "grep", data, tmp_path, SMALL))
    assert done == [*warm, "whole", "failing"] * 2
    monkeypatch.setattr(streambench_faults, "idle_executors", lambda _: ["3", "4"])
    with pytest.raises(RiotError, match="grep on a cluster: the executors 3, 4 completed no task in 10 runs"):
        streambench_faults._warm_up(None, "grep", data, tmp_path, SMALL)


def test_executors_that_have_done_no_task() -> None:
    every = {"driver": 0, "0": 7, "1": 0}
    told = [SimpleNamespace(id=lambda i=i: i, completedTasks=lambda n=n: n) for i, n in every.items()]
    found = SimpleNamespace(size=lambda: len(told), apply=told.__getitem__)
    store = SimpleNamespace(executorList=lambda active: found if active else None)
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store)))
    assert cluster.idle_executors(SimpleNamespace(sparkContext=context)) == ["1"]


@pytest.mark.parametrize("fails", [1, 2])
def test_a_run_that_was_done_too_soon_is_made_once_more_over_twice_the_lines(fails: int, tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "lines", 5, 40)
    asked: list[tuple[Any, ...]] = []

    def runs(some: Any, base: Path, sizes: Any) -> Any:
        asked.append((some.total // some.batch, base, sizes.batches, sizes.limit_s))
        yield "told before"
        if len(asked) <= fails:
            raise streambench_driver.TooSoonError("give more records")
        yield "told"

    again = pytest.raises(RiotError, match="give more records") if fails > 1 else contextlib.nullcontext()
    with again:
        assert streambench_faults._retry_longer(runs, data, tmp_path, SMALL) == ["told before", "told"]
    assert asked == [(5, tmp_path, 4, 30.0), (9, tmp_path / "twice", 8, 60.0)]


# -- the cluster -------------------------------------------------------------------------------------


def test_a_cluster_ends_what_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With processes that stand in for Spark's, one of which takes no notice and has a child."""
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
def test_settings_of_a_session_on_a_cluster(copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_workers_are_machines_of_their_own() -> None:
    found = {cluster._loopback_address(number) for number in range(250)}
    assert len(found) == 250 or found == {"127.0.0.1"}
    assert cluster._loopback_address(3) == cluster._loopback_address(253)


def test_an_executor_of_a_worker_crashes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_a_job_ends_with_what_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that is killed, and one whose block is left."""
    (tmp_path / "starts_another.py").write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1], 'w').write(f'{child.pid}\\n')\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for how in ("killed", "left"):
        noted = tmp_path / how
        with module_process("starts_another", str(noted)) as process:
            while not (noted.exists() and noted.read_text().endswith("\n")):
                assert process.poll() is None
                time.sleep(0.02)
            if how == "killed":
                kill_group(process)
                assert process.returncode == -9
        assert process.returncode == -9
        child, until = int(noted.read_text()), time.monotonic() + 10
        while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_a_job_that_does_not_end_in_time_or_ends_with_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "goes_on.py").write_text("import sys, time\ntime.sleep(float(sys.argv[1]))\nsys.exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with module_process("goes_on", "60") as process, pytest.raises(RiotError, match=r"it was not done in 0\.2 s"):
        wait_for_exit(process, "it", 0.2)
    assert process.returncode == -9
    with module_process("goes_on", "0") as process, pytest.raises(RiotError, match="it ended with exit code 7"):
        wait_for_exit(process, "it", 60.0)


@pytest.mark.skipif(not die_with_parent(), reason="no setpriv")
@pytest.mark.parametrize("patience", [0.0, 0.5])
def test_nothing_is_left_of_a_harness_that_is_killed(patience: float) -> None:
    """Also where it is killed before its child has asked for the signal."""
    code = (
        "import subprocess, sys, time; from riot_bench.harness.child_process import die_with_parent; "
        "print(subprocess.Popen([*die_with_parent(), 'sleep', '60'], start_new_session=True).pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as harness:
        assert harness.stdout is not None
        child = int(harness.stdout.readline())
        time.sleep(patience)
        assert not patience or psutil.Process(child).name() == "sleep"
        harness.kill()
    until = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_who_has_another_parent_does_not_begin() -> None:
    """As a child that asks for the signal when its parent is gone."""
    between = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    done = subprocess.run(
        [sys.executable, "-c", between, *die_with_parent(), "echo", "begun"], capture_output=True, check=False
    )
    assert done.stdout == (b"begun\n" if not die_with_parent() else b"")


def test_a_master_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "spark-class"
    script.write_text("#!/bin/bash\necho no such class $1\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(cluster, "_spark_home", lambda: tmp_path)
    with pytest.raises(RiotError, match="Spark's master did not start: no such class org"):
        Cluster(1).__enter__()
    with pytest.raises(ConfigError, match="workers must be >= 1, got 0"):
        Cluster(0)


CLUSTER_JOB = """
from riot_bench.suites.streambench.faults import Sizes, faults
for measure in faults(True, ["wordcount"], 2.0, Sizes(400, 6, 1, ("wordcount",), (), 200.0)):
    print(measure.to_json(), flush=True)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_worker_is_lost_and_no_result(tmp_path: Path) -> None:
    """In a process of its own, since the session of all tests has another master."""
    from riot_bench.harness.measure import Measure

    done = subprocess.run([sys.executable, "-c", CLUSTER_JOB], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {m.measure.rpartition("/")[2]: m for m in map(Measure.from_json, done.stdout.splitlines())}
    assert (found["lost"].value, found["doubled"].value) == (0, 0)
    assert 0 < found["tpf"].value < 10 > found["lpf"].value > 0
    assert (found["tpf"].reach, found["lpf"].reach, found["lpf"].at_most) == (0.9, 1.3, True)
    assert "6 micro-batches of 800 records" in found["tpf"].against


class Ended:
    """A process that has ended by itself, having left so many micro-batches."""

    returncode = 3

    def __init__(self, out: Path, batches: int) -> None:
        self.left = [out / "records" / f"part-{n:06d}-00000.parquet" for n in range(batches)]

    def poll(self) -> int:
        for path in self.left:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return self.returncode

    def wait(self, _: float) -> int:
        return self.returncode


def test_a_driver_that_is_not_there_to_be_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data, killed = write_numbered("searches", tmp_path / "lines", 11, 4), list[Any]()
    monkeypatch.setattr(streambench_driver, "kill_group", killed.append)
    for batches, said in (
        (5, "identity ended with exit code 3 before its driver was to be killed"),
        (11, "identity was done before its driver was killed: .*--scale 10"),
        (6, "identity, restarted, ended with exit code 3"),
    ):
        process = Ended(tmp_path / str(batches) / "out", batches)
        if batches > 5:
            process.poll()
        monkeypatch.setattr(streambench_driver, "module_process", lambda *_, one=process: contextlib.nullcontext(one))
        with pytest.raises(RiotError, match=said):
            streambench_driver.run_with_lost_driver("identity", data, tmp_path / str(batches), 1.0)
    assert len(killed) == 2

    def endless(limit_s: float) -> int:
        raise subprocess.TimeoutExpired("a driver", limit_s)

    process.wait = endless  # type: ignore[method-assign]
    with pytest.raises(RiotError, match="identity, restarted, was not done in 2 s"):
        streambench_driver.run_with_lost_driver("identity", data, tmp_path / "6", 2.0)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", ["identity", "wordcount"])
def test_a_driver_is_lost_and_no_result(name: str, tmp_path: Path) -> None:
    stream = "searches"
    data = write_numbered(stream, tmp_path / "lines", 21, 2_000)
    sizes = streambench_faults.Sizes(2_000, 20, 1, (), (name,), 120.0)
    found = {m.measure.rpartition("/")[2]: m for m in streambench_faults._lost_driver(name, data, tmp_path, sizes)}
    assert (found["lost"].value, found["doubled"].value) == (0, 0)
    assert 0 < found["recovery"].value < 120


def test_a_strike_comes_half_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Fake:
        """Eleven micro-batches, of which several may be told at once."""

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
        assert (outcome.rate, outcome.latency_ms, outcome.out) == (8 / 6, 3000.0, tmp_path / "out")


# -- durability --------------------------------------------------------------------------------------


def test_marks_come_through_and_tell_their_delay() -> None:
    now = [1000.0]
    source = PacedSource(MarkedSource(streams.generate("searches", messages=100), 25), rate=10, clock=lambda: now[0])
    start = source.latest(source.initial())
    now[0] = 1010.0
    splits = source.splits(source.initial(), source.latest(start), 2)
    lines = [line.as_py() for split in splits for batch in source.read(split) for line in batch["payload"]]
    marks = [line.decode().split("!") for line in lines if line.startswith(b"mark!")]
    assert [number for _, number, _ in marks] == ["0", "1", "2", "3"]
    assert [float(due) / 1e6 for *_, due in marks] == pytest.approx([1000.0, 1002.5, 1005.0, 1007.5], abs=0.01)
    assert len(lines) == 100

    seen = MarkObserver()
    begun = time.time()
    rows = [{"payload": f"a mark!{n}!{(begun - n) * 1e6:.0f} b".encode()} for n in (3, 5, 3)]
    for batch in wordcount().run(rows)["counts"].to_batches():
        seen("counts", batch)
    seen("errors", pa.record_batch({"reason": ["a", "b"]}))
    assert sorted(seen.delays) == [3, 5]
    assert seen.delays[3] == pytest.approx(3, abs=2)
    assert seen.rejected == 2
    assert streambench_durability._slots(110.0) == 11
    stores = [{"memoryUsedBytes": 700}, {"memoryUsedBytes": 77}]
    told = [{"stateOperators": [{"memoryUsedBytes": 5}]}, {"stateOperators": stores}]
    streaming = SimpleNamespace(recentProgress=told)
    query = SimpleNamespace(active=True, summary=SimpleNamespace(messages=7), streaming=streaming)
    seen = MarkObserver()
    seen.delays = {2: 0.5, 0: 0.25}
    found = {m.measure: m for m in streambench_durability._figures("at", query, seen, 30.0)}
    assert (found["at/latency"].sample, found["at/latency"].values) == ((250.0, 500.0), ())
    assert (found["at/state"].value, found["at/state"].unit) == (777, "bytes")
    streaming.recentProgress = []
    assert "at/state" not in {m.measure for m in streambench_durability._figures("at", query, seen, 30.0)}
    assert LIMIT_S == 30.0


@pytest.mark.parametrize(
    ("per_minute", "seconds", "lines", "slots"),
    [
        (10.0, 120.0, 20, 12),
        (6.0, 60.0, 6, 6),
        (7.2, 20.0, 3, 2),
        (10_000.0, 172_800.0, 28_800_000, 17_280),
        (1_000_000.0, 60.0, 1_000_000, 6),
    ],
)
def test_each_slot_has_one_mark_whatever_the_rate(
    per_minute: float, seconds: float, lines: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where lines per slot are no whole number, as 1,666.7 of 10,000 a minute; each when its slot begins."""
    asked: list[Any] = []
    flow = SimpleNamespace(start=lambda _, source, **__: asked.append(source))
    monkeypatch.setattr(streambench_durability, "program_flow", lambda _: flow)
    streambench_durability._start(None, per_minute, seconds)
    marked = asked[0].source
    assert marked.count(marked.initial(), marked.latest(marked.initial())) == lines
    numbers, due = list[int](), list[float]()
    for first in range(0, lines, 1_000_000):
        seq = np.arange(first, min(first + 1_000_000, lines))
        places, found = streambench_durability.mark_positions(seq, marked.every)
        numbers += found.tolist()
        due += (seq[places] * 60 / per_minute).tolist()
    assert numbers == list(range(slots))
    assert streambench_durability._slots(seconds) == slots
    assert all(10 * n - 1e-3 <= at <= 10 * n + 60 / per_minute + 1e-3 for n, at in zip(numbers, due, strict=True))


@pytest.mark.parametrize(("rate", "scale"), [(5.9, 1.0), (10.0, 0.5)])
def test_rates_too_low_for_a_mark_in_each_slot_are_refused(rate: float, scale: float) -> None:
    said = rf"--rate times --scale must be at least 6 records per minute, one for each mark, got {rate * scale:g}"
    with pytest.raises(ConfigError, match=said):
        next(streambench_durability.durability(True, ["wordcount"], scale, rate=[10_000.0, rate], seconds=9.0))


def test_the_time_that_was_asked_for_is_over_before_a_run_ends() -> None:
    def done(left: float, *queries: tuple[bool, int]) -> bool:
        running = {
            float(n): (SimpleNamespace(active=active), SimpleNamespace(delays=dict.fromkeys(range(marks), 0.1)))
            for n, (active, marks) in enumerate(queries)
        }
        return streambench_durability._done(running, 20.0, left)  # type: ignore[arg-type]

    assert not done(0.1, (True, 2), (True, 2))
    assert not done(0.1, (False, 2), (False, 2)), "it is over when it says"
    assert done(0.0, (True, 2), (True, 2))
    assert not done(-1.0, (True, 1), (True, 2)), "a mark is to come"
    assert done(-1.0, (False, 1), (True, 2))
    assert not done(5.0, (False, 1), (True, 2)), "the other one goes on"
    assert done(5.0, (False, 1), (False, 2)), "for two days nothing would come"


@pytest.mark.parametrize(("samples", "told"), [((18.0,), None), ((10.0, 18.0), 0.0)])
def test_a_run_is_as_long_as_it_says(
    samples: tuple[float, ...], told: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = [0.0], MarkObserver()
    seen.delays = {0: 0.5}

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0], sleep=sleep)
    summary, streaming = SimpleNamespace(messages=7), SimpleNamespace(recentProgress=[])
    query = SimpleNamespace(active=True, stop=list, poll=list, summary=summary, streaming=streaming)
    usage = Usage(np.array(samples), np.ones(len(samples)), np.full(len(samples), 1e6))
    tree = SimpleNamespace(usage=lambda: usage)
    monkeypatch.setattr(streambench_durability, "time", clock)
    monkeypatch.setattr(streambench_durability, "spark_session", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(streambench_durability, "ProcessTree", lambda **_: contextlib.nullcontext(tree))
    monkeypatch.setattr(streambench_durability, "_start", lambda *_: (query, seen))
    found = {m.measure: m for m in streambench_durability.durability(True, (), rate=[60.0], seconds=19.0)}
    assert now[0] == pytest.approx(19.0, abs=0.2)
    one = found["streambench/durability/60/availability"]
    assert (one.value, "1 marks in 19 s" in one.against) == (100.0, True)
    slope = found["streambench/durability/memory-slope"]
    assert (slope.value == told, slope.met) == ((True, True) if told is not None else (False, None))
    assert ("too few samples for a slope: 1 of 2" in slope.against) == math.isnan(slope.value) == (told is None)
    query.active = False
    for delays, ended in (({0: 0.5}, False), ({}, True)):
        seen.delays = delays
        [first, *_] = streambench_durability._figures("at", query, seen, 19.0)
        assert ("; the query ended early" in first.against) == ended


@pytest.fixture
def alone(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suites take the session of all tests."""
    for suite in (streambench_durability, streambench_knobs, streambench_recipients, streambench_saturation):
        monkeypatch.setattr(suite, "spark_session", lambda *_, **__: contextlib.nullcontext(spark))


@pytest.mark.spark
def test_a_short_time_of_durability(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streambench_durability, "SLOT_S", 1.0)
    sizes = streambench_durability.Sizes((600, 1200), 4.0)
    found = {m.measure: m for m in streambench_durability.durability(True, ["wordcount"], 2.0, sizes)}
    for rate in (1200, 2400):
        one = found[f"streambench/durability/{rate}/availability"]
        assert (one.value, one.reach) == (100.0, 100)
        assert "4 marks in 4 s" in one.against
        assert found[f"streambench/durability/{rate}/failed"].value == 0
        assert 0 < found[f"streambench/durability/{rate}/latency"].value < 30_000
        assert found[f"streambench/durability/{rate}/state"].value > 0
    assert math.isfinite(found["streambench/durability/memory-slope"].value)
    assert list(streambench_durability.durability(True, ["grep"])) == []


# -- recipients and knobs ----------------------------------------------------------------------------


@pytest.mark.spark
def test_recipients(alone: None) -> None:
    sizes = streambench_recipients.Sizes(80, 1, ("identity", "grep"), 60.0)
    found = {m.measure: m for m in streambench_recipients.recipients(True, ["grep"], 2.0, sizes)}
    at = "streambench/recipients/grep"
    for tasks in (1, 2, 4):
        assert found[f"{at}/{tasks}of4/throughput"].value > 0
        assert found[f"{at}/{tasks}of4/latency"].value > 0
    rates = [found[f"{at}/{tasks}of4/throughput"].value for tasks in (1, 2, 4)]
    assert found[f"{at}/gain-half"].value == rates[1] / rates[0]
    assert found[f"{at}/gain-all"].value == rates[2] / rates[1]
    assert (found[f"{at}/gain-half"].published, found[f"{at}/gain-all"].published) == (1.8, 2.15)
    assert "micro-batches of 160 records" in found[f"{at}/1of4/throughput"].against
    assert len(found) == 8
    assert all(one.values == () and one.sample for one in found.values()), "micro-batches of one run are no runs"


@pytest.mark.parametrize("suite", [streambench_recipients, streambench_saturation])
def test_all_programs_that_are_named_are_measured(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need not be among those that are measured where none is named."""
    proved: list[str] = []
    run = streambench_knobs.Run((1.0,), 40, (1.0,))
    monkeypatch.setattr(suite, "spark_session", lambda *_, **__: contextlib.nullcontext(None))
    monkeypatch.setattr(suite, "check_implementations", lambda *_: "")
    monkeypatch.setattr(suite, "check_on_spark", lambda _, name, *__, **___: proved.append(name))
    monkeypatch.setattr(suite, "run_packed", lambda *_, **__: run)
    usual = replace(suite.QUICK, lines=40, programs=("wordcount", "grep"))
    run_suite = getattr(suite, suite.__name__.rpartition(".")[2])
    for named, wanted in (
        (("distinct", "grep"), ["distinct", "grep"]),
        (tuple(PROGRAMS), list(PROGRAMS)),
        ((), ["wordcount", "grep"]),
    ):
        proved.clear()
        sizes = replace(usual, max_lines=40, search_s=0.0) if suite is streambench_saturation else usual
        assert list(run_suite(True, named, 1.0, sizes))
        assert list(dict.fromkeys(proved)) == wanted


@pytest.mark.spark
@pytest.mark.slow
def test_knobs(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    every = streambench_knobs.tuning_settings(20)
    assert list(every) == ["records", "partitions", "block", "compression", "state", "checksum", "store", "crossing"]
    chosen = {"partitions": {"1": every["partitions"]["1"], "4": every["partitions"]["4"]}, "store": every["store"]}
    monkeypatch.setattr(streambench_knobs, "tuning_settings", lambda each: chosen if each == 20 else {})
    together: list[tuple[Any, ...]] = []

    def factorial(*given: Any) -> Any:
        together.append((given[1], given[2].stream, *given[3:]))
        return iter(())

    monkeypatch.setattr(streambench_knobs, "factorial", factorial)
    sizes = streambench_knobs.Sizes(
        10, 8, ("0 seconds", "1 second"), 50.0, 2.0, 60.0, ("wordcount", "identity"), (1, 3), 1
    )
    found = {m.measure: m for m in streambench_knobs.tuning(True, ["grep", "wordcount"], 2.0, sizes)}
    assert together == [("wordcount", "searches", (0.0, 1.0), [20, 60], (1, 4), 120.0)]
    at = "streambench/knobs"
    for setting in ("partitions/1", "partitions/4", "store/memory", "store/rocksdb", "trigger/0", "trigger/1"):
        assert (f"{at}/{setting}/throughput" in found) == (not setting.startswith("trigger"))
        assert found[f"{at}/{setting}/latency-p95"].value > 0
    assert "100 records/s" in found[f"{at}/trigger/1/latency-p95"].against
    assert "keep up" in (said := found[f"{at}/trigger/1/latency-p95"].against) or "kept up" in said
    assert "160 records" in found[f"{at}/partitions/1/throughput"].against
    rates = [found[f"{at}/partitions/{n}/throughput"].value for n in (1, 4)]
    assert found[f"{at}/partitions/effect-throughput"].value == pytest.approx(100 * (rates[1] / rates[0] - 1))
    assert [found[f"{at}/partitions/effect-{of}"].published for of in ("throughput", "latency")] == [69, 33]
    assert 1 <= found[f"{at}/pareto"].value <= 2


def test_effects_have_a_value_for_each_repetition() -> None:
    of = {"1": [(100.0, 10.0), (100.0, 20.0), (200.0, 10.0)], "4": [(150.0, 20.0), (300.0, 10.0), (200.0, 10.0)]}
    found = {label: [streambench_knobs.SettingRun(*run) for run in runs] for label, runs in of.items()}
    rate, latency = streambench_knobs._effects("partitions", found)
    assert (rate.value, rate.values, rate.published) == (50.0, (50.0, 200.0, 0.0), 69.0)
    assert (latency.value, latency.values, latency.published) == (0.0, (100.0, -50.0, 0.0), 33.0)
    assert "too few" not in rate.against
    once = {label: runs[:1] for label, runs in found.items()}
    assert all(
        "too few repetitions for an interval: 1 of 3" in m.against for m in streambench_knobs._effects("x", once)
    )
    [one, _] = streambench_knobs._figures("x", "1", found["1"], "how")
    assert (one.value, one.values, one.against) == (100.0, (100.0, 100.0, 200.0), "how")
    assert (streambench_knobs.FULL.repetitions, streambench_knobs.QUICK.repetitions) == (3, 1)
    stopped = {"1": found["1"], "4": [one._replace(caveat="saturated") for one in found["4"]]}
    for told in (streambench_knobs._effects("x", stopped), streambench_knobs._figures("x", "4", stopped["4"], "how")):
        assert [one.against.count("; saturated") for one in told] == [1, 1]
    assert not any("saturated" in one.against for one in streambench_knobs._effects("x", found))
    paced = {label: [one._replace(rate=math.nan, caveat="kept up") for one in runs] for label, runs in found.items()}
    [late] = streambench_knobs._figures("trigger", "4", paced["4"], "how")
    assert (late.measure, late.value, late.against) == ("streambench/knobs/trigger/4/latency-p95", 10.0, "how; kept up")
    [grown] = streambench_knobs._effects("trigger", paced)
    assert (grown.measure, grown.values) == ("streambench/knobs/trigger/effect-latency", (100.0, -50.0, 0.0))


@pytest.mark.parametrize("sizes", [streambench_knobs.FULL, streambench_knobs.QUICK])
def test_each_number_of_records_has_a_micro_batch_behind_the_first(sizes: streambench_knobs.Sizes) -> None:
    total = sizes.files // 4 * 4 * sizes.lines_per_file
    for setting in streambench_knobs.tuning_settings(sizes.lines_per_file)["records"].values():
        assert total // setting.options["max_records"] >= 2


@pytest.mark.parametrize(
    ("trigger", "spent", "took", "done", "said"),
    [
        ("1 second", (1.5, 0.5), 2.0, True, "kept up"),
        ("1 second", (1.5, 0.6), 2.0, True, "did not keep up"),
        ("1 second", (0.5, 0.5), 7.0, False, "did not keep up"),
        ("0 seconds", (9.0, 9.0), 29.0, True, "kept up"),
        ("0 seconds", (9.0, 9.0), 31.0, True, "did not keep up"),  # 2 s of records, 10 to start, and 2 micro-batches
        ("5 seconds", (0.5, 0.5), 17.5, True, "kept up"),
        ("5 seconds", (0.5, 0.5), 18.5, True, "did not keep up"),
    ],
)
def test_whether_a_trigger_kept_up(
    trigger: str, spent: tuple[float, ...], took: float, done: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Query:
        streaming, active = None, not done
        summary = SimpleNamespace(latency=SimpleNamespace(quantiles=lambda share: [share]))

        def start(self, *_: Any, trigger: str, **__: Any) -> Any:
            asked.append(trigger)
            return self

        def wait(self, limit_s: float) -> None:
            asked.append(limit_s)

        def stop(self) -> None:
            asked.append("stop")

    asked: list[Any] = []
    monkeypatch.setattr(streambench_knobs, "program_flow", lambda _: Query())
    monkeypatch.setattr(streambench_knobs, "durations", lambda _: list(spent))
    times = iter((100.0, 100.0 + took))
    monkeypatch.setattr(streambench_knobs, "time", SimpleNamespace(monotonic=lambda: next(times)))
    lines, sizes = SimpleNamespace(stream="searches"), replace(streambench_knobs.QUICK, seconds=2.0, limit_s=5.0)
    found = streambench_knobs._run_paced(None, "wordcount", lines, trigger, sizes)  # type: ignore[arg-type]
    assert math.isnan(found.rate)
    assert (found.latency, found.caveat) == (950.0, said)
    assert asked == [trigger, 7.0, *([] if done else ["stop"])]


def test_settings_of_knobs_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    class Conf(dict[str, str]):
        set = dict.__setitem__

    class Session:
        conf = Conf({streambench_knobs.CHANGELOG: "true", streambench_knobs.CHECKSUM: "true"})

    def packed(spark: Any, _: str, __: Any, ___: float, buffering: Buffering, **options: Any) -> Any:
        changelog = spark.conf[streambench_knobs.CHANGELOG]
        checksums.append(spark.conf[streambench_knobs.CHECKSUM])
        asked.append((changelog, buffering.capacity, *options.values(), buffering.codec))
        return streambench_knobs.Run((1.0, 3.0), options["max_records"])

    def on_spark(*given: Any, store: str | None) -> Any:
        others.append((given[2], store and store.rpartition(".")[2]))
        return streambench_knobs.Run((1.0, 3.0), 40, saturated=given[2] == "udf")

    others: list[tuple[str, str | None]] = []
    checksums: list[str] = []
    monkeypatch.setattr(streambench_knobs, "run_packed", packed)
    monkeypatch.setattr(streambench_knobs, "run_pyspark", on_spark)
    for knob in streambench_knobs.tuning_settings(10).values():
        for setting in knob.values():
            found = streambench_knobs._run(Session(), "wordcount", None, setting, 1.0)  # type: ignore[arg-type]
            stopped = "saturated" if setting.implementation == "udf" else ""
            assert found == (setting.options["max_records"] * 2 / 4.0, pytest.approx(2900.0), stopped)
    assert others == [
        ("expressions", "HDFSBackedStateStoreProvider"),
        ("expressions", "RocksDBStateStoreProvider"),
        ("pickled", None),
        ("udf", None),
    ]
    assert Session.conf == {streambench_knobs.CHANGELOG: "true", streambench_knobs.CHECKSUM: "true"}
    base = ("true", 1 << 23, 40, 2, "lz4")
    assert [one[2] for one in asked[:4]] == [10, 20, 40, 80]
    assert [one[3] for one in asked[4:8]] == [1, 2, 4, 8]
    assert [one[1] for one in asked[8:11]] == [1 << 14, 1 << 18, 1 << 23]
    assert [one[4] for one in asked[11:14]] == [None, "lz4", "zstd"]
    assert [one[0] for one in asked[14:16]] == ["false", "true"]
    assert checksums[16:] == ["false", "true"]
    assert base in asked


# -- several knobs together --------------------------------------------------------------------------


def test_all_combinations_are_run_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def packed(spark: Any, name: str, data: Any, limit_s: float, **options: Any) -> Any:
        asked.append(options)
        assert (spark, name, data, limit_s) == (None, "grep", None, 9.0)
        rate = options["max_records"] * options["partitions"]
        slow = 1.5 if "trigger" in options else 0.5
        run = streambench_knobs.Run((slow, slow), options["max_records"], saturated=rate > 400)
        return streambench_knobs.replace(run, span_s=2 * run.lines / rate)

    monkeypatch.setattr(streambench_factorial, "run_packed", packed)
    found = {
        m.measure.removeprefix("streambench/knobs/factorial/grep/"): m
        for m in streambench_factorial.factorial(None, "grep", None, (0.0, 1.0), (100, 200), (1, 4), 9.0)  # type: ignore[arg-type]
    }
    assert [one.get("trigger") for one in asked] == [None] * 4 + ["1 seconds"] * 4
    assert [(one["max_records"], one["partitions"]) for one in asked] == [(100, 1), (100, 4), (200, 1), (200, 4)] * 2
    assert [found[f"{one}/throughput"].value for one in ("0s-100-1", "1s-200-4")] == [100.0, 800.0]
    assert found["1s-100-1/latency-p95"].value == 1500.0
    assert "longer than the trigger" in found["1s-100-1/throughput"].against
    assert "longer than the trigger" not in found["0s-100-1/throughput"].against
    assert "saturated" in found["0s-200-4/throughput"].against
    effects = {name: round(m.value, 6) for name, m in found.items() if name.startswith("effect")}
    assert effects == {
        "effect-trigger-throughput": 0.0,
        "effect-trigger-latency": 200.0,
        "effect-records-throughput": 100.0,
        "effect-records-latency": 0.0,
        "effect-partitions-throughput": 300.0,
        "effect-partitions-latency": 0.0,
    }
    assert (found["pareto"].value, found["pareto"].against.rpartition(": ")[2]) == (1, "0s-200-4")
    with pytest.raises(ConfigError, match="records must have at least two settings, got 5"):
        streambench_factorial.main_effect({streambench_factorial.Combination(0.0, 5, 1): (1.0, 1.0)}, "records", 0)


# -- saturation --------------------------------------------------------------------------------------


@given(st.integers(100, 100_000), st.integers(200, 50_000))
def test_the_volume_that_is_taken_is_found_to_a_tenth(holds: int, most: int) -> None:
    tried: list[int] = []

    def takes(lines: int) -> bool:
        tried.append(lines)
        return lines <= holds

    found, saturated = streambench_saturation.find_volume(takes, 100, most, 60.0)
    assert found.rate <= min(holds, most) <= found.rate * 1.11
    assert saturated == (max(tried) > holds)
    assert max(tried) <= most
    assert tried[:2] == [100, 200]


def test_lines_come_over_and_over_again_with_other_numbers(tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "lines", 1, 8).repeated_to(13)
    assert (data.total, data.lines_per_file, len(set(data.files))) == (14, 2, 4)
    read = [batch for split in data.source().splits({"file": 0}, {"file": 7}, 3) for batch in data.source().read(split)]
    table = pa.Table.from_batches(read)
    assert table["seq"].to_pylist() == list(range(14))
    payload = table["payload"].to_pylist()
    assert payload[:6] == payload[8:]
    assert len(set(payload)) == 8


def test_a_volume_is_too_much_where_it_takes_too_long_or_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = write_numbered("searches", tmp_path / "lines", 1, 100)
    sizes = streambench_saturation.Sizes(100, 10_000, 2.0, 60.0, ("packed",), False, ())
    for fails, stopped, holds in ((True, False, 1_600), (False, True, 1_600), (False, False, 1_000)):

        def packed(
            spark: Any,
            name: str,
            some: Any,
            limit_s: float,
            *,
            max_records: int,
            fails: Any = fails,
            stop: Any = stopped,
        ) -> Any:
            assert (name, limit_s, max_records) == ("grep", 22.0, some.total)
            if fails and some.total > 1_600:
                raise RiotError("no memory is left")
            seconds = 1.5 if fails or stop else some.total / 500
            return streambench_knobs.Run((seconds,), some.total, saturated=stop and some.total > 1_600)

        monkeypatch.setattr(streambench_saturation, "run_packed", packed)
        found = streambench_saturation._volume_measure(None, "grep", "packed", data, sizes, 10_000)
        assert holds / 1.2 <= found.value <= holds
        assert "lower bound" not in found.against and not found.lower_bound


def test_where_every_volume_is_too_much_it_says_which_were_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = write_numbered("searches", tmp_path / "lines", 1, 8)
    tried: list[int] = []

    def packed(spark: Any, name: str, some: Any, limit_s: float, *, max_records: int) -> Any:
        tried.append(some.total)
        return streambench_knobs.Run((30.0,), some.total, saturated=len(tried) > 1)

    monkeypatch.setattr(streambench_saturation, "run_packed", packed)
    sizes = streambench_saturation.Sizes(8, 100, 2.0, 60.0, ("packed",), False, ())
    found = streambench_saturation._volume_measure(None, "grep", "packed", data, sizes, 100)
    assert (found.value, found.against) == (0, "packed, one micro-batch within 2 s; too many: 8, 4, 1")
    assert tried == [8, 8, 4, 2]  # the first warms up; lines are whole files of two


@pytest.mark.spark
def test_a_small_search_for_saturation(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Trials:
        trial_s, search_s, where = 3.0, 60.0, "here"

        def calibrate(self, feed: Any) -> Any:
            assert (feed.flow.name, *feed.sources) == ("grep", "lines")
            return feed, 1000.0, 1.0

        def keeps_up(self, _: Any, rate: float) -> bool:
            return rate <= 1234.0

    monkeypatch.setattr(streambench_saturation, "runner", lambda name, quick: contextlib.nullcontext(Trials()))
    sizes = streambench_saturation.Sizes(40, 100, 60.0, 60.0, ("packed", "expressions"), True, ("wordcount",))
    found = {m.measure: m for m in streambench_saturation.saturation(True, ["grep"], 2.0, sizes)}
    at = "streambench/saturation/grep"
    for implementation in ("packed", "expressions"):
        one = found[f"{at}/{implementation}/volume"]
        assert 182 <= one.value <= 200
        assert "lower bound: no larger volume was tried" in one.against and one.lower_bound
    assert not found[f"{at}/packed/rate"].lower_bound
    monkeypatch.setattr(Trials, "search_s", 0.0)
    rate = streambench_saturation._rate_measure(Trials(), "grep")
    assert rate.lower_bound and "time limit reached, the nearest rate tried" in rate.against
    assert 1234 / 1.1 <= found[f"{at}/packed/rate"].value <= 1234
    assert len(found) == 3
    searched = PeakRate(80.0, (), converged=True), True
    monkeypatch.setattr(streambench_saturation, "find_volume", lambda takes, *_: takes(80) and searched)
    sizes = streambench_saturation.Sizes(40, 100, 60.0, 60.0, ("packed",), False, ("grep",))
    [one] = streambench_saturation.saturation(True, ["grep"], 2.0, sizes)
    assert (one.measure, one.value, one.lower_bound) == (f"{at}/packed/volume", 80, False)
    assert "lower bound" not in one.against
