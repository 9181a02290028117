"""Formulas of StreamBench's metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from riot_ops.core.errors import ConfigError

__all__ = ["availability", "count_lost_and_duplicated", "pareto_front", "penalty", "relative_slope"]

#: Maximum number of samples that are compared pairwise.
MAX_SAMPLES = 1_000


def penalty(failing: float, whole: float, fewer: float) -> float:
    """Return the penalty factor of a failure: TPF for throughputs, LPF for latencies.

    ``F / ((T_N + T_(N-1)) / 2)`` for a run in which one of N nodes fails half way, against runs without failure on N
    and on N − 1 nodes. At 1, a failure costs only the node.

    >>> penalty(120.0, 200.0, 100.0)
    0.8
    """
    for name, value in (("failing", failing), ("whole", whole), ("fewer", fewer)):
        if not 0 < value < math.inf:
            raise ConfigError(f"{name} must be a finite number > 0, got {value}")
    return failing / ((whole + fewer) / 2)


def availability(delays_s: Sequence[float | None], limit_s: float) -> float:
    """Return the share, in %, of the slots whose mark was seen in time.

    Parameters
    ----------
    delays_s : sequence of float or None
        For each slot, seconds from when its mark was due until it was seen; None if never.
    limit_s : float, > 0

    Examples
    --------
    >>> availability([0.5, None, 31.0, 2.0], 30.0)
    50.0
    """
    if not delays_s:
        raise ConfigError("delays_s must have at least one slot, got none")
    if not limit_s > 0:
        raise ConfigError(f"limit_s must be > 0, got {limit_s}")
    return 100 * sum(delay is not None and delay <= limit_s for delay in delays_s) / len(delays_s)


def count_lost_and_duplicated(wanted: Iterable[Hashable], found: Iterable[Hashable]) -> tuple[int, int]:
    """Count the missing results, and the duplicate or wrong ones.

    >>> count_lost_and_duplicated(["a", "b", "c"], ["a", "c", "c"])
    (1, 1)
    """
    left, right = Counter(wanted), Counter(found)
    return (left - right).total(), (right - left).total()


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the settings that no other dominates.

    One setting dominates another with at least its throughput (first) and at most its latency.

    >>> pareto_front({"a": (10.0, 5.0), "b": (20.0, 9.0), "c": (9.0, 6.0), "d": (20.0, 8.0)})
    ['a', 'd']
    """

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] >= other[0] and one[1] <= other[1]

    return [name for name, point in points.items() if not any(beats(other, point) for other in points.values())]


def relative_slope(times_s: Sequence[float], values: Sequence[float]) -> float:
    """Return the growth of values per minute in % of their mean, as the median slope of all pairs (Theil–Sen).

    More than 1,000 samples would have too many pairs; they are first grouped into 1,000 blocks of neighbours, which are
    represented by the medians of their times and values.

    >>> round(relative_slope([0.0, 30.0, 60.0, 90.0], [100.0, 101.0, 102.0, 103.0]), 2)
    1.97
    """
    if len(times_s) != len(values) or len(times_s) < 2:
        raise ConfigError(
            f"times_s and values must have the same length of at least 2, got {len(times_s)} and {len(values)}"
        )
    mean = sum(values) / len(values)
    if not mean > 0:
        raise ConfigError(f"the mean of the values must be > 0, got {mean}")
    if len(values) > MAX_SAMPLES:
        times_s, values = (
            [float(np.median(block)) for block in np.array_split(np.asarray(of, np.float64), MAX_SAMPLES)]
            for of in (times_s, values)
        )
    rises = sorted(
        (values[j] - values[i]) / (times_s[j] - times_s[i])
        for i in range(len(values))
        for j in range(i + 1, len(values))
        if times_s[j] > times_s[i]
    )
    if not rises:
        raise ConfigError("times_s must differ")
    middle = len(rises) // 2
    median = rises[middle] if len(rises) % 2 else (rises[middle - 1] + rises[middle]) / 2
    return 100 * 60 * median / mean
