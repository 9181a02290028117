"""Reproducible line charts as SVG, and as PNG with matplotlib."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.core.errors import MissingExtraError

__all__ = ["Line", "png_chart", "svg_chart"]

F64 = npt.NDArray[np.float64]

COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#d97706", "#7c3aed", "#0891b2")
#: Margins of the chart in pixels; TOP includes one row of the legend, and each further row adds ROW.
LEFT, RIGHT, TOP, BOTTOM, ROW = 85, 20, 56, 45, 16
#: Width of a line sample in the legend, and approximate width of a character, in pixels.
SAMPLE, CHARACTER = 22, 7
#: Lines with more points than this are drawn without a marker at each point.
MAX_MARKED_POINTS = 100
#: Units of the time axis in milliseconds; the chart uses the first that fits into its range twice.
UNITS = ((86_400_000.0, "days"), (3_600_000.0, "hours"), (60_000.0, "minutes"), (1000.0, "seconds"))
#: Quantiles of a faint line's values between which they widen the range of the axis.
FAINT_QUANTILES = (0.05, 0.95)


class Line(NamedTuple):
    """Points of a line in order, x in milliseconds; NaN in y is a gap.

    A faint line is drawn in the background and clipped outside the range of most of its points.
    """

    label: str
    x: F64
    y: F64
    faint: bool = False


class Scale(NamedTuple):
    """The ranges of the axes; y is divided by ``size``, so that differences do not overflow, and x by ``ms``."""

    right: float
    low: float
    high: float
    size: float
    step: float
    ms: float
    time: str

    @property
    def span(self) -> float:
        return self.high - self.low

    def y_ticks(self) -> Iterator[tuple[float, str]]:
        """Round values with their texts."""
        largest = max(abs(self.low), abs(self.high))
        digits = min(max(7, math.floor(math.log10(largest / self.step)) + 2), 15)
        for i in range(round(self.span / self.step) + 1):
            value = self.low + i * self.step
            value = 0.0 if abs(value) < self.step / 2 else value
            yield value, f"{value * self.size:.{digits}g}"

    def x_ticks(self) -> Iterator[tuple[float, str]]:
        """Round times since the start with their texts."""
        end = self.right / self.ms
        step = _step(end)
        for i in range(math.floor(end / step * (1 + 1e-9)) + 1):
            yield i * step * self.ms, f"{i * step:.7g}"


def _step(span: float) -> float:
    """Return a round number that fits into ``span`` at most five times.

    >>> _step(10.0), _step(0.3), _step(7.0)
    (2.0, 0.1, 2.0)
    """
    ten = 10.0 ** math.floor(math.log10(span / 5))
    return next(f * ten for f in (1.0, 2.0, 5.0, 10.0, 20.0) if f * ten * 5 * (1 + 1e-9) >= span)


def _scale(lines: Sequence[Line]) -> Scale:
    shown = [~np.isnan(line.y) for line in lines]
    x = np.concatenate([np.zeros(1), *(line.x[s] for line, s in zip(lines, shown, strict=True))])
    y = np.concatenate([np.empty(0), *(_range_values(line) for line in lines)])
    if not y.size:
        y = np.zeros(1)
    size = float(np.abs(y).max())
    size = size if size > 1e300 or 0 < size < 1e-300 else 1.0
    low, high = float(y.min() / size), float(y.max() / size)
    if high - low <= 1e-12 * max(abs(low), abs(high)):  # equal values: show them in the middle
        room = max(abs(low), abs(high)) / 10 or 1.0
        low, high = low - room, high + room
    step = _step(high - low)
    low, high = (
        round_(edge / step + sign * 1e-9) * step for edge, round_, sign in ((low, math.floor, 1), (high, math.ceil, -1))
    )
    right = float(x.max()) or 1.0
    ms, time = next((unit for unit in UNITS if right >= 2 * unit[0]), (1.0, "milliseconds"))
    return Scale(right, low, high, size, step, ms, time)


def _range_values(line: Line) -> F64:
    """Return the values that determine the range of the axis: for a faint line, without outliers."""
    y = line.y[~np.isnan(line.y)]
    return np.quantile(y, FAINT_QUANTILES, method="nearest") if line.faint and y.size else y


def _runs(y: F64) -> Iterator[slice]:
    """Yield the runs of points between gaps."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], ~np.isnan(y), [False]]).astype(np.int8)))
    for start, end in edges.reshape(-1, 2).tolist():
        yield slice(start, end)


def _legend(lines: Sequence[Line], across: float) -> list[tuple[float, int]]:
    """Place of each line in the legend: distance from the left, and row."""
    places, x, row = [], 0.0, 0
    for line in lines:
        length = SAMPLE + 14 + CHARACTER * len(line.label)
        if x and x + length > across:
            x, row = 0.0, row + 1
        places.append((x, row))
        x += length
    return places


def _time_label(scale: Scale, start: str) -> str:
    return f"{scale.time} since {start}" if start else f"time ({scale.time})"


def _clean(text: str) -> str:
    """Escape text for XML and replace characters that XML does not allow."""
    return escape(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text))


def svg_chart(title: str, lines: Sequence[Line], width: int, height: int, unit: str = "", start: str = "") -> bytes:
    """Draw the chart as an SVG document in UTF-8.

    ``unit`` labels the axis of values, ``start``, the time at x = 0, the axis of time.
    """
    scale, across = _scale(lines), width - LEFT - RIGHT
    places = _legend(lines, across)
    top = TOP + ROW * (places[-1][1] if places else 0)
    down = height - top - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        '<rect width="100%" height="100%" fill="white"/>'
        f'<text x="{width / 2:g}" y="22" text-anchor="middle" font-size="14">{_clean(title)}</text>'
        f'<clipPath id="in"><rect x="{LEFT}" y="{top}" width="{across}" height="{down}"/></clipPath>'
    ]
    for value, text in scale.y_ticks():
        y = top + down * (scale.high - value) / scale.span
        parts.append(
            f'<path d="M{LEFT} {y:.1f}h{across}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for time, text in scale.x_ticks():
        x = LEFT + across * time / scale.right
        parts.append(
            f'<path d="M{x:.1f} {top}v{down}" stroke="#eee"/>'
            f'<text x="{x:.1f}" y="{height - 24}" text-anchor="middle">{text}</text>'
        )
    parts.append(
        f'<text x="{LEFT + across / 2:g}" y="{height - 6}" text-anchor="middle">'
        f"{_clean(_time_label(scale, start))}</text>"
    )
    if unit:
        middle = top + down / 2
        parts.append(
            f'<text x="16" y="{middle:g}" text-anchor="middle" transform="rotate(-90 16 {middle:g})">'
            f"{_clean(unit)}</text>"
        )
    for i, (line, (x, row)) in enumerate(zip(lines, places, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        parts.append(
            f'<marker id="p{i}" viewBox="0 0 4 4" refX="2" refY="2" markerWidth="4" markerHeight="4">'
            f'<circle cx="2" cy="2" r="2" fill="{colour}"/></marker>'
        )
        look = 'stroke-width="1" stroke-opacity="0.35" clip-path="url(#in)"' if line.faint else 'stroke-width="1.5"'
        ink = f'fill="none" stroke="{colour}" {look}'
        mark = f' marker-start="url(#p{i})" marker-mid="url(#p{i})" marker-end="url(#p{i})"'
        xs = LEFT + across * (line.x / scale.right)
        ys = top + down * ((scale.high - line.y / scale.size) / scale.span)
        for run in _runs(line.y):
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(xs[run].tolist(), ys[run].tolist(), strict=True))
            # without neighbours, a point is visible only by its marker
            marked = run.stop - run.start == 1 or not (line.faint or line.y.size > MAX_MARKED_POINTS)
            parts.append(f'<polyline points="{points}" {ink}{mark if marked else ""}/>')
        at, base = LEFT + x, 42 + ROW * row
        parts.append(
            f'<path d="M{at:g} {base - 4}h{SAMPLE}" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{at + SAMPLE + 4:g}" y="{base}">{_clean(line.label)}</text>'
        )
    return "".join([*parts, "</svg>"]).encode()


def png_chart(title: str, lines: Sequence[Line], width: int, height: int, unit: str = "", start: str = "") -> bytes:
    """Draw the chart as a PNG image, with the same arrangement as the SVG form."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
    except ImportError:
        raise MissingExtraError("drawing PNG charts", "plot") from None
    scale, across = _scale(lines), width - LEFT - RIGHT
    places = _legend(lines, across)
    top = TOP + ROW * (places[-1][1] if places else 0)
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((LEFT / width, BOTTOM / height, across / width, (height - top - BOTTOM) / height))
    for i, (line, (x, row)) in enumerate(zip(lines, places, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        marker = None if line.faint or line.y.size > MAX_MARKED_POINTS else "."
        alpha, thickness = (0.35, 1.0) if line.faint else (1.0, 1.5)
        axes.plot(
            line.x,
            line.y / scale.size,
            color=colour,
            marker=marker,
            clip_on=line.faint,
            alpha=alpha,
            linewidth=thickness,
        )
        at, base = LEFT + x, 1 - (38 + ROW * row) / height
        ends = [at / width, (at + SAMPLE) / width]
        figure.add_artist(Line2D(ends, [base, base], color=colour, linewidth=2))
        figure.text(ends[1] + 4 / width, base, line.label, fontsize=9, va="center_baseline", parse_math=False)
    figure.text(0.5, 1 - 17 / height, title, fontsize=11, ha="center", va="center", parse_math=False)
    _label(axes, scale, unit, start)
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # characters that the font lacks are drawn as boxes
        figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _label(axes: Any, scale: Scale, unit: str, start: str) -> None:
    axes.set_xlabel(_time_label(scale, start), fontsize=9, parse_math=False)
    axes.set_ylabel(unit, fontsize=9, parse_math=False)
    axes.set_xlim(0, scale.right)
    axes.set_ylim(scale.low, scale.high)
    axes.set_xticks(*zip(*scale.x_ticks(), strict=True))
    axes.set_yticks(*zip(*scale.y_ticks(), strict=True))
    axes.tick_params(labelsize=8)
    axes.grid(color="#dddddd")
