"""Plots like the paper's: throughput, latency, jitter, CPU and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from riot_bench.harness.formatting import format_number
from riot_bench.harness.outcome import Outcome
from riot_bench.harness.plotting import GRID, styled_pyplot, to_png
from riot_bench.suites.riotbench.paper import paper_figures

__all__ = ["TITLES", "draw_plots"]

OURS, PAPER, EDGE = "#2563eb", "#ea580c", "#1e3a8a"
#: Titles of the plots by name.
TITLES = {
    "throughput": "Peak throughput",
    "latency": "Latency, source to sink",
    "jitter": "Jitter",
    "cpu": "CPU",
    "memory": "Memory",
    "over-time": "Input and output over time",
}


def draw_plots(suite: str, outcomes: Sequence[Outcome]) -> dict[str, bytes]:
    """Draw the plots; return PNG by name."""
    makers: dict[str, Callable[[Any, str, Sequence[Outcome]], Any]] = {
        "throughput": _throughput,
        "latency": _latency,
        "jitter": _jitter,
        "cpu": _cpu,
        "memory": _memory,
    }
    if suite == "app":
        makers["over-time"] = _over_time
    with styled_pyplot() as plt:
        return {name: to_png(plt, make(plt, suite, outcomes)) for name, make in makers.items()}


def _axes(plt: Any, outcomes: Sequence[Outcome], label: str) -> tuple[Any, Any]:
    """Create a figure with a row for each outcome."""
    n = len(outcomes)
    figure, axes = plt.subplots(figsize=(9.5, 1.1 + 0.32 * max(n, 3)), layout="constrained")
    axes.set_yticks(range(n), [o.name for o in outcomes])
    axes.set_ylim(n - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(label)
    return figure, axes


def _throughput(plt: Any, suite: str, outcomes: Sequence[Outcome]) -> Any:
    figure, axes = _axes(plt, outcomes, "messages per second (log scale)")
    rates = [o.peak.rate for o in outcomes]
    theirs = [paper_figures(suite, o.name) for o in outcomes]
    known = [r for r in [*rates, *(p.rate for p in theirs)] if r]
    low = 10 ** math.floor(math.log10(min(known, default=1.0)) - 0.3)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    axes.set_xlim(low, 10 ** (math.log10(max(known, default=10.0)) + 0.6))
    axes.barh(range(len(rates)), rates, height=0.62, color=OURS, label="this machine")
    for y, rate in enumerate(rates):
        axes.annotate(
            format_number(rate), (max(rate, low), y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    for at_least, marker, label in ((False, "D", "paper, another machine"), (True, ">", "paper: at least this")):
        places = [(p.rate, y) for y, p in enumerate(theirs) if p.rate and p.at_least == at_least]
        if places:
            axes.plot(*zip(*places, strict=True), marker, color=PAPER, markeredgecolor="white", ms=8, label=label)
    _legend(axes)
    return figure


def _latency(plt: Any, suite: str, outcomes: Sequence[Outcome]) -> Any:
    figure, axes = _axes(plt, outcomes, "ms (log scale): 5, 25, 50, 75 and 95 % of the messages")
    boxes = [(y, o.latency_ms[:5]) for y, o in enumerate(outcomes)]
    known = [v for _, b in boxes for v in b if math.isfinite(v) and v > 0]
    axes.set_xscale("log")
    if known:
        axes.set_xlim(min(known) / 1.5, max(known) * 1.5)
    narrow = not known or max(known) / min(known) < 30  # at most one power of ten is visible
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:,g}")
    axes.xaxis.set_minor_formatter(lambda v, _: f"{v:,g}" if narrow and f"{v:e}"[0] in "25" else "")
    _boxes(axes, [(y, [max(v, 1e-3) for v in b]) for y, b in boxes if math.isfinite(b[0])])
    _annotate_empty(axes, [y for y, b in boxes if not math.isfinite(b[0])], "no record before the end of the input")
    return figure


def _jitter(plt: Any, suite: str, outcomes: Sequence[Outcome]) -> Any:
    figure, axes = _axes(plt, outcomes, "share of the expected output rate, by intervals; ideally 0")
    axes.axvline(0, color=PAPER, linewidth=1, label="ideal, and approximately the paper's value")
    boxes = [(y, _five_numbers(o.jitter)) for y, o in enumerate(outcomes)]
    _boxes(axes, [(y, b) for y, b in boxes if b])
    reach = max([0.1, *(abs(v) for _, b in boxes if b for v in b)])
    axes.set_xlim(-1.1 * min(reach, 2), 1.1 * min(reach, 2))
    _annotate_empty(axes, [y for y, b in boxes if not b], "no record before the end of the input")
    _legend(axes)
    return figure


def _cpu(plt: Any, suite: str, outcomes: Sequence[Outcome]) -> Any:
    cores = outcomes[0].cores
    figure, axes = _axes(plt, outcomes, f"% of {cores} core{'s' if cores > 1 else ''}, all processes")
    if suite == "micro":
        axes.axvline(70, color=PAPER, linewidth=1, label="paper: at least 70 % (not the Azure tasks)")
    _boxes(axes, [(y, b) for y, o in enumerate(outcomes) if (b := _five_numbers(o.cpu_percent))])
    axes.set_xlim(0, max(105.0, *(float(np.nanmax(o.cpu_percent, initial=0.0)) + 5 for o in outcomes)))
    if suite == "micro":
        _legend(axes)
    return figure


def _memory(plt: Any, suite: str, outcomes: Sequence[Outcome]) -> Any:
    figure, axes = _axes(plt, outcomes, "MiB, all processes")
    _boxes(axes, [(y, b) for y, o in enumerate(outcomes) if (b := _five_numbers(o.memory_mib))])
    axes.set_xlim(left=0)
    return figure


def _over_time(plt: Any, suite: str, outcomes: Sequence[Outcome]) -> Any:
    n = len(outcomes)
    figure, grid = plt.subplots(n, 1, figsize=(9.5, 0.6 + 1.9 * n), layout="constrained", squeeze=False)
    for axes, outcome in zip(grid[:, 0], outcomes, strict=True):
        run = outcome.run
        sigma = outcome.sigma if math.isfinite(outcome.sigma) else outcome.selectivity
        axes.step(run.times, run.input_rate * sigma, where="post", color=PAPER, label="input × σ")
        axes.step(run.times, run.output_rate, where="post", color=OURS, label="output")
        axes.axvspan(0, outcome.since, color=GRID, alpha=0.6, linewidth=0, label="warm-up")
        axes.set_ylabel("records/s")
        axes.set_ylim(bottom=0)
        axes.set_title(outcome.name, loc="left", fontsize=10, fontweight="bold")
        empty = f" · nothing in {', '.join(outcome.silent)}" if outcome.silent else ""
        axes.set_title(f"σ = {format_number(sigma)}{empty}", loc="right", fontsize=9, color="#64748b")
        axes.yaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    grid[-1, 0].set_xlabel("seconds since the first message")
    grid[0, 0].legend(loc="lower right", ncols=3, frameon=True, framealpha=0.9, fontsize=8)
    return figure


def _boxes(axes: Any, boxes: Sequence[tuple[int, Sequence[float]]]) -> None:
    if not boxes:
        return
    stats = [{"whislo": b[0], "q1": b[1], "med": b[2], "q3": b[3], "whishi": b[4]} for _, b in boxes]
    axes.bxp(
        stats,
        positions=[y for y, _ in boxes],
        widths=0.55,
        orientation="horizontal",
        showfliers=False,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": "#bfdbfe", "edgecolor": EDGE},
        medianprops={"color": EDGE, "linewidth": 2},
        whiskerprops={"color": EDGE},
        capprops={"color": EDGE},
    )


def _annotate_empty(axes: Any, places: Sequence[int], text: str) -> None:
    for y in places:
        axes.annotate(text, (0.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=8, color="#64748b")


def _five_numbers(values: Any) -> list[float]:
    """Return minimum, quartiles and maximum; empty without values."""
    known = values[np.isfinite(values)]
    return [float(v) for v in np.quantile(known, (0, 0.25, 0.5, 0.75, 1))] if known.size else []


def _legend(axes: Any) -> None:
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=9)
