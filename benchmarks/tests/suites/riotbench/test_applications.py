"""The suite app."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from riot_bench.suites import registry as bench

from benchmarks.tests.outcomes import FIGURES, lines
from riot_ops.core.errors import ConfigError


def test_application_measures(tmp_path: Path) -> None:
    options = ("--name", "stats", "--stream", "city", "--duration", "1.5", "--out", str(tmp_path))
    found = {m["measure"]: m for m in lines("app", *options)}
    data = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    times = data["outcomes"][0]["times_s"]
    assert times and times == sorted(times)
    assert {f"app/stats/city/{name}" for name in FIGURES - {"task-latency"}} < set(found)
    assert "app/stats/city/task-latency" not in found
    assert found["app/probe-cost/full-speed"]["at_most"]
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
def test_misuse_is_refused(
    name: str, options: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=text):
        bench.run_suite(name, quick=True, **options)


def test_application_runs_the_whole_week_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
