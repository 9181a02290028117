"""Random numbers by hashing: each depends on its place of use, not on earlier numbers.

A stream that must give record *i* without generating those before it cannot use a generator with a
running state. Here every random number is a hash (the finaliser of splitmix64 [1]_) of the seed and
of the coordinates of its use: sensor, field, tick.

Correlated noise needs more: an AR(1) process is a recursion. Its values at any set of ticks are
jointly normal and Markov, however, so a value in the middle of an interval depends, given the
interval's ends, on nothing else. :func:`ornstein_uhlenbeck` therefore draws independent values at anchors far apart
and refines by halving, the Lévy construction of Brownian motion [2]_ applied to the stationary
Ornstein-Uhlenbeck process, whose samples at regular ticks are exactly AR(1). Any tick costs
log2(distance of anchors) steps. The only approximation: anchors are taken as independent, though
they correlate by :data:`ANCHOR_CORRELATION` or less.

.. [1] G. L. Steele, D. Lea, C. H. Flood, *Fast Splittable Pseudorandom Number Generators*,
   OOPSLA 2014, figure 16 (variant 13 of the MurmurHash3 finaliser).
.. [2] P. Lévy, *Processus stochastiques et mouvement brownien*, 1948.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.jit import kernel

__all__ = [
    "ANCHOR_CORRELATION",
    "derive_key",
    "hash64",
    "normal",
    "ornstein_uhlenbeck",
    "ornstein_uhlenbeck_table",
    "threshold",
    "uniform",
]

ANCHOR_CORRELATION = 0.02

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_LANE = np.uint64(0xFFFF)


@kernel
def hash64(x: Any) -> Any:
    """Hash a 64-bit number to 64 bits: the finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


@kernel
def derive_key(key: Any, number: Any) -> Any:
    """Return a new key for one more coordinate."""
    return hash64(key + (np.uint64(number) + np.uint64(1)) * _GOLDEN)


@kernel
def uniform(h: Any) -> Any:
    """Convert a hash to a number in (0, 1)."""
    return (np.float64(np.int64(h >> np.uint64(12))) + 0.5) * (1.0 / 4503599627370496.0)


def threshold(probability: float) -> np.uint64:
    """Return the limit that a hash is below with this probability."""
    return np.uint64(min(int(probability * 2.0**64), 2**64 - 1))


@kernel
def normal(h: Any) -> Any:
    """Convert a hash to a standard normal number: P. Acklam's inverse, relative error below 1.2e-9."""
    p = uniform(h)
    if 0.02425 <= p <= 0.97575:
        q = p - 0.5
        r = q * q
        top = (
            (((-39.69683028665376 * r + 220.9460984245205) * r - 275.9285104469687) * r + 138.3577518672690) * r
            - 30.66479806614716
        ) * r + 2.506628277459239
        bottom = (
            (((-54.47609879822406 * r + 161.5858368580409) * r - 155.6989798598866) * r + 66.80131188771972) * r
            - 13.28068155288572
        ) * r + 1.0
        return top * q / bottom
    tail = min(p, 1.0 - p)
    q = math.sqrt(-2.0 * math.log(tail))
    top = (
        (((-0.007784894002430293 * q - 0.3223964580411365) * q - 2.400758277161838) * q - 2.549732539343734) * q
        + 4.374664141464968
    ) * q + 2.938163982698783
    bottom = (
        ((0.007784695709041462 * q + 0.3224671290700398) * q + 2.445134137142996) * q + 3.754408661907416
    ) * q + 1.0
    return top / bottom if p < 0.5 else -top / bottom


@kernel
def _step(h: Any) -> Any:
    """Convert a hash to a roughly normal number: the sum of its four 16-bit parts (enough for a refinement)."""
    total = (h & _LANE) + ((h >> np.uint64(16)) & _LANE) + ((h >> np.uint64(32)) & _LANE) + (h >> np.uint64(48))
    return (np.float64(np.int64(total)) - 131070.0) * (1.0 / 37837.22771)


def ornstein_uhlenbeck_table(phi: float) -> npt.NDArray[np.float64]:
    """Return the coefficients of :func:`ornstein_uhlenbeck` for a lag-one correlation, one row per level.

    >>> ornstein_uhlenbeck_table(0.9).shape
    (6, 2)
    """
    levels = max(1, math.ceil(math.log2(math.log(ANCHOR_CORRELATION) / math.log(phi))))
    e = phi ** (2.0 ** np.arange(levels))  # correlation over half an interval
    return np.stack([e / (1 + e * e), np.sqrt((1 - e * e) / (1 + e * e))], axis=1)


@kernel
def ornstein_uhlenbeck(key: Any, tick: Any, table: Any) -> Any:
    """Return the value at a tick (>= 0) of the AR(1) process that belongs to a key: mean 0, variance 1."""
    level = table.shape[0]
    anchor = tick >> level
    left = normal(hash64(key + np.uint64(anchor << level) * _GOLDEN))
    right = normal(hash64(key + np.uint64((anchor + 1) << level) * _GOLDEN))
    at = anchor << level
    while level > 0:
        level -= 1
        middle = at + (1 << level)
        value = table[level, 0] * (left + right) + table[level, 1] * _step(hash64(key + np.uint64(middle) * _GOLDEN))
        if tick >= middle:
            left = value
            at = middle
        else:
            right = value
    return left
