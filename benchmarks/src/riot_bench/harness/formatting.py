"""Numbers as text."""

from __future__ import annotations

import math

from riot_bench.harness.measure import Measure

__all__ = ["format_load", "format_number"]


def format_load(measure: Measure) -> str:
    """Format the machine's highest load before the runs and at their ends.

    >>> format_load(Measure("x", 1.0, "ms", load=((0.1, 1.0), (0.3, 0.9))))
    '0.3, 1'
    """
    if not measure.load:
        return ""
    return ", ".join(f"{max(column):.2g}" for column in zip(*measure.load, strict=True))


def format_number(value: float) -> str:
    """Format a number with about three digits.

    >>> [format_number(v) for v in (0.01234, 5.0, 1234.5, 12_340_000.0, float("nan"))]
    ['0.012', '5', '1,230', '12,300,000', '–']
    """
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        digits = math.floor(math.log10(abs(value))) - 2
        return f"{round(value / 10**digits) * 10**digits:,}"
    return f"{value:.3g}" if abs(value) >= 1 or value == 0 else f"{value:.2g}"
