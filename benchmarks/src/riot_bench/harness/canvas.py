"""What all figures of results are drawn on: one style, without a window."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from riot_ops.core.errors import MissingExtraError

__all__ = ["GRID", "canvas", "png"]

GRID = "#e2e8f0"
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#64748b",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "svg.fonttype": "none",
}


@contextmanager
def canvas(style: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """``pyplot`` in the style of the results, and what ``style`` changes of it (names as in ``matplotlib.rcParams``).

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.

    >>> with canvas() as plt:
    ...     figure, axes = plt.subplots()
    ...     bars = axes.bar(["a", "b"], [1, 2])
    ...     png(plt, figure)[1:4]
    b'PNG'
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtraError("drawing the results", "plot") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    settings: Any = {**STYLE, **(style or {})}
    with plt.rc_context(settings):
        yield plt


def png(plt: Any, figure: Any) -> bytes:
    """The figure as a picture; it is closed."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    plt.close(figure)
    return data.getvalue()
