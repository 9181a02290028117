"""The common form of all plots: size, colours, axes, legend."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import MissingExtraError
from riot_ops.core.schema import TIMESTAMP

__all__ = ["COLOURS", "date_formatter", "event_times", "new_figure", "robust_range", "save_figure"]

F64 = npt.NDArray[np.float64]

COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")


def robust_range(values: F64) -> tuple[float, float]:
    """Return the range of an axis on which outliers do not flatten the other values.

    The range is Tukey's outer fences, three interquartile ranges beyond the quartiles, within the range of the values.

    >>> robust_range(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    (1.0, 5.0)
    >>> robust_range(np.array([1.0, 2.0, 3.0, 4.0, 5000.0]))
    (1.0, 10.0)
    """
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    low, high = np.percentile(values, [25, 75])
    margin = 3 * (high - low)
    if margin == 0:  # at least half of the values are equal: the fences would hide all others
        return float(values.min()), float(values.max())
    return float(max(values.min(), low - margin)), float(min(values.max(), high + margin))


def new_figure() -> Any:
    """Return an empty figure."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing a plot", "plot") from None
    figure = Figure(figsize=(11, 5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, axes: Any, path: Path) -> None:
    """Add a grid to the axes (one, or a list of them) and a legend below them, and write the file."""
    axes_list = axes if isinstance(axes, list) else [axes]
    for ax in axes_list:
        ax.grid(color="#e5e7eb")
        ax.set_axisbelow(True)
        if ax.yaxis.get_scale() == "linear" and ax.yaxis.get_converter() is None:
            ax.ticklabel_format(axis="y", style="plain", useOffset=False)
    entries = [entry for ax in axes_list for entry in zip(*ax.get_legend_handles_labels(), strict=True)]
    if entries:
        handles, labels = zip(*entries, strict=True)
        legend = figure.legend(
            handles, ["-"] * len(labels), loc="outside lower center", ncols=2 if 3 < len(labels) < 8 else 6
        )
        for text, label in zip(legend.get_texts(), labels, strict=True):
            text.set(text=label, parse_math=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about characters that the font lacks, which it draws as boxes
        figure.savefig(path, dpi=110)


def date_formatter(axes: Any) -> Any:
    """Return a formatter for an axis of dates."""
    from matplotlib.dates import ConciseDateFormatter

    return ConciseDateFormatter(axes.xaxis.get_major_locator())  # type: ignore[no-untyped-call]


def event_times(table: pa.Table) -> Any:
    """Return event times in UTC without a time zone, which matplotlib takes without pandas."""
    return table["event_time"].cast(TIMESTAMP).cast(pa.timestamp("us")).to_numpy()
