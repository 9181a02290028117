"""Parts of pages that come from the code and from the results: a line such as ``<!-- generated: NAME -->`` is replaced.

``generated: NAME`` takes a part made from the code (diagrams, counted selectivities, parameters, experiments),
``results: PATTERN...`` a table of the figures in ``benchmarks/results/summary.csv`` whose names fit, and
``paper: PATTERN...`` one that has the papers' figures as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import benchmark_parts
from pages import ROOT, Page, Problem
from riot_bench.report import summary
from riot_bench.report.plan import REPORTS, plan_experiments
from riot_bench.suites.dspbench.page import network_markdown

__all__ = ["GeneratedParts"]

SUMMARY = ROOT / "benchmarks" / "results" / "summary.csv"
CHANGES = SUMMARY.with_name("changes.csv")
PLACE = re.compile(r"^<!-- (?P<what>generated|results|paper): (?P<names>.+?) -->$", re.MULTILINE)


class GeneratedParts:
    """The parts by name, each kind made when a page first asks for one.

    ``linked`` gives a part, as a page, the links of the site.
    """

    def __init__(self, linked: Callable[[Page], Page]) -> None:
        self.linked = linked

    @cached_property
    def figures(self) -> list[summary.Figure]:
        """The measured figures."""
        return summary.read(SUMMARY)

    @cached_property
    def parts(self) -> dict[str, str]:
        """The parts made from the code."""
        network = network_markdown({figure.measure: float(figure.value) for figure in self.figures if figure.value})
        tables = {f"experiments_{suite}": _experiments(suite) for suite in REPORTS}
        return {**benchmark_parts.parts(), **tables, "network_dspbench": network}

    def filled(self, page: Page) -> Page:
        """Return a page with its parts."""

        def part(match: re.Match[str]) -> str:
            return self.linked(replace(page, text=made(match), made_by=match["names"])).text

        def made(match: re.Match[str]) -> str:
            names = match["names"].split()
            where = page.where(page.text.count("\n", 0, match.start()) + 1)
            if match["what"] == "generated":
                if names[0] not in self.parts:
                    raise Problem(f"{where}: no part is called {names[0]}")
                return self.parts[names[0]].rstrip()
            found = summary.matching(self.figures, names)
            if not found:
                raise Problem(f"{where}: no figure in {SUMMARY.relative_to(ROOT)} fits {match['names']}")
            paper = match["what"] == "paper"
            shown = [f for f in found if not paper or f.published or f.reach]
            return summary.markdown(shown, paper, summary.read_changes(CHANGES))

        return replace(page, text=PLACE.sub(part, page.text))


def _experiments(suite: str) -> str:
    """Return the table of the experiments of a suite."""
    lines = ["| experiment | what | command | quick | full |", "|---|---|---|---:|---:|"]
    for one in plan_experiments([suite]):
        times = " | ".join(f"{s:.0f} s" if s < 120 else f"{s / 60:.0f} min" for s in one.experiment.seconds)
        command = f"`riot-ops report --experiment {one.key}`"
        lines.append(f"| `{one.key}` | {one.experiment.title} | {command} | {times} |")
    return "\n".join([*lines, "", "Times are for two cores; `--full` runs the full form."])
