"""The figures of StreamBench's suites, as formulas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from riot_ops.core.errors import ConfigError

__all__ = ["availability", "lost_and_doubled", "pareto", "penalty", "slope"]

#: So many samples at most are compared with one another.
MOST_SAMPLES = 1_000


def penalty(failing: float, whole: float, fewer: float) -> float:
    """What a failure costs: TPF of throughputs, LPF of latencies.

    ``F / ((T_N + T_(N-1)) / 2)`` with the run in which one of N nodes fails half way, and those without failure on N
    and on N − 1 nodes. 1 is a failure that costs nothing but the node.

    >>> penalty(120.0, 200.0, 100.0)
    0.8
    """
    for name, value in (("failing", failing), ("whole", whole), ("fewer", fewer)):
        if not 0 < value < math.inf:
            raise ConfigError(f"{name} must be a finite number > 0, got {value}")
    return failing / ((whole + fewer) / 2)


def availability(delays_s: Sequence[float | None], limit_s: float) -> float:
    """Share, in %, of the slots whose mark was seen in time.

    Parameters
    ----------
    delays_s : sequence of float or None
        Of each slot: from when its mark was due until it was seen; None: never.
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


def lost_and_doubled(wanted: Iterable[Hashable], found: Iterable[Hashable]) -> tuple[int, int]:
    """How many results are missing, and how many came too often or are none.

    >>> lost_and_doubled(["a", "b", "c"], ["a", "c", "c"])
    (1, 1)
    """
    left, right = Counter(wanted), Counter(found)
    return (left - right).total(), (right - left).total()


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The settings that no other one beats: with as much throughput (first) at less latency (second), or with more.

    >>> pareto({"a": (10.0, 5.0), "b": (20.0, 9.0), "c": (9.0, 6.0), "d": (20.0, 8.0)})
    ['a', 'd']
    """

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] >= other[0] and one[1] <= other[1]

    return [name for name, point in points.items() if not any(beats(other, point) for other in points.values())]


def slope(times_s: Sequence[float], values: Sequence[float]) -> float:
    """By how many % of their mean values grow per minute, by the median of all pairs (Theil and Sen).

    More than 1,000 samples, whose pairs no memory would hold, are cut into 1,000 blocks of neighbours first; the
    medians of the times and of the values of each stand for it.

    >>> round(slope([0.0, 30.0, 60.0, 90.0], [100.0, 101.0, 102.0, 103.0]), 2)
    1.97
    """
    if len(times_s) != len(values) or len(times_s) < 2:
        raise ConfigError(f"times_s and values must be as many, at least 2, got {len(times_s)} and {len(values)}")
    mean = sum(values) / len(values)
    if not mean > 0:
        raise ConfigError(f"the mean of the values must be > 0, got {mean}")
    if len(values) > MOST_SAMPLES:
        times_s, values = (
            [float(np.median(block)) for block in np.array_split(np.asarray(of, np.float64), MOST_SAMPLES)]
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
