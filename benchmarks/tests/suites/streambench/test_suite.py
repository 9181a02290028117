"""The suite streambench."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from riot_bench.harness.experiment import Experiment
from riot_bench.harness.measure import Measure
from riot_bench.harness.numbered_lines import NumberedLines
from riot_bench.suites import registry
from riot_bench.suites.streambench import durability as streambench_durability
from riot_bench.suites.streambench import faults as streambench_faults
from riot_bench.suites.streambench import recipients as streambench_recipients
from riot_bench.suites.streambench import runs
from riot_bench.suites.streambench import saturation as streambench_saturation
from riot_bench.suites.streambench import suite as streambench
from riot_bench.suites.streambench import tuning as streambench_knobs
from riot_bench.suites.streambench.programs import PROGRAMS, final_results
from riot_bench.suites.streambench.runs import Run
from typer.testing import CliRunner

from riot_ops.cli.main import app
from riot_ops.core.errors import ConfigError, RiotError


def test_run_limit_grows_with_the_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(streambench_faults, "Cluster", lambda _: contextlib.nullcontext(SimpleNamespace(url="")))
    monkeypatch.setattr(streambench_faults, "cluster_session", lambda *_: contextlib.nullcontext(None))
    monkeypatch.setattr(streambench_faults, "_lost_worker", lambda *of: limits.append(of[-1].limit_s) or iter(()))
    sizes = streambench_faults.Sizes(40, 2, 1, ("grep",), (), 30.0, 1.0)
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


@pytest.mark.parametrize("suite", [streambench_recipients, streambench_saturation])
def test_chosen_programs_are_measured(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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


#: The module of a suite, where it has another name.
MODULES = {"knobs": "tuning"}


@pytest.mark.parametrize("suite", ["recipients", "saturation", "knobs"])
def test_differing_implementation_has_no_measure(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's results lack the last one of a run in process; no query is timed."""
    module = importlib.import_module(f"riot_bench.suites.streambench.{MODULES.get(suite, suite)}")

    def one_less(_: Any, name: str, data: NumberedLines, **__: Any) -> Any:
        return final_results(name, runs.program_flow(name).run(data.source())[PROGRAMS[name].stream])[:-1]

    def timed(*_: Any, **__: Any) -> Run:
        return Run((1.0,), 40)

    monkeypatch.setattr(runs, "_packed_results", one_less)
    monkeypatch.setattr(module, "run_packed", timed)
    monkeypatch.setattr(module, "spark_session", lambda *_, **__: contextlib.nullcontext(None))
    sizes = replace(module.QUICK, **({"lines_per_file": 20} if suite == "knobs" else {"lines": 80}))
    suite_measures = getattr(module, MODULES.get(suite, suite))(True, ["wordcount"], 1.0, sizes)
    with pytest.raises(
        RiotError, match=r"the packed implementation of wordcount has the results \d+-.* instead of \d+-"
    ):
        next(suite_measures)


def test_options_reach_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def noted(name: str) -> Any:
        def run(*given: Any) -> Any:
            asked.append((name, *given))
            yield Measure(f"streambench/{name}", 1.0, "x")

        return run

    monkeypatch.setattr(streambench, "SUITES", {name: noted(name) for name in ("performance", "faults")})
    words = ["--suite", "faults", "--program", "grep", "--program", "identity", "--scale", "2.5", "--quick", "--json"]
    shown = CliRunner().invoke(app, ["bench", "streambench", *words], catch_exceptions=False).stdout
    assert shown.startswith('{"measure": "streambench/faults"')
    assert asked == [("faults", True, ["grep", "identity"], 2.5)]
    asked.clear()
    assert len(list(streambench.measures())) == 2
    assert asked == [(name, False, (), 1.0) for name in ("performance", "faults")]


def test_rates_and_seconds_reach_durability(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []

    class Enough(Exception):
        pass

    def start(_: Any, per_minute: float, seconds: float) -> Any:
        asked.append((per_minute, seconds))
        if len(asked) == 2:
            raise Enough
        return contextlib.nullcontext(), None

    session = lambda *_: contextlib.nullcontext(None)  # noqa: E731
    monkeypatch.setattr(streambench_durability, "_start", start)
    monkeypatch.setattr(streambench_durability, "spark_session", session)
    words = ["bench", "streambench", "--suite", "durability", "--scale", "2"]
    own = ["--rate", "30", "--rate", "70", "--seconds", "9"]
    for more, wanted in (
        (own, [(60.0, 9.0), (140.0, 9.0)]),
        (own[:4], [(60.0, 1800.0), (140.0, 1800.0)]),
        (own[4:], [(20_000.0, 9.0), (400_000.0, 9.0)]),
        (["--quick"], [(20_000.0, 120.0), (400_000.0, 120.0)]),
    ):
        asked.clear()
        with pytest.raises(Enough):
            CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
        assert asked == wanted
    assert streambench_durability.format_plain(2_880_000_000.0) == "2880000000"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": [5.0], "suite": "knobs"}, "--rate needs --suite durability, got 'knobs'"),
        ({"seconds": 5.0}, "--seconds needs --suite durability, got None"),
        ({"rate": [5.0, -1.0], "suite": "durability"}, "--rate must be a finite number > 0, got -1"),
        ({"seconds": 0.0, "suite": "durability"}, "--seconds must be a finite number > 0, got 0"),
        ({"suite": "fault"}, "--suite must be one of performance, .*got 'fault'"),
        ({"program": ["grap"]}, "--program must be one of identity, .*got 'grap'.*grep"),
        (
            {"suite": "durability", "program": ["wordcount", "identity"]},
            "--program must be wordcount in the suite durability, got 'identity'",
        ),
        ({"rate": [10.0], "scale": 0.5, "suite": "durability"}, "--rate times --scale must be at least 6 records .*5"),
        ({"scale": 0.0}, "--scale must be a finite number > 0, got 0"),
        ({"scale": float("inf")}, "--scale must be a finite number > 0, got inf"),
    ],
    ids=[
        "rate of another",
        "seconds of all",
        "rate",
        "seconds",
        "suite",
        "program",
        "not-of-the-suite",
        "rare",
        "none",
        "endless",
    ],
)
def test_misuse_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        next(streambench.measures(True, **options))


def test_experiments_cover_the_suites() -> None:
    found = registry.find_experiments("streambench")
    assert [one.key for one in found] == [f"streambench/{name}" for name in streambench.SUITES]
    assert all(isinstance(one, Experiment) and one.about and one.figures for one in found)


def test_help_names_all_suites() -> None:
    shown = " ".join(CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "400"}).output.split())
    *others, last = streambench.SUITES
    assert f"streambench: {', '.join(others)} or {last};" in shown
