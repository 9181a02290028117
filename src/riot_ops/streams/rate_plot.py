"""The message rate of a stream as a picture."""

from __future__ import annotations

from pathlib import Path

from riot_ops.core.errors import ConnectorError, MissingExtraError
from riot_ops.ingest import rates
from riot_ops.streams.catalog import CatalogEntry

__all__ = ["draw_rates"]


def draw_rates(entry: CatalogEntry, path: str | Path, speed: float | None = None) -> None:
    """Draw the distribution of message rates, as the benchmark's paper does, and the rate over time.

    Parameters
    ----------
    entry : CatalogEntry
        A stream of :data:`~riot_ops.streams.catalog.CATALOG`.
    path : str or Path
        The picture; its suffix gives the format, such as ``.png`` or ``.svg``.
    speed : float, > 0
        Event time per wall time; default: the benchmark's.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from riot_ops.streams.catalog import CATALOG
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "taxi.png"
    >>> draw_rates(CATALOG["taxi"], file)
    >>> file.stat().st_size > 10_000
    True
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing a picture", "plot") from None
    figures = entry.describe(speed)
    at, rate, gap = figures["rate"]["speed"], figures["rate"], figures["gap_ms"]
    curve = entry.curve(at)
    top = rate["max"] * 1.1
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    share, edges = rates.histogram(curve, [top * i / 60 for i in range(61)])
    left.bar(edges[:-1], 100 * share, width=edges[1] - edges[0], align="edge", color="#2563eb", edgecolor="white")
    left.axvline(rate["mean"], color="#dc2626", linewidth=1, label=f"mean {rate['mean']:,.0f}/s")
    left.set_xlim(0, top)
    left.set_xlabel(f"messages per second (at {at:g}×)")
    left.set_ylabel("share of time (%)")
    left.legend()
    # several rounds, to show the period of a short curve
    rounds = max(1, round(10 / curve.duration))
    ends = [curve.step * i for i in range(rounds * curve.rates.size + 1)]
    right.stairs(list(curve.rates) * rounds, ends, baseline=None, color="#2563eb")
    right.set_ylim(0, top)
    right.set_xlim(0, ends[-1])
    right.set_xlabel("seconds")
    right.set_ylabel("messages per second")
    figure.suptitle(
        f"{entry.name.upper()}: {entry.distribution} · gaps between messages (ms): mean {gap['mean']:.3g}, "
        f"median {gap['median']:.3g}, p99 {gap['p99']:.3g}, max {gap['max']:.4g}",
        fontsize=11,
    )
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:  # no such folder, no such format
        raise ConnectorError(f"the picture {path} cannot be written: {error}") from None
