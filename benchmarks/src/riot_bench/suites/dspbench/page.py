"""The characterization of DSPBench as files: plots, measures as JSON, and an HTML page with all of them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from riot_bench.harness.html import PAGE_NAME, STYLE
from riot_bench.harness.machine import describe_machine, load_average
from riot_bench.harness.measure import Measure
from riot_bench.harness.measure_table import measure_table
from riot_bench.suites.dspbench.plots import TITLES, by_application, by_operator, draw_plots, with_largest

__all__ = ["FOLDER", "PAPER_FINDINGS", "network_markdown", "table", "with_network", "write_page"]

#: Default folder of the files.
FOLDER = Path("out") / "bench" / "dspbench"
SOURCE = (
    "M. V. Bordin et al., DSPBench: a suite of benchmark applications for distributed data stream processing systems, "
    "IEEE Access 8, 2020"
)
MACHINES = (
    "operators on an Intel i7-5500U with 8 GB, the Java originals; applications on Apache Storm and Spark Streaming, "
    "with batches of a second, on 1 to 8 virtual machines of 2 cores and 3.5 GB"
)
#: The paper's text, by the plot that shows the same here; the first four describe its figures 18 and 19.
PAPER_FINDINGS = {
    "selectivity": "Above 1 in the splitter of word count, the counter of trending topics and, by far the highest, the "
    "tokenizer of the spam filter; the others are maps at 1 and filters below 1.",
    "operator-time": "The spam filter's tokenizer is the slowest, then the map matching of traffic monitoring; in word "
    "count the splitter, in machine outlier and trending topics the source, in VoIP stream the "
    "variation detector.",
    "record-size": "Records mostly shrink from source to sink; they grow in machine outlier, fraud detection, "
    "sentiment analysis, smart grid and reinforcement learner, whose records contain their input.",
    "memory": "A wide spread over time in ads analytics, bargain index, VoIP stream and traffic monitoring, a "
    "narrow one in word count, spike detection, sentiment analysis, log processing and spam filter; "
    "large records do not imply much memory.",
    "throughput": "Measured for word count, log processing and traffic monitoring: higher with Storm than with "
    "Spark Streaming for all three.",
    "latency": "95th percentile under full load: with Storm lower for all three, for word count mostly below 15 "
    "s; with Spark higher but with less variation; highest for traffic monitoring, low for log processing.",
    "cpu": "CPU usage falls as nodes are added without a gain in throughput; the configuration with the highest "
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
    "spark-vs-idiomatic/250k": "× plain PySpark, 250k lines",
    "spark-vs-idiomatic/1M": "1M lines",
    "spark-vs-idiomatic": "largest micro-batches",
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
#: Columns of the table of the network, bytes per line unless they say otherwise.
NETWORK_COLUMNS = {
    "mqtt-network/in": "in process over MQTT: in",
    "mqtt-network/out": "out",
    "spark-network/shuffle-written": "Spark: shuffles",
    "spark-network/to-python": "to Python",
    "spark-network/from-python": "from Python",
    "spark-network/shuffle-rate-p50": "shuffles (MB/s, median)",
    "spark-network/shuffle-rate-p95": "95 %",
    "spark-idiomatic-network/shuffle-written": "plain PySpark: shuffles",
    "spark-idiomatic-network/to-python": "to Python",
    "spark-idiomatic-network/from-python": "from Python",
    "spark-idiomatic-network/shuffle-rate-p50": "shuffles (MB/s, median)",
    "spark-idiomatic-network/shuffle-rate-p95": "95 %",
}
METHOD = {
    "Throughput": "generated lines from files; each side passes its results to a sink that discards them. On Spark, "
    "all micro-batches of a query in a warm session except the first.",
    "Beside plain Python and plain PySpark": "all results of both sides are compared record by record first, floats "
    "within 1e-6. Then each side runs once as its warm-up, and both run in turn. While results are compared, plain "
    "PySpark reads a single partition, so that lines stay in order; while it is timed, nothing keeps their order.",
    "Latency": "from when a line is due until a record that it triggered is delivered, at half of the peak rate of all "
    "cores; on one core at half of the peak rate of one core. On Spark a record is delivered when its micro-batch is "
    "committed.",
    "Time of operators": "time of a call over the records that 4,096 lines lead to, per input record, in process on "
    "one core; for a source, the time of reading. Median and 95th percentile are over records, each of which has the "
    "mean of its call.",
    "Size of records": "with the number of the message and the event time: texts by their length, other values by "
    "their width. The table has the mean in Arrow's memory format, the plot the spread of output records.",
    "Network": "in process, bytes at the sockets of the application, whose lines and results are messages of an MQTT "
    "broker. On Spark, bytes that shuffles write, compressed, and those sent to Python workers and returned by them, "
    "without sources and sinks; on a cluster of n machines, (n - 1) / n of a shuffle's bytes cross the network.",
    "CPU and memory": "of the process and all that it started; shared pages count proportionally.",
}


def write_page(folder: Path, found: Sequence[Measure], load_before: float, quick: bool) -> Path:
    """Write the files and return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {m.measure: m.value for m in found}
    pictures = draw_plots(values)
    for name, data in pictures.items():
        (folder / f"{name}.png").write_bytes(data)
    where = f"{describe_machine()} · load {load_before:g} before, {load_average():g} after"
    where += " · short runs, not for quoting" if quick else ""
    results = {
        "suite": "dspbench",
        "where": where,
        "quick": quick,
        "measures": [json.loads(m.to_json()) for m in found],
    }
    (folder / "results.json").write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    path = folder / PAGE_NAME
    path.write_text(_page(where, values, pictures), encoding="utf-8")
    return path


def table(found: Iterable[Measure]) -> Any:
    """Build the table for the terminal: measures of applications, and a row for each operator."""
    from rich.console import Group
    from rich.table import Table

    found = list(found)
    operators = by_operator({m.measure: m.value for m in found})
    shown = Table(show_edge=False)
    for title in ("operator", *OPERATOR_COLUMNS.values()):
        shown.add_column(title, justify="right" if title != "operator" else "left")
    for name, figures in operators.items():
        shown.add_row(name, *(_number(figures.get(column, math.nan)) for column in OPERATOR_COLUMNS))
    others = measure_table(m for m in found if "/operator/" not in m.measure)
    return Group(others, "", shown) if operators else others


def _page(where: str, values: dict[str, float], pictures: dict[str, bytes]) -> str:
    """Render the page without external resources."""
    sections = "".join(
        f"<h2>{escape(TITLES[name])}</h2>\n"
        + (
            f'<p><span class="paper">The paper, on other machines</span>: {escape(PAPER_FINDINGS[name])}</p>\n'
            if name in PAPER_FINDINGS
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
<p>Statements of the <span class="paper">paper</span> are from its text, those on selectivity, time, size and memory
from the text on its figures 18 and 19: {escape(SOURCE)} ({escape(MACHINES)}).</p>
<h2>Applications</h2>
{_table("application", with_largest(by_application(values)), COLUMNS)}
<h2>Network</h2>
{_table("application", with_network(values), NETWORK_COLUMNS)}
<h2>Sources and operators</h2>
{_table("operator", by_operator(values), OPERATOR_COLUMNS)}
{sections}
<h2>How it was measured</h2>
<dl>{method}</dl>
</body>
</html>
"""


def with_network(values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the figures of the applications whose network is measured.

    >>> with_network({"dspbench/wc/mqtt-network/in": 90.0, "dspbench/wc/local": 1e6, "dspbench/tm/local": 1e6})
    {'wc': {'mqtt-network/in': 90.0}}
    """
    known = {
        code: {name: value for name, value in figures.items() if name in NETWORK_COLUMNS}
        for code, figures in by_application(values).items()
    }
    return {code: figures for code, figures in known.items() if figures}


def network_markdown(values: Mapping[str, float]) -> str:
    """Return the table of the network for the documentation.

    >>> print(network_markdown({"dspbench/wc/mqtt-network/in": 90.0, "dspbench/wc/mqtt-network/out": 1010.25}))
    | application | in process over MQTT: in | out |
    |---|---:|---:|
    | wc | 90 | 1,010 |
    >>> network_markdown({"dspbench/wc/local": 1e6})
    'Not measured yet.'
    """
    rows = with_network(values)
    columns = [name for name in NETWORK_COLUMNS if any(name in figures for figures in rows.values())]
    if not columns:
        return "Not measured yet."
    lines = [["application", *(NETWORK_COLUMNS[name] for name in columns)]]
    lines += [[code, *(_number(figures.get(name, math.nan)) for name in columns)] for code, figures in rows.items()]
    shown = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([shown[0], f"|---|{'---:|' * len(columns)}", *shown[1:]])


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
