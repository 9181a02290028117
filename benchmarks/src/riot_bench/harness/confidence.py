"""How sure a figure is: intervals, and tests of whether two or more settings differ. All of it is SciPy's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from riot_ops.core.errors import ConfigError, MissingExtraError

__all__ = ["Difference", "batch_means", "interval", "tukey_kramer", "welch"]


class Difference(NamedTuple):
    """What a test found: the statistic, its degrees of freedom (NaN where there are none), and the p-value."""

    statistic: float
    df: float
    p: float


def interval(values: Sequence[float], level: float = 0.95, least: float = -math.inf) -> tuple[float, float]:
    """Confidence interval of the mean by Student's t; NaN of fewer than two values, of no width where all are equal.

    It ends at the least that there can be: there is no rate below 0.

    ``m ± t(1 − (1 − level) / 2, n − 1) · s / √n``

    >>> low, high = interval([9.0, 10.0, 11.0])
    >>> round(low, 3), round(high, 3)
    (7.516, 12.484)
    >>> interval([4.0])
    (nan, nan)
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, got {level}")
    if len(values) < 2:
        return math.nan, math.nan
    if min(values) == max(values):  # whose mean may be another in the last digit
        return float(values[0]), float(values[0])
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(_stats().t.ppf(0.5 + level / 2, len(values) - 1)) * error
    return max(mean - half, least), mean + half


def batch_means(values: Sequence[float], most: int = 20) -> list[float]:
    """Means of successive parts of a run, as equal as can be, and no more than so many.

    What follows on one another in a run is alike; means of long parts are that hardly.

    >>> batch_means([1.0, 3.0, 5.0, 7.0], most=2)
    [2.0, 6.0]
    """
    if most < 1:
        raise ConfigError(f"most must be >= 1, got {most}")
    parts = np.array_split(np.asarray(values, np.float64), min(most, len(values)) or 1)
    return [float(part.mean()) for part in parts if part.size]


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Welch's t-test: whether the mean of the first is greater than that of the second.

    >>> found = welch([10.0, 11.0, 12.0, 13.0], [1.0, 2.0, 3.0, 5.0])
    >>> round(found.statistic, 2), round(found.df, 2), found.p < 0.001
    (8.18, 5.58, True)
    """
    if min(len(first), len(second)) < 2:
        raise ConfigError(f"both sides must have at least 2 values, got {len(first)} and {len(second)}")
    found = _stats().ttest_ind(first, second, equal_var=False, alternative="greater")
    return Difference(float(found.statistic), float(found.df), float(found.pvalue))


def tukey_kramer(groups: Mapping[str, Sequence[float]]) -> dict[tuple[str, str], Difference]:
    """Tukey–Kramer's honestly significant differences of all pairs; the statistic is the difference of the means.

    >>> found = tukey_kramer({"off": [1.0, 2.0, 3.0], "total": [7.0, 8.0, 9.0, 8.0], "selective": [1.5, 2.5, 2.0]})
    >>> found["off", "total"].p < 0.01, found["off", "selective"].p > 0.5
    (True, True)
    """
    if len(groups) < 2 or min(map(len, groups.values())) < 2:
        raise ConfigError("groups must be at least 2, of at least 2 values each")
    found = _stats().tukey_hsd(*groups.values())
    return {
        (a, b): Difference(float(found.statistic[i, j]), math.nan, float(found.pvalue[i, j]))
        for (i, a), (j, b) in combinations(enumerate(groups), 2)
    }


def _stats() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtraError("confidence intervals", "ml") from None
    return stats
