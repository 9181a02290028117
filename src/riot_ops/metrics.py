"""Latency and progress of a running dataflow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Latency", "Summary"]

POINTS = 8


class Latency:
    """Time from the source to the sink, per record, kept per block of records.

    The records of a block came between a first and a last moment; they are taken as evenly spread
    in between.
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[float, float, int]] = []

    def add(self, first_us: float, last_us: float, now_us: float, rows: int) -> None:
        """Count the records of a block that reached the sink now."""
        if rows:
            self._blocks.append((now_us - last_us, now_us - first_us, rows))

    def extend(self, blocks: list[Any]) -> None:
        """Add blocks that :meth:`blocks` gave elsewhere."""
        self._blocks.extend((float(a), float(b), int(n)) for a, b, n in blocks)

    def blocks(self) -> list[tuple[float, float, int]]:
        """What was added, as (least, greatest latency, rows)."""
        return list(self._blocks)

    def quantiles(self, *which: float) -> list[float]:
        """Latencies in seconds that these shares of the records stay below.

        >>> latency = Latency()
        >>> latency.add(first_us=0, last_us=0, now_us=2_000_000, rows=5)
        >>> latency.quantiles(0.5, 0.99)
        [2.0, 2.0]
        """
        if not self._blocks:
            return [float("nan")] * len(which)
        blocks = np.array(self._blocks)
        steps = (np.arange(POINTS) + 0.5) / POINTS
        points = (blocks[:, :1] + (blocks[:, 1:2] - blocks[:, :1]) * steps).ravel()
        weights = np.repeat(blocks[:, 2] / POINTS, POINTS)
        order = np.argsort(points)
        reached = np.cumsum(weights[order])
        index = np.searchsorted(reached, np.array(which) * reached[-1])
        return [float(points[order[min(i, len(order) - 1)]] / 1e6) for i in index]


@dataclass
class Summary:
    """What a run did.

    Attributes
    ----------
    messages : int
        Records read from the sources.
    rows : dict of str to int
        Records per output stream, the errors included.
    reasons : dict of str to int
        Rejected records per ``task: reason``.
    seconds : float
        Time from the start to the end.
    batches : int
        Batches (micro-batches) run.
    """

    messages: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    batches: int = 0
    latency: Latency = field(default_factory=Latency)

    def count(self, rows: dict[str, int], reasons: dict[str, int]) -> None:
        """Add the counts of a batch."""
        for name, n in rows.items():
            self.rows[name] = self.rows.get(name, 0) + n
        for name, n in reasons.items():
            self.reasons[name] = self.reasons.get(name, 0) + n

    @property
    def errors(self) -> int:
        """Number of rejected records."""
        return self.rows.get("errors", 0)

    @property
    def throughput(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds > 0 else 0.0
