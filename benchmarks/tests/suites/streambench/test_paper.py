"""The papers' values."""

from __future__ import annotations

import pytest
from riot_bench.harness.measure import Measure
from riot_bench.suites.streambench import runs
from riot_bench.suites.streambench import suite as streambench
from riot_bench.suites.streambench.paper import paper_value
from riot_bench.suites.streambench.programs import PROGRAMS


def test_measures_have_the_values_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {
        "streambench/between/fastest/10x": 100.0,
        "streambench/between/identity-vs-wordcount/1x": 2.5,
        "streambench/between/statistics-vs-identity/4x": 5.0,
        "streambench/grep/packed/1x/latency": 1000.0,
        "streambench/wordcount/packed-cluster/10x/latency": 1000.0,
        "streambench/distinct/state/2x/latency": 1000.0,
        "streambench/statistics/packed/1x/latency": None,
        "streambench/grep/local/1x/latency": None,
        "streambench/grep/packed/1x/throughput": None,
        "streambench/saturation/statistics/packed/volume": 50e6,
        "streambench/saturation/wordcount/packed/volume": None,
        "streambench/durability/200000/availability": 100.0,
        "streambench/durability/1e+06/availability": 100.0,
    }
    own = Measure("streambench/durability/1/availability", 1.0, "%", published=7.0)
    monkeypatch.setattr(
        streambench, "SUITES", {"knobs": lambda *_: iter([*(Measure(name, 1.0, "x") for name in wanted), own])}
    )
    assert {m.measure: m.published for m in streambench.measures()} == {**wanted, own.measure: 7.0}
    known = {implementation for name in PROGRAMS for implementation in runs.implementation_names(name)} - {
        *runs.IN_PROCESS
    }
    assert all(paper_value(f"streambench/grep/{implementation}/1x/latency") == 1000.0 for implementation in known)
