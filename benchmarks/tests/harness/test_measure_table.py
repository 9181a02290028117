"""Measures as a table for the terminal."""

from __future__ import annotations

from typing import Any

import pytest
from riot_bench.harness.measure import Measure
from riot_bench.suites import registry as bench


def test_table_shows_lower_bounds_and_ranges_of_micro_batches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Measure("growth/a", 3.0, "ratio", sample=(2.0, 3.0, 5.0), lower_bound=True)
    monkeypatch.setattr("riot_bench.suites.growth.measures", lambda quick: iter([one]))
    bench.run_suite("growth")
    shown = capsys.readouterr().out
    assert ">= 3" in shown
    assert "2–5" in shown


def test_table_marks_worst_values(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    values = iter((0.0, 812.0, 0.0))

    def measures(quick: bool) -> Any:
        yield Measure("growth/lost", next(values), "messages", reach=0, at_most=True)
        yield Measure("growth/once", 7.0, "ms", reach=9, at_most=True)

    monkeypatch.setattr("riot_bench.suites.growth.measures", measures)
    bench.run_suite("growth", repeat=3)
    shown = capsys.readouterr().out
    assert "worst 812" in shown
    assert shown.count("worst") == 1
