"""Measures as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from riot_bench.harness.measure import Measure

__all__ = ["measure_table", "value_range"]


def measure_table(measures: Iterable[Measure]) -> Any:
    """Build a table for the terminal.

    The value is the median of several runs, or of the parts of one. A strict measure shows its worst run, marked so.
    """
    from rich.markup import escape
    from rich.table import Table

    found = list(measures)
    several = any(len(m.values or m.sample) > 1 for m in found)
    shown = Table(show_edge=False)
    shown.add_column("measure")
    titles = [("median" if several else "value", "right"), ("unit", "left"), ("reach", "right"), ("met", "left")]
    if several:
        titles.insert(1, ("range", "right"))
    for title, side in titles:
        shown.add_column(title, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for m in found:
        reach = "" if m.reach is None else f"{'<=' if m.at_most else '>='} {_format(m.reach)}"
        met = "" if m.met is None else "[green]yes[/]" if m.met else "[red]no[/]"
        name = f"[bold]{escape(m.measure)}[/]" + (f"\n[dim]{escape(m.against)}[/]" if m.against else "")
        worst = m.strict and len(m.runs) > 1
        value = "worst " * worst + ">= " * (m.lower_bound and math.isfinite(m.value)) + _format(m.value)
        cells = [name, value, *([value_range(m.values or m.sample)] if several else []), m.unit, reach, met]
        shown.add_row(*cells)
    return shown


def value_range(values: Sequence[float]) -> str:
    """Format the minimum and maximum of the values; empty for fewer than two.

    >>> value_range([3.0, 1.25, 2.0]), value_range([1.0]), value_range([math.nan, 4.0, 5.0])
    ('1.25–3', '', '4–5')
    """
    known = [v for v in values if math.isfinite(v)]
    return f"{_format(min(known))}–{_format(max(known))}" if len(known) > 1 else ""


def _format(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
