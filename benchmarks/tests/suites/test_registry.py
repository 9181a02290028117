"""Finding and running suites."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from riot_bench.harness.measure import Measure
from riot_bench.suites import registry as bench

from riot_ops.core.errors import ConfigError


@pytest.mark.parametrize("name", bench.describe_suites())
def test_registered_suites_exist(name: str) -> None:
    assert callable(bench.find_suite(name))


def test_unknown_suite_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match='did you mean "kernels"'):
        bench.find_suite("kernel")


def test_run_prints_a_json_object_per_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measures(quick: bool) -> Any:
        yield Measure("growth/a", 2.0, "ratio", "b", 1.5)
        yield Measure("growth/c", float("nan"), "ms")

    monkeypatch.setattr("riot_bench.suites.growth.measures", measures)
    found = bench.run_suite("growth", as_json=True)
    assert [m.met for m in found] == [True, None]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(line) for line in lines] == [
        ["measure", "value", "values", "unit", "against", "reach", "at_most", "published", "load", "machine"]
    ] * 2
    before, after = lines[0].pop("load")[0]
    assert 0 <= before < 1000 and 0 <= after < 1000
    assert lines[0] == {
        "measure": "growth/a",
        "value": 2.0,
        "values": [2.0],
        "unit": "ratio",
        "against": "b",
        "reach": 1.5,
        "at_most": False,
        "published": None,
        "machine": found[0].machine,
    }
    assert lines[1]["value"] is None
    assert lines[1]["reach"] is None


def test_run_prints_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        "riot_bench.suites.growth.measures",
        lambda quick: iter([Measure("growth/a", 3.0, "ms", "on local[2]", 2, at_most=True)]),
    )
    bench.run_suite("growth")
    shown = capsys.readouterr().out
    assert "growth/a" in shown
    assert "on local[2]" in shown
    assert "no" in shown


def test_runs_are_repeated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    values = iter([3.0, 9.0, 4.0])
    loads = iter([0.25, 1.5, 1.75, 2.0, 2.25, 2.5] * 2)
    monkeypatch.setattr(
        "riot_bench.suites.growth.measures", lambda quick: iter([Measure("growth/a", next(values), "ms")])
    )
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads), 7.0, 7.0))
    (found,) = bench.run_suite("growth", as_json=True, repeat=3)
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (found.value, found.values) == (4.0, (3.0, 9.0, 4.0))
    assert (line["value"], line["values"]) == (4.0, [3.0, 9.0, 4.0])
    assert line["load"] == [[0.25, 1.5], [1.75, 2.0], [2.25, 2.5]]
    values = iter([3.0, 9.0, 4.0])
    bench.run_suite("growth", repeat=3)
    shown = capsys.readouterr().out
    assert "3–9" in shown
    assert "load 2.25 before, up to 2.5 meanwhile" in " ".join(shown.split())
    with pytest.raises(ConfigError, match="repeat must be >= 1, got 0"):
        bench.run_suite("growth", repeat=0)
