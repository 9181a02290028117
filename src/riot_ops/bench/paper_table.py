"""Measured figures beside those of the paper, as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from riot_ops.bench import measure
from riot_ops.bench.measure import Measure
from riot_ops.bench.paper import Published, published
from riot_ops.bench.trial import Outcome

__all__ = ["COLUMNS", "notes", "rows", "short", "table"]

#: Columns of the table; those headed "paper" hold another machine's figures.
COLUMNS = (
    "peak /s",
    "paper",
    "at /s",
    "latency p50 ms",
    "p75 ms",
    "p99 ms",
    "paper",
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
        "rate": "input rate of the run that the other figures are of",
        "selectivity": "records at the sinks per message",
        "sigma": "records that a message should lead to: as declared, or as a run without a pace delivered",
        "silent": f"no record came in: {', '.join(outcome.silent)}" if outcome.silent else "records came in all",
        "task-latency": "time of the task alone, by record that it puts out, in batches of 1,024 messages",
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

    figures: dict[str, dict[str, float]] = {}
    others: list[Measure] = []
    for m in found:
        _, *parts, figure = m.measure.split("/")
        if parts[0] == "probe-cost":
            others.append(m)
        else:
            figures.setdefault("/".join(parts), {})[figure] = m.value
    shown = Table(show_edge=False, pad_edge=False, caption="Dim: the paper's figures, of another machine.")
    for column in (what, "peak /s", "latency p50, p75, p99 ms", "jitter", "CPU %", "MiB"):
        shown.add_column(column, justify="left" if column == what else "right")
    for name, f in figures.items():
        theirs = published(suite, name)
        ours = (
            short(f["peak"]),
            ", ".join(short(f[f"latency-{share}"]) for share in ("p50", "p75", "p99")),
            _swings(f),
            short(f["cpu"]),
            short(f["memory"]),
        )
        beside = (theirs.peak, theirs.latency, theirs.jitter, theirs.cpu, "")
        shown.add_row(name, *(_both(a, b) for a, b in zip(ours, beside, strict=True)))
    return Group(shown, *([measure.table(others)] if others else []))


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
