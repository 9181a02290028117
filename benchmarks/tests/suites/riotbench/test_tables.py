"""Tables with the paper's figures."""

from __future__ import annotations

import io

from riot_bench.harness.measure import Measure
from riot_bench.suites.riotbench.paper import paper_figures
from riot_bench.suites.riotbench.tables import comparison_table, measure_notes

from benchmarks.tests.outcomes import FIGURES, outcome


def test_measures_name_their_comparison() -> None:
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
