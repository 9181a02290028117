"""Line charts as SVG, without any library, and as PNG with matplotlib. The same data make the same bytes."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from riot_ops.errors import MissingExtraError

__all__ = ["Line", "png_chart", "svg_chart"]

F64 = npt.NDArray[np.float64]

COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#d97706", "#7c3aed", "#0891b2")
LEFT, RIGHT, TOP, BOTTOM = 85, 20, 40, 45
TIME_LABEL = "time (ms)"


class Line(NamedTuple):
    """Points in order, x in milliseconds; NaN in y is a gap."""

    label: str
    x: F64
    y: F64


class Scale(NamedTuple):
    """What the axes show; y is divided by ``unit``, so that no difference overflows."""

    right: float
    low: float
    high: float
    unit: float

    @property
    def span(self) -> float:
        return self.high - self.low

    def label(self, share: float) -> str:
        """The value at a share of the height."""
        return f"{(self.low + self.span * share) * self.unit:.5g}"


def _scale(lines: Sequence[Line]) -> Scale:
    shown = [~np.isnan(line.y) for line in lines]
    x = np.concatenate([np.zeros(1), *(line.x[s] for line, s in zip(lines, shown, strict=True))])
    y = np.concatenate([np.empty(0), *(line.y[s] for line, s in zip(lines, shown, strict=True))])
    if not y.size:
        y = np.zeros(1)
    unit = float(np.abs(y).max())
    unit = unit if unit > 1e300 or 0 < unit < 1e-300 else 1.0
    low, high = float(y.min() / unit), float(y.max() / unit)
    if low == high:  # in the middle then
        room = abs(low) / 10 or 1.0
        low, high = low - room, high + room
    return Scale(float(x.max()) or 1.0, low, high, unit)


def _runs(y: F64) -> Iterator[slice]:
    """The stretches between gaps."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], ~np.isnan(y), [False]]).astype(np.int8)))
    for start, end in edges.reshape(-1, 2).tolist():
        yield slice(start, end)


def _clean(text: str) -> str:
    """Text as XML may hold it."""
    return escape(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text))


def svg_chart(title: str, lines: Sequence[Line], width: int, height: int) -> bytes:
    """The chart as an SVG document in UTF-8."""
    scale = _scale(lines)
    across, down = width - LEFT - RIGHT, height - TOP - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        '<rect width="100%" height="100%" fill="white"/>'
        f'<text x="{width / 2:g}" y="22" text-anchor="middle" font-size="14">{_clean(title)}</text>'
    ]
    for i in range(5):
        y, x = TOP + down * i / 4, LEFT + across * i / 4
        parts.append(
            f'<path d="M{LEFT} {y:g}h{across}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:g}" text-anchor="end">{scale.label(1 - i / 4)}</text>'
            f'<text x="{x:g}" y="{height - 24}" text-anchor="{"middle" if i < 4 else "end"}">'
            f"{scale.right * i / 4:.7g}</text>"
        )
    parts.append(f'<text x="{LEFT + across / 2:g}" y="{height - 6}" text-anchor="middle">{TIME_LABEL}</text>')
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        parts.append(  # marks every value, so that one without neighbours can be seen
            f'<marker id="p{i}" viewBox="0 0 4 4" refX="2" refY="2" markerWidth="4" markerHeight="4">'
            f'<circle cx="2" cy="2" r="2" fill="{colour}"/></marker>'
        )
        xs = LEFT + across * (line.x / scale.right)
        ys = TOP + down * ((scale.high - line.y / scale.unit) / scale.span)
        for run in _runs(line.y):
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(xs[run].tolist(), ys[run].tolist(), strict=True))
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5" '
                f'marker-start="url(#p{i})" marker-mid="url(#p{i})" marker-end="url(#p{i})"/>'
            )
        parts.append(f'<text x="{LEFT + 8}" y="{TOP + 14 + 15 * i}" fill="{colour}">{_clean(line.label)}</text>')
    return "".join([*parts, "</svg>"]).encode()


def png_chart(title: str, lines: Sequence[Line], width: int, height: int) -> bytes:
    """The chart as a PNG image."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing PNG charts", "plot") from None
    scale = _scale(lines)
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    FigureCanvasAgg(figure)
    # in the same place as in the SVG form
    box = LEFT / width, BOTTOM / height, 1 - (LEFT + RIGHT) / width, 1 - (TOP + BOTTOM) / height
    axes = figure.add_axes(box)
    handles = []
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        handles += axes.plot(line.x, line.y / scale.unit, color=colour, linewidth=1.5, marker=".", label="-")
    _label(axes, title, scale)
    if handles:
        legend = axes.legend(handles, ["-"] * len(handles), loc="upper left", frameon=False)
        for text, line in zip(legend.get_texts(), lines, strict=True):
            text.set(text=line.label, parse_math=False)
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of characters that the font lacks, which it shows as boxes
        figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _label(axes: Any, title: str, scale: Scale) -> None:
    axes.set_title(title, fontsize=11, parse_math=False)
    axes.set_xlabel(TIME_LABEL, fontsize=9)
    axes.set_xlim(-0.02 * scale.right, 1.02 * scale.right)
    room = 0.03 * scale.span
    axes.set_ylim(scale.low - room, scale.low + scale.span + room)
    shares = np.linspace(0, 1, 5)
    axes.set_yticks(scale.low + scale.span * shares, [scale.label(s) for s in shares.tolist()])
    axes.tick_params(labelsize=8)
    axes.grid(color="#dddddd")
