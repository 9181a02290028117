"""The suites micro and app: figures, tables, pictures, the page, and the command."""

from __future__ import annotations

import base64
import gc
import io
import json
import math
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from riot_bench.harness.measure import Measure
from riot_bench.harness.outcome import Outcome
from riot_bench.harness.peak_rate import PeakRate
from riot_bench.suites import registry as bench
from riot_bench.suites.riotbench.page import ResultFiles
from riot_bench.suites.riotbench.paper import APPS, CATALOGUE, MICRO, paper_figures
from riot_bench.suites.riotbench.plots import TITLES
from riot_bench.suites.riotbench.tables import comparison_table, measure_notes
from typer.testing import CliRunner

from riot_ops.cli.main import app
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.riotbench.micro import micro_source
from riot_ops.measure.metrics import Stability
from riot_ops.measure.probe_report import ARRIVED, SENT, Report
from riot_ops.measure.processes import Usage

FIGURES = {
    "peak",
    "rate",
    "selectivity",
    "sigma",
    "silent",
    "task-latency",
    "latency-p25",
    "latency-p50",
    "latency-p75",
    "latency-p99",
    "jitter",
    "jitter-spread",
    "cpu",
    "memory",
}


def outcome(name: str = "KAL", *, silent: bool = False, stable: bool = True, sigma: float = 1.0) -> Outcome:
    """Ten seconds at 100 messages per second, each delivered after 20 ms."""
    times = [(50.0 + i, 50.99 + i, 50.99 + i) for i in range(10)]
    sent = np.array([(0, 100 * i, 100 * i + 99, 100, *times[i], 100, math.nan) for i in range(10)], SENT)
    arrived = np.array([(0, i, 1.0, 50.0 + i / 100 + 0.02) for i in range(0 if silent else 1000)], ARRIVED)
    usage = Usage(50.0 + np.arange(1.0, 10.0), np.full(9, 0.5), np.full(9, 100.0 * 2**20))
    report = Report(sent, arrived.reshape(-1), ["s"], ["s"], {"s": frozenset("s")}, usage)
    peak = PeakRate(100.0, ((80.0, True), (100.0, True), (105.0, False)), converged=stable)
    kept_up = Stability(stable, 0.0, 0.0)
    nothing = ("s",) if silent else ()
    sigma = math.nan if silent else sigma
    part = {"since": 1.0, "until": 10.0, "interval_s": 1.0, "cores": 2}
    return Outcome.of(name, "Statistical", peak, report, kept_up, **part, sigma=sigma, silent=nothing)


# -- figures ---------------------------------------------------------------------------------------


def test_figures_of_a_known_run() -> None:
    figures = {k: v for k, (v, _) in outcome().figures().items()}
    assert set(figures) == FIGURES
    assert figures["latency-p50"] == pytest.approx(20, abs=0.1)
    assert figures["rate"] == pytest.approx(100, rel=0.02)
    assert (figures["peak"], figures["selectivity"], figures["cpu"], figures["memory"]) == (100, 1, 25, 100)
    assert figures["jitter"] == pytest.approx(0, abs=0.02)


def test_an_outcome_keeps_no_samples() -> None:
    before = reports()
    kept = outcome()
    assert reports() == before and kept.run.output_rate.size == 9


def reports() -> int:
    """How many there are in memory."""
    gc.collect()
    return sum(isinstance(one, Report) for one in gc.get_objects())


def test_jitter_is_against_what_should_come_out() -> None:
    figures = {k: v for k, (v, _) in outcome(sigma=2.0).figures().items()}
    assert (figures["selectivity"], figures["sigma"]) == (1, 2)
    assert figures["jitter"] == pytest.approx(-0.5, abs=0.01)


def test_a_task_that_puts_nothing_out_has_no_latency_and_no_jitter() -> None:
    silent = outcome("BLT", silent=True)
    assert all(math.isnan(silent.figures()[name][0]) for name in ("latency-p50", "jitter"))
    text = json.dumps(silent.as_dict(), allow_nan=False)
    assert json.loads(text)["figures"]["latency-p50"] is None


def test_measures_say_what_they_are_beside() -> None:
    one = outcome()
    found = {
        m.measure: m for m in one.measures("micro", measure_notes(one, paper_figures("micro", "KAL"), "in process"))
    }
    assert set(found) == {f"micro/KAL/{name}" for name in FIGURES}
    assert found["micro/KAL/peak"].against == "highest stable rate; in process; paper, on another machine: 68,000"
    behind = outcome(stable=False)
    texts = measure_notes(behind, paper_figures("micro", "VAR"), "in process")
    assert "did not keep up" in texts["cpu"]
    assert "ran out" in texts["peak"]
    assert "paper" not in texts["peak"]
    assert texts["silent"] == "streams without records: none; in process"
    assert (
        measure_notes(outcome(silent=True), paper_figures("micro", "BLT"), "x")["silent"]
        == "streams without records: s; x"
    )
    assert all("in process" in text for text in texts.values())


def test_the_papers_figures() -> None:
    assert (MICRO["XML"].rate, MICRO["BLF"].rate, MICRO["KAL"].rate, MICRO["DAC"].rate) == (310, 68e3, 68e3, 68e3)
    assert MICRO["AVG"].at_least
    # its thirteen tasks, with the query and without the publish-subscribe source
    thirteen = {"XML", "BLF", "AVG", "DAC", "KAL", "SOM", "DTC", "MLR", "SLR", "ABD", "ABU", "ATQ", "MQP"}
    assert set(MICRO) == thirteen
    assert thirteen < set(CATALOGUE) and len(set(CATALOGUE)) == len(CATALOGUE) == 33, "and the twenty that came later"
    assert paper_figures("micro", "MQS").peak == ""
    assert set(APPS) == {"stats/city", "stats/taxi", "pred/city", "pred/taxi"}
    assert paper_figures("micro", "VAR").peak == ""


def test_table_in_the_terminal() -> None:
    from rich.console import Console

    measures = [*outcome().measures("micro", {}), *outcome("VAR", silent=True).measures("micro", {})]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(
        comparison_table("micro", "task", [*measures, Measure("micro/probe-cost/x", 1.01, "ratio", "y", 1.03)])
    )
    shown = console.export_text()
    assert "68,000" in shown
    assert "on other machines" in " ".join(shown.split())
    assert "probe-cost" in shown
    assert max(map(len, shown.splitlines())) <= 80


# -- page ------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page refers to, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.images: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert tag != "script"
        for name in ("src", "href", "data", "action", "srcset", "background"):
            if name in given:
                self.references.append(given[name] or "")
        if tag == "img":
            self.images.append(given["src"] or "")
            assert given["alt"]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("suite", ["micro", "app"])
def test_page_has_every_figure_and_needs_nothing_else(tmp_path: Path, suite: str) -> None:
    with ResultFiles(suite, "local", quick=True, folder=tmp_path / "ü") as results:
        results.where = "in process, <one> core"
        for one in (outcome("KAL"), outcome("BLT", silent=True), outcome("stats/city", stable=False)):
            results.add(one)
    text = (tmp_path / "ü" / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert all(r.startswith("data:") for r in page.references)
    assert not re.search(r"https?:|@import|url\(", text)
    names = [n for n in TITLES if suite == "app" or n != "over-time"]
    pictures = [(tmp_path / "ü" / f"{n}.png").read_bytes() for n in names]
    assert [base64.b64decode(i.partition(",")[2]) for i in page.images] == pictures
    assert all(p.startswith(b"\x89PNG") for p in pictures)
    for words in (
        *(TITLES[n] for n in names),
        "KAL",
        "BLT",
        "other machines",
        "<one> core",
        "not for quoting",
        "σ",
        "load",
    ):
        assert words in page.text
    assert "The final run did not keep up: stats/city" in page.text
    assert "No records in s of BLT (in 10 s)" in page.text
    data = json.loads((tmp_path / "ü" / "results.json").read_text(encoding="utf-8"))
    assert [o["name"] for o in data["outcomes"]] == ["KAL", "BLT", "stats/city"]
    assert data["quick"] is True
    assert [v >= 0 for v in data["load"]] == [True, True]


def test_what_was_measured_before_a_failure_is_written(tmp_path: Path) -> None:
    def interrupted() -> None:
        with ResultFiles("micro", "local", quick=True, folder=tmp_path) as results:
            results.add(outcome())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "index.html").exists()
    with ResultFiles("micro", "local", quick=True, folder=tmp_path / "none"):
        pass
    assert not any((tmp_path / "none").iterdir())


# -- commands --------------------------------------------------------------------------------------


def lines(*args: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["bench", *args, "--json", "--quick"], catch_exceptions=False)
    assert result.exit_code == 0
    found = [json.loads(line) for line in result.stdout.splitlines()]
    keys = {"measure", "value", "values", "unit", "against", "reach", "at_most", "published", "load", "machine"}
    assert all(set(m) == keys for m in found)
    return found


def test_micro(tmp_path: Path) -> None:
    found = {m["measure"]: m for m in lines("micro", "--task", "XML", "--task", "blt".upper(), "--out", str(tmp_path))}
    assert set(found) == {f"micro/{code}/{name}" for code in ("XML", "BLT") for name in FIGURES}
    assert found["micro/XML/peak"]["value"] > 310 / 10
    assert "paper, on another machine: 310" in found["micro/XML/peak"]["against"]
    assert found["micro/XML/latency-p25"]["value"] <= found["micro/XML/latency-p75"]["value"]
    assert found["micro/XML/memory"]["value"] > 20
    assert found["micro/BLT/latency-p50"]["value"] is None
    assert found["micro/BLT/task-latency"]["value"] is None
    assert 0 < found["micro/XML/task-latency"]["value"] < 1e6
    assert (tmp_path / "index.html").exists()


def test_app(tmp_path: Path) -> None:
    options = ("--name", "stats", "--stream", "city", "--duration", "1.5", "--out", str(tmp_path))
    found = {m["measure"]: m for m in lines("app", *options)}
    data = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert 1 < max(data["outcomes"][0]["times_s"]) < 1.5
    assert {f"app/stats/city/{name}" for name in FIGURES - {"task-latency"}} < set(found)
    assert "app/stats/city/task-latency" not in found
    assert found["app/probe-cost/full-speed"]["reach"] == 1.03
    assert (tmp_path / "over-time.png").exists()


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("kernels", {"task": ["KAL"]}, "the benchmark 'kernels' has no option --task"),
        ("micro", {"stream": ["city"]}, "the benchmark 'micro' has no option --stream"),
        ("micro", {"task": ["KALL"]}, "unknown task 'KALL'"),
        ("micro", {"runner": "flink"}, "--runner must be local or spark, got 'flink'"),
        ("app", {"name": ["stat"]}, "unknown application 'stat'"),
        ("app", {"stream": ["sity"]}, "sity"),
        ("app", {"duration": 0.0}, "--duration must be a finite number of seconds > 0, got 0.0"),
        ("micro", {"duration": 5.0}, "the benchmark 'micro' has no option --duration"),
    ],
)
def test_misuse(name: str, options: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=text):
        bench.run_suite(name, quick=True, **options)


@pytest.mark.spark
@pytest.mark.slow
def test_micro_on_spark(tmp_path: Path) -> None:
    found = {m["measure"]: m for m in lines("micro", "--task", "KAL", "--runner", "spark", "--out", str(tmp_path))}
    assert found["micro/KAL/peak"]["value"] > 0
    assert "Spark" in found["micro/KAL/peak"]["against"]


def test_app_runs_the_whole_week_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lengths = []

    class Stop(Exception):
        pass

    def measured(self: Any, name: str, group: str, feed: Any, pace: Any, seconds: float) -> Any:
        lengths.append((name, seconds, pace["curve"].duration))
        raise Stop

    monkeypatch.setattr("riot_bench.harness.trial.Runner.outcome", measured)
    for duration in (None, 30.0):
        with pytest.raises(Stop):
            next(bench.find_suite("app")(name=["stats"], stream=["taxi"], out=tmp_path, duration=duration))
    assert lengths == [("stats/taxi", 604.8, pytest.approx(604.8)), ("stats/taxi", 30.0, pytest.approx(604.8))]


def test_a_run_tells_which_streams_stayed_empty() -> None:
    """Two streams, one of which needs more records of a key than come."""
    from riot_bench.harness.trial import LocalRunner
    from riot_bench.harness.workload import Workload

    from riot_ops import tasks as t
    from riot_ops.dataflow import Dataflow
    from riot_ops.streams.riotbench.city import CitySource

    flow = Dataflow("two")
    source = flow.source("city", schema=CitySource(format="observations").schema)
    by = ("sensor_id", "obs_type")
    flow.sink("out", source.to(t.KalmanFilter(by=by), id="kalman"), source.to(t.MovingAverage(window=10**9), id="avg"))
    feed = Workload(flow, {"city": CitySource(90, format="observations")})
    outcome = LocalRunner(quick=True).outcome("two", "x", feed, {"rate": 500.0})
    assert outcome.silent == ("avg",)
    assert outcome.sigma == pytest.approx(5.0, rel=0.02)
    assert outcome.figures()["jitter"][0] == pytest.approx(0, abs=0.1)


def test_what_trials_took_is_given_back_before_the_run_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from riot_bench.harness import trial

    from riot_ops import tasks as t
    from riot_ops.dataflow import Dataflow
    from riot_ops.streams.riotbench.city import CitySource

    flow = Dataflow("one")
    source = flow.source("city", schema=CitySource(format="observations").schema)
    flow.sink("out", source.to(t.KalmanFilter(by=("sensor_id", "obs_type"))))
    done: list[str] = []
    run = trial.LocalRunner.run

    def noted(self: trial.LocalRunner, *given: Any, **options: Any) -> Report:
        done.append("run")
        return run(self, *given, **options)

    pool = SimpleNamespace(release_unused=lambda: done.append("given back"))
    monkeypatch.setattr(trial.gc, "collect", lambda: done.append("collected"))
    monkeypatch.setattr(trial.LocalRunner, "run", noted)
    monkeypatch.setattr(trial.pa, "default_memory_pool", lambda: pool)
    feed = trial.Workload(flow, {"city": CitySource(90, format="observations")})
    trial.LocalRunner(quick=True).outcome("one", "x", feed, {"rate": 500.0})
    assert done.count("given back") == 1 and done[-3:] == ["collected", "given back", "run"]


def test_windows_that_a_trial_is_too_short_for_count_in_what_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    from riot_bench.harness.trial import LocalRunner
    from riot_bench.harness.workload import Workload

    from riot_ops import tasks as t
    from riot_ops.dataflow import Dataflow

    flow = Dataflow("windows")
    flow.sink("s", flow.source("in", schema={"value": "double"}).to(t.MovingAverage(window=250), id="avg"))
    lengths = []

    def run(self: LocalRunner, feed: Any, seconds: float, pace: Any, every_s: float | None = None) -> Report:
        lengths.append(seconds)
        sent = np.array([(0, 0, 499, 500, 0.0, seconds, seconds, 500, math.nan)], SENT)
        late = [(1, i, 1.0, seconds) for i in (249, 499)] if seconds > 1 else []
        return Report(sent, np.array(late, ARRIVED), ["in"], ["in", "avg"], {"avg": frozenset({"in"})})

    monkeypatch.setattr(LocalRunner, "run", run)
    *_, sigma = LocalRunner(quick=True).calibrate(Workload(flow, {}))
    assert lengths[-2:] == [0.3, 1.2]
    assert sigma == pytest.approx(1 / 250)


def test_what_is_read_and_waits_is_not_taken_for_done() -> None:
    from riot_bench.harness.trial import runner
    from riot_bench.harness.workload import Workload

    from riot_ops import tasks as t
    from riot_ops.dataflow import Dataflow

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.005)
        return {"slow": 1.0}

    flow, source = Dataflow("slow"), micro_source("KAL")
    given = flow.source("in", schema={"value": "double"})
    flow.sink("out", given.to(t.MapFunction(function=slow, adds={"slow": "double"}), id="slow"))
    with runner("local", quick=True) as run:
        feed, rate, _ = run.calibrate(Workload(flow, {"in": source}))
        assert 50 < rate < 450  # 200 per second is what it takes; twice as many where the machine is busy
        assert not run.keeps_up(feed, 2000)
