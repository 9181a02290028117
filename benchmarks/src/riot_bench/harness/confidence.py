"""Confidence intervals and significance tests, computed by SciPy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from riot_ops.core.errors import ConfigError, MissingExtraError

__all__ = ["Difference", "batch_means", "confidence_interval", "tukey_kramer"]


class Difference(NamedTuple):
    """Result of a test: the statistic, its degrees of freedom (NaN if not defined) and the p-value."""

    statistic: float
    df: float
    p: float


def confidence_interval(
    values: Sequence[float], level: float = 0.95, minimum: float = -math.inf
) -> tuple[float, float]:
    """Return the confidence interval of the mean by Student's t.

    The interval is NaN for fewer than two values and has no width if all values are equal. Its lower end is cut at
    ``minimum``, such as 0 for rates.

    ``m ± t(1 − (1 − level) / 2, n − 1) · s / √n``

    >>> low, high = confidence_interval([9.0, 10.0, 11.0])
    >>> round(low, 3), round(high, 3)
    (7.516, 12.484)
    >>> confidence_interval([4.0])
    (nan, nan)
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, got {level}")
    if len(values) < 2:
        return math.nan, math.nan
    if min(values) == max(values):  # rounding would change the last digit of the mean
        return float(values[0]), float(values[0])
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(_stats().t.ppf(0.5 + level / 2, len(values) - 1)) * error
    return max(mean - half, minimum), mean + half


def batch_means(values: Sequence[float], max_batches: int = 20) -> list[float]:
    """Return the means of at max_batches ``max_batches`` successive parts of nearly equal length.

    Successive values of a run are correlated; the means of long parts hardly are.

    >>> batch_means([1.0, 3.0, 5.0, 7.0], max_batches=2)
    [2.0, 6.0]
    """
    if max_batches < 1:
        raise ConfigError(f"max_batches must be >= 1, got {max_batches}")
    parts = np.array_split(np.asarray(values, np.float64), min(max_batches, len(values)) or 1)
    return [float(part.mean()) for part in parts if part.size]


def tukey_kramer(groups: Mapping[str, Sequence[float]]) -> dict[tuple[str, str], Difference]:
    """Test the differences of all pairs (Tukey–Kramer); the statistic is the difference of the means.

    >>> found = tukey_kramer({"off": [1.0, 2.0, 3.0], "total": [7.0, 8.0, 9.0, 8.0], "selective": [1.5, 2.5, 2.0]})
    >>> found["off", "total"].p < 0.01, found["off", "selective"].p > 0.5
    (True, True)
    """
    if len(groups) < 2 or min(map(len, groups.values())) < 2:
        raise ConfigError("there must be at least 2 groups of at least 2 values each")
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
