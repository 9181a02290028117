"""matplotlib in the style that all charts of results share, without a window."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from riot_ops.core.errors import MissingExtraError

__all__ = ["GRID", "styled_pyplot", "to_png"]

GRID = "#e2e8f0"
_STYLE = {
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
def styled_pyplot(style: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Yield ``pyplot`` in the style of the results; ``style`` overrides entries of ``matplotlib.rcParams``.

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.

    >>> with styled_pyplot() as plt:
    ...     figure, axes = plt.subplots()
    ...     bars = axes.bar(["a", "b"], [1, 2])
    ...     to_png(plt, figure)[1:4]
    b'PNG'
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtraError("drawing the results", "plot") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    settings: Any = {**_STYLE, **(style or {})}
    with plt.rc_context(settings):
        yield plt


def to_png(plt: Any, figure: Any) -> bytes:
    """Render a figure as PNG and close it."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    plt.close(figure)
    return data.getvalue()
