"""Search for the highest sustainable rate of a dataflow."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["MIN_RATE", "PeakRate", "find_peak", "start_rates"]

#: The search ends below this rate (messages per second).
MIN_RATE = 0.1
MAX_FACTOR = 4.0


@dataclass(frozen=True)
class PeakRate:
    """Result of a search.

    Attributes
    ----------
    rate : float
        The highest sustained rate; 0 if none was sustained.
    tried : tuple of (float, bool)
        Rates in the order of the trials, and whether each was sustained.
    converged : bool
        Whether a rate at most ``precision`` times as high was not sustained; otherwise the time ran out.
    """

    rate: float
    tried: tuple[tuple[float, bool], ...]
    converged: bool

    @property
    def caveat(self) -> str:
        """A caveat to append to the description of the measure; empty if there is none."""
        return "" if self.converged else "; time limit reached, the nearest rate tried"


def start_rates(start: float, precision: float, n: int) -> list[float]:
    """Return first guesses for ``n`` searches, spread over one step of the precision.

    The first guess fixes the grid of rates that a search tries. From the same guess, all searches would find the same
    rate without any spread, however far off the grid is.

    >>> [round(one, 1) for one in start_rates(100.0, 1.21, 2)]
    [100.0, 110.0]
    """
    return [start * precision ** (i / n) for i in range(n)]


def find_peak(
    keeps_up: Callable[[float], bool],
    start: float,
    *,
    precision: float = 1.05,
    step: float = 1.25,
    attempts: int = 2,
    limit_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> PeakRate:
    """Search for the highest sustainable rate.

    From the first guess, the rate rises (or falls) in growing steps until it is no longer (or first) sustained. Then
    the interval is bisected on a logarithmic scale until it is narrow.

    Parameters
    ----------
    keeps_up : function of a rate
        Runs one trial.
    start : float, messages per second
        First guess.
    precision : float, > 1, default 1.05
        Ratio of the interval's ends at which the search stops.
    step : float, > 1, default 1.25
        Ratio of the second guess to the first; squared for each further guess, up to 4.
    attempts : int, default 2
        Failed trials after which a rate counts as not sustained: another process may have disturbed a single one.
    limit_s : float, default no limit
        Seconds after which no trial begins.

    Examples
    --------
    >>> peak = find_peak(lambda rate: rate <= 1000, start=300)
    >>> 1000 / 1.05 <= peak.rate <= 1000, peak.converged
    (True, True)
    """
    tried: list[tuple[float, bool]] = []
    low, high, rate, begun = 0.0, math.inf, start, clock()
    factor = step
    while high > precision * low and rate >= MIN_RATE:
        for _ in range(attempts):
            if tried and clock() - begun >= limit_s:
                return PeakRate(low, tuple(tried), converged=False)
            good = keeps_up(rate)
            tried.append((rate, good))
            if good:
                break
        low, high = (rate, high) if good else (low, rate)
        if low > 0 and math.isfinite(high):
            rate = math.sqrt(low * high)
        else:
            rate = rate * factor if good else rate / factor
            factor = min(factor * factor, MAX_FACTOR)
    return PeakRate(low, tuple(tried), converged=low > 0)
