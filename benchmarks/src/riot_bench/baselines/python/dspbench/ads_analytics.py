"""Ads analytics in plain Python."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from riot_bench.baselines.python.rows import new_rows
from riot_ops.core.parameters import duration

__all__ = ["ads_analytics"]

Pair = tuple[int, int]
MOST = 2**31 - 1


def _span(given: str | timedelta) -> timedelta:
    return duration(given) if isinstance(given, str) else given


def _read(line: bytes, cell: int) -> tuple[Pair, int] | None:
    try:
        cells = line.decode().rstrip("\r\n").split("\t")
        if len(cells) != 12:
            return None
        url, (clicks, impressions, *others) = float(cells[2]), [int(cell) for cell in cells[:2] + cells[3:]]
    except ValueError:
        return None
    counts, known = (clicks, impressions), 0 <= url <= 2**64 and min(others) >= 0 and max(others) < 2**63
    if not known or not counts[cell] or min(counts) < 0 or max(counts) > MOST:
        return None
    return (others[4], others[0]), counts[cell]


def ads_analytics(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    tick_every: int | None = None,
    window: str | timedelta = "10s",
    every: str | timedelta = "2s",
    emit: str = "tick",
) -> dict[str, list[tuple[Any, ...]]]:
    """``ctr``: query_id, ad_id, ctr, impressions, clicks. ``inputs`` has ``clicks`` and ``impressions``."""
    size = max(2, _span(window) // _span(every))
    slots: deque[dict[Pair, list[int]]] = deque([{}], maxlen=size)
    totals: dict[Pair, list[int]] = {}  # impressions and clicks
    found = new_rows()
    last: dict[Pair, tuple[Any, ...]] = {}

    def emit_totals() -> None:
        for (query, ad), (shown, clicked) in totals.items():
            if shown or not clicked:
                found.append((query, ad, clicked / shown if clicked else 0.0, shown, clicked))

    def tick() -> None:
        """Emit the totals, then drop empty pairs and the oldest slot."""
        emit_totals()
        for pair in [pair for pair, (shown, clicked) in totals.items() if not shown and not clicked]:
            del totals[pair]
        if len(slots) == size:
            for pair, counts in slots[0].items():
                totals[pair][0] -= counts[0]
                totals[pair][1] -= counts[1]
        slots.append({})

    pairs = itertools.zip_longest(inputs["clicks"], inputs["impressions"])
    seen = False
    for number, (clicks, impressions) in enumerate(pairs):
        seen = True
        if tick_every and number and number % tick_every == 0:
            tick()
        for line, cell in ((clicks, 0), (impressions, 1)):
            record = None if line is None else _read(line, cell)
            if record is None:
                continue
            pair, n = record
            for counts in (totals.setdefault(pair, [0, 0]), slots[-1].setdefault(pair, [0, 0])):
                counts[1 - cell] += n
            if emit != "tick":
                shown, clicked = totals[pair]
                if shown:
                    row = (*pair, clicked / shown, shown, clicked)
                    found.append(row)
                    last[pair] = row
    if emit == "tick" and seen:
        emit_totals()
    return {"ctr": list(last.values()) if emit == "update" else found}
