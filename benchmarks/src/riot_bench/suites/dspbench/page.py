"""The characterisation of DSPBench as files: pictures, figures as JSON, and one page with all of it."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from riot_bench.harness.measure import Measure, load, machine
from riot_bench.harness.measure import table as measure_table
from riot_bench.suites.dspbench.plots import TITLES, draw, of_applications, of_operators
from riot_bench.suites.riotbench.page import PAGE, STYLE

__all__ = ["FOLDER", "PAPER", "table", "write"]

#: Where the files go by default.
FOLDER = Path("out") / "bench" / "dspbench"
SOURCE = (
    "M. V. Bordin et al., DSPBench: a suite of benchmark applications for distributed data stream processing systems, "
    "IEEE Access 8, 2020"
)
MACHINES = (
    "operators on an Intel i7-5500U with 8 GB, the Java originals; applications on Apache Storm and Spark Streaming, "
    "with batches of a second, on 1 to 8 virtual machines of 2 cores and 3.5 GB"
)
#: What the paper's text says of its figures 18 to 22, by the figure here that shows the same.
PAPER = {
    "selectivity": "Above 1 in the splitter of word count, the counter of trending topics and, by far the most, the "
    "tokenizer of the spam filter; the others are maps with 1 and filters below it.",
    "operator-time": "The spam filter's tokenizer is the slowest, then the map matching of traffic monitoring; in word "
    "count the splitter, in machine outlier and trending topics the source, in VoIP stream the "
    "variation detector.",
    "record-size": "Records mostly shrink from source to sink; they grow in machine outlier, fraud detection, "
    "sentiment analysis, smart grid and reinforcement learner, which carry their input along.",
    "memory": "A wide spread over time in ads analytics, bargain index, VoIP stream and traffic monitoring, a "
    "narrow one in word count, spike detection, sentiment analysis, log processing and spam filter; "
    "large records do not mean much memory.",
    "throughput": "Measured for word count, log processing and traffic monitoring: higher with Storm than with "
    "Spark Streaming for all three.",
    "latency": "95th percentile, under full load: with Storm lower for all three, for word count mostly below 15 "
    "s; with Spark higher but steadier; highest for traffic monitoring, low for log processing.",
    "cpu": "Use of CPU falls as nodes are added without a gain in throughput; what has the highest "
    "throughput uses most.",
    "scaling": "Throughput grows slowly with the nodes; skewed keys limit the gain; traffic monitoring on Spark "
    "gains nothing.",
}
#: Columns of the table of applications.
COLUMNS = {
    "local": "in process, one core (lines/s)",
    "vs-plain-python": "× plain Python",
    "local-latency-p50": "p50 (ms)",
    "local-latency-p95": "p95 (ms)",
    "local-latency-p95-one-core": "p95, one core (ms)",
    "local-cpu": "CPU (cores)",
    "local-memory": "memory (MiB)",
    "local-all-cores-vs-one": "all cores × one",
    "spark": "Spark (lines/s)",
    "spark-vs-idiomatic": "× plain PySpark",
    "spark-latency-p50": "p50 (ms)",
    "spark-latency-p95": "p95 (ms)",
    "spark-cpu": "CPU (cores)",
    "spark-memory": "memory (MiB)",
    "spark-vs-one-core": "local[2] × local[1]",
}
OPERATOR_COLUMNS = {
    "selectivity": "selectivity",
    "time-p50": "p50 (ns/record)",
    "time-p95": "p95 (ns/record)",
    "bytes-in": "in (bytes/record)",
    "bytes-out": "out (bytes/record)",
    "state": "state (bytes)",
}
METHOD = {
    "Throughput": "generated lines from files, nothing written, every result handed to a sink. On Spark the later "
    "micro-batches of a query in a warm session.",
    "Latency": "from the moment when a line is due to that when a record that it triggered is delivered, at half "
    "of the rate that was reached on all cores; on one core at half of what that reached. On Spark a record is "
    "delivered when its micro-batch is committed.",
    "Time of operators": "of a call over what comes of 4,096 lines, per record that it takes, in process on one core; "
    "that of a source is reading.",
    "Size of records": "as Arrow holds them, with the number of the message and the event time.",
    "CPU and memory": "of the process and all that it started; pages that processes share count by share.",
}


def write(folder: Path, found: Sequence[Measure], load_before: float, quick: bool) -> Path:
    """Write the files; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {m.measure: m.value for m in found}
    pictures = draw(values)
    for name, data in pictures.items():
        (folder / f"{name}.png").write_bytes(data)
    where = f"{machine()} · load {load_before:g} before, {load():g} after"
    where += " · short runs, not for quoting" if quick else ""
    results = {
        "suite": "dspbench",
        "where": where,
        "quick": quick,
        "measures": [json.loads(m.to_json()) for m in found],
    }
    (folder / "results.json").write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    path = folder / PAGE
    path.write_text(_page(where, values, pictures), encoding="utf-8")
    return path


def table(found: Iterable[Measure]) -> Any:
    """Applications as other suites show theirs, operators in a row each, for the terminal."""
    from rich.console import Group
    from rich.table import Table

    found = list(found)
    operators = of_operators({m.measure: m.value for m in found})
    shown = Table(show_edge=False)
    for title in ("operator", *OPERATOR_COLUMNS.values()):
        shown.add_column(title, justify="right" if title != "operator" else "left")
    for name, figures in operators.items():
        shown.add_row(name, *(_number(figures.get(column, math.nan)) for column in OPERATOR_COLUMNS))
    others = measure_table(m for m in found if "/operator/" not in m.measure)
    return Group(others, "", shown) if operators else others


def _page(where: str, values: dict[str, float], pictures: dict[str, bytes]) -> str:
    """The page: it needs no other file and no network."""
    sections = "".join(
        f"<h2>{escape(TITLES[name])}</h2>\n"
        + (
            f'<p><span class="paper">The paper, on other machines</span>: {escape(PAPER[name])}</p>\n'
            if name in PAPER
            else ""
        )
        + f'<img src="data:image/png;base64,{base64.b64encode(data).decode()}" alt="{escape(TITLES[name])}">\n'
        for name, data in pictures.items()
    )
    method = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in METHOD.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>DSPBench</title>
<style>{STYLE}</style>
</head>
<body>
<h1>DSPBench</h1>
<p class="dim">{escape(where)}</p>
<p>What is said of the <span class="paper">paper</span> is from the text on its figures 18 to 22: {escape(SOURCE)}
({escape(MACHINES)}).</p>
<h2>Applications</h2>
{_table("application", of_applications(values), COLUMNS)}
<h2>Sources and operators</h2>
{_table("operator", of_operators(values), OPERATOR_COLUMNS)}
{sections}
<h2>How it was measured</h2>
<dl>{method}</dl>
</body>
</html>
"""


def _table(what: str, rows: dict[str, dict[str, float]], columns: dict[str, str]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in (what, *columns.values()))
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{_number(figures.get(column, math.nan))}</td>" for column in columns)
        + "</tr>"
        for name, figures in rows.items()
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _number(value: float) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
