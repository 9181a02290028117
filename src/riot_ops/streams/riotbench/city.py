"""CITY: urban sensors in seven cities that report weather, light, dust and air quality."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.core.checks import is_number
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration
from riot_ops.core.schema import CITY
from riot_ops.core.source import Source
from riot_ops.ingest import rates
from riot_ops.ingest.pace import paced
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.streams.generator import Format
from riot_ops.streams.loss_model import LossModel
from riot_ops.streams.noise import derive_key, hash64, normal, ornstein_uhlenbeck, ornstein_uhlenbeck_table, uniform
from riot_ops.streams.riotbench.regular import I64, NULL, RegularSource

__all__ = ["BASE_MS", "CitySource", "city"]

BASE_MS = 1_422_316_800_000  # 2015-01-27T00:00:00Z
PERIOD_MS = 10_000
TICKS_PER_DAY = 86_400_000 // PERIOD_MS
#: Periods in a step of the rate curve, 1,000 seconds.
STEP_TICKS = 1_000_000 // PERIOD_MS
#: Share of expected messages that are lost in the original.
DROP = 0.29
#: Sensors of the original; further ones are copies with a number after the id.
ORIGINALS = 90

# name, sensors, longitude, latitude, hours from UTC in winter, then temperature, humidity (mean and
# deviation of the cross-section), and the means of noon light, dust and air quality as logarithms
PLACES = (
    ("Singapore", 14, 103.82, 1.33, 8.0, 28.4, 1.5, 68.3, 8.7, 6.3, 6.51, 3.17),
    ("Geneva", 12, 6.15, 46.21, 1.0, 8.1, 3.6, 44.0, 6.9, 6.4, 6.90, 3.20),
    ("San Francisco", 12, -122.43, 37.77, -8.0, 23.6, 4.2, 37.5, 12.6, 7.6, 6.44, 3.20),
    ("Rio de Janeiro", 14, -43.20, -22.95, -2.0, 33.0, 3.3, 48.2, 11.7, 6.4, 6.34, 3.45),
    ("Bangalore", 12, 77.61, 12.96, 5.5, 23.2, 2.2, 47.9, 10.8, 6.4, 7.06, 3.09),
    ("Shanghai", 13, 121.45, 31.22, 8.0, 13.7, 5.4, 41.5, 13.1, 6.0, 7.06, 3.20),
    ("Boston", 12, -71.10, 42.37, -5.0, 2.0, 5.0, 35.5, 11.8, 6.4, 6.01, 2.94),
    ("London", 1, -0.12, 51.51, 0.0, 8.0, 3.6, 44.0, 6.9, 6.4, 6.60, 3.20),
)
#: Deviations within a sensor. Temperature and humidity as measured (humidity less the part that follows
#: the temperature), the others of the logarithm.
WITHIN = (2.3, 6.17, 0.7, 0.73, 0.23)
#: Deviations between the sensors of a place, of the logarithms of light, dust and air quality.
BETWEEN = (0.85, 0.62, 0.38)
#: Correlation over a minute.
PHI = (0.995, 0.99, 0.9, 0.9, 0.95)
SWAPPED, WRONG_SIGN = 0.094, 0.017


# -- kernels


@kernel
def sensor_means(key: Any, places: Any, place_of: Any, between: Any, within: Any, means: Any) -> None:
    """What each sensor measures on average: temperature, humidity, logs of light, dust, air quality."""
    for s in range(means.shape[0]):
        place = places[place_of[s % place_of.size]]
        k = derive_key(key, s) ^ np.uint64(0xA5A5A5A5A5A5A5A5)
        for f in range(2):
            spread = np.sqrt(max(place[4 + 2 * f] ** 2 - (2.3 if f == 0 else 7.7) ** 2, 0.25))
            means[s, f] = place[3 + 2 * f] + spread * normal(derive_key(k, f))
        for f in range(2, 5):
            means[s, f] = place[5 + f] + between[f - 2] * normal(derive_key(k, f))


@kernel
def _rounded(x: Any) -> Any:
    return np.int64(np.floor(x + 0.5))


@kernel
def _outlier(f: Any, h: Any) -> Any:
    """Return a value beyond all valid ranges, scaled by the decimals of its field."""
    u = uniform(hash64(h))
    if f == 0:
        return _rounded(500 + 800 * u) if h & np.uint64(1) else _rounded(-400 - 600 * u)
    if f == 1:
        return _rounded(1100 + 1400 * u)
    if f == 2:
        return _rounded(15000 + 50000 * u)
    if f == 3:
        return _rounded(1500000 + 4000000 * u)
    return _rounded(1000 + 4000 * u)


@kernel
def city_values(
    sensor: Any, ticks: Any, key: Any, zone: Any, sun: Any, means: Any, within: Any, table_t: Any, table_h: Any,
    table_l: Any, table_a: Any, dirt: Any, out: Any,
) -> None:  # fmt: skip
    """Values (scaled by their decimals) of sensors in periods."""
    day = sun.shape[0]
    for i in range(sensor.size):
        tick = ticks[i]
        s = sensor[i]
        k = derive_key(key, s)
        hour = (tick + zone[s]) % day
        deviation = 4.0 * sun[hour, 0] + within[0] * ornstein_uhlenbeck(k, tick, table_t)
        humidity = means[s, 1] - 2.0 * deviation + within[1] * ornstein_uhlenbeck(k ^ np.uint64(1), tick, table_h)
        out[i, 0] = _rounded(10.0 * min(max(means[s, 0] + deviation, -40.0), 49.9))
        out[i, 1] = _rounded(10.0 * min(max(humidity, 5.0), 99.9))
        out[i, 2] = 0
        if sun[hour, 1] > 0.0:
            light = sun[hour, 1] * np.exp(means[s, 2] + within[2] * ornstein_uhlenbeck(k ^ np.uint64(2), tick, table_l))
            out[i, 2] = _rounded(min(light, 9800.0))
        dust = np.exp(means[s, 3] + within[3] * ornstein_uhlenbeck(k ^ np.uint64(3), tick, table_l))
        air = np.exp(means[s, 4] + within[4] * ornstein_uhlenbeck(k ^ np.uint64(4), tick, table_a))
        if dirt:
            # the dust sensor sticks at its floor for five minutes, air quality jumps for one
            if uniform(hash64(k ^ hash64(np.uint64(tick // 30) + np.uint64(0xD1B54A32D192ED03)))) < 0.019:
                dust = 0.62
            h = hash64(k ^ hash64(np.uint64(tick // 6) + np.uint64(0xABC98388FB8FAC03)))
            if uniform(h) < 0.02:
                air = 100.0 - 90.0 * np.log(uniform(hash64(h)))
        out[i, 3] = _rounded(100.0 * min(max(dust, 0.62), 10427.9))
        out[i, 4] = _rounded(min(max(air, 4.0), 970.0))
        if dirt:
            h = hash64(k ^ hash64(np.uint64(tick) + np.uint64(0x8BB84B93962EACC9)))
            if h >> np.uint64(60) == np.uint64(0) and uniform(hash64(h)) < 0.016:
                out[i, 3] = -100
            for f in range(5):
                part = np.int64((h >> np.uint64(12 * f)) & np.uint64(4095))
                if part < 41:
                    out[i, f] = NULL
                elif part < 82:
                    out[i, f] = _outlier(f, h + np.uint64(f))


# -- source


class CitySource(RegularSource):
    """The CITY stream of RIoTBench, generated: same fields, marginals, dirt and losses.

    Each sensor is in one of the seven cities (one original in London), has its own mean, a daily
    cycle in local time and AR(1) noise; it expects to report every 10 s at an offset of its own.
    Message *i* is a function of the parameters and *i* alone: any part can be generated anywhere, and
    a replay gives the same bytes. Therefore noise is made by refinement
    (:mod:`riot_ops.streams.noise`), and why losses are made exact within blocks of 4,096 expected
    messages: the number of messages before any time is then known without counting.

    The message rate follows the benchmark's seven days (:func:`~riot_ops.ingest.rates.city` with the
    same seed), which losses produce: of 90 sensors 6.4 messages arrive per second, with a
    deviation of 0.2. Other numbers of sensors scale the rate; so does ``drop``: the rate is even
    if no message is lost.

    Parameters
    ----------
    sensors : int, >= 1, default 1000
        Number of sensors; from 90 on, copies of the first 90 with a number after the id.
    messages : int or None
        Length; None: without end.
    duration : timedelta > 0 or text such as "7d", or None
        Length in event time, instead of ``messages``. 7 is the benchmark's.
    seed : int, default 0
    format : "senml", "csv", "observations" or "wide", default "senml"
        Wire-format text or comma-separated columns, without line break
        (:data:`~riot_ops.core.schema.RAW`); a row per observed value
        (:data:`~riot_ops.core.schema.OBSERVATIONS`); or a row per message with a column per field.
    drop : float, 0 <= drop < 1, default 0.29
        Share of expected messages that are lost, over the seven days: half of them in outages of
        geometric length with a mean of 10 minutes (51.2 ticks / (1 - drop / 2)), the others singly.
    dirt : bool, default True
        Swapped coordinates of 9.4 % and a wrong sign of 1.7 % of the sensors; dust stuck at 0.62 (1.9 %
        of the time, five minutes each) or at -1 (0.1 %); air quality above 100 (2 %, one minute each);
        1 % of the observed values null (text ``null``) and 1 % beyond every valid range.

    Shapes and rates
    ----------------
    A message has about 381 bytes (367 without time; 85 as CSV), or 5 observations. Memory: 80 bytes per sensor.

    Examples
    --------
    >>> source = CitySource(sensors=90, messages=100, format="observations")
    >>> batch = next(source.read({"start": 0, "end": 2}))
    >>> batch.num_rows, batch.column("obs_type")[0].as_py()
    (10, 'temperature')
    """

    stream = CITY
    counted = "sensors"
    sensors: int
    base_ms = BASE_MS
    period_ms = PERIOD_MS
    time_first = True
    decimals = (1, 1, 0, 2, 0)

    def __init__(
        self,
        sensors: int = 1000,
        messages: int | None = None,
        duration: Duration | None = None,
        seed: int = 0,
        format: Format = "senml",
        drop: float = DROP,
        dirt: bool = True,
    ) -> None:
        if not is_number(drop) or not 0 <= drop < 1:
            raise ConfigError(f"drop must be >= 0 and < 1, got {drop!r}")
        self.drop: float = float(drop)
        super().__init__(sensors, messages, duration, seed, format, dirt)

    # -- times -------------------------------------------------------------------------------------

    def _time_of(self, message: int) -> int:
        slot = int(self._tables["losses"].slots(message, message + 1)[0])
        tick, rank = divmod(slot, self.sensors)
        return BASE_MS + tick * PERIOD_MS + int(self._tables["offsets"][rank])

    def _messages_until(self, time_ms: int) -> int:
        tick, rest = divmod(time_ms - BASE_MS, PERIOD_MS)
        if tick < 0:
            return 0
        slot = tick * self.sensors + int(np.searchsorted(self._tables["offsets"], rest, "right"))
        return int(self._tables["losses"].delivered(slot))

    # -- tables ------------------------------------------------------------------------------------

    @property
    def _key(self) -> np.uint64:
        return np.uint64(self.seed & 0xFFFFFFFFFFFFFFFF) ^ np.uint64(0xC17C17C17C17C17C)

    @functools.cached_property
    def _drawn(self) -> tuple[list[str], I64, I64, I64]:
        """Names and coordinates (three variants) of the originals; variant and offset of each sensor."""
        n = self.sensors
        rng = np.random.Generator(np.random.PCG64([self.seed & 0xFFFFFFFFFFFFFFFF, 3]))
        shift = np.array([[p[2], p[3]] for p in PLACES])[_place_of()]
        where = np.rint((shift + rng.normal(0, 0.05, shift.shape)) * 1e7).astype(np.int64)
        letters = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyz", np.uint8)
        ids = ["ci4" + letters[rng.integers(0, 36, 22)].tobytes().decode() for _ in range(ORIGINALS)]
        lon, lat = where[:, 0], where[:, 1]
        coordinates = np.stack([np.stack([lon, lat], 1), np.stack([lat, lon], 1), np.stack([-lon, lat], 1)], 1)
        # the share of sensors is met as closely as their number allows
        u = (np.arange(n) * 0.6180339887498949 + float(rng.random())) % 1.0
        variant = np.where(u < SWAPPED, 1, np.where(u < SWAPPED + WRONG_SIGN, 2, 0)).astype(np.int64) * self.dirt
        return ids, coordinates, variant, rng.integers(0, PERIOD_MS, n)

    @property
    def _values_of(self) -> tuple[str, ...]:
        return CITY.observed

    def _offsets(self) -> I64:
        return self._drawn[-1]

    def _names(self) -> list[str]:
        ids, coordinates, _, _ = self._drawn
        wire = '"}},{{"v":"{}","u":"lon","n":"longitude"}},{{"v":"{}","u":"lat","n":"latitude"}},{{"v":"'
        tail = ",{},{}," if self.format == "csv" else wire
        return [*ids, *(tail.format(*map(_decimal, pair)) for pair in coordinates.reshape(-1, 2).tolist())]

    def _naming(self, sensor: I64) -> tuple[I64, I64, I64]:
        copy, original = np.divmod(sensor, ORIGINALS)
        return original, copy, ORIGINALS + 3 * original + self._drawn[2][sensor]

    def _places(self, sensor: I64) -> list[npt.NDArray[np.float64]]:
        _, coordinates, variant, _ = self._drawn
        return [*(coordinates[sensor % ORIGINALS, variant[sensor]] / 1e7).T]

    def _build(self) -> dict[str, Any]:
        n, place_of = self.sensors, _place_of()
        places = np.array([p[2:] for p in PLACES])
        means = np.empty((n, 5))
        hours = np.arange(TICKS_PER_DAY) * 24 / TICKS_PER_DAY
        sun = np.stack([np.cos(2 * np.pi * (hours - 15) / 24), np.sin(np.pi * (hours - 6) / 12)], 1)
        zone = np.rint(places[place_of, 2] * TICKS_PER_DAY / 24).astype(np.int64)
        between, within = readonly(np.array(BETWEEN)), readonly(np.array(WITHIN))
        tables = super()._build()
        with np.errstate(over="ignore"):
            sensor_means(self._key, readonly(places[:, :]), readonly(place_of), between, within, means)
            losses = LossModel(self.drop / 2, self._shares(), STEP_TICKS, self._key, tables["order"])
        return {
            **tables,
            "losses": losses,
            "means": readonly(means),
            "sun": readonly(sun),
            "zone": readonly(zone[np.arange(n) % ORIGINALS]),
            "within": within,
            "noise": [readonly(ornstein_uhlenbeck_table(PHI[i] ** (PERIOD_MS / 60_000))) for i in (0, 1, 2, 4)],
        }

    def _shares(self) -> npt.NDArray[np.float64]:
        """Return the share of expected messages that arrive, in each step of the curve."""
        curve = rates.city(1, self.seed & 0xFFFFFFFFFFFFFFFF)
        swing = (curve.rates / curve.mean - 1) / DROP
        return np.asarray((1 - self.drop) * (1 + self.drop * swing))

    # -- messages ----------------------------------------------------------------------------------

    def _slots(self, start: int, end: int) -> tuple[I64, I64, I64]:
        t = self._tables
        tick, rank = np.divmod(t["losses"].slots(start, end), self.sensors)
        return t["order"][rank], tick, BASE_MS + tick * PERIOD_MS + t["offsets"][rank]

    def _fill(self, sensor: I64, tick: I64, observed: bool, values: I64) -> None:
        t = self._tables
        kept = (t["zone"], t["sun"], t["means"], t["within"], *t["noise"])
        city_values(*(sensor, tick, self._key, *kept, self.dirt, values))


def _place_of() -> I64:
    """Return the place of each original; cities take turns, so that few sensors are spread over many cities."""
    return np.array([i for _, i in sorted(((k + 0.5) / p[1], i) for i, p in enumerate(PLACES) for k in range(p[1]))])


def _decimal(scaled: int) -> str:
    """Return a coordinate in units of 1e-7 degrees as text."""
    text = f"{abs(scaled) // 10_000_000}.{abs(scaled) % 10_000_000:07d}".rstrip("0").rstrip(".")
    return "-" + text if scaled < 0 else text


def city(
    sensors: int = 1000,
    messages: int | None = None,
    duration: Duration | None = None,
    seed: int = 0,
    format: Format = "senml",
    rate: float | None = None,
    speed: float | None = None,
    curve: rates.Curve | None = None,
    drop: float = DROP,
    dirt: bool = True,
) -> Source:
    """Return the CITY stream, generated; see :class:`CitySource` for the parameters.

    ``rate`` (messages per second), ``speed`` (event time per wall time) or ``curve`` (a rate over time,
    such as :func:`~riot_ops.ingest.rates.city`) paces it, see :class:`~riot_ops.ingest.pace.PacedSource`.

    >>> city(sensors=7, messages=3).count({"message": 0}, {"message": 3})
    3
    """
    return paced(CitySource(sensors, messages, duration, seed, format, drop, dirt), speed, rate, curve)
