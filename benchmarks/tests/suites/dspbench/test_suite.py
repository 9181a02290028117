"""The suite dspbench: its measures, and the results of its baselines."""

from __future__ import annotations

import io
import json
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from riot_bench.harness.input_lines import FILES_PER_BATCH, write_input_lines
from riot_bench.harness.measure import Measure
from riot_bench.harness.validation import plain_results
from riot_bench.suites.dspbench import suite as dspbench
from riot_bench.suites.dspbench.paced_run import paced_measures
from riot_bench.suites.dspbench.page import PAPER_FINDINGS
from riot_bench.suites.dspbench.plots import TITLES, by_operator
from typer.testing import CliRunner

from riot_ops.cli.main import app
from riot_ops.core.errors import ConfigError, ConnectorError, RiotError
from riot_ops.dataflows import APPLICATIONS, application
from riot_ops.testing.services import Mosquitto

LINES = [name for name, one in APPLICATIONS.items() if one.suite in dspbench.SUITES]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Measure], Path]:
    """The measures of word count in process, and the folder of the page."""
    out = tmp_path_factory.mktemp("dspbench")
    with pytest.MonkeyPatch.context() as patch:
        few = replace(dspbench.QUICK, batch=20_000, batches=2, checked=20_000, alone=True, paced_s=0.5)
        patch.setattr(dspbench, "QUICK", few)
        network = Measure("dspbench/wc/mqtt-network/in", 98765.0, "bytes/line")
        patch.setattr(dspbench, "_mqtt_measures", lambda chosen, messages: [network])
        return {m.measure: m for m in dspbench.measures(True, app=["wc"], runner="local", out=out)}, out


def test_word_count_is_measured_beside_plain_python(found: tuple[dict[str, Measure], Path]) -> None:
    measures = found[0]
    for name in ("local", "local-results", "plain-python", "vs-plain-python", "local-all-cores-vs-one"):
        assert measures[f"dspbench/wc/{name}"].value > 0
    ratio = measures["dspbench/wc/vs-plain-python"]
    assert (ratio.unit, ratio.reach) == ("ratio", 10)
    assert measures["dspbench/wc/local-results"].reach == 10e6
    assert 0 < measures["dspbench/wc/local-latency-p50"].value <= measures["dspbench/wc/local-latency-p95"].value
    assert measures["dspbench/wc/local-latency-p95"].at_most
    on_one = measures["dspbench/wc/local-latency-p95-one-core"]
    assert 0 < measures["dspbench/wc/local-latency-p50-one-core"].value <= on_one.value
    assert (on_one.reach, on_one.at_most, on_one.unit) == (50, True, "ms")
    assert measures["dspbench/wc/local-memory"].value > 50


def test_paced_run_takes_half_of_the_peak_rate(tmp_path: Path) -> None:
    lines = write_input_lines(application("wc"), tmp_path, 400, 400)
    found = [m.measure.removeprefix("dspbench/wc/local-") for m in paced_measures(lines, 4000.0, None, 0.2)]
    boxes = [f"memory-p{share}" for share in (5, 25, 50, 75, 95)]
    assert found[:5] == ["latency-p50", "latency-p95", "sink", "cpu", "memory"]
    assert found[5:] in ([], boxes)  # a short run may have no sample


def test_failed_paced_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    lines = write_input_lines(application("wc"), tmp_path, 400, 400)
    with pytest.raises(RiotError, match="word_count at 1,000 lines/s ended with exit code 1"):
        list(paced_measures(lines, 1000.0, 500.0, 0.1))


def test_operator_costs_of_word_count(found: tuple[dict[str, Measure], Path]) -> None:
    operators = by_operator({name: m.value for name, m in found[0].items()})
    assert list(operators) == ["wc/lines", "wc/split", "wc/counts"]
    split, counts = operators["wc/split"], operators["wc/counts"]
    assert split["selectivity"] == pytest.approx(9.8, abs=0.1)
    assert split["bytes-in"] == pytest.approx(operators["wc/lines"]["bytes-out"], rel=1e-5)  # of other batches
    assert split["bytes-out"] == counts["bytes-in"] == counts["bytes-out"] - 8  # the count
    assert counts["selectivity"] == 1
    assert counts["state"] > 4_000 * 8 > split["state"] == 0
    sizes = [split[f"bytes-out-p{share}"] for share in (5, 25, 50, 75, 95)]
    assert sizes == sorted(sizes)
    assert sizes[0] < split["bytes-out"] + 4 < sizes[-1] + 8  # words differ in length
    for figures in operators.values():
        assert 0 < figures["time-p50"] <= figures["time-p95"]


def test_page_of_results(found: tuple[dict[str, Measure], Path]) -> None:
    measures, out = found
    page = (out / "index.html").read_text()
    assert not re.search(r'(src|href)="(?!data:)', page)
    pictures = {path.stem for path in out.glob("*.png")}
    assert pictures == set(TITLES) - {"ratio"}  # of Spark alone
    for name in pictures:
        assert escape(TITLES[name]) in page
        assert escape(PAPER_FINDINGS.get(name, "")) in page
    assert "in process over MQTT" in page and "98,765" in page
    results = json.loads((out / "results.json").read_text())
    assert [m["measure"] for m in results["measures"]] == list(measures)
    assert results["quick"] is True
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(dspbench.table(measures.values()))
    shown = console.export_text()
    assert "wc/split" in shown
    assert "vs-plain-python" in shown


def test_network_in_process_needs_a_broker(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def start(self: Mosquitto) -> Mosquitto:
        raise ConnectorError("mosquitto is not installed")

    monkeypatch.setattr(Mosquitto, "start", start)
    assert not list(dspbench._mqtt_measures([application("wc")], 10))
    assert "the network in process is not measured: mosquitto is not installed" in capsys.readouterr().err


def test_command_prints_its_measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        dspbench, "_all_measures", lambda chosen, *_: [Measure(f"dspbench/{chosen[0].code}/local", 1.0, "x")]
    )
    arguments = ["bench", "dspbench", "--app", "wc", "--runner", "local", "--quick", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert json.loads(result.stdout.splitlines()[0])["measure"] == "dspbench/wc/local"
    assert (tmp_path / "index.html").exists()


@pytest.mark.parametrize("change", [lambda rows: rows[1:], lambda rows: [("a", 1), *rows[1:]]], ids=["number", "row"])
def test_differing_sides_are_refused(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    of_all = plain_results
    monkeypatch.setattr(dspbench, "QUICK", replace(dspbench.QUICK, batch=200, checked=200))
    monkeypatch.setattr(dspbench, "plain_results", lambda *args: {"counts": change(of_all(*args)["counts"])})
    with pytest.raises(RiotError, match=r"of word_count differ: Comparison\(stream='counts'"):
        list(dspbench.measures(True, app=["word_count"], runner="local"))


def test_both_sides_discard_timed_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lengths: list[int] = []
    of_all = plain_results

    def noted(*args: Any) -> Any:
        results = of_all(*args)
        lengths.append(len(results["counts"]))
        return results

    monkeypatch.setattr(dspbench, "plain_results", noted)
    data = write_input_lines(application("wc"), tmp_path, 400, 400)
    found = list(dspbench.local_comparison(data, replace(dspbench.QUICK, repetitions=2, checked=400)))
    assert lengths[0] > 0  # the comparison, then the warm-up and two runs
    assert lengths[1:] == [0, 0, 0]
    assert f"all {lengths[0]:,} of 400 lines agree" in found[-1].against


def test_roads_with_curves_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = replace(dspbench.QUICK, batch=2000, batches=2, checked=4000)
    found = {m.measure.removeprefix("dspbench/tm/winding-roads/"): m for m in dspbench.winding_local_measures(sizes)}
    assert list(found) == ["local", "local-results", "plain-python", "vs-plain-python"]
    ratio = found["vs-plain-python"]
    assert ratio.value > 0 and ratio.reach == 10
    compared = re.search(r"all ([\d,]+) of 4,000 lines agree; 28,800 segments", ratio.against)
    assert compared is not None
    assert int(compared[1].replace(",", "")) > 3000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"app": ["stats"]}, "--app must be one of wc, .*got 'stats'"),
        ({"app": ["wcc"]}, "unknown application 'wcc'"),
        ({"app": ["wc"], "runner": "flink"}, "--runner must be all, local or spark, got 'flink'"),
    ],
    ids=["suite", "name", "runner"],
)
def test_misuse_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        next(dspbench.measures(True, **options))


@pytest.mark.parametrize("name", LINES)
def test_programs_read_equal_lines(name: str, tmp_path: Any) -> None:
    data = write_input_lines(application(name), tmp_path, 200, 100)
    assert data.total == 200 * len(data.files)
    part = data.take(100)
    for source, files in part.files.items():
        assert len(files) == FILES_PER_BATCH
        plain = [line.rstrip() for line in part.plain_lines()[source]]
        replayed = part.sources()[source]
        end = replayed.latest(replayed.initial())
        batches = [b for s in replayed.splits(replayed.initial(), end, 1) for b in replayed.read(s)]
        assert [line.rstrip() for b in batches for line in b["payload"].to_pylist()] == plain
        assert len(plain) == 100


@pytest.mark.parametrize("extended", [True, False])
def test_network_and_search_on_spark_may_be_left_out(monkeypatch: pytest.MonkeyPatch, extended: bool) -> None:
    monkeypatch.setattr(dspbench, "spark_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr(dspbench, "_inputs", lambda *_: [])
    monkeypatch.setattr(dspbench, "_network_measures", lambda *_: [Measure("dspbench/wc/network", 1.0, "x")])
    monkeypatch.setattr(dspbench, "search_measures", lambda *_: [Measure("dspbench/wc/search", 1.0, "x")])
    monkeypatch.setattr(dspbench, "write_page", lambda *_: None)
    found = [m.measure for m in dspbench.measures(True, app=["wc"], runner="spark", extended=extended)]
    assert found == (["dspbench/wc/network", "dspbench/wc/search"] if extended else [])
