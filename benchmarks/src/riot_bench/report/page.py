"""The report as a single HTML page without external resources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from riot_bench.harness.measure import Measure
from riot_bench.report.charts import Chart
from riot_bench.report.intervals import MIN_VALUES
from riot_bench.report.store import DONE, MISSING, Result
from riot_bench.report.tables import (
    COLUMNS,
    count_reached,
    describe_findings,
    describe_forms,
    describe_missing,
    describe_origin,
    describe_state,
    format_finding,
    list_findings,
    list_remarks,
    measure_cells,
)

__all__ = ["HEADINGS", "render_page"]

HEADINGS = {
    "riotbench": "RIoTBench",
    "dspbench": "DSPBench",
    "neptune": "Neptune",
    "streambench": "StreamBench",
    "threat": "Threat detection",
    "reuse": "Reuse of dataflows",
}
STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #0f172a; --dim: #5b6778; --line: #d7dce3; --link: #1d4ed8;
  --good: #15803d; --bad: #b91c1c; --card: #f8fafc; --theirs: #b45309; }
@media (prefers-color-scheme: dark) { :root { --back: #0f1420; --text: #e2e8f0; --dim: #94a3b8; --line: #323c4f;
  --link: #93c5fd; --good: #4ade80; --bad: #f87171; --card: #171e2d; --theirs: #fbbf24; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: var(--text); background: var(--back);
  margin: 0 auto; max-width: 68rem; padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: .6rem 0 .2rem; } h2 { font-size: 1.35rem; margin: 2.6rem 0 .4rem; }
h3 { font-size: 1.08rem; margin: 2rem 0 .3rem; } p, dl { max-width: 46rem; margin: .4rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; }
a { color: var(--link); } .dim, figcaption, dd { color: var(--dim); }
dt { font-weight: 600; } dd { margin: 0; min-width: 0; }
.bad { color: var(--bad); } .good { color: var(--good); } .theirs { color: var(--theirs); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1rem; }
figure { margin: .6rem 0; padding: .7rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card);
  min-width: 0; max-width: 38rem; align-self: start; }
figure h4 { margin: 0 0 .3rem; font-size: .95rem; } figcaption { font-size: .82rem; }
.wide { overflow-x: auto; } .wide svg { display: block; width: 100%; min-width: 18rem; height: auto; }
table { border-collapse: collapse; font-size: .84rem; } caption { text-align: left; color: var(--dim); }
th, td { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
.n { text-align: right; white-space: nowrap; } td.how { min-width: 15rem; color: var(--dim); }
td.state { min-width: 13rem; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--back); font-weight: 600;
  min-width: min(14rem, 34vw);  overflow-wrap: normal; }
th { white-space: nowrap; padding-block: 0; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: .35rem 0; cursor: pointer;
  font-weight: 600; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th button::after { content: " ↕"; color: var(--dim); } th[aria-sort=ascending] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
summary { cursor: pointer; margin: .5rem 0; }
@media print { details:not([open]) > * { display: block; } }
"""
#: Numeric columns are sorted by the number that a cell begins with, or by ``data-v``; empty cells are last.
SCRIPT = r"""
const NUMBER = /^[≤≥<>≈~\s]*([-+−]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)/i;
function valueOf(cell, number) {
  const text = (cell.dataset.v ?? cell.textContent).trim();
  if (!number) return text === "" || text === "–" ? null : text;
  const found = text.replace(/,/g, "").match(NUMBER);
  return found ? Number(found[1].replace("−", "-")) : null;
}
function sortBy(head) {
  const body = head.closest("table").tBodies[0], number = head.classList.contains("n");
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...body.rows].map(row => [valueOf(row.cells[head.cellIndex], number), row]);
  rows.sort(([a], [b]) => a === b ? 0 : a === null ? 1 : b === null ? -1 :
    (number ? a - b : a.localeCompare(b, "en", {numeric: true})) * (down ? -1 : 1));
  body.append(...rows.map(([, row]) => row));
}
for (const button of document.querySelectorAll("th button"))
  button.addEventListener("click", () => sortBy(button.closest("th")));
"""
METHOD = {
    "Value": "the median of repeated runs. A measure that must hold in each run, for example that nothing is lost or "
    "that results are equal, shows the worst run.",
    "Load": "the machine's highest load average over a minute, before the experiment and when the value was measured. "
    "The first contains the benchmark's own earlier work, up to 2 on two cores; above that (⚠) other work ran at the "
    "same time, and the figure means little. The second contains the benchmark's own threads.",
    "Interval": f"the mean and its 95 % confidence interval by Student's t, of {MIN_VALUES} or more repetitions; for "
    "ratios the geometric mean and its interval, from their logarithms; for rates and times cut at 0. Runs without a "
    "value count neither here nor in the column “runs”. A measure of a single run with as many parts, such as "
    "micro-batches, has an interval “within the run”, of the means of successive parts; other runs may lie outside "
    "it. A measure with fewer values has no interval.",
    "≥": "a lower bound: the true value is this or more, for example because a run was stopped or no larger input was "
    "tried.",
    "Published": "the paper's value, on its machines and with its engines: compare orders of magnitude and the order "
    "of figures, not digits.",
    "Reach": "the target of a measure: what the project wants of itself, chosen before the measurement. “missed” marks "
    "a measure that does not reach it. Measures without a target only inform.",
    "Process": "each experiment runs in its own process with a time limit; an experiment that fails or hangs is "
    "reported here and does not stop the others.",
}


def render_page(title: str, results: Sequence[Result], charts: Mapping[str, Sequence[Chart]]) -> str:
    """Render the page.

    Parameters
    ----------
    title : str
    results : sequence of Result
    charts : mapping of str to sequence of Chart
        Charts by experiment.
    """
    beside = describe_missing(results)
    about = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in describe_origin(results).items())
    method = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in METHOD.items())
    parts = [
        f"<section><h2>{escape(HEADINGS.get(suite, suite))}</h2>\n"
        + "".join(_experiment(one, charts.get(one.planned.key, ())) for one in of_suite)
        + "</section>\n"
        for suite, of_suite in groupby(results, key=lambda one: one.planned.suite)
    ]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>{escape(describe_forms(results))}</p>{f'<p class="dim">{escape(beside)}</p>' if beside else ""}
<dl>{about}</dl>
</header>
<main>
{_findings(results)}
{_summary(results)}
{"".join(parts)}</main>
<footer>
<h2>How to read it</h2>
<dl>{method}</dl>
</footer>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _findings(results: Sequence[Result]) -> str:
    """Render what a reader must know first: the targets that are missed."""
    rows = "".join(
        f'<li><span class="bad">{escape(format_finding(m)).replace("/", "/<wbr>")}</span> '
        f'(<a href="#{_anchor(key)}">{escape(key)}</a>)</li>'
        for key, m in list_findings(results)
    )
    text = f"<p>{escape(describe_findings(results))}</p>"
    return f"<section><h2>Findings</h2>\n{text}{f'<ul>{rows}</ul>' if rows else ''}</section>"


def _summary(results: Sequence[Result]) -> str:
    rows = []
    for one in results:
        met, asked = count_reached([one])
        short = f" ({asked - met} short)" if met < asked else ""
        kind = ["bad"] if one.state not in (DONE, MISSING) else ["dim"] if one.state != DONE else []
        rows.append(
            f'<tr><td><a href="#{_anchor(one.planned.key)}">{escape(one.planned.key)}</a></td>'
            f'<td class="n" data-v="{met - asked if asked else ""}">{f"{met} of {asked}{short}" if asked else ""}</td>'
            f"<td{_class(['state', *kind])}>{escape(describe_state(one))}</td>"
            f"<td>{one.form}</td>"
            f'<td class="n">{one.seconds:.0f}</td><td class="n">{len(one.measures)}</td>'
            f'<td class="n">{one.runs}</td></tr>'
        )
    numbers = ("reached", "seconds", "measures", "runs")
    columns = {name: name in numbers for name in ("experiment", "reached", "state", "form", *numbers[1:])}
    return _table(columns, rows)


def _experiment(result: Result, charts: Sequence[Chart]) -> str:
    experiment = result.planned.experiment
    command = f"riot-ops report --experiment {experiment.key}"
    if result.form == "full":
        command += " --full"
    if "." in result.planned.suite:
        command += f" --suite {result.planned.suite}"
    parts = [f'<article id="{_anchor(experiment.key)}"><h3>{escape(experiment.title)}</h3>']
    parts.append(f'<p class="dim"><code>{escape(command)}</code></p>')
    if experiment.about:
        parts.append(f"<p>{escape(experiment.about)}</p>")
    parts += [f'<p class="dim">{escape(text)}</p>' for text in list_remarks(result)]
    if charts:
        parts.append('<div class="figures">')
        parts += [
            f'<figure><h4>{escape(p.figure.title)}</h4><div class="wide">{_named(p)}</div>'
            f"<figcaption>{escape(p.note)}</figcaption></figure>"
            for p in charts
        ]
        parts.append("</div>")
    undrawn = [f.title for f in experiment.figures if f not in [p.figure for p in charts]]
    if undrawn and result.measures:
        parts.append(f'<p class="dim">No measures for: {escape("; ".join(undrawn))}.</p>')
    if result.measures:
        rows = [_row(m) for m in result.measures]
        parts.append(
            f"<details{'' if len(rows) > 15 and charts else ' open'}><summary>{len(rows)} measures</summary>"
            f"{_table(COLUMNS, rows)}</details>"
        )
    return "\n".join(parts) + "</article>\n"


def _named(chart: Chart) -> str:
    """Return the drawing with its title for screen readers."""
    title = escape(chart.figure.title, quote=True)
    return chart.svg.replace("<svg ", f'<svg aria-label="{title}" ', 1)


def _row(measure: Measure) -> str:
    exact = {"value": measure.value, "published": measure.published, "reach": measure.reach}
    row = []
    for column, text in zip(COLUMNS, measure_cells(measure), strict=True):
        classes = ["n"] if COLUMNS[column] else []
        classes += {"how": ["how"], "published": ["theirs"], "met": ["good" if text == "yes" else "bad"]}.get(
            column, []
        )
        value = exact.get(column)
        sort = f' data-v="{value:.6g}"' if value is not None and math.isfinite(value) else ""
        shown = escape(text).replace("/", "/<wbr>") if column == "measure" else escape(text)
        row.append(f"<td{_class(classes)}{sort}>{shown}</td>")
    return f"<tr>{''.join(row)}</tr>"


def _table(columns: Mapping[str, bool], rows: Sequence[str]) -> str:
    head = "".join(
        f'<th scope="col"{_class(["n"] if number else [])}><button type="button">{escape(name)}</button></th>'
        for name, number in columns.items()
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _class(classes: Sequence[str]) -> str:
    return f' class="{" ".join(classes)}"' if classes else ""


def _anchor(key: str) -> str:
    return escape(key.replace("/", "-").replace(" ", "-"), quote=True)
