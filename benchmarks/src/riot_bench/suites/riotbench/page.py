"""The results of a benchmark as files: pictures, figures as JSON, and one page with all of it."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Self

from riot_bench.harness.measure import load, machine
from riot_bench.harness.outcome import Outcome
from riot_bench.suites.riotbench import published as paper
from riot_bench.suites.riotbench.plots import TITLES, draw
from riot_bench.suites.riotbench.tables import COLUMNS, rows, short

__all__ = ["Results", "page"]

#: Where the files go by default, below the folder of the suite.
FOLDER = Path("out") / "bench"
PAGE = "index.html"

HEADINGS = {"micro": "Single tasks", "app": "Applications"}
STYLE = """
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #0f172a; background: #fff; margin: 2rem auto;
  max-width: 68rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; }
p, dl { max-width: 46rem; } .dim { color: #64748b; } dt { font-weight: 600; } dd { margin: 0 0 .5rem 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e2e8f0; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; font-weight: 600; position: sticky; left: 0; background: #fff; }
th { vertical-align: bottom; white-space: normal; } .paper { text-align: left; color: #9a3412; background: #fff7ed; }
img { max-width: 100%; height: auto; border: 1px solid #e2e8f0; border-radius: 4px; }
"""
METHOD = {
    "Peak": "the highest input rate at which neither the latency of messages nor the queue of messages that are due "
    "grows; found by trying rates, each from a fresh start, and confirmed by a longer run.",
    "Latency": "time from the moment when a message is due to that when a record that it triggered is delivered, by "
    "message number. In process a record is delivered when the sink gets it, on Spark when its micro-batch is "
    "committed.",
    "Task alone": "time that the task takes for the messages that led to a record, by record that it puts out; without "
    "source, queue and sink.",
    "Jitter": "J = (output rate − σ · input rate) / (σ · mean input rate) in each interval, σ being the records "
    "that should be delivered per message: as the tasks declare it, else as a run without a pace to keep delivered of "
    "its later messages. While windows fill it is below 0.",
    "CPU and memory": "of the process and all that it started (the JVM and Python workers on Spark); source, probe and "
    "sink included. Pages that processes share count by share.",
}


class Results:
    """Gathers outcomes and writes their files at the end, whatever ended it.

    Parameters
    ----------
    suite : str
        ``micro`` or ``app``.
    runner : str
        What runs the dataflows.
    quick : bool
        Whether the runs were too short for figures to quote.
    folder : Path, default ``out/bench/<suite>``

    Attributes
    ----------
    where : str
        The runner in words.
    """

    def __init__(self, suite: str, runner: str, quick: bool, folder: Path | None = None) -> None:
        self.suite, self.where, self.quick = suite, runner, quick
        self.machine = machine()
        self.load = [load()]
        self.folder = folder or FOLDER / (suite if runner == "local" else f"{suite}-{runner}")
        self.outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """Add one."""
        self.outcomes.append(outcome)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)  # tell at once where that is not allowed
        return self

    def __exit__(self, *_: object) -> None:
        if self.outcomes:
            print(f"page: {self.write()}", file=sys.stderr)

    def write(self) -> Path:
        """Write the files; returns the page."""
        self.load = [self.load[0], load()]
        pictures = draw(self.suite, self.outcomes)
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
        path = self.folder / PAGE
        before, after = self.load
        quick = " · short runs, not for quoting" if self.quick else ""
        where = f"{self.where} · {self.machine} · load {before:g} before, {after:g} after{quick}"
        path.write_text(page(self.suite, where, self.outcomes, pictures), encoding="utf-8")
        return path


def page(suite: str, where: str, outcomes: Sequence[Outcome], pictures: dict[str, bytes]) -> str:
    """The page: it needs no other file and no network."""
    title = f"RIoTBench: {HEADINGS[suite].lower()}"
    figures = {o.name: {name: value for name, (value, _) in o.figures().items()} for o in outcomes}
    head = "".join(f"<th{_paper(c)}>{escape(c)}</th>" for c in (HEADINGS[suite][:-1], *COLUMNS))
    body = "".join(
        "<tr>"
        + "".join(f"<td{_paper(c)}>{escape(cell)}</td>" for c, cell in zip(("", *COLUMNS), row, strict=True))
        + "</tr>"
        for row in rows(suite, figures)
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
{_remarks(outcomes)}
<h2>Beside the paper</h2>
<p>The columns headed <span class="paper">paper</span> are <em>another machine's</em> figures, from the text of
{escape(paper.METHOD)} ({escape(paper.MACHINE)}). Compare orders of magnitude, not digits.</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
{sections}
<h2>How it was measured</h2>
<dl>{method}</dl>
</body>
</html>
"""


def _paper(column: str) -> str:
    return ' class="paper"' if column == "paper" else ""


def _remarks(outcomes: Sequence[Outcome]) -> str:
    """What a reader must know about single figures."""
    behind = [f"{o.name} (at {short(o.figures()['rate'][0])}/s)" for o in outcomes if not o.stability.stable]
    cut = [o.name for o in outcomes if not o.peak.closed]
    silent = [f"{', '.join(o.silent)} of {o.name} (in {o.until:g} s)" for o in outcomes if o.silent]
    texts = []
    if silent:
        texts.append(f"Nothing at all came out of {'; '.join(silent)}: the figures are of the rest.")
    if behind:
        texts.append(f"Not kept up with in the long run: {', '.join(behind)}.")
    if cut:
        texts.append(f"The search for the peak ran out of time, which may be higher: {', '.join(cut)}.")
    return "".join(f"<p>{escape(text)}</p>" for text in texts)
