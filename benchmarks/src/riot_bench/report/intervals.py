"""How sure a measure is: by its runs, or by the parts of its one run."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from riot_bench.harness.confidence import batch_means, interval
from riot_bench.harness.measure import Measure

__all__ = ["ENOUGH", "Sure", "sure"]

#: Values that an interval is made of.
ENOUGH = 3
#: Units of times; of one record as well.
TIMES = ("s", "ms", "µs", "ns")


class Sure(NamedTuple):
    """An interval of 95 %.

    Attributes
    ----------
    low, high : float
        NaN where there are too few values.
    of : int
        How many values there are: of runs, or of parts of one.
    within : bool
        Whether it is of parts of one run, such as its micro-batches: another run may come to something else.
    mean : float
        What it is the interval of; the value of a measure is a median.
    """

    low: float
    high: float
    of: int
    within: bool
    mean: float

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low)


def sure(measure: Measure) -> Sure:
    """The interval of the mean of a measure's runs; of fewer than :data:`ENOUGH`, that of the parts of its one run.

    Of ratios above 0 it is that of the geometric mean: twice as fast is as far from 1 as half as fast. That of rates
    and times is cut off at 0. Runs in which a measure did not come about are left out.

    >>> sure(Measure("x", 1.0, "s", values=(1.0, 2.0)))
    Sure(low=nan, high=nan, of=2, within=False, mean=nan)
    >>> sure(Measure("x", 1.0, "s", values=(1.0, 1.0, 1.0)))
    Sure(low=1.0, high=1.0, of=3, within=False, mean=1.0)
    """
    runs, sample = measure.known, [v for v in measure.sample if math.isfinite(v)]
    within = len(runs) < ENOUGH <= len(sample)
    values = sample if within else runs
    if len(values) < ENOUGH:
        return Sure(math.nan, math.nan, len(values), False, math.nan)
    geometric = measure.unit == "ratio" and min(values) > 0
    scaled = np.log(values).tolist() if geometric else values
    parts = batch_means(scaled) if within else scaled
    rate_or_time = measure.unit.endswith("/s") or measure.unit.partition("/")[0] in TIMES
    least = 0.0 if rate_or_time and min(values) >= 0 else -math.inf
    found = (*interval(parts, least=least), float(np.mean(parts)))
    low, high, mean = map(math.exp, found) if geometric else found
    return Sure(low, high, len(values), within, min(max(mean, low), high))  # rounding may have put it outside
