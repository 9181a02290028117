"""GRID: household smart meters that report their consumption every half hour."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration
from riot_ops.core.schema import GRID
from riot_ops.core.source import Source
from riot_ops.ingest.pace import paced
from riot_ops.ingest.rates import Curve
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.streams.generator import Format
from riot_ops.streams.noise import derive_key, hash64, normal, ornstein_uhlenbeck, ornstein_uhlenbeck_table, uniform
from riot_ops.streams.riotbench.regular import I64, NULL, RegularSource

__all__ = ["BASE_MS", "GridSource", "grid"]

BASE_MS = 1_247_509_800_000  # 2009-07-14T00:00:00 local, read as UTC+5:30 as all of the benchmark's times
PERIOD_MS = 1_800_000
#: ln of the middle of the valid range, which spans a factor of 20.
LEVEL = 2.10
#: Deviations of the logarithm: between meters, and within one about its daily course.
BETWEEN, WITHIN = 0.6, 0.35
#: Correlation over half an hour (of the deviation from the daily course).
PHI = 0.9


class GridSource(RegularSource):
    """The GRID stream of RIoTBench, generated: one consumption value per meter and half hour.

    The benchmark ships neither a sample nor statistics of GRID, only its columns and the range of
    valid values. The rest is a model: a meter's base is log-normal, its day has two peaks (08 h and
    19 h), the rest is AR(1) noise of the logarithm; 95 % of the values are in the valid
    range 1.828 to 36.658 kWh. After each half hour the meters report in a burst, each at an offset of
    its own. Message *i* is a function of the parameters and *i* alone.

    Parameters
    ----------
    meters : int, >= 1, default 6000
        Number of meters; they are called 1000, 1001 and so on.
    messages : int or None
        Length; None: without end.
    duration : timedelta > 0 or text such as "7d", or None
        Length in event time, instead of ``messages``.
    seed : int, default 0
    format : "senml", "csv", "observations" or "wide", default "senml"
        As for :class:`~riot_ops.streams.riotbench.city.CitySource`.
    burst : timedelta up to "30min", or text such as "1min", default 10 minutes
        Length of the burst after each half hour; "30min": uniform over time. With the defaults the rate
        in a burst is 10 messages per second, at 1000 times the speed the 10,000 of the benchmark.
    dirt : bool, default True
        1 % of the values null (text ``null``); 0.5 % invalid: half of these 0, half above 40 kWh.

    Shapes and rates
    ----------------
    A message has about 126 bytes (112 without time; 24 as CSV), or 1 observation. Memory: 16 bytes per
    meter.

    Examples
    --------
    >>> source = GridSource(meters=100, duration="1d", format="observations")
    >>> batch = next(source.read({"start": 0, "end": source.messages}))
    >>> batch.num_rows, batch.column("obs_type")[0].as_py()
    (4800, 'energyconsumed')
    """

    stream = GRID
    counted = "meters"
    meters: int
    base_ms = BASE_MS
    period_ms = PERIOD_MS
    first_id = 1000
    decimals = (3,)

    def __init__(
        self,
        meters: int = 6000,
        messages: int | None = None,
        duration: Duration | None = None,
        seed: int = 0,
        format: Format = "senml",
        burst: Duration = timedelta(minutes=10),
        dirt: bool = True,
    ) -> None:
        self.burst_seconds = duration_seconds("burst", burst)
        if self.burst_seconds > PERIOD_MS / 1000:
            raise ConfigError(f"burst must be at most half an hour, got {burst!r}")
        super().__init__(meters, messages, duration, seed, format, dirt)

    @property
    def _key(self) -> np.uint64:
        return np.uint64(self.seed & 0xFFFFFFFFFFFFFFFF) ^ np.uint64(0x6A1D6A1D6A1D6A1D)

    def _offsets(self) -> I64:
        rng = np.random.Generator(np.random.PCG64([self.seed & 0xFFFFFFFFFFFFFFFF, 5]))
        # evenly over the burst, in random order: a random sample would leave gaps
        at = np.floor(np.arange(self.meters) * (self.burst_seconds * 1000 / self.meters)).astype(np.int64)
        return rng.permutation(at)

    def _build(self) -> dict[str, Any]:
        return {
            **super()._build(),
            "course": readonly(daily_course()),
            "noise": readonly(ornstein_uhlenbeck_table(PHI)),
        }

    def _fill(self, sensor: I64, tick: I64, observed: bool, values: I64) -> None:
        t = self._tables
        grid_values(sensor, tick, self._key, t["course"], t["noise"], self.dirt, values)


def daily_course() -> Any:
    """Return the logarithm of consumption through a day in half hours, with a mean of 0.

    >>> course = daily_course()
    >>> [int(i) / 2 for i in (course[:24].argmax(), course.argmax())]
    [8.0, 19.0]
    """
    hour = np.arange(48) / 2
    morning = np.exp(-0.5 * ((hour - 8) / 1.5) ** 2)
    evening = np.exp(-0.5 * ((hour - 19) / 2.5) ** 2)
    course = 0.6 * morning + 0.9 * evening
    return course - course.mean()


@kernel
def grid_values(sensor: Any, tick: Any, key: Any, course: Any, noise: Any, dirt: Any, out: Any) -> None:
    """Consumption of meters in half hours, in Wh."""
    for i in range(sensor.size):
        k = derive_key(key, sensor[i])
        x = LEVEL + BETWEEN * normal(hash64(k)) + course[tick[i] % 48] + WITHIN * ornstein_uhlenbeck(k, tick[i], noise)
        out[i, 0] = np.int64(1000.0 * min(max(np.exp(x), 0.05), 40.0) + 0.5)
        if dirt:
            h = hash64(k ^ hash64(np.uint64(tick[i]) + np.uint64(0x8BB84B93962EACC9)))
            u = uniform(h)
            if u < 0.01:
                out[i, 0] = NULL
            elif u < 0.0125:
                out[i, 0] = 0
            elif u < 0.015:
                out[i, 0] = np.int64(40_001.0 + 400_000.0 * uniform(hash64(h)))


def grid(
    meters: int = 6000,
    messages: int | None = None,
    duration: Duration | None = None,
    seed: int = 0,
    format: Format = "senml",
    rate: float | None = None,
    speed: float | None = None,
    curve: Curve | None = None,
    burst: Duration = timedelta(minutes=10),
    dirt: bool = True,
) -> Source:
    """Return the GRID stream, generated; see :class:`GridSource` for the parameters.

    ``rate`` (messages per second), ``speed`` (event time per wall time) or ``curve`` (a rate over time,
    such as :func:`~riot_ops.ingest.rates.grid`) paces it, see :class:`~riot_ops.ingest.pace.PacedSource`.

    >>> grid(meters=5, duration="1d").count({"message": 0}, {"message": 240})
    240
    """
    return paced(GridSource(meters, messages, duration, seed, format, burst, dirt), speed, rate, curve)
