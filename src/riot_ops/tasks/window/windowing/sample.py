"""The values of one window, for its quantiles: all of them, or a histogram."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.arrow import chunk_ranges

__all__ = ["FALLBACK_ACCURACY", "MAX_VALUES", "Sample", "quantiles"]

Floats = npt.NDArray[np.float64]

#: Up to this many values a window keeps them all, so that its quantiles are exact; 8 bytes each.
MAX_VALUES = 100_000
#: Relative accuracy beyond that.
FALLBACK_ACCURACY = 0.01
#: The logarithm of the largest float64.
MAX_LOG = 709.78
#: Added to the number of a bin, so that its sign can be that of the values; no float64 has a larger logarithm.
SHIFT = 10_000_000


class Sample:
    """The values of one window.

    Up to :data:`MAX_VALUES` they are kept; beyond, or with an ``accuracy``, a histogram with bins of constant relative
    width (DDSketch) is, which has only the bins that hold values. Which of them depends on their number alone.
    """

    def __init__(self, accuracy: float | None = None) -> None:
        self.accuracy = accuracy
        self.n = 0
        self._values: Floats = np.empty(0 if accuracy else 8)
        self._bins: dict[int, int] | None = None if accuracy is None else {}

    @property
    def values(self) -> Floats | None:
        """The values in no particular order; None if there is only a histogram."""
        return self._values[: self.n] if self._bins is None else None

    def add(self, values: Floats) -> None:
        """Add numbers."""
        n = self.n + values.size
        if self._bins is None and n > MAX_VALUES:
            self._to_bins()
        if self._bins is not None:
            self._count(self._bins, values)
        else:
            if n > self._values.size:
                room = np.empty(max(n, 2 * self._values.size))
                room[: self.n] = self._values[: self.n]
                self._values = room
            self._values[self.n : n] = values
            self._values[self.n : n] += 0.0  # no -0.0, whose place among zeros would depend on the order
        self.n = n

    def merge(self, other: Sample) -> None:
        """Add the values of another sample."""
        if other._bins is None:
            self.add(other._values[: other.n])
            return
        if self._bins is None:
            self._to_bins()
        assert self._bins is not None
        for bin_, count in other._bins.items():
            self._bins[bin_] = self._bins.get(bin_, 0) + count
        self.n += other.n

    def frozen(self) -> Sample:
        """Return a sample that later values do not change; values are only appended, so that it shares their memory."""
        one = Sample(self.accuracy)
        one.n, one._values = self.n, self._values[: self.n]
        one._bins = None if self._bins is None else dict(self._bins)
        return one

    def binned(self, q: float) -> float:
        """Return the midpoint of the bin with the value of rank ``floor(q (n - 1))``."""
        assert self._bins is not None
        rank, seen = math.floor(q * (self.n - 1)), 0
        for bin_ in sorted(self._bins):
            seen += self._bins[bin_]
            if seen > rank:
                break
        if bin_ == 0:
            return 0.0
        upper = math.exp(min((abs(bin_) - SHIFT) / self._scale, MAX_LOG))
        middle = upper * (1 - (FALLBACK_ACCURACY if self.accuracy is None else self.accuracy))
        return middle if bin_ > 0 else -middle

    def pack(self) -> Any:
        """Return the sample as JSON-able data, the same for the same values in any order."""
        if self._bins is None:
            return np.sort(self._values[: self.n]).tobytes()
        return [sorted(self._bins.items())]

    @classmethod
    def unpack(cls, accuracy: float | None, data: Any) -> Self:
        """Return the sample that :meth:`pack` packed."""
        one = cls(accuracy)
        if isinstance(data, str):
            one.add(np.frombuffer(b64decode(data), np.float64))
        else:
            one._bins = dict(data[0])
            one.n = sum(one._bins.values())
        return one

    @property
    def _scale(self) -> float:
        """Bins per factor e."""
        accuracy = FALLBACK_ACCURACY if self.accuracy is None else self.accuracy
        return 1.0 / math.log((1.0 + accuracy) / (1.0 - accuracy))

    def _to_bins(self) -> None:
        self._bins = {}
        self._count(self._bins, self._values[: self.n])
        self._values = np.empty(0)

    def _count(self, bins: dict[int, int], values: Floats) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            # bin i holds (γ^(i - 1), γ^i]; 0 is a bin of its own
            codes = np.where(
                values == 0, 0.0, np.copysign(np.ceil(np.log(np.abs(values)) * self._scale) + SHIFT, values)
            )
        found, counts = np.unique(codes.astype(np.int64), return_counts=True)
        for bin_, count in zip(found.tolist(), counts.tolist(), strict=True):
            bins[bin_] = bins.get(bin_, 0) + count


def quantiles(samples: Sequence[Sample | None], q: float) -> Floats:
    """Return the quantile of each sample, linearly interpolated where it has all values; NaN for None.

    With the values in ascending order, from 0, it is that at the place ``q (n - 1)``: between two values, the point
    that divides them as the place divides its neighbours.
    """
    out = np.full(len(samples), np.nan)
    known = []
    for i, one in enumerate(samples):
        if one is not None and one.values is None:
            out[i] = one.binned(q)
        elif one is not None:
            known.append(i)
    parts = [samples[i].values for i in known]  # type: ignore[union-attr]
    sizes = np.array([part.size for part in parts], np.int64)  # type: ignore[union-attr]
    for a, b in chunk_ranges(sizes, 1 << 18):
        if a < b:
            out[known[a:b]] = _interpolated(parts[a:b], sizes[a:b], q)
    return out


def _interpolated(parts: Sequence[Any], sizes: npt.NDArray[np.int64], q: float) -> Floats:
    values = np.concatenate(parts)
    begins = np.cumsum(sizes) - sizes
    if len(parts) == 1:
        values = np.sort(values)
    else:
        values = values[np.lexsort((values, np.repeat(np.arange(len(parts)), sizes)))]
    place = q * (sizes - 1)
    below = np.floor(place).astype(np.int64)
    share = place - below
    low, high = values[begins + below], values[begins + np.minimum(below + 1, sizes - 1)]
    with np.errstate(over="ignore", invalid="ignore"):
        step = high - low
        # from the nearer end, so that equal values give exactly that value
        found: Floats = np.where(share < 0.5, low + step * share, high - step * (1 - share))
        wide = ~np.isfinite(step)  # the distance overflows
        found = np.where(wide, low * (1 - share) + high * share, found)
    return found
