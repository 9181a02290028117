"""The performance suite."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from riot_bench.harness.measure import Measure
from riot_bench.harness.numbered_lines import FILES_PER_BATCH, NumberedLines, write_numbered
from riot_bench.report import tables
from riot_bench.suites.streambench import performance as streambench_performance
from riot_bench.suites.streambench import runs as streambench_runs
from riot_bench.suites.streambench import suite as streambench
from riot_bench.suites.streambench.cost import Cost
from riot_bench.suites.streambench.performance import Sizes
from riot_bench.suites.streambench.runs import Run, check_implementations

from riot_ops.dataflows import application


def test_caveats_of_a_run() -> None:
    marks = streambench_performance._caveats
    good = Run((1.0,) * 10, 100)
    assert marks(good, True, 200.0) == ""
    assert marks(good, True, 199.0) == "; source-bound"
    assert marks(Run((1.0,) * 9, 100), True, 200.0) == "; short"
    assert marks(Run((1.0,) * 9, 100), False, 200.0) == ""
    assert marks(Run((1.0,), 100, (), True), True, 1.0) == "; saturated; short; source-bound"


def test_micro_batches_are_not_repetitions(lines: dict[str, NumberedLines], monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run((1.0, 2.0, 4.0), 100, (1.0, 2.0, 4.0))
    monkeypatch.setattr(streambench_performance, "run_in_process", lambda *_: run)
    monkeypatch.setattr(streambench_performance, "_on_spark", lambda *_: run)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local"))
    rates, spent = (100.0, 50.0, 25.0), (1000.0, 2000.0, 4000.0)
    highest = [3800.0, 3960.0]  # between the second, at 50 %, and the third, at 100 %
    for implementation, several in (("local", "values"), ("packed", "sample"), ("udf", "sample")):
        given = (spark, "grep", implementation, lines["searches"], "1x", 1e9, streambench_performance.QUICK)
        found = list(streambench_performance._implementation_measures(*given))
        names = [one.measure.removeprefix(f"streambench/grep/{implementation}/1x/") for one in found]
        assert names == [
            "throughput",
            "latency",
            *(["latency-p95", "latency-p99"] if implementation != "local" else []),
        ]
        assert [one.value for one in found[2:]] == pytest.approx(highest if implementation != "local" else [])
        over = "runs" if implementation == "local" else "micro-batches"
        assert found[1].against.startswith(f"median over {over} of the mean time from fetching a record to the end of")
        assert all(one.against.startswith(("95th", "99th")) and "micro-batches" in one.against for one in found[2:])
        found = found[:2]
        assert [(one.values, one.sample) for one in found] == [
            (of, ()) if several == "values" else ((), of) for of in (rates, spent)
        ]


def test_ratios_of_programs(lines: dict[str, NumberedLines]) -> None:
    of = {
        "identity/packed/2x/throughput": (8.0, 6.0, 9.0),
        "wordcount/packed/2x/throughput": (2.0, 3.0),
        "wordcount/packed/1x/throughput": (1.0,),
        "wordcount/local/2x/throughput": (99.0,),
        "statistics/packed/2x/throughput": (3.0,),
        "identity/packed/2x/latency": (1.0, 2.0),
        "statistics/packed/2x/latency": (10.0, 10.0),
    }
    found = {f"streambench/{k}": Measure(f"streambench/{k}", v[0] * 1e6, "x", sample=v) for k, v in of.items()}
    data = {name: lines[application(name).inputs["lines"]] for name in ("identity", "wordcount", "statistics")}
    made = {m.measure: m for m in streambench_performance.program_ratios(data, found, 2)}
    at = "streambench/between"
    assert list(made) == [f"{at}/fastest/2x", f"{at}/identity-vs-wordcount/2x", f"{at}/statistics-vs-identity/2x"]
    fastest, rates, latencies = made.values()
    assert fastest.value == pytest.approx(3 * lines["packets"].line_bytes)
    assert fastest.against == "packed statistics, the fastest program"
    assert (rates.value, rates.sample) == (3.0, (4.0, 2.0))
    assert (latencies.value, latencies.sample) == (7.5, (10.0, 5.0))
    (alone,) = streambench_performance.program_ratios(data, found, 1)
    assert alone.measure == f"{at}/fastest/1x"
    assert list(streambench_performance.program_ratios(data, {}, 1)) == []


@pytest.mark.parametrize("saturated", [True, False])
def test_ratio_to_a_stopped_program_is_a_lower_bound(saturated: bool) -> None:
    runs = {"packed": Run((1.0, 2.0, 1.0), 100), "udf": Run((4.0, 4.0), 100, saturated=saturated)}
    (found,) = streambench_performance._ratio_measures("grep", "packed", "udf", runs, "how", 10.0)
    assert (found.value, found.sample, found.values, found.lower_bound) == (3.0, (4.0, 2.0), (), saturated)
    assert found.met is (None if saturated else False)


@pytest.mark.parametrize(
    ("theirs", "met", "note"),
    [(True, None, "; both were stopped: nothing"), (False, False, "; packed was stopped: at most 3")],
)
def test_stopped_program_has_no_ratio(theirs: bool, met: bool | None, note: str) -> None:
    """Even if it was much faster before: it may have stopped."""
    runs = {"packed": Run((1.0, 2.0, 1.0), 100, saturated=True), "udf": Run((4.0, 4.0), 100, saturated=theirs)}
    (found,) = streambench_performance._ratio_measures("grep", "packed", "udf", runs, "how", 2.0)
    assert math.isnan(found.value)
    assert (found.sample, found.met) == ((), met)
    assert found.against.startswith(f"how{note}")
    assert tables.format_value(found) == "–"
    finished = replace(found, value=5.0, lower_bound=False, values=())
    several = Measure.of_runs([finished, found, finished])
    assert (several.value, several.measured, several.met) == (5.0, (5.0, 5.0), True)


def test_limits_grow_with_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []
    monkeypatch.setattr(streambench_performance, "spark_session", lambda *_, **__: contextlib.nullcontext(None))
    monkeypatch.setattr(streambench_performance, "check_implementations", lambda *_, **__: "")
    monkeypatch.setattr(streambench_performance, "_implementation_measures", lambda *_: iter(()))

    def compared(*given: Any) -> Any:
        asked.append((given[-1].limit_s, given[-1].large_limit_s))
        return iter(())

    monkeypatch.setattr(streambench_performance, "_large_batch_measures", compared)
    sizes = replace(streambench_performance.QUICK, lines=40, large=80, written=40, limit_s=15.0, large_limit_s=45.0)
    for scale in (0.5, 1.0, 3.0):
        assert list(streambench_performance.performance(True, ["grep"], scale, sizes))
    assert asked == [(15.0, 45.0), (15.0, 45.0), (45.0, 135.0)]
    full = streambench_performance.FULL
    assert full.limit_s == full.large_limit_s == 600.0


@pytest.mark.parametrize(("spent", "measured"), [(1.0, True), (0.0, False)])
def test_too_short_cpu_times_are_not_compared(
    spent: float, measured: bool, lines: dict[str, NumberedLines], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streambench_performance, "run_packed", lambda *_, **__: Run((1.0,), 1, cost=Cost(spent, 1, 1)))
    monkeypatch.setattr(streambench_performance, "run_pyspark", lambda *_, **__: Run((2.0,), 1, cost=Cost(3.0, 1, 1)))
    sizes = replace(streambench_performance.QUICK, large_batches=1, against=("expressions",))
    found = {
        m.measure: m.value
        for m in streambench_performance._large_batch_measures(None, "projection", lines["searches"], 1, sizes)
    }
    at = "streambench/projection/packed-vs-expressions"
    assert found == {at: 2.0} | ({f"{at}-processor": 3.0} if measured else {})


@pytest.mark.parametrize("name", ["identity", "grep"])
def test_rows_within_python_are_compared_as_rows(
    name: str, lines: dict[str, NumberedLines], monkeypatch: pytest.MonkeyPatch
) -> None:
    for run, seconds in (("run_packed", 1.0), ("run_pyspark", 2.0), ("run_frames", 4.0)):
        monkeypatch.setattr(streambench_performance, run, lambda *_, seconds=seconds, **__: Run((seconds,), 1))
    sizes = replace(streambench_performance.QUICK, large_batches=1, against=("expressions", "udf"))
    found = {
        m.measure.rpartition("/")[2]: m
        for m in streambench_performance._large_batch_measures(None, name, lines["searches"], 1, sizes)
    }
    assert found["packed-vs-expressions"].value == 2.0
    for other in ("expressions", "udf"):
        assert "packed records are discarded as Arrow in Python" in found[f"packed-vs-{other}"].against
    rows = found["frames-vs-expressions"]
    assert (rows.value, rows.reach) == (0.5, 0.7)
    assert "both read and write Spark's rows" in rows.against


@pytest.mark.spark
def test_frames_run_over_all_lines(spark: Any, lines: dict[str, NumberedLines]) -> None:
    run = streambench_runs.run_frames(spark, "grep", lines["searches"], 60.0, FILES_PER_BATCH)
    assert len(run.spent) == 2  # of three micro-batches
    assert run.lines == lines["searches"].batch


@pytest.mark.slow  # it times queries; rows and runs are tested above
@pytest.mark.spark
def test_small_performance_suite(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[Any] = []

    def session(*cores: int, **options: Any) -> Any:
        sessions.append((*cores, options.get("settings", {}).get("spark.master")))
        return contextlib.nullcontext(spark)

    monkeypatch.setattr(streambench_performance, "spark_session", session)
    monkeypatch.setattr(streambench_performance, "wait_for_executors", lambda _, count: sessions.append(count))
    proved: list[tuple[str, int]] = []

    def noted(name: str, data: NumberedLines, *_: Any, **options: Any) -> str:
        proved.append((name, data.total))
        return check_implementations(name, data)

    written: list[tuple[str, int, int]] = []

    def write(stream: str, at: Path, batches: int, batch: int) -> NumberedLines:
        written.append((at.name, batches, batch))
        return write_numbered(stream, at, batches, batch)

    monkeypatch.setattr(streambench_performance, "write_numbered", write)
    held: list[Any] = []

    def proof(_: Any, name: str, implementation: str, data: NumberedLines, wanted: str) -> None:
        held.append((name, implementation, data.total, len(sessions), wanted == check_implementations(name, data)))

    monkeypatch.setattr(streambench_performance, "check_implementations", noted)
    monkeypatch.setattr(streambench_performance, "check_on_spark", proof)
    monkeypatch.setattr(streambench_performance, "implementation_names", lambda _: (*chosen, "udf"))
    chosen = ("local", "loop", "packed", "expressions")
    against = ("expressions", "pickled")
    sizes = Sizes((1,), 40, 1, 80, 1, 40, 1, False, 1, 60.0, 90.0, ("wordcount", "grep"), ("udf", "state"), against)
    found = {}
    for measure in streambench_performance.performance(True, ("grep", "grep"), 2.0, sizes):
        assert "-cluster" not in measure.measure or held
        assert measure.measure not in found, "a program that is named twice is measured once"
        assert proved or measure.measure.startswith("streambench/source/")  # no figure before the proof
        found[measure.measure] = measure
    assert proved == [("grep", 80)]
    assert held == [("grep", "packed", 80, 3, True)]  # in the second session
    assert written == [("searches-1x", 2, 80), ("searches-large", 1, 40)]
    assert "micro-batches of 160 records" in found["streambench/grep/packed-vs-expressions"].against
    assert sessions == [(None,), (2, "local-cluster[2,1,1024]"), 2]
    for what in ("throughput", "latency"):
        assert found[f"streambench/grep/packed-cluster/1x/{what}"].value > 0
    assert "streambench/grep/udf/1x/throughput" not in found
    fastest = found["streambench/between/fastest/1x"]
    assert f", {fastest.value:.3g} MB/s" in found["streambench/grep/packed/1x/throughput"].against
    for implementation in chosen:
        one = found[f"streambench/grep/{implementation}/1x/throughput"]
        assert one.value > 0
        assert one.unit == "records/s"
        assert ("; short" in one.against) == (implementation not in streambench_runs.IN_PROCESS)
        assert f"streambench/grep/{implementation}/1x/latency" in found
        assert (f"streambench/grep/{implementation}/1x/latency-p99" in found) == (
            implementation not in streambench_runs.IN_PROCESS
        )
    assert "micro-batches of 80 records" in found["streambench/grep/packed/1x/throughput"].against
    assert [
        found[f"streambench/grep/packed-vs-{implementation}"].reach for implementation in ("expressions", "pickled")
    ] == [0.7, 10.0]
    assert "streambench/grep/packed-vs-udf" not in found and "streambench/grep/expressions-vs-expressions" not in found
    bound = found["streambench/grep/expressions-vs-pickled"]
    assert bound.reach is None and bound.against.startswith("bound of packed-vs-pickled; micro-batches of 160 rec")
    ratios = [found[f"streambench/grep/packed-vs-{implementation}"].value for implementation in against]
    assert bound.value == pytest.approx(ratios[1] / ratios[0], rel=1e-3)
    # the end of the first of very short micro-batches may be missed
    spent = {name: one.value for name, one in found.items() if name.endswith("processor")}
    assert {"streambench/grep/local/1x/processor", "streambench/grep/loop/1x/processor"} <= spent.keys()
    assert all(0 < value < 1e9 for value in spent.values())
    shown = {figure.key: len(figure.points(found.values())) for figure in streambench.EXPERIMENTS[0].figures}
    assert shown == {
        "streambench-forms": 4,
        "streambench-scales": 1,
        "streambench-processor": sum(
            f"streambench/grep/{implementation}/1x/processor" in spent for implementation in chosen
        ),
        "streambench-ratios": 4,
        "streambench-between": 0,
        "streambench-latency": 1,
    }
