"""How sure a measure is: by its runs, or by the parts of its one run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from riot_ops.bench.confidence import batch_means, interval
from riot_ops.bench.measure import Measure

__all__ = ["ENOUGH", "Sure", "sure"]

#: Values that an interval is made of.
ENOUGH = 3


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
    """

    low: float
    high: float
    of: int
    within: bool

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low)


def sure(measure: Measure) -> Sure:
    """The interval of the mean of a measure's runs; of fewer than :data:`ENOUGH`, that of the parts of its one run.

    Of ratios above 0 it is that of the geometric mean: twice as fast is as far from 1 as half as fast.

    >>> sure(Measure("x", 1.0, "s", values=(1.0, 2.0)))
    Sure(low=nan, high=nan, of=2, within=False)
    >>> sure(Measure("x", 1.0, "s", values=(1.0, 1.0, 1.0)))
    Sure(low=1.0, high=1.0, of=3, within=False)
    """
    runs, sample = _finite(measure.runs), _finite(measure.sample)
    within = len(runs) < ENOUGH <= len(sample)
    values = sample if within else runs
    if len(values) < ENOUGH:
        return Sure(math.nan, math.nan, len(values), False)
    geometric = measure.unit == "ratio" and min(values) > 0
    scaled = np.log(values).tolist() if geometric else values
    ends = interval(batch_means(scaled) if within else scaled)
    low, high = map(math.exp, ends) if geometric else ends
    return Sure(low, high, len(values), within)


def _finite(values: Iterable[float]) -> list[float]:
    return [v for v in values if math.isfinite(v)]
