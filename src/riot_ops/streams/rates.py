"""Message rates over time: the seven-day curves of the RIoTBench streams, and simple shapes.

A :class:`Curve` is a step function of time that starts again at its end. The curves of the streams
follow Figure 4 of the first RIoTBench paper in their distribution (what rates occur, and how
often); they are seeded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.errors import ConfigError
from riot_ops.kernels.arrow import int_column

__all__ = ["Curve", "burst", "city", "constant", "histogram", "observed", "saw_tooth", "taxi", "taxi_profile"]

DAY = 86_400.0
WEEK = 7 * DAY


class Curve:
    """A message rate over time, constant within steps; after its last step it starts again.

    Parameters
    ----------
    rates : sequence of float, >= 0, messages per second
        Rate in each step; not all 0.
    step : float, > 0, seconds, default 1
        Length of a step.

    Examples
    --------
    >>> curve = Curve([10, 30])
    >>> curve.rate(1.5), curve.cumulative(1.5), curve.cumulative(3.0)
    (30.0, 25.0, 50.0)
    >>> curve.time_of(25)
    1.5
    """

    def __init__(self, rates: Sequence[float] | npt.NDArray[np.float64], step: float = 1.0) -> None:
        self.rates = np.array(rates, np.float64)
        if self.rates.ndim != 1 or not np.isfinite(self.rates).all() or (self.rates < 0).any() or not self.rates.any():
            raise ConfigError("rates must be finite numbers >= 0, not all 0")
        if not 0 < step < math.inf:
            raise ConfigError(f"step must be a finite number > 0, got {step!r}")
        self.step = float(step)
        self._sums = np.concatenate([[0.0], np.cumsum(self.rates * self.step)])
        self._sums.flags.writeable = False

    def __repr__(self) -> str:
        return f"Curve({self.rates.size} steps of {self.step:g} s, mean {self.mean:g}/s)"

    @property
    def duration(self) -> float:
        """Seconds until the curve starts again."""
        return self.rates.size * self.step

    @property
    def total(self) -> float:
        """Messages until the curve starts again."""
        return float(self._sums[-1])

    @property
    def mean(self) -> float:
        """Mean rate."""
        return self.total / self.duration

    def rate(self, t: float) -> float:
        """Messages per second at t seconds."""
        return float(self.rates[min(int(t % self.duration / self.step), self.rates.size - 1)])

    def cumulative(self, t: float) -> float:
        """Messages up to t seconds."""
        rounds, rest = divmod(t, self.duration)
        i = min(int(rest / self.step), self.rates.size - 1)
        return float(rounds * self.total + self._sums[i] + (rest - i * self.step) * self.rates[i])

    def time_of(self, n: float) -> float:
        """Seconds until n messages have been sent: the inverse of :meth:`cumulative`."""
        rounds, rest = divmod(n, self.total)
        i = min(int(np.searchsorted(self._sums, rest, "right")) - 1, self.rates.size - 1)
        while self.rates[i] == 0:  # only at the very end of the curve
            i -= 1
        return float(rounds * self.duration + i * self.step + (rest - self._sums[i]) / self.rates[i])


def constant(rate: float) -> Curve:
    """The same rate always.

    >>> constant(500).cumulative(2.5)
    1250.0
    """
    return Curve([rate])


def saw_tooth(low: float, high: float, period: float, steps: int = 100) -> Curve:
    """A rate that climbs from low to high and drops back.

    >>> saw_tooth(0, 100, 10).mean
    50.0
    """
    return Curve(low + (high - low) * (np.arange(steps) + 0.5) / steps, period / steps)


def burst(base: float, peak: float, period: float, duration: float) -> Curve:
    """A base rate, with a burst at the beginning of each period.

    >>> curve = burst(10, 1000, period=60, duration=6)
    >>> curve.rate(61), curve.rate(70)
    (1000.0, 10.0)
    """
    if not 0 < duration < period:
        raise ConfigError(f"duration must be between 0 and the period {period!r}, got {duration!r}")
    steps = 1000
    share = np.clip(duration / period * steps - np.arange(steps), 0, 1)
    return Curve(base + (peak - base) * share, period / steps)


def city(speedup: float = 1000.0, seed: int = 0) -> Curve:
    """Seven days of CITY: a narrow normal distribution about 6.4 messages per second of event time.

    Per 1,000 s of event time the rate is N(6.4, 0.2²) cut at [5.5, 7.0], with an AR(1) correlation of
    0.9 from step to step; all times the speed-up.

    >>> round(city().mean, -2)
    6400.0
    """
    rng = np.random.default_rng([seed, 1])
    phi, n = 0.9, math.ceil(WEEK / 1000)
    x = np.empty(n)
    x[0] = rng.standard_normal()
    for i, e in enumerate(rng.standard_normal(n - 1) * math.sqrt(1 - phi * phi), 1):
        x[i] = phi * x[i - 1] + e
    # a week holds only some 30 independent values: centre it, so that a seed does not move the mean
    x = (x - x.mean()) / x.std()
    return Curve(np.clip(6.4 + 0.2 * x, 5.5, 7.0) * speedup, 1000 / speedup)


def taxi_profile(hour: npt.NDArray[np.float64] | float) -> Any:
    """Messages per 1,000 s of event time by hour of the day in TAXI, with 2 M trips a week or so.

    300 at night (01-06 h), 3,200 by day, up to 4,000 in the evening (18-22 h), ramps of 1.5 h.

    >>> taxi_profile(3.0), taxi_profile(12.0), taxi_profile(20.0)
    (300.0, 3200.0, 4000.0)
    """
    rate = np.interp(hour, [0.0, 1.0, 6.0, 7.5, 23.5, 24.0], [3200 - 2900 / 3, 300, 300, 3200, 3200, 3200 - 2900 / 3])
    rate = rate + 800 * np.sin(np.pi * np.clip((np.asarray(hour) - 18) / 4, 0, 1))
    return float(rate) if np.ndim(rate) == 0 else rate


def taxi(speedup: float = 1000.0, seed: int = 0) -> Curve:
    """Seven days of TAXI: two modes, night and day, with 5 % noise (see :func:`taxi_profile`).

    >>> 2400 < taxi().mean < 2800
    True
    """
    rng = np.random.default_rng([seed, 2])
    n = math.ceil(WEEK / 1000)
    hours = (np.arange(n) + 0.5) * 1000 / 3600 % 24
    noise = np.clip(1 + 0.05 * rng.standard_normal(n), 0.8, 1.2)
    return Curve(taxi_profile(hours) * noise * speedup / 1000, 1000 / speedup)


def histogram(
    curve: Curve,
    bins: int | Sequence[float] = 20,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """How often which rates occur: shares of the time, and the edges of the bins.

    >>> histogram(Curve([1, 1, 1, 5]), bins=[0, 2, 6])[0].tolist()
    [0.75, 0.25]
    """
    counts, edges = np.histogram(curve.rates, bins)
    return counts / curve.rates.size, edges


def observed(event_time: pa.Array | npt.NDArray[np.int64], window: float = 1.0) -> npt.NDArray[np.float64]:
    """Messages per second in each window of a column of event times (µs), from its first time on.

    The last window counts although the stream may end within it.

    >>> observed(np.array([0, 100_000, 1_200_000])).tolist()
    [2.0, 1.0]
    """
    times = int_column(event_time) if isinstance(event_time, pa.Array) else event_time
    if times.size == 0:
        return np.empty(0)
    return np.bincount((times - times.min()) // round(window * 1e6)).astype(np.float64) / window
