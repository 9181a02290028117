"""The pages of the papers: their tables are written from the code and from results, and from nothing else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from riot_bench.harness.measure import Measure, machine
from riot_bench.report.plan import REPORTS, Planned, planned
from riot_bench.report.store import Result, Store

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import write_papers

PAGES = write_papers.TARGET


@pytest.mark.parametrize("suite", REPORTS)
def test_every_suite_has_a_page_with_places(suite: str) -> None:
    text = (PAGES / f"{suite}.md").read_text(encoding="utf-8")
    made = write_papers.written(text, suite, [])
    for one in planned([suite]):
        assert f"| `{one.key}` | {one.experiment.title} | `riot-ops report --experiment {one.key}`" in made
    assert f"({suite}.md)" in (PAGES / "README.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="lacks the place for experiments"):
        write_papers.written("", suite, [])


def test_figures_are_those_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = planned(["reuse"])[0]
    for quick, value in ((True, 0.25), (False, 0.5)):
        store = Store(tmp_path / str(quick))
        writer = store.begin(one, quick)
        for measure in (
            Measure("reuse/a", value, "share", published=0.4, values=(value, value, value)),
            Measure("reuse/b", 7.0, "ms", reach=5, at_most=True, load=((0.1, 0.2),)),
            Measure("reuse/c", 1.0, "ms"),
        ):
            writer.measure(measure.to_json())
        writer.end("done")
    for suite in REPORTS:
        (tmp_path / f"{suite}.md").write_bytes((PAGES / f"{suite}.md").read_bytes())
    before = {suite: (tmp_path / f"{suite}.md").read_text(encoding="utf-8") for suite in REPORTS}
    monkeypatch.setattr(write_papers, "TARGET", tmp_path)
    quick, full = (str(tmp_path / form / "results.jsonl") for form in ("True", "False"))
    monkeypatch.setattr(sys, "argv", ["write_papers.py", quick])
    write_papers.main()
    text = (tmp_path / "reuse.md").read_text(encoding="utf-8")
    assert "| `reuse/a` | 0.25 | 0.25 (0.25–0.25) | 3 | share | 0.4 |  |  |" in text
    assert "| `reuse/b` | 7 | too few: 1 | 1 | ms |  | ≤ 5 | 0.1, 0.2 |" in text
    assert "reuse/c" not in text
    assert f"Quick form, not for quoting; {machine()}; commit" in text
    assert "Not measured: " + ", ".join(f"`{other.key}`" for other in planned(["reuse"])[1:]) + ".\n<!-- end" in text
    assert (tmp_path / "threat.md").read_text(encoding="utf-8").partition("<!-- measured")[2] == (
        before["threat"].partition("<!-- measured")[2]
    )
    monkeypatch.setattr(sys, "argv", ["write_papers.py", quick, full])
    write_papers.main()
    text = (tmp_path / "reuse.md").read_text(encoding="utf-8")
    assert "| `reuse/a` | 0.5 |" in text
    assert f"Full form; {machine()}; commit" in text
    monkeypatch.setattr(sys, "argv", ["write_papers.py"])
    write_papers.main()
    assert (tmp_path / "reuse.md").read_text(encoding="utf-8") == text


def test_each_experiment_is_in_its_best_form_and_what_is_not_there_is_told(tmp_path: Path) -> None:
    """A run that was killed, or failed, leaves figures that say nothing of the experiment."""
    plan, store = planned(["reuse"]), Store(tmp_path)
    first, second, third, fourth = plan[:4]

    def run(one: Planned, quick: bool, value: float, state: str) -> None:
        writer = store.begin(one, quick)
        writer.measure(Measure(one.key, value, "ms", published=4.0).to_json())
        if state:
            writer.end(state)

    def page(results: Sequence[Result]) -> list[str]:
        return [line for line in write_papers.measured(results) if line and not line.startswith("|-")][1:]

    run(first, True, 1.0, "done")
    run(first, False, 2.0, "done")
    run(second, True, 3.0, "done")
    run(second, False, 4.0, "failed")
    run(third, False, 5.0, "")
    *rows, form, absent = page(store.shown(plan))
    assert [row.split(" | ")[:2] for row in rows] == [[f"| `{first.key}`", "2"], [f"| `{second.key}`", "3"]]
    assert form.startswith(f"Full form, but for `{second.key}`: quick form, not for quoting; ")
    assert absent == f"Not measured: {', '.join(f'`{one.key}`' for one in plan[2:])}."
    run(third, False, 6.0, "done")
    *rows, form = page(store.shown([first, third]))
    assert len(rows) == 2
    assert form.startswith(f"Full form; {machine()}; commit ")
    assert page(store.shown([fourth])) == []
