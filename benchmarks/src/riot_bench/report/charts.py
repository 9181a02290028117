"""Charts of the declared figures: bars or lines with intervals and the published values."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from riot_bench.harness.experiment import Figure
from riot_bench.harness.measure import Measure
from riot_bench.harness.plotting import styled_pyplot
from riot_bench.report.intervals import MIN_VALUES, Interval, interval_of

__all__ = ["Chart", "axis_position", "draw_chart"]

COLOURS = ("#3b82f6", "#10b981", "#a855f7", "#d97706", "#ec4899", "#64748b", "#0891b2", "#84cc16")
PUBLISHED = "#ea580c"
#: Colours of text and grid as drawn, and their replacements in the page, which has two colour schemes.
INK, GRID = "#010203", "#d7dce3"
IN_PAGE = {INK: "currentColor", GRID: "var(--line)"}
UNIT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([kKMG]?)(?:i?B|[^\d]*)")
TIMES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
#: Characters of all labels that fit below an axis.
MAX_LABEL_CHARACTERS = 48
#: Numeric positions that are all labelled.
MAX_TICKS = 12


@dataclass(frozen=True)
class Chart:
    """A drawn figure.

    Attributes
    ----------
    figure : Figure
    svg : str
        Drawing for an HTML page: in its text colours and without external references.
    png : bytes
    note : str
        The basis of the intervals.
    """

    figure: Figure
    svg: str
    png: bytes
    note: str


def axis_position(label: str) -> float | None:
    """Parse a label as a number with a unit prefix; None for words.

    >>> axis_position("50B"), axis_position("10KB"), axis_position("0.5"), axis_position("1M"), axis_position("city")
    (50.0, 10000.0, 0.5, 1000000.0, None)
    """
    found = UNIT.fullmatch(label)
    return float(found[1]) * TIMES[found[2]] if found else None


def draw_chart(figure: Figure, measures: Sequence[Measure]) -> Chart | None:
    """Draw a figure; None if none of its measures has a value."""
    points = [point for point in figure.points(measures) if math.isfinite(point[2].value)]
    if not points:
        return None
    ink = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color", "legend.labelcolor")
    style = {"grid.color": GRID, "grid.linewidth": 0.7, "svg.hashsalt": figure.key, **dict.fromkeys(ink, INK)}
    places = {x for _, x, _ in points}
    shown = figure
    if figure.kind == "line" and len(places) == 1:  # a bar for each series instead of a line
        shown = replace(figure, kind="bar", x=f"{figure.x}: {places.pop()}")
        points = [("", s or x, m) for s, x, m in points]
    with styled_pyplot(style) as plt:
        drawn = _bars(plt, shown, points) if shown.kind == "bar" else _lines(plt, shown, points)
        vector, pixels = io.StringIO(), io.BytesIO()
        drawn.savefig(vector, format="svg", transparent=True, metadata={"Date": None})
        drawn.savefig(pixels, format="png", dpi=130, facecolor="white")
        plt.close(drawn)
    return Chart(figure, _for_html(vector.getvalue(), figure), pixels.getvalue(), _note(points))


def _note(points: Sequence[tuple[str, str, Measure]]) -> str:
    """Describe the basis of a figure's intervals."""
    found = [interval_of(m) for _, _, m in points]
    runs, parts = ([one.of for one in found if one.is_known and one.within == within] for within in (False, True))
    notes = []
    if runs:
        notes.append(f"Whiskers: mean and 95 % confidence interval of {_span(runs)} repetitions.")
    if parts:
        notes.append(f"Thin whiskers: mean and 95 % confidence interval within one run, of {_span(parts)} parts.")
    few = [one.of for one in found if not one.is_known]
    if few and not notes:
        notes.append(f"Too few repetitions for a confidence interval: {max(few)} instead of at least {MIN_VALUES}.")
    elif few:
        notes.append(f"{len(few)} of {len(found)} points have too few repetitions for an interval.")
    if bounds := sum(m.lower_bound for _, _, m in points):
        notes.append(f"{bounds} of {len(found)} points are lower bounds, marked by an arrow.")
    return " ".join(notes)


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"


def _order(points: Sequence[tuple[str, str, Measure]]) -> tuple[list[str], list[str], bool]:
    """Return series and positions in order of appearance, numeric positions by size, and whether they are numeric."""
    series = list(dict.fromkeys(s for s, _, _ in points))
    places = list(dict.fromkeys(x for _, x, _ in points))
    numbers = all(axis_position(x) is not None for x in places)
    return series, sorted(places, key=lambda x: axis_position(x) or 0.0) if numbers else places, numbers


def _bars(plt: Any, figure: Figure, points: Sequence[tuple[str, str, Measure]]) -> Any:
    series, places, _ = _order(points)
    lying = sum(len(x) + 2 for x in places) > MAX_LABEL_CHARACTERS
    bars = len(places) * len(series)
    size = (6.4, 1.5 + max(0.24 * len(places), 0.15 * bars)) if lying else (6.4, 3.8)
    drawn, axes = plt.subplots(figsize=size, layout="constrained")
    width = 0.8 / len(series)
    along = [m.value for _, _, m in points]
    _scale(axes, figure, "x" if lying else "y", [*along, *(m.published for _, _, m in points if m.published)])
    shown = set[str]()
    for s, x, m in points:
        place = places.index(x) + (series.index(s) - (len(series) - 1) / 2) * width
        colour = COLOURS[series.index(s) % len(COLOURS)]
        label = _once(shown, s or "measured here")
        (axes.barh if lying else axes.bar)(place, m.value, 0.92 * width, color=colour, label=label)
        _whisker(axes, place, interval_of(m), lying)
        if m.lower_bound:
            _arrow(axes, place, m.value, lying)
        if m.published is not None and math.isfinite(m.published):
            xy = (m.published, place) if lying else (place, m.published)
            axes.plot(*xy, "D", color=PUBLISHED, markeredgecolor="white", ms=6.5, label=_once(shown, "published"))
    if lying:
        axes.set_yticks(range(len(places)), places)
        axes.set_ylim(len(places) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(figure.y)
        axes.set_ylabel(figure.x)
    else:
        axes.set_xticks(range(len(places)), places)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel(figure.x)
        axes.set_ylabel(figure.y)
    _legend(drawn, axes)
    return drawn


def _lines(plt: Any, figure: Figure, points: Sequence[tuple[str, str, Measure]]) -> Any:
    series, places, numbers = _order(points)
    drawn, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    values = [v for _, _, m in points for v in (m.value, m.published) if v is not None and math.isfinite(v)]
    _scale(axes, figure, "y", values)
    at = {x: axis_position(x) if numbers else float(i) for i, x in enumerate(places)}
    if numbers and "x" in figure.log and min(v for v in at.values() if v is not None) > 0:
        axes.set_xscale("log")
    for number, s in enumerate(series):
        mine = sorted(((at[x], m) for of, x, m in points if of == s), key=lambda pair: pair[0] or 0.0)
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            [x for x, _ in mine], [m.value for _, m in mine], "o-", ms=4, color=colour, label=s or "measured here"
        )
        for x, m in mine:
            _whisker(axes, x, interval_of(m), False, colour)
            if m.lower_bound:
                _arrow(axes, x, m.value, False, colour)
        theirs = [(x, m.published) for x, m in mine if m.published is not None and math.isfinite(m.published)]
        if theirs:
            label = f"{s}, published" if s else "published"
            axes.plot(
                *zip(*theirs, strict=True), "D--", color=colour, mfc="none", mec=PUBLISHED, ms=6, lw=0.8, label=label
            )
    if numbers and len(places) > MAX_TICKS and axes.get_xscale() == "linear":
        axes.locator_params("x", integer=True)
    else:
        axes.set_xticks([at[x] for x in places], places, rotation=0 if len(places) < 9 else 45)
    if numbers:
        axes.xaxis.minorticks_off()
    if axes.get_yscale() == "linear" and min(values) >= 0:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.x)
    axes.set_ylabel(figure.y)
    _legend(drawn, axes)
    return drawn


def _once(shown: set[str], label: str) -> str | None:
    """Return a legend label at its first use."""
    if label in shown:
        return None
    shown.add(label)
    return label


def _whisker(axes: Any, place: Any, found: Interval, lying: bool, colour: str = INK) -> None:
    if not found.is_known:
        return
    ends = [[found.mean - found.low], [found.high - found.mean]]
    xy, error = ((found.mean, place), {"xerr": ends}) if lying else ((place, found.mean), {"yerr": ends})
    width = 0.5 if found.within else 1.2
    axes.errorbar(*xy, **error, fmt="|" if lying else "_", ms=5, color=colour, elinewidth=width, capsize=2.5)


def _arrow(axes: Any, place: Any, value: float, lying: bool, colour: str = INK) -> None:
    """Mark a lower bound by an arrow towards larger values."""
    xy = (value, place) if lying else (place, value)
    axes.plot(*xy, ">" if lying else "^", color=colour, ms=7)


def _scale(axes: Any, figure: Figure, axis: str, values: Sequence[float]) -> None:
    """Make the value axis logarithmic if the figure asks for it and all values are positive."""
    set_scale, ticks, limits = (
        (axes.set_xscale, axes.xaxis, axes.set_xlim) if axis == "x" else (axes.set_yscale, axes.yaxis, axes.set_ylim)
    )
    if "y" in figure.log and min(values) > 0:
        set_scale("log")
        low = 10 ** (math.floor(math.log10(min(values)) * 2 - 0.2) / 2)
        limits(low, max(values) * 2)
        if max(values) < 30 * low:  # at most one power of ten is visible
            ticks.set_minor_formatter(lambda v, _: f"{v:,g}" if f"{v:e}"[0] in "25" else "")
    ticks.set_major_formatter(lambda v, _: f"{v:,.0f}" if abs(v) >= 1000 else f"{v:g}")


def _legend(drawn: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        order = sorted(range(len(labels)), key=lambda i: labels[i].endswith("published"))  # ours first
        shown = [handles[i] for i in order], [labels[i] for i in order]
        drawn.legend(*shown, loc="outside upper center", ncols=4, frameon=False, fontsize=9)


def _for_html(svg: str, figure: Figure) -> str:
    """Prepare an SVG for the page: unique ids, the page's colours, no namespaces."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    name = re.sub(r"\W", "-", figure.key)
    svg = re.sub(r'(\bid="|href="#|url\(#)', lambda m: f"{m[1]}{name}-", svg)
    for drawn, shown in IN_PAGE.items():
        svg = svg.replace(drawn, shown)
    return re.sub(r'<svg\b[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg role="img" viewBox="\1">', svg, count=1)
