"""Measured figures beside those of the paper, as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from riot_bench.harness import measure
from riot_bench.harness.measure import Measure, span
from riot_bench.harness.outcome import Outcome
from riot_bench.suites.riotbench.published import Published, published

__all__ = ["COLUMNS", "by_name", "loads", "markdown", "notes", "rows", "short", "table"]

#: Columns of the table; those headed "paper" hold another machine's figures.
COLUMNS = (
    "peak /s",
    "paper",
    "at /s",
    "latency p50 ms",
    "p75 ms",
    "p99 ms",
    "paper",
    "σ",
    "jitter",
    "paper",
    "CPU %",
    "paper",
    "memory MiB",
    "task alone µs",
)


def notes(outcome: Outcome, paper: Published, where: str) -> dict[str, str]:
    """How each figure came about, and the paper's."""

    def beside(how: str, theirs: str) -> str:
        return f"{how}; paper, another machine: {theirs}" if theirs else how

    at = f"{where}, at {short(outcome.figures()['rate'][0])} messages/s"
    if not outcome.stability.stable:
        at += " (not kept up with)"
    sure = "" if outcome.peak.closed else ", the time to search ran out"
    latency = beside(f"source to sink, by message; {at}", paper.latency)
    return {
        "peak": beside(f"highest stable rate{sure}; {where}", paper.peak),
        "rate": f"input rate of the run that the other figures are of; {where}",
        "selectivity": f"records at the sinks per message; {where}",
        "sigma": f"records that a message should lead to: as declared, or as a run without a pace delivered; {where}",
        "silent": f"no record came in: {', '.join(outcome.silent) or '(all had some)'}; {where}",
        "task-latency": f"time of the task alone, by record that it puts out, in batches of at most 1,024; {where}",
        **{f"latency-{share}": latency for share in ("p25", "p50", "p75", "p99")},
        "jitter": beside(f"median, against {short(outcome.sigma)} records per message; {at}", paper.jitter),
        "jitter-spread": f"distance of the quartiles, intervals of {outcome.interval_s:g} s; {at}",
        "cpu": beside(f"median of all processes, of {outcome.cores} cores; {at}", paper.cpu),
        "memory": f"median of all processes; {at}",
    }


def rows(suite: str, figures: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """The cells of the table: a name, and :data:`COLUMNS`."""
    made = []
    for name, f in figures.items():
        theirs = published(suite, name)
        made.append(
            [
                name,
                short(f["peak"]),
                theirs.peak,
                short(f["rate"]),
                short(f["latency-p50"]),
                short(f["latency-p75"]),
                short(f["latency-p99"]),
                theirs.latency,
                short(f["sigma"]),
                _swings(f),
                theirs.jitter,
                short(f["cpu"]),
                theirs.cpu,
                short(f["memory"]),
                short(f["task-latency"]),
            ]
        )
    return made


def table(suite: str, what: str, found: Iterable[Measure]) -> Any:
    """For the terminal, from the measures; other measures of the suite below."""
    from rich.console import Group
    from rich.table import Table

    figures, others = by_name(found)
    shown = Table(show_edge=False, pad_edge=False, caption="Dim: the paper's figures, of another machine.")
    for column in (what, "peak /s", "latency p50, p75, p99 ms", "jitter", "CPU %", "MiB"):
        shown.add_column(column, justify="left" if column == what else "right")
    for name, measures in figures.items():
        theirs = published(suite, name)
        f = {figure: m.value for figure, m in measures.items()}
        ours = (
            "\n".join(filter(None, (short(f["peak"]), span(measures["peak"].runs)))),
            ", ".join(short(f[f"latency-{share}"]) for share in ("p50", "p75", "p99")),
            _swings(f),
            short(f["cpu"]),
            short(f["memory"]),
        )
        beside = (theirs.peak, theirs.latency, theirs.jitter, theirs.cpu, "")
        shown.add_row(name, *(_both(a, b) for a, b in zip(ours, beside, strict=True)))
    return Group(shown, *([measure.table(others)] if others else []))


def by_name(found: Iterable[Measure]) -> tuple[dict[str, dict[str, Measure]], list[Measure]]:
    """The figures of each task or application, and the measures that are of none."""
    figures: dict[str, dict[str, Measure]] = {}
    others: list[Measure] = []
    for m in found:
        _, *parts, figure = m.measure.split("/")
        if parts[0] == "probe-cost":
            others.append(m)
        else:
            figures.setdefault("/".join(parts), {})[figure] = m
    return figures, others


def markdown(suite: str, what: str, found: Iterable[Measure]) -> list[str]:
    """For a document, with the ranges of several runs and the load of the machine."""

    def beside(measures: Mapping[str, Measure], figure: str) -> str:
        spread = span(measures[figure].runs)
        return short(measures[figure].value) + (f" ({spread})" if spread else "")

    titles = (
        f"| {what} | peak, messages/s | paper | at /s | latency p50, p75, p99 ms | paper | σ | jitter | paper | CPU % "
        "| paper | MiB | runs | load |"
    )
    lines = [titles, "|---|---:|---:|---:|---:|---|---:|---:|---|---:|---|---:|---:|---:|"]
    for name, m in by_name(found)[0].items():
        theirs = published(suite, name)
        f = {figure: one.value for figure, one in m.items()}
        cells = (
            name,
            beside(m, "peak"),
            theirs.peak,
            short(f["rate"]),
            ", ".join(short(f[f"latency-{share}"]) for share in ("p50", "p75", "p99")),
            theirs.latency,
            short(f["sigma"]),
            _swings(f),
            theirs.jitter,
            short(f["cpu"]),
            theirs.cpu,
            short(f["memory"]),
            str(len(m["peak"].known)),
            loads(m["peak"]),
        )
        lines.append("| " + " | ".join(cell or "–" for cell in cells) + " |")
    return lines


def loads(measure: Measure) -> str:
    """The machine's load before the runs and at their ends, at most.

    >>> loads(Measure("x", 1.0, "ms", load=((0.1, 1.0), (0.3, 0.9))))
    '0.3, 1'
    """
    if not measure.load:
        return ""
    return ", ".join(f"{max(column):.2g}" for column in zip(*measure.load, strict=True))


def short(value: float) -> str:
    """A number with about three digits.

    >>> [short(v) for v in (0.01234, 5.0, 1234.5, 12_340_000.0, float("nan"))]
    ['0.012', '5', '1,230', '12,300,000', '–']
    """
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        digits = math.floor(math.log10(abs(value))) - 2
        return f"{round(value / 10**digits) * 10**digits:,}"
    return f"{value:.3g}" if abs(value) >= 1 or value == 0 else f"{value:.2g}"


def _swings(figures: Mapping[str, float]) -> str:
    """Jitter: its median, and half the distance of its quartiles."""
    middle, spread = figures["jitter"], figures["jitter-spread"]
    return f"{middle:+.3f} ± {short(spread / 2)}" if math.isfinite(middle) else "–"


def _both(ours: str, theirs: str) -> Any:
    from rich.text import Text

    return Text(ours) if not theirs else Text.assemble(ours, "\n", (theirs, "dim"))
