"""Measured figures get into the tables of the document, with ranges and loads."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from riot_bench.harness.measure import Measure
from riot_bench.suites.riotbench.tables import markdown

from benchmarks.tests.test_suites import outcome

SCRIPT = Path(__file__).parents[2] / "tools" / "write_benchmarks.py"

DOCUMENT = """# Benchmarks

| measure | median | range | runs | load | unit | reach | against / how |
|---|---:|---:|---:|---:|---|---:|---|
| `kernels/a` | 1 |  | 1 |  | ratio | 10 | old |
| `kernels/b` | 2 |  | 1 |  | ms |  | stays |

<!-- micro -->
| task | peak |
|---|---:|
| XML | other |
| KAL (so) † | old |
<!-- end of micro -->
<!-- micro on Spark -->
<!-- end of micro on Spark -->
"""


@pytest.fixture
def script() -> Any:
    spec = importlib.util.spec_from_file_location("write_benchmarks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_are_replaced_and_added(script: Any) -> None:
    lines = [
        Measure("kernels/a", v, "ratio", "new", 10, load=((load, 1.0),)).to_json()
        for v, load in ((9.0, 0.1), (12.0, 0.25), (10.0, 0.0))
    ]
    lines.append(Measure("kernels/c", 12_345.6, "rows/s", "added | so", 5, at_most=True).to_json())
    text = script.written(DOCUMENT, script.together([*lines, ""]))
    assert "| `kernels/a` | 10 | 9–12 | 3 | 0.25, 1 | ratio | 10 | new |\n| `kernels/b` | 2 |" in text
    assert "stays |\n| `kernels/c` | 12,350 |  | 1 |  | rows/s | ≤ 5 | added \\| so |\n\n" in text
    assert "| KAL (so) † | old |" in text


def test_paper_tables_are_replaced_by_runner(script: Any) -> None:
    from riot_bench.suites.riotbench.published import published
    from riot_bench.suites.riotbench.tables import notes

    lines = []
    for where in ("in process, one core", "Spark 4, local[2]"):
        notes_ = notes(outcome(), published("micro", "KAL"), where)
        lines += [m.to_json() for m in outcome().measures("micro", notes_)]
    text = script.written(DOCUMENT, script.together(lines))
    assert "(so)" not in text
    local, spark = text.split("<!-- micro on Spark -->")
    assert "| XML | other |\n| KAL | 100 | 68,000 |" in local
    assert "| XML" not in spark
    assert spark.count("| KAL | 100 | 68,000 |") == 1
    with pytest.raises(SystemExit, match="lacks the place for micro"):
        script.written("nothing", script.together(lines))


def test_markdown_has_ranges_and_loads() -> None:
    runs = [list(outcome().measures("micro", {})) for _ in range(2)]
    both = [
        Measure(a.measure, a.value, a.unit, values=(a.value, 1.2 * b.value), load=((0.2, 1.0), (0.4, 0.9)))
        for a, b in zip(*runs, strict=True)
    ]
    head, _, line = markdown("micro", "task", both)
    cells = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    assert cells["peak, messages/s"] == "100 (100–120)"
    assert (cells["σ"], cells["runs"], cells["load |"]) == ("1", "2", "0.4, 1 |")


def test_the_document_has_all_places(script: Any) -> None:
    text = script.TARGET.read_text(encoding="utf-8")
    for suite in script.PAPER:
        for name in (suite, f"{suite} on Spark"):
            assert f"<!-- {name} -->" in text
            assert f"<!-- end of {name} -->" in text
    assert script.TITLES in text
    assert "| measure | value | unit |" not in text
