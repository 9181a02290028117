"""Confidence intervals of measures, from their runs or from the parts of a single run."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from riot_bench.harness.confidence import batch_means, confidence_interval
from riot_bench.harness.measure import Measure

__all__ = ["MIN_VALUES", "Interval", "interval_of"]

#: Minimum number of values for an interval.
MIN_VALUES = 3
#: Units of time, also per record.
TIMES = ("s", "ms", "µs", "ns")


class Interval(NamedTuple):
    """A 95 % confidence interval.

    Attributes
    ----------
    low, high : float
        NaN if there are too few values.
    of : int
        Number of values: of runs, or of parts of one run.
    within : bool
        Whether the values are parts of one run, such as its micro-batches; other runs may differ more.
    mean : float
        Mean that the interval is of; the value of a measure is a median.
    """

    low: float
    high: float
    of: int
    within: bool
    mean: float

    @property
    def is_known(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low)


def interval_of(measure: Measure) -> Interval:
    """Return the interval of the mean of a measure's runs, or of the parts of its only run if there are too few.

    For positive ratios it is the interval of the geometric mean, as twice as fast is as far from 1 as half as fast.
    For rates and times it is cut at 0. Runs without a value are left out.

    >>> interval_of(Measure("x", 1.0, "s", values=(1.0, 2.0)))
    Interval(low=nan, high=nan, of=2, within=False, mean=nan)
    >>> interval_of(Measure("x", 1.0, "s", values=(1.0, 1.0, 1.0)))
    Interval(low=1.0, high=1.0, of=3, within=False, mean=1.0)
    """
    runs, sample = measure.measured, [v for v in measure.sample if math.isfinite(v)]
    within = len(runs) < MIN_VALUES <= len(sample)
    values = sample if within else runs
    if len(values) < MIN_VALUES:
        return Interval(math.nan, math.nan, len(values), False, math.nan)
    geometric = measure.unit == "ratio" and min(values) > 0
    scaled = np.log(values).tolist() if geometric else values
    parts = batch_means(scaled) if within else scaled
    rate_or_time = measure.unit.endswith("/s") or measure.unit.partition("/")[0] in TIMES
    minimum = 0.0 if rate_or_time and min(values) >= 0 else -math.inf
    found = (*confidence_interval(parts, minimum=minimum), float(np.mean(parts)))
    low, high, mean = map(math.exp, found) if geometric else found
    return Interval(low, high, len(values), within, min(max(mean, low), high))  # rounding may move the mean outside
