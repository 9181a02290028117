"""Write the tables of docs/papers: ``tools/write_papers.py [RESULTS.jsonl ...]``.

The table of a suite's experiments comes from the code. That of its figures comes from results of ``riot-ops report``:
measures that the paper has too, that should reach something, or that bound such a one, of runs that are through, each
experiment in the full form where there is one. Below stands which are in the quick form, and which were not measured;
where no file has any, what is there stays.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from riot_bench.report.plan import REPORTS, Planned, planned
from riot_bench.report.store import Result, Store
from riot_bench.report.tables import amount, confidence
from riot_bench.suites.riotbench.tables import loads, short

TARGET = Path(__file__).resolve().parent.parent / "docs" / "papers"
#: Beside what should reach something, what a form comes to whose steps take next to nothing.
BOUNDS = re.compile(r"streambench/\w+/expressions-vs-\w+(?<!processor)")
PLACE = r"(<!-- {} {} -->\n).*?(<!-- end -->)"


def experiments(suite: str) -> list[str]:
    """The table of a suite's experiments."""
    lines = ["| experiment | what | command | quick | full |", "|---|---|---|---:|---:|"]
    for one in planned([suite]):
        short_s, long_s = one.experiment.seconds
        command = f"`riot-ops report --experiment {one.key}`"
        lines.append(f"| `{one.key}` | {one.experiment.title} | {command} | {_time(short_s)} | {_time(long_s)} |")
    if len(lines) == 2:
        return ["None yet."]
    return [*lines, "", "Times are for two cores; `--full` runs the full form."]


def measured(results: Sequence[Result]) -> list[str]:
    """The table of what was measured, and the paper's figures."""
    about = [result for result in results if result.runs]
    lines = []
    for result in about:
        for m in result.measures:
            if m.published is None and m.reach is None and not BOUNDS.fullmatch(m.measure):
                continue
            reach = "" if m.reach is None else f"{'≤' if m.at_most else '≥'} {short(m.reach)}"
            theirs = "" if m.published is None else short(m.published)
            cells = (f"`{m.measure}`", amount(m), confidence(m), str(len(m.known)), m.unit, theirs, reach, loads(m))
            lines.append("| " + " | ".join(cells) + " |")
    if not lines:
        return []
    head = [
        "| measure | here | mean, 95 % interval | runs | unit | paper | reach | load |",
        "|---|---:|---:|---:|---|---:|---:|---:|",
    ]
    machines = dict.fromkeys(m.machine for result in about for m in result.measures)
    commits = dict.fromkeys(str(result.about.get("commit")) for result in about)
    below = [f"{_form(about)}; {'; '.join(filter(None, machines))}; commit {', '.join(commits)}."]
    if absent := [result.planned for result in results if not result.runs]:
        below += ["", f"Not measured: {_keys(absent)}."]
    return [*head, *lines, "", *below]


def _form(results: Sequence[Result]) -> str:
    quick = [result.planned for result in results if result.form == "quick"]
    if not quick:
        return "Full form"
    if len(quick) == len(results):
        return "Quick form, not for quoting"
    return f"Full form, but for {_keys(quick)}: quick form, not for quoting"


def _keys(plan: Sequence[Planned]) -> str:
    return ", ".join(f"`{one.key}`" for one in plan)


def written(text: str, suite: str, results: Sequence[Result]) -> str:
    """A page with its tables."""
    for place, lines in (("experiments", experiments(suite)), ("measured", measured(results))):
        if lines:
            table = "\n".join(lines) + "\n"
            text, n = re.subn(
                PLACE.format(place, suite), lambda m, t=table: m[1] + t + m[2], text, count=1, flags=re.DOTALL
            )
            if not n:
                sys.exit(f"the page of {suite} lacks the place for {place}")
    return text


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def main() -> None:
    """Read the results, write the pages."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.path.write_bytes(b"\n".join(Path(path).read_bytes() for path in sys.argv[1:]))
        for suite in REPORTS:
            page = TARGET / f"{suite}.md"
            text = written(page.read_text(encoding="utf-8"), suite, store.shown(planned([suite])))
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
