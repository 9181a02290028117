"""Message rates over time: the seven-day curves of the RIoTBench streams, and simple shapes.

A :class:`Curve` is a step function of time that repeats after its end. The distribution of rates in the curves of the
streams has the means, peaks and modes that the first RIoTBench paper shows; the curves are seeded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.checks import check_positive, duration_seconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration
from riot_ops.kernels.arrays.arrow import int_column, readonly

__all__ = [
    "Curve",
    "arrivals",
    "bimodal",
    "burst",
    "city",
    "constant",
    "fit",
    "grid",
    "histogram",
    "normal",
    "observed_rates",
    "saw_tooth",
    "taxi",
    "taxi_profile",
]

DAY = 86_400.0
WEEK = 7 * DAY


class Curve:
    """A message rate over time, constant within steps; it repeats after the last step.

    Parameters
    ----------
    rates : sequence of float, >= 0, messages per second
        Rate in each step; not all 0.
    every : timedelta > 0 or text such as "1min", default 1 second
        Length of a step.

    Examples
    --------
    >>> curve = Curve([10, 30])
    >>> curve.rate(1.5), curve.cumulative(1.5), curve.cumulative(3.0)
    (30.0, 25.0, 50.0)
    >>> curve.time_of(25)
    1.5
    """

    def __init__(self, rates: Sequence[float] | npt.NDArray[np.float64], every: Duration = "1s") -> None:
        self.rates = np.array(rates, np.float64)
        if self.rates.ndim != 1 or not np.isfinite(self.rates).all() or (self.rates < 0).any() or not self.rates.any():
            raise ConfigError("rates must be finite numbers >= 0, not all 0")
        #: Seconds of a step.
        self.step: float = duration_seconds("every", every)

    @cached_property
    def _sums(self) -> npt.NDArray[np.float64]:
        return readonly(np.concatenate([[0.0], np.cumsum(self.rates * self.step)]))

    def __repr__(self) -> str:
        return f"Curve({self.rates.size} steps of {self.step:g} s, mean {self.mean:g}/s)"

    @property
    def duration(self) -> float:
        """Seconds until the curve repeats."""
        return self.rates.size * self.step

    @property
    def total(self) -> float:
        """Messages until the curve repeats."""
        return float(self._sums[-1])

    @property
    def mean(self) -> float:
        """Mean rate."""
        return self.total / self.duration

    def scaled(self, speed: float) -> Curve:
        """Return the curve for time that runs faster: higher rates for a shorter time.

        >>> Curve([10, 30], "1min").scaled(60).rates.tolist()
        [600.0, 1800.0]
        """
        check_positive(speed=speed)
        return _curve(self.rates * speed, self.step / speed)

    def rate(self, t: float) -> float:
        """Messages per second at time t in seconds."""
        return float(self.rates[min(int(t % self.duration / self.step), self.rates.size - 1)])

    def cumulative(self, t: float) -> float:
        """Messages up to time t in seconds."""
        rounds, rest = divmod(t, self.duration)
        i = min(int(rest / self.step), self.rates.size - 1)
        return float(rounds * self.total + self._sums[i] + (rest - i * self.step) * self.rates[i])

    def time_of(self, n: float) -> float:
        """Return the seconds until n messages are sent: the inverse of :meth:`cumulative`."""
        rounds, rest = divmod(n, self.total)
        i = min(int(np.searchsorted(self._sums, rest, "right")) - 1, self.rates.size - 1)
        while self.rates[i] == 0:  # only at the very end of the curve
            i -= 1
        return float(rounds * self.duration + i * self.step + (rest - self._sums[i]) / self.rates[i])


def _curve(rates: npt.NDArray[np.float64], step_s: float) -> Curve:
    """Return a curve whose step need not be whole microseconds."""
    curve = Curve(rates)
    curve.step = step_s
    return curve


def constant(rate: float) -> Curve:
    """Return a constant rate.

    >>> constant(500).cumulative(2.5)
    1250.0
    """
    return Curve([rate])


def saw_tooth(low: float, high: float, period: Duration, steps: int = 100) -> Curve:
    """Return a rate that increases from low to high and drops back.

    >>> saw_tooth(0, 100, "10s").mean
    50.0
    """
    shape = (np.arange(steps) + 0.5) / steps
    return _curve(low + (high - low) * shape, duration_seconds("period", period) / steps)


def burst(base: float, peak: float, period: Duration, duration: Duration) -> Curve:
    """Return a base rate with a burst at the beginning of each period.

    >>> curve = burst(10, 1000, period="1min", duration="6s")
    >>> curve.rate(61), curve.rate(70)
    (1000.0, 10.0)
    """
    period_s, burst_s = duration_seconds("period", period), duration_seconds("duration", duration)
    if burst_s >= period_s:
        raise ConfigError(f"duration must be shorter than the period {period!r}, got {duration!r}")
    part = Fraction(burst_s / period_s).limit_denominator(1000)
    steps = part.denominator if math.isclose(part, burst_s / period_s) else 1000
    share = np.clip(burst_s / period_s * steps - np.arange(steps), 0, 1)
    share = np.where(np.abs(share - np.rint(share)) < 1e-9, np.rint(share), share)
    return _curve(base + (peak - base) * share, period_s / steps)


def normal(
    mean: float,
    std: float,
    low: float = 0.0,
    high: float = math.inf,
    *,
    duration: Duration,
    every: Duration = "1s",
    correlation: float = 0.9,
    seed: int = 0,
) -> Curve:
    """Return a rate that varies about a mean: N(mean, std²) clipped to [low, high], AR(1) from step to step.

    >>> curve = normal(100, 5, 90, 110, duration="1h")
    >>> round(curve.mean), bool((abs(curve.rates - 100) <= 10).all())
    (100, True)
    """
    duration_s, step_s = duration_seconds("duration", duration), duration_seconds("every", every)
    if duration_s < step_s:
        raise ConfigError(f"duration must be at least every = {every!r}, got {duration!r}")
    if not (std >= 0 and low < high and -1 < correlation < 1):
        raise ConfigError(
            "std must be >= 0, low < high and correlation between -1 and 1; "
            f"got std={std!r}, low={low!r}, high={high!r}, correlation={correlation!r}"
        )
    rng = np.random.default_rng([seed, 1])
    n = max(2, math.ceil(duration_s / step_s))
    x = np.empty(n)
    x[0] = rng.standard_normal()
    for i, e in enumerate(rng.standard_normal(n - 1) * math.sqrt(1 - correlation * correlation), 1):
        x[i] = correlation * x[i - 1] + e
    # few of the values are independent: centre them, so that the mean does not depend on the seed
    x = (x - x.mean()) / x.std()
    return _curve(np.clip(mean + std * x, low, high), step_s)


def bimodal(
    low: float,
    high: float,
    *,
    period: Duration,
    share: float = 0.25,
    transition: float = 0.05,
    noise: float = 0.05,
    periods: int = 7,
    steps: int = 96,
    seed: int = 0,
) -> Curve:
    """Two alternating rates, such as night and day: low for a share of each period, then high.

    ``transition`` is the share of the period that each transition takes, ``noise`` the relative deviation.

    >>> curve = bimodal(300, 3200, period="86.4s", noise=0)
    >>> curve.rate(10), curve.rate(60), curve.duration
    (300.0, 3200.0, 604.8)
    """
    if transition < 0 or share <= 0 or not share + 2 * transition < 1:
        raise ConfigError(
            f"share and two transitions must be parts of a period, got share={share!r}, transition={transition!r}"
        )
    place = (np.arange(steps) + 0.5) / steps
    shape = np.interp(place, [0, share, share + transition, 1 - transition, 1], [low, low, high, high, low])
    rates = np.tile(shape, periods) * _noise(periods * steps, noise, seed)
    return _curve(rates, duration_seconds("period", period) / steps)


def _noise(n: int, std: float, seed: int) -> npt.NDArray[np.float64]:
    """Normal factors with mean 1, clipped at four standard deviations."""
    return np.asarray(np.clip(1 + std * np.random.default_rng([seed, 2]).standard_normal(n), 1 - 4 * std, 1 + 4 * std))


def city(speed: float = 1000.0, seed: int = 0) -> Curve:
    """Seven days of CITY: a narrow normal distribution about 6.4 messages per second of event time.

    Per 1,000 s of event time the rate is N(6.4, 0.2²) clipped to [5.5, 7.0], with an AR(1) correlation of 0.9 from step
    to step; the speed-up multiplies all rates.

    >>> round(city().mean, -2)
    6400.0
    """
    return normal(6.4, 0.2, 5.5, 7.0, duration="7d", every="1000s", seed=seed).scaled(speed)


def taxi_profile(hour: npt.NDArray[np.float64] | float) -> Any:
    """Messages per 1,000 s of event time by hour of the day in TAXI, without noise.

    300 at night, 3,200 by day, with ramps of 1.5 h around 01 and 06 h; up to 3,700 in the evening (18-22 h), which the
    noise raises to 4,000. The mean is 2,649: 1.6 M trips a week.

    >>> taxi_profile(3.0), taxi_profile(12.0), taxi_profile(20.0)
    (300.0, 3200.0, 3700.0)
    """
    h = np.asarray(hour, np.float64)
    night = np.interp(h, [0.25, 1.75, 5.25, 6.75], [0, 1, 1, 0])
    evening = np.sin(np.pi * np.clip((h - 18) / 4, 0, 1))
    rate = 3200 - 2900 * (1 - np.cos(np.pi * night)) / 2 + 500 * evening
    return float(rate) if np.ndim(hour) == 0 else rate


def taxi(speed: float = 1000.0, seed: int = 0) -> Curve:
    """Seven days of TAXI: two modes, night and day (see :func:`taxi_profile`).

    In steps of about 1,000 s of event time, with 5 % noise, clipped at 4,000.

    >>> round(taxi().mean, -2), round(taxi().rates.max()), round(taxi().total, -5)
    (2600.0, 4000, 1600000.0)
    """
    n = math.ceil(WEEK / 1000)
    step = WEEK / n
    hours = (np.arange(n) + 0.5) * step / 3600 % 24
    rates = np.minimum(taxi_profile(hours) * _noise(n, 0.05, seed), 4000) / 1000
    return _curve(rates, step).scaled(speed)


def fit(speed: float = 1.0, subjects: int = 10) -> Curve:
    """FIT: a constant rate of 50 messages per second and subject.

    >>> fit().mean
    500.0
    """
    return constant(50.0 * subjects).scaled(speed)


def _half_hour_bursts(rate: float, duration: Duration) -> Curve:
    return burst(0.0, rate, "30min", duration)


def grid(speed: float = 1000.0, meters: int = 6000, burst: Duration = "10min") -> Curve:
    """GRID: all meters send in a burst of this length after each half hour; ``"30min"``: uniformly.

    >>> grid().rate(0.1), grid().rate(1.0), round(grid().total)
    (10000.0, 0.0, 6000)
    """
    burst_s = duration_seconds("burst", burst)
    if burst_s > 1800:
        raise ConfigError(f"burst must be at most half an hour, got {burst!r}")
    if burst_s == 1800:
        return constant(meters / 1800).scaled(speed)
    return _half_hour_bursts(meters / burst_s, burst).scaled(speed)


def histogram(
    curve: Curve,
    bins: int | Sequence[float] = 20,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the distribution of rates: shares of the time, and the edges of the bins.

    >>> histogram(Curve([1, 1, 1, 5]), bins=[0, 2, 6])[0].tolist()
    [0.75, 0.25]
    """
    counts, edges = np.histogram(curve.rates, bins)
    return counts / curve.rates.size, edges


def arrivals(curve: Curve, messages: int) -> npt.NDArray[np.float64]:
    """When each of the first messages is due, in seconds after the first.

    >>> arrivals(burst(0, 4, period="2s", duration="0.5s"), 4).round(3).tolist()
    [0.0, 0.25, 2.0, 2.25]
    """
    # rounding may leave the sums slightly above a whole number
    rounds, rest = np.divmod(np.arange(messages) + 1e-6, curve.total)
    sums = np.concatenate([[0.0], np.cumsum(curve.rates * curve.step)])
    i = np.searchsorted(sums, rest, "right") - 1
    times = rounds * curve.duration + i * curve.step + (rest - sums[i]) / curve.rates[i]
    return np.asarray(times - times[:1].sum())


def observed_rates(event_time: pa.Array | npt.NDArray[np.int64], window: Duration = "1s") -> npt.NDArray[np.float64]:
    """Messages per second in each window of a column of event times (µs), from the first time on.

    The last window is included even if the stream ends within it.

    >>> observed_rates(np.array([0, 100_000, 1_200_000])).tolist()
    [2.0, 1.0]
    """
    times = int_column(event_time) if isinstance(event_time, pa.Array) else event_time
    window_s = duration_seconds("window", window)
    if times.size == 0:
        return np.empty(0)
    return np.bincount((times - times.min()) // round(window_s * 1e6)).astype(np.float64) / window_s
