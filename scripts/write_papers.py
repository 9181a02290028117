"""Write the tables of docs/papers: ``scripts/write_papers.py [RESULTS.jsonl ...]``.

The table of a suite's experiments comes from the code. That of its figures comes from results of ``riot-ops report``:
measures that the paper has too, that should reach something, or that bound such a one; where no file has any, what is
there stays.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from riot_ops.bench.paper_table import loads, short
from riot_ops.bench.science.plan import REPORTS, planned
from riot_ops.bench.science.store import Result, Store
from riot_ops.bench.science.tables import amount, confidence

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
    lines = []
    for result in results:
        for m in result.measures:
            if m.published is None and m.reach is None and not BOUNDS.fullmatch(m.measure):
                continue
            reach = "" if m.reach is None else f"{'≤' if m.at_most else '≥'} {short(m.reach)}"
            theirs = "" if m.published is None else short(m.published)
            cells = (f"`{m.measure}`", amount(m), confidence(m), str(len(m.runs)), m.unit, theirs, reach, loads(m))
            lines.append("| " + " | ".join(cells) + " |")
    if not lines:
        return []
    head = [
        "| measure | here | 95 % interval | runs | unit | paper | reach | load |",
        "|---|---:|---:|---:|---|---:|---:|---:|",
    ]
    about = [result for result in results if result.measures]
    form = "Quick form, not for quoting" if about[0].about.get("quick") else "Full form"
    machines = dict.fromkeys(m.machine for result in about for m in result.measures)
    commits = dict.fromkeys(str(result.about.get("commit")) for result in about)
    return [*head, *lines, "", f"{form}; {'; '.join(filter(None, machines))}; commit {', '.join(commits)}."]


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
    """Read the results, write the pages; the full form counts where there is any."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.path.write_bytes(b"\n".join(Path(path).read_bytes() for path in sys.argv[1:]))
        for suite in REPORTS:
            plan = planned([suite])
            full = store.results(plan, quick=False)
            found = full if any(result.measures for result in full) else store.results(plan, quick=True)
            page = TARGET / f"{suite}.md"
            page.write_text(written(page.read_text(encoding="utf-8"), suite, found), encoding="utf-8")


if __name__ == "__main__":
    main()
