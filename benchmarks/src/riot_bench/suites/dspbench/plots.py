"""Plots of the characterization: operators, then applications."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from riot_bench.harness.outcome import BOX_QUANTILES
from riot_bench.harness.plotting import styled_pyplot, to_png

__all__ = ["TITLES", "by_application", "by_operator", "draw_plots", "with_largest"]

#: Titles of the plots by name.
TITLES = {
    "selectivity": "Selectivity of operators",
    "operator-time": "Time of operators per record",
    "record-size": "Size of operators' output records",
    "state": "State of operators",
    "throughput": "Throughput; on Spark with the largest micro-batches",
    "ratio": "Throughput on Spark beside plain PySpark, by lines of a micro-batch",
    "latency": "Latency at half of the peak rate, source to sink",
    "cpu": "CPU at half of the peak rate",
    "memory": "Memory at half of the peak rate",
    "scaling": "One core and two",
}
LOCAL, SPARK, PLAIN, IDIOMATIC = "#2563eb", "#0d9488", "#a1a1aa", "#ea580c"

Figures = Mapping[str, float]


def by_operator(values: Figures) -> dict[str, dict[str, float]]:
    """Group the values of measures by operator (``code/operator``) and figure.

    >>> by_operator({"dspbench/wc/operator/split/selectivity": 9.8, "dspbench/wc/local": 1e6})
    {'wc/split': {'selectivity': 9.8}}
    """
    found: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        code, _, rest = name.removeprefix("dspbench/").partition("/")
        if rest.startswith("operator/"):
            operator, _, figure = rest.removeprefix("operator/").rpartition("/")
            found.setdefault(f"{code}/{operator}", {})[figure] = value
    return found


def by_application(values: Figures) -> dict[str, dict[str, float]]:
    """Group the values of measures by application code and figure.

    >>> by_application({"dspbench/wc/operator/split/selectivity": 9.8, "dspbench/wc/local": 1e6})
    {'wc': {'local': 1000000.0}}
    """
    found: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        code, _, figure = name.removeprefix("dspbench/").partition("/")
        if not figure.startswith("operator/"):
            found.setdefault(code, {})[figure] = value
    return found


def with_largest(applications: Mapping[str, Figures]) -> dict[str, dict[str, float]]:
    """Repeat the figures of the largest micro-batches, which are the last, without their size.

    >>> with_largest({"wc": {"spark-same/1M": 1e6, "spark-same/4M": 2e6}})["wc"]["spark-same"]
    2000000.0
    """
    return {
        code: {**{name.partition("/")[0]: value for name, value in figures.items()}, **figures}
        for code, figures in applications.items()
    }


def draw_plots(values: Figures) -> dict[str, bytes]:
    """Draw the plots that have values; return PNG by name."""
    operators, applications = by_operator(values), with_largest(by_application(values))
    sizes = dict.fromkeys(
        name for figures in applications.values() for name in figures if name.startswith("spark-vs-idiomatic/")
    )
    makers: dict[str, Callable[[Any], Any]] = {
        "selectivity": lambda p: _bars(
            p, operators, {"selectivity": ("", LOCAL)}, "records out per record in", log=True
        ),
        "operator-time": lambda p: _bars(
            p, operators, {"time-p50": ("median", LOCAL), "time-p95": ("95 %", IDIOMATIC)}, "ns per record", log=True
        ),
        "record-size": lambda p: _boxes(p, operators, {"bytes-out": ("", LOCAL)}, "bytes per record"),
        "state": lambda p: _bars(
            p, {n: {"state": f["state"] / 2**20} for n, f in operators.items() if f.get("state")},
            {"state": ("", LOCAL)}, "MiB", log=True,
        ),
        "throughput": lambda p: _bars(
            p,
            applications,
            {
                "local": ("in process, one core", LOCAL),
                "plain-python": ("plain Python", PLAIN),
                "spark-same": ("Spark", SPARK),
                "spark-idiomatic": ("plain PySpark", IDIOMATIC),
            },
            "lines per second",
            log=True,
        ),
        "ratio": lambda p: _bars(
            p,
            applications,
            {
                name: (f"micro-batches of {name.rpartition('/')[2]} lines", colour)
                for name, colour in zip(sizes, (PLAIN, "#5eead4", SPARK), strict=False)
            },
            "throughput over that of plain PySpark",
            log=True,
        ),
        "latency": lambda p: _bars(
            p,
            applications,
            {
                "local-latency-p50": ("in process, median", LOCAL),
                "local-latency-p95": ("95 %", "#93c5fd"),
                "local-latency-p95-one-core": ("95 %, one core", PLAIN),
                "spark-latency-p50": ("Spark, median", SPARK),
                "spark-latency-p95": ("95 %", "#5eead4"),
            },
            "ms",
            log=True,
        ),
        "cpu": lambda p: _bars(
            p, applications, {"local-cpu": ("in process", LOCAL), "spark-cpu": ("Spark", SPARK)}, "cores, all processes"
        ),
        "memory": lambda p: _boxes(
            p,
            applications,
            {"local-memory": ("in process", LOCAL), "spark-memory": ("Spark", SPARK)},
            "MiB, all processes, over the time of the run",
        ),
        "scaling": lambda p: _bars(
            p,
            applications,
            {
                "local-all-cores-vs-one": ("in process", LOCAL),
                "spark-vs-one-core": ("Spark", SPARK),
            },
            "throughput with all cores over that with one",
        ),
    }  # fmt: skip
    with styled_pyplot() as plt:
        made = {name: make(plt) for name, make in makers.items()}
        return {name: to_png(plt, figure) for name, figure in made.items() if figure is not None}


def _bars(
    plt: Any,
    rows: Mapping[str, Figures],
    columns: Mapping[str, tuple[str, str]],
    label: str,
    log: bool = False,
) -> Any:
    """Draw a group of bars for each row; None if no row has any of the columns."""
    shown = [name for name in columns if any(math.isfinite(f.get(name, math.nan)) for f in rows.values())]
    names = [name for name, f in rows.items() if any(math.isfinite(f.get(column, math.nan)) for column in shown)]
    if not shown:
        return None
    n, height = len(names), 0.8 / len(shown)
    figure, axes = plt.subplots(figsize=(9.5, 1.2 + n * (0.12 + 0.2 * len(shown))), layout="constrained")
    for i, column in enumerate(shown):
        title, colour = columns[column]
        values = [rows[name].get(column, math.nan) for name in names]
        places = [y - 0.4 + height * (i + 0.5) for y in range(n)]
        axes.barh(places, values, height=0.92 * height, color=colour, label=title)
        for y, value in zip(places, values, strict=True):
            if math.isfinite(value):
                text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
                axes.annotate(text, (value, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(n), names)
    axes.set_ylim(n - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"{label} (log scale)" if log else label)
    if log:
        _log_scale(axes, [rows[name].get(column, math.nan) for name in names for column in shown])
    else:
        axes.margins(x=0.12)
        axes.set_xlim(left=0)
    if len(shown) > 1:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False, fontsize=9)
    return figure


def _boxes(plt: Any, rows: Mapping[str, Figures], columns: Mapping[str, tuple[str, str]], label: str) -> Any:
    """Draw a box for each row and column, from quantiles named ``column-p5`` and so on; None without any."""

    def quantiles(figures: Figures, column: str) -> list[float]:
        return [figures.get(f"{column}-p{100 * share:.0f}", math.nan) for share in BOX_QUANTILES]

    names = [n for n, f in rows.items() if any(all(map(math.isfinite, quantiles(f, c))) for c in columns)]
    if not names:
        return None
    height = 0.8 / len(columns)
    figure, axes = plt.subplots(figsize=(9.5, 1.2 + len(names) * (0.12 + 0.2 * len(columns))), layout="constrained")
    for i, (column, (title, colour)) in enumerate(columns.items()):
        for y, name in enumerate(names):
            low, first, middle, third, high = quantiles(rows[name], column)
            if not math.isfinite(middle):
                continue
            place = y - 0.4 + height * (i + 0.5)
            axes.hlines(place, low, high, color=colour, linewidth=1.2)
            box = axes.barh(place, third - first, left=first, height=0.75 * height, color=colour, alpha=0.6)
            axes.vlines(middle, place - 0.375 * height, place + 0.375 * height, color="black", linewidth=1.5)
            if title and not any(text == title for text in axes.get_legend_handles_labels()[1]):
                box.set_label(title)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"{label}: 5, 25, 50, 75 and 95 %")
    axes.set_xlim(left=0)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False, fontsize=9)
    return figure


def _log_scale(axes: Any, values: Sequence[float]) -> None:
    known = [v for v in values if math.isfinite(v) and v > 0]
    axes.set_xscale("log")
    if known:
        axes.set_xlim(min(known) / 2, max(known) * 4)
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:,g}")
    axes.xaxis.set_minor_formatter(lambda *_: "")
