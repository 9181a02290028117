"""What a run takes of the machine."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Self

from riot_ops.bench.sparks import durations
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

    Examples
    --------
    >>> str(Cost(3.0, 1.52, 5e8))
    '1.5 cores busy, 477 MiB at most'
    """

    seconds: float = math.nan
    cores: float = math.nan
    memory: float = math.nan

    def __str__(self) -> str:
        return f"{self.cores:.1f} cores busy, {self.memory / 2**20:,.0f} MiB at most"


class Watch:
    """Watches this process and all that it started, from the beginning of the ``with`` to its end.

    Called with a query it begins anew when the first micro-batch of that is through, within which everything starts.

    Examples
    --------
    >>> with Watch() as watch:
    ...     _ = sum(range(1_000_000))
    >>> 0 < watch.cost.seconds < 10, watch.cost.memory > 1e6
    (True, True)
    """

    def __init__(self) -> None:
        self.cost = Cost()
        self.anew = False
        self._tree = ProcessTree(every_s=1.0)

    def __enter__(self) -> Self:
        self._tree.start()
        self._begin()
        return self

    def __call__(self, streaming: Any) -> None:
        if not self.anew and durations(streaming):
            self.anew = True
            self._begin()

    def __exit__(self, *_: object) -> None:
        spent, wall = self._tree.spent() - self._spent, time.perf_counter() - self._begun
        self._tree.stop()
        self.cost = Cost(spent, spent / wall, float(self._tree.usage().memory.max(initial=0.0)))

    def _begin(self) -> None:
        self._spent, self._begun = self._tree.spent(), time.perf_counter()
