"""Results of the suites micro and app as files: plots, figures as JSON, and an HTML page with all of them."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Self

from riot_bench.harness.formatting import format_number
from riot_bench.harness.html import PAGE_NAME, STYLE
from riot_bench.harness.machine import describe_machine, load_average
from riot_bench.harness.outcome import Outcome
from riot_bench.suites.riotbench import paper
from riot_bench.suites.riotbench.plots import TITLES, draw_plots
from riot_bench.suites.riotbench.tables import COLUMNS, table_rows

__all__ = ["ResultFiles", "render_page"]

#: Default folder, in which each suite has its own.
FOLDER = Path("out") / "bench"

HEADINGS = {"micro": "Single tasks", "app": "Applications"}
METHOD = {
    "Peak": "the highest input rate at which neither the latency of messages nor the queue of due messages grows; "
    "searched by trials, each from a fresh start, and confirmed by a longer run.",
    "Latency": "time from when a message is due until a record that it triggered is delivered, by message number. In "
    "process a record is delivered when the sink receives it, on Spark when its micro-batch is committed.",
    "Task alone": "time of the task per output record, without source, queue and sink.",
    "Jitter": "J = (output rate − σ · input rate) / (σ · mean input rate) in each interval, where σ is the expected "
    "number of records per message: as the tasks declare it, else as an unpaced run delivered for its later messages. "
    "While windows fill, J is below 0.",
    "CPU and memory": "of the process and all that it started (on Spark the JVM and Python workers), including source, "
    "probe and sink. Shared pages count proportionally. Memory of a task in process is of a new process that runs "
    "nothing else, at the same rate; it contains some 100 MiB of the interpreter and libraries.",
}


class ResultFiles:
    """Collects outcomes and writes their files at the end, also after an error.

    Parameters
    ----------
    suite : str
        ``micro`` or ``app``.
    runner : str
        Name of the runner.
    quick : bool
        Whether the runs are too short for quoting.
    folder : Path, default ``out/bench/<suite>``

    Attributes
    ----------
    where : str
        Description of the runner.
    """

    def __init__(self, suite: str, runner: str, quick: bool, folder: Path | None = None) -> None:
        self.suite, self.where, self.quick = suite, runner, quick
        self.machine = describe_machine()
        self.load = [load_average()]
        self.folder = folder or FOLDER / (suite if runner == "local" else f"{suite}-{runner}")
        self.outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """Add an outcome."""
        self.outcomes.append(outcome)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)  # fail early if this is not allowed
        return self

    def __exit__(self, *_: object) -> None:
        if self.outcomes:
            print(f"page: {self.write()}", file=sys.stderr)

    def write(self) -> Path:
        """Write the files and return the path of the page."""
        self.load = [self.load[0], load_average()]
        pictures = draw_plots(self.suite, self.outcomes)
        for name, data in pictures.items():
            (self.folder / f"{name}.png").write_bytes(data)
        found = {
            "suite": self.suite,
            "machine": self.machine,
            "load": self.load,
            "where": self.where,
            "quick": self.quick,
            "outcomes": [o.as_dict() for o in self.outcomes],
        }
        text = json.dumps(found, ensure_ascii=False, indent=1)
        (self.folder / "results.json").write_text(text + "\n", encoding="utf-8")
        path = self.folder / PAGE_NAME
        before, after = self.load
        quick = " · short runs, not for quoting" if self.quick else ""
        where = f"{self.where} · {self.machine} · load {before:g} before, {after:g} after{quick}"
        path.write_text(render_page(self.suite, where, self.outcomes, pictures), encoding="utf-8")
        return path


def render_page(suite: str, where: str, outcomes: Sequence[Outcome], pictures: dict[str, bytes]) -> str:
    """Render the page without external resources."""
    title = f"RIoTBench: {HEADINGS[suite].lower()}"
    figures = {o.name: {name: value for name, (value, _) in o.figures().items()} for o in outcomes}
    head = "".join(f"<th{_paper_class(c)}>{escape(c)}</th>" for c in (HEADINGS[suite][:-1], *COLUMNS))
    body = "".join(
        "<tr>"
        + "".join(f"<td{_paper_class(c)}>{escape(cell)}</td>" for c, cell in zip(("", *COLUMNS), row, strict=True))
        + "</tr>"
        for row in table_rows(suite, figures)
    )
    sections = "".join(
        f'<h2>{escape(TITLES[name])}</h2>\n<img src="data:image/png;base64,{base64.b64encode(data).decode()}" '
        f'alt="{escape(TITLES[name])}">\n'
        for name, data in pictures.items()
    )
    method = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in METHOD.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p class="dim">{escape(where)}</p>
{_format_remarks(outcomes)}
<h2>Comparison with the paper</h2>
<p>The columns headed <span class="paper">paper</span> are figures from <em>other machines</em>, from the text of
{escape(paper.METHOD)} ({escape(paper.MACHINE)}). Compare orders of magnitude, not digits.</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
{sections}
<h2>How it was measured</h2>
<dl>{method}</dl>
</body>
</html>
"""


def _paper_class(column: str) -> str:
    return ' class="paper"' if column == "paper" else ""


def _format_remarks(outcomes: Sequence[Outcome]) -> str:
    """Format the remarks that a reader of the figures must know."""
    unstable = [f"{o.name} (at {format_number(o.figures()['rate'][0])}/s)" for o in outcomes if not o.stability.stable]
    cut = [o.name for o in outcomes if not o.peak.converged]
    silent = [f"{', '.join(o.silent)} of {o.name} (in {o.until:g} s)" for o in outcomes if o.silent]
    texts = []
    if silent:
        texts.append(f"No records in {'; '.join(silent)}: the figures are of the other streams.")
    if unstable:
        texts.append(f"The final run did not keep up: {', '.join(unstable)}.")
    if cut:
        texts.append(f"The search ran out of time, so the peak may be higher: {', '.join(cut)}.")
    return "".join(f"<p>{escape(text)}</p>" for text in texts)
