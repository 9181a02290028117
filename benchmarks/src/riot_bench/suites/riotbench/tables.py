"""Tables of measured figures with those of the paper."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from riot_bench.harness.formatting import format_number
from riot_bench.harness.measure import Measure
from riot_bench.harness.measure_table import measure_table, value_range
from riot_bench.harness.outcome import Outcome
from riot_bench.suites.riotbench.paper import PaperFigures, paper_figures

__all__ = ["COLUMNS", "by_name", "comparison_table", "measure_notes", "table_rows"]

#: Columns of the table; those headed "paper" are from other machines.
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


def measure_notes(outcome: Outcome, paper: PaperFigures, where: str) -> dict[str, str]:
    """Return a note for each figure: how it was measured, and the paper's value."""

    def beside(how: str, theirs: str) -> str:
        return f"{how}; paper, on another machine: {theirs}" if theirs else how

    at = f"{where}, at {format_number(outcome.figures()['rate'][0])} messages/s"
    if not outcome.stability.stable:
        at += " (did not keep up)"
    sure = "" if outcome.peak.converged else ", the search ran out of time"
    latency = beside(f"source to sink, by message; {at}", paper.latency)
    return {
        "peak": beside(f"highest stable rate{sure}; {where}", paper.peak),
        "rate": f"input rate of the final run, from which the other figures are; {where}",
        "selectivity": f"records at the sinks per message; {where}",
        "sigma": f"expected records per message: as declared, or as an unpaced run delivered; {where}",
        "silent": f"streams without records: {', '.join(outcome.silent) or 'none'}; {where}",
        "task-latency": f"time of the task alone per output record, in batches of at most 1,024; {where}",
        **{f"latency-{share}": latency for share in ("p25", "p50", "p75", "p99")},
        "jitter": beside(f"median, against {format_number(outcome.sigma)} records per message; {at}", paper.jitter),
        "jitter-spread": f"interquartile range, intervals of {outcome.interval_s:g} s; {at}",
        "cpu": beside(f"median of all processes, of {outcome.cores} cores; {at}", paper.cpu),
        "memory": f"median of all processes; {at}",
    }


def table_rows(suite: str, figures: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """Return the rows of the table: a name, then :data:`COLUMNS`."""
    made = []
    for name, f in figures.items():
        theirs = paper_figures(suite, name)
        made.append(
            [
                name,
                format_number(f["peak"]),
                theirs.peak,
                format_number(f["rate"]),
                format_number(f["latency-p50"]),
                format_number(f["latency-p75"]),
                format_number(f["latency-p99"]),
                theirs.latency,
                format_number(f["sigma"]),
                _format_jitter(f),
                theirs.jitter,
                format_number(f["cpu"]),
                theirs.cpu,
                format_number(f["memory"]),
                format_number(f["task-latency"]),
            ]
        )
    return made


def comparison_table(suite: str, what: str, found: Iterable[Measure]) -> Any:
    """Build the table for the terminal, followed by the suite's other measures."""
    from rich.console import Group
    from rich.table import Table

    figures, others = by_name(found)
    shown = Table(show_edge=False, pad_edge=False, caption="Dim: the paper's figures, on other machines.")
    for column in (what, "peak /s", "latency p50, p75, p99 ms", "jitter", "CPU %", "MiB"):
        shown.add_column(column, justify="left" if column == what else "right")
    for name, measures in figures.items():
        theirs = paper_figures(suite, name)
        f = {figure: m.value for figure, m in measures.items()}
        ours = (
            "\n".join(filter(None, (format_number(f["peak"]), value_range(measures["peak"].runs)))),
            ", ".join(format_number(f[f"latency-{share}"]) for share in ("p50", "p75", "p99")),
            _format_jitter(f),
            format_number(f["cpu"]),
            format_number(f["memory"]),
        )
        beside = (theirs.peak, theirs.latency, theirs.jitter, theirs.cpu, "")
        shown.add_row(name, *(_with_paper(a, b) for a, b in zip(ours, beside, strict=True)))
    return Group(shown, *([measure_table(others)] if others else []))


def by_name(found: Iterable[Measure]) -> tuple[dict[str, dict[str, Measure]], list[Measure]]:
    """Group measures by task or application and figure; also return the measures of neither."""
    figures: dict[str, dict[str, Measure]] = {}
    others: list[Measure] = []
    for m in found:
        _, *parts, figure = m.measure.split("/")
        if parts[0] == "probe-cost":
            others.append(m)
        else:
            figures.setdefault("/".join(parts), {})[figure] = m
    return figures, others


def _format_jitter(figures: Mapping[str, float]) -> str:
    """Format the jitter: its median, and half its interquartile range."""
    middle, spread = figures["jitter"], figures["jitter-spread"]
    return f"{middle:+.3f} ± {format_number(spread / 2)}" if math.isfinite(middle) else "–"


def _with_paper(ours: str, theirs: str) -> Any:
    from rich.text import Text

    return Text(ours) if not theirs else Text.assemble(ours, "\n", (theirs, "dim"))
