"""Build the documentation into a folder: the pages of docs/ with their generated parts filled in.

    tools/build_docs.py [FOLDER]    default: build/docs

A line ``<!-- generated: NAME -->`` is replaced by a part generated from the code (diagrams, counted selectivities,
parameters, experiments), a line ``<!-- results: PATTERN... -->`` by a table of the figures in
``benchmarks/results/summary.csv`` whose names fit, and ``<!-- paper: PATTERN... -->`` by one that has the papers'
figures as well.
``tasks.md`` is written from the registry and the docstrings, ``parameters.md`` from the table of names.
``--no-pictures`` leaves the applications' pictures out.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import application_pages
import dataflow_pages
from riot_bench.report import summary
from riot_bench.report.plan import REPORTS, plan_experiments
from riot_bench.suites.dspbench.page import network_markdown

from riot_ops.core.source import Source, registered_sources
from riot_ops.task import Task, registered_tasks
from riot_ops.tasks import PRESETS
from riot_ops.testing.parameter_names import parameter_uses
from riot_ops.testing.parameter_table import PARAMETERS
from riot_ops.testing.public_callables import public_callables

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SUMMARY = ROOT / "benchmarks" / "results" / "summary.csv"
CHANGES = SUMMARY.with_name("changes.csv")
HEADING = re.compile(r"^(?P<title>\S.*)\n-{3,}$", re.MULTILINE)
PLACE = re.compile(r"^<!-- (?P<what>generated|results|paper): (?P<names>.+?) -->$", re.MULTILINE)


def task_section(kind: type[Task] | type[Source]) -> str:
    """Return one task's part of the page of tasks."""
    text = HEADING.sub(lambda m: f"#### {m['title']}", inspect.getdoc(kind) or "")
    before, found, example = text.partition("#### Examples\n")
    if found:
        text = f"{before}#### Examples\n\n```python\n{example.strip()}\n```"
    state = "state per key" if kind.stateful else "no state"
    return (
        f"### {kind.__name__}\n\n`{kind.code}` · {kind.category} · {kind.pattern} {kind.selectivity} · {state} · "
        f"`{kind.__module__}`\n\n{text}\n"
    )


def task_page() -> str:
    """Return the page of all tasks."""
    kinds = sorted([*registered_tasks(), *registered_sources()], key=lambda k: (k.category, k.code))
    lines = [
        "# Tasks",
        "",
        "`riot_ops.tasks` offers all but those that one application needs: import these from the package in the name",
        "of the module, such as `riot_ops.dataflows.dspbench.operators`.",
        "",
        "| code | task | category | pattern | σ | state | what it is for |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        first = (inspect.getdoc(kind) or "").splitlines()[0]
        lines.append(
            f"| {kind.code} | [{kind.__name__}](#{kind.__name__.lower()}) | {kind.category} | {kind.pattern} "
            f"| {kind.selectivity} | {'yes' if kind.stateful else ''} | {first} |"
        )
    lines += [
        "",
        "Settings of a task that are tasks of the benchmarks; `riot-ops run micro` takes their codes, too:",
        "",
    ]
    lines += ["| code | task | setting |", "|---|---|---|"]
    lines += [f"| {code} | [{name}](#{name.lower()}) | {text} |" for code, (name, text) in sorted(PRESETS.items())]
    category = ""
    for kind in kinds:
        if kind.category != category:
            category = kind.category
            lines += ["", f"## {category}"]
        lines += ["", task_section(kind).rstrip()]
    return "\n".join(lines) + "\n"


def parameter_page() -> str:
    """Return the page of the parameters' names."""
    uses = parameter_uses(public_callables())
    lines = [
        "# Parameters",
        "",
        "A parameter's name has one type and one meaning in all tasks, applications, sources, sinks, tables,",
        "functions, verbs of streams, runners and back ends; an object may take some of its forms or choices.",
        'A duration is a timedelta or a text such as `"1h30m"`. `riot_ops.testing.check_parameter_names` checks this,',
        "for your own tasks, too.",
        "",
        "| name | type | meaning | where |",
        "|---|---|---|---|",
    ]
    for name, (declared, meaning) in sorted(PARAMETERS.items()):
        owners = [owner for found in uses[name].values() for owner in found]
        where = ", ".join(owners) if len(owners) <= 4 else f"{', '.join(owners[:3])} and {len(owners) - 3} others"
        lines.append(f"| `{name}` | {declared.replace('|', 'or')} | {meaning} | {where} |")
    return "\n".join(lines) + "\n"


def experiments(suite: str) -> str:
    """Return the table of the experiments of a suite."""
    lines = ["| experiment | what | command | quick | full |", "|---|---|---|---:|---:|"]
    for one in plan_experiments([suite]):
        times = " | ".join(f"{s:.0f} s" if s < 120 else f"{s / 60:.0f} min" for s in one.experiment.seconds)
        command = f"`riot-ops report --experiment {one.key}`"
        lines.append(f"| `{one.key}` | {one.experiment.title} | {command} | {times} |")
    return "\n".join([*lines, "", "Times are for two cores; `--full` runs the full form."])


def generated_parts(figures: list[summary.Figure]) -> dict[str, str]:
    """Return the parts that come from the code, and tables of several figures in a row, by name."""
    network = network_markdown({figure.measure: float(figure.value) for figure in figures if figure.value})
    tables = {f"experiments_{suite}": experiments(suite) for suite in REPORTS}
    return {**dataflow_pages.parts(), **tables, "network_dspbench": network}


def filled(text: str, parts: Mapping[str, str], figures: list[summary.Figure]) -> str:
    """Return a page with its generated parts and tables."""

    def part(match: re.Match[str]) -> str:
        names = match["names"].split()
        if match["what"] == "generated":
            return parts[names[0]].rstrip()
        found = summary.matching(figures, names)
        if not found:
            raise SystemExit(f"no figure in {SUMMARY.relative_to(ROOT)} fits {match['names']}")
        paper = match["what"] == "paper"
        shown = [f for f in found if not paper or f.published or f.reach]
        return summary.markdown(shown, paper, summary.read_changes(CHANGES))

    return PLACE.sub(part, text)


def build(target: Path, pictures: bool = True) -> None:
    """Write all pages into a folder, which is emptied first."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(DOCS, target)
    figures = summary.read(SUMMARY)
    parts = generated_parts(figures)
    for page in sorted(target.rglob("*.md")):
        page.write_text(filled(page.read_text(encoding="utf-8"), parts, figures), encoding="utf-8")
    (target / "tasks.md").write_text(task_page(), encoding="utf-8")
    (target / "parameters.md").write_text(parameter_page(), encoding="utf-8")
    if pictures:
        application_pages.draw(target / "dataflows" / "pictures")


def main() -> None:
    """Build into the folder that is named, or into build/docs."""
    names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    target = Path(names[0]) if names else ROOT / "build" / "docs"
    build(target, pictures="--no-pictures" not in sys.argv)
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
