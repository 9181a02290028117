"""Fraud detection in plain Python."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from riot_bench.baselines.python.rows import new_rows

__all__ = ["fraud_detection"]

Pairs = dict[tuple[str, str], float]


def _read(path: str | None) -> tuple[list[str], list[list[float]]]:
    """Read the states and the transition probabilities."""
    if path is None:
        from riot_ops.models.markov import purchase_model

        model = purchase_model()
        return list(model.states), model.matrix.tolist()
    names, *rows = Path(path).read_text(encoding="utf-8-sig").split("\n")
    states = [name.strip() for name in names.split(",")]
    return states, [[float(cell) for cell in row.split(",")] for row in rows if row.strip()]


def _tables(states: list[str], matrix: list[list[float]], metric: str) -> tuple[Pairs, Pairs]:
    """Return each transition's addend to the score and to its divisor."""
    above: Pairs = {}
    below: Pairs = {}
    for name, row in zip(states, matrix, strict=True):
        entropy = [-p * math.log(p) if p > 0 else 0.0 for p in row]
        best = row.index(max(row))
        for i, (other, p) in enumerate(zip(states, row, strict=True)):
            pair = name, other
            below[pair] = 1.0
            if metric == "miss_probability":
                above[pair] = 1 - p
            elif metric == "miss_rate":
                above[pair] = float(i != best)
            else:
                above[pair], below[pair] = sum(entropy) - entropy[i], sum(entropy)
    return above, below


def fraud_detection(
    inputs: Mapping[str, Iterable[bytes]],
    *,
    model: str | None = None,
    column: int = 1,
    scope: str = "window",
    window: int = 5,
    metric: str = "miss_probability",
    threshold: float = 0.96,
) -> dict[str, list[tuple[Any, ...]]]:
    """``outliers``: entity_id, score, states. ``inputs`` has ``cards``."""
    states, matrix = _read(model)
    above, below = _tables(states, matrix, metric)
    known = set(states)
    latest: dict[str, deque[str]] = {}
    totals: dict[str, list[float]] = {}
    outliers = new_rows()
    for line in inputs["cards"]:
        try:
            cells = line.decode().rstrip("\r\n").split(",")
        except UnicodeDecodeError:
            continue
        if len(cells) < column + 2 or (column == 1 and len(cells) > 3) or not cells[0]:
            continue
        who, state = cells[0], cells[column + 1]
        if state not in known:
            continue
        chain = latest.get(who)
        if chain is None:
            chain = latest[who] = deque(maxlen=window)
            totals[who] = [0.0, 0.0]
        before = chain[-1] if chain else None
        chain.append(state)
        if scope == "window":
            if len(chain) < window:
                continue
            pairs = list(zip(chain, islice(chain, 1, None), strict=False))
            score, whole = sum(above[pair] for pair in pairs), sum(below[pair] for pair in pairs)
        else:
            if before is None:
                continue
            total = totals[who]
            total[0] = score = total[0] + above[before, state]
            total[1] = whole = total[1] + below[before, state]
        score = score / whole if whole > 0 else 0.0
        if score > threshold:
            outliers.append((who, score, ",".join(chain)))
    return {"outliers": outliers}
