"""The highest rate that a dataflow keeps up with: by trying."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LEAST", "Peak", "highest", "starts"]

#: Rates below this are not looked for (messages per second).
LEAST = 0.1
MOST_FACTOR = 4.0


@dataclass(frozen=True)
class Peak:
    """What a search found.

    Attributes
    ----------
    rate : float
        The highest rate that was kept up with; 0 where there was none.
    tried : tuple of (float, bool)
        Rates in the order they were tried, and whether they were kept up with.
    closed : bool
        Whether a rate at most ``precision`` times as high was not kept up with; else the time ran out.
    """

    rate: float
    tried: tuple[tuple[float, bool], ...]
    closed: bool

    @property
    def mark(self) -> str:
        """What is to be said against it, behind how it came about."""
        return "" if self.closed else "; to the nearest that was tried in the time"


def starts(start: float, precision: float, n: int) -> list[float]:
    """First guesses of so many searches, within one step of the precision.

    A search tries the rates of a grid that its first guess fixes: from one and the same, all would come to the same
    rate, and their spread would be nothing, however far off the grid is.

    >>> [round(one, 1) for one in starts(100.0, 1.21, 2)]
    [100.0, 110.0]
    """
    return [start * precision ** (i / n) for i in range(n)]


def highest(
    keeps_up: Callable[[float], bool],
    start: float,
    *,
    precision: float = 1.05,
    step: float = 1.25,
    attempts: int = 2,
    limit_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Peak:
    """Search for the highest sustainable rate.

    From a first guess the rate goes up (or down) in growing steps until it is no longer (or first) kept
    up with; then the interval is halved, in the logarithm, until it is narrow.

    Parameters
    ----------
    keeps_up : function of a rate
        One trial.
    start : float, messages per second
        First guess.
    precision : float, > 1, default 1.05
        Ratio of the rates at the ends of the interval that is narrow enough.
    step : float, > 1, default 1.25
        Ratio of the second guess to the first; squared for each one after it, up to 4.
    attempts : int, default 2
        A rate counts as not kept up with after so many trials: something else may have taken the machine.
    limit_s : float, default no limit
        No trial begins after this time.

    Examples
    --------
    >>> peak = highest(lambda rate: rate <= 1000, start=300)
    >>> 1000 / 1.05 <= peak.rate <= 1000, peak.closed
    (True, True)
    """
    tried: list[tuple[float, bool]] = []
    low, high, rate, begun = 0.0, math.inf, start, clock()
    factor = step
    while high > precision * low and rate >= LEAST:
        for _ in range(attempts):
            if tried and clock() - begun >= limit_s:
                return Peak(low, tuple(tried), closed=False)
            good = keeps_up(rate)
            tried.append((rate, good))
            if good:
                break
        low, high = (rate, high) if good else (low, rate)
        if low > 0 and math.isfinite(high):
            rate = math.sqrt(low * high)
        else:
            rate = rate * factor if good else rate / factor
            factor = min(factor * factor, MOST_FACTOR)
    return Peak(low, tuple(tried), closed=low > 0)
