"""Differences between the clocks of other machines and the driver's, bounded by the order of events."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["ClockOffsets"]

Floats = npt.NDArray[np.float64]


class ClockOffsets:
    """Bounds of how far each machine's clock is ahead of the driver's (s; negative if it is slow).

    An event at the machine that follows one at the driver gives an upper bound, the time from one
    to the other by their own clocks; an event at the driver that follows one at the machine gives a lower bound.

    Examples
    --------
    >>> clocks = ClockOffsets()
    >>> clocks.at_most("a", np.array([0.3, 0.1]))  # read after the split was made
    >>> clocks.at_least("a", np.array([-0.5]))  # delivered before the commit
    >>> clocks.at_most("b", np.array([-1.9, -2.0]))
    >>> clocks.ahead("a"), clocks.ahead("b"), clocks.skew()
    (0.0, -2.0, {'b': -2.0})
    """

    def __init__(self) -> None:
        self._least: dict[str, float] = {}
        self._most: dict[str, float] = {}

    def at_most(self, host: str, bounds: Floats) -> None:
        """Note upper bounds; NaN is ignored."""
        self._most[host] = float(np.fmin.reduce(bounds, initial=self._most.get(host, math.inf)))

    def at_least(self, host: str, bounds: Floats) -> None:
        """Note lower bounds; NaN is ignored."""
        self._least[host] = float(np.fmax.reduce(bounds, initial=self._least.get(host, -math.inf)))

    def ahead(self, host: str) -> float:
        """Return the smallest correction that puts all events in order; 0 if they already are."""
        return min(max(0.0, self._least.get(host, -math.inf)), self._most.get(host, math.inf))

    def skew(self) -> dict[str, float]:
        """Return the corrections of the machines that need one."""
        hosts = sorted({*self._least, *self._most})
        return {host: self.ahead(host) for host in hosts if self.ahead(host)}
