"""What a run takes of the machine."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from typing import Any, Self

from riot_bench.harness.micro_batches import finished
from riot_ops.measure.processes import ProcessTree

__all__ = ["Cost", "Watch"]


@dataclass(frozen=True)
class Cost:
    """What a run takes, with all of its processes.

    Attributes
    ----------
    seconds : float
        Processor time, on whichever cores.
    cores : float
        How many were busy in the mean.
    memory : float
        Bytes, at most.
    parts : int
        Micro-batches or repetitions in which these seconds were spent.

    Examples
    --------
    >>> str(Cost(3.0, 1.52, 5e8))
    '1.5 cores busy, 477 MiB at most'
    """

    seconds: float = math.nan
    cores: float = math.nan
    memory: float = math.nan
    parts: int = 1

    def __str__(self) -> str:
        return f"{self.cores:.1f} cores busy, {self.memory / 2**20:,.0f} MiB at most"


class Watch:
    """Watches this process and all that it started, from the beginning of the ``with`` to its end.

    Called with a query again and again it begins when the first micro-batch of that is seen to be through, within which
    everything starts, and ends when the last one is: what a query does then is none of it.

    Parameters
    ----------
    batches : int, optional
        So many micro-batches count, with the first.

    Examples
    --------
    >>> with Watch() as watch:
    ...     _ = sum(range(1_000_000))
    >>> 0 < watch.cost.seconds < 10, watch.cost.memory > 1e6
    (True, True)
    """

    def __init__(self, batches: int = sys.maxsize) -> None:
        self.cost = Cost()
        self.batches = batches
        self._first, self._last = 0, 0
        self._tree = ProcessTree(every_s=1.0)

    def __enter__(self) -> Self:
        self._tree.start()
        self._begin = self._end = self._look()
        return self

    def __call__(self, streaming: Any) -> None:
        if (through := min(finished(streaming), self.batches)) > self._last:
            self._end, self._last = self._look(), through
            if not self._first:
                self._begin, self._first = self._end, through

    def __exit__(self, *_: object) -> None:
        if not self._last:  # of what is no query all counts
            self._end, self._last = self._look(), 1
        self._tree.stop()
        spent, wall = (after - before for before, after in zip(self._begin, self._end, strict=True))
        memory = float(self._tree.usage().memory.max(initial=0.0))
        self.cost = Cost(spent, spent / wall if wall else math.nan, memory, self._last - self._first)

    def _look(self) -> tuple[float, float]:
        return self._tree.spent(), time.perf_counter()
