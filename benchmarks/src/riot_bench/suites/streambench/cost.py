"""CPU time and memory of a run."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from typing import Any, Self

from riot_bench.harness.micro_batches import completed_batches
from riot_ops.measure.processes import ProcessTree

__all__ = ["Cost", "CostMonitor"]


@dataclass(frozen=True)
class Cost:
    """CPU time and memory of all processes of a run.

    Attributes
    ----------
    seconds : float
        CPU time on all cores.
    cores : float
        Mean number of busy cores.
    memory : float
        Maximum memory in bytes.
    parts : int
        Micro-batches or repetitions that the CPU time is for.

    Examples
    --------
    >>> str(Cost(3.0, 1.52, 5e8))
    '1.5 cores busy, at most 477 MiB'
    """

    seconds: float = math.nan
    cores: float = math.nan
    memory: float = math.nan
    parts: int = 1

    def __str__(self) -> str:
        return f"{self.cores:.1f} cores busy, at most {self.memory / 2**20:,.0f} MiB"


class CostMonitor:
    """Monitors this process and all that it started within the ``with`` block.

    If it is called repeatedly with a query, it measures from the end of the first micro-batch, in which everything
    starts, to the end of the last one. Work of the query after that does not count.

    Parameters
    ----------
    batches : int, optional
        Number of micro-batches that count, the first included.

    Examples
    --------
    >>> with CostMonitor() as watch:
    ...     _ = sum(range(1_000_000))
    >>> 0 < watch.cost.seconds < 10, watch.cost.memory > 1e6
    (True, True)
    """

    def __init__(self, batches: int = sys.maxsize) -> None:
        self.cost = Cost()
        self.batches = batches
        self._first, self._last = 0, 0
        self._tree = ProcessTree(every="1s")

    def __enter__(self) -> Self:
        self._tree.start()
        self._begin = self._end = self._now()
        return self

    def __call__(self, streaming: Any) -> None:
        if (through := min(completed_batches(streaming), self.batches)) > self._last:
            self._end, self._last = self._now(), through
            if not self._first:
                self._begin, self._first = self._end, through

    def __exit__(self, *_: object) -> None:
        if not self._last:  # without a query, the whole block counts
            self._end, self._last = self._now(), 1
        self._tree.stop()
        spent, wall = (after - before for before, after in zip(self._begin, self._end, strict=True))
        memory = float(self._tree.usage().memory.max(initial=0.0))
        self.cost = Cost(spent, spent / wall if wall else math.nan, memory, self._last - self._first)

    def _now(self) -> tuple[float, float]:
        return self._tree.cpu_seconds(), time.perf_counter()
