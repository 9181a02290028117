"""CITY: urban sensors in seven cities that report weather, light, dust and air quality."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.errors import ConfigError
from riot_ops.kernels.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.schema import CITY, RAW
from riot_ops.source import Source
from riot_ops.streams.generator import (
    Format,
    GeneratedSource,
    null_bitmap,
    observation_batch,
    text_column,
    timestamps,
    wide_schema,
)
from riot_ops.streams.noise import below, key_of, mix, normal, ou, ou_table, uniform
from riot_ops.streams.pace import paced
from riot_ops.streams.text import pack, put, put_decimal, put_digits, put_part

__all__ = ["BASE_MS", "CitySource", "city"]

BASE_MS = 1_422_316_800_000  # 2015-01-27T00:00:00Z
PERIOD_MS = 10_000
TICKS_PER_DAY = 86_400_000 // PERIOD_MS
#: Sensors of the original; more are copies of them with a number after the id.
ORIGINALS = 90
#: Slots (expected messages) within which the number of delivered ones is exact.
BLOCK = 8192
NULL = np.iinfo(np.int64).min
DECIMALS = (1, 1, 0, 2, 0)

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
#: Deviations within a sensor. Temperature and humidity as measured (humidity less what it follows of
#: the temperature), the others of the logarithm.
WITHIN = (2.3, 6.17, 0.7, 0.73, 0.23)
#: Deviations between the sensors of a place, of the logarithms of light, dust and air quality.
BETWEEN = (0.85, 0.62, 0.38)
#: Correlation over a minute.
PHI = (0.995, 0.99, 0.9, 0.9, 0.95)
SWAPPED, WRONG_SIGN = 0.094, 0.017


@kernel
def _refreshed(key: Any, word: Any) -> Any:
    """64 bits, each set with probability 5/256: the ticks at which a sensor may change its state."""
    k = key + np.uint64(word) * np.uint64(0x8CB92BA72F3D8DD7)
    m = mix(k) & mix(k + np.uint64(1))
    m = (m | mix(k + np.uint64(2))) & mix(k + np.uint64(3)) & mix(k + np.uint64(4))
    return m & mix(k + np.uint64(5)) & mix(k + np.uint64(6)) & mix(k + np.uint64(7))


@kernel
def _is_out(key: Any, tick: Any, limit: Any) -> Any:
    """Whether a sensor is in an outage: a Markov chain with two states.

    At each tick the state is, with probability 5/256, drawn anew; so outages have a geometric length,
    and the state at any tick is found by walking back to the last draw.
    """
    word = tick >> 6
    m = _refreshed(key, word) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(63 - (tick & 63)))
    while m == np.uint64(0) and word > 0:
        word -= 1
        m = _refreshed(key, word)
    bit = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if m >> np.uint64(shift) != np.uint64(0):
            m = m >> np.uint64(shift)
            bit += shift
    return mix(key ^ mix(np.uint64(word * 64 + bit) + np.uint64(0x5851F42D4C957F2D))) < limit


@kernel
def kept_slots(
    block: Any, order: Any, key: Any, out_limit: Any, lost_limit: Any, quota: Any, flags: Any, kept: Any
) -> None:
    """Which slots of a block are delivered, exactly ``quota`` of them, in order.

    Slots are lost in outages or one by one; the few too many or too few are then made good at
    places in pseudo-random order, single losses first.
    """
    size = flags.size
    sensors = order.size
    first = block * size
    tick = first // sensors
    rank = first - tick * sensors
    n = 0
    for j in range(size):
        sensor_key = key_of(key, order[rank])
        lost = 0
        if mix(sensor_key ^ mix(np.uint64(tick) + np.uint64(0x2545F4914F6CDD1D))) < lost_limit:
            lost = 1
        if _is_out(sensor_key, tick, out_limit):
            lost = 2
        flags[j] = lost
        n += lost == 0
        rank += 1
        if rank == sensors:
            rank = 0
            tick += 1
    for most in range(1, 3):
        at: Any = np.int64(mix(key + np.uint64(block)) & np.uint64(size - 1))
        for _ in range(size):
            if n == quota:
                break
            at = (at * 1_664_525 + 1_013_904_223) & (size - 1)
            if n > quota and flags[at] == 0:
                flags[at] = 3
                n -= 1
            elif n < quota and 0 < flags[at] <= most:
                flags[at] = 0
                n += 1
    i = 0
    for j in range(size):
        if flags[j] == 0:
            kept[i] = j
            i += 1


@kernel
def sensor_means(key: Any, places: Any, place_of: Any, between: Any, within: Any, means: Any) -> None:
    """What each sensor measures on average: temperature, humidity, logs of light, dust, air quality."""
    for s in range(means.shape[0]):
        place = places[place_of[s % place_of.size]]
        k = key_of(key, s) ^ np.uint64(0xA5A5A5A5A5A5A5A5)
        for f in range(2):
            spread = np.sqrt(max(place[4 + 2 * f] ** 2 - (2.3 if f == 0 else 7.7) ** 2, 0.25))
            means[s, f] = place[3 + 2 * f] + spread * normal(key_of(k, f))
        for f in range(2, 5):
            means[s, f] = place[5 + f] + between[f - 2] * normal(key_of(k, f))


@kernel
def _rounded(x: Any) -> Any:
    return np.int64(np.floor(x + 0.5))


@kernel
def _outlier(f: Any, h: Any) -> Any:
    """A value beyond all valid ranges, scaled by the decimals of its field."""
    u = uniform(mix(h))
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
    slots: Any,
    order: Any,
    key: Any,
    zone: Any,
    sun: Any,
    means: Any,
    within: Any,
    table_t: Any,
    table_h: Any,
    table_l: Any,
    table_a: Any,
    dirt: Any,
    sensor_of: Any,
    tick_of: Any,
    out: Any,
) -> None:
    """Sensor, tick and values (scaled by their decimals) of slots."""
    sensors = order.size
    day = sun.shape[0]
    for i in range(slots.size):
        tick = slots[i] // sensors
        s = order[slots[i] - tick * sensors]
        sensor_of[i] = s
        tick_of[i] = tick
        k = key_of(key, s)
        hour = (tick + zone[s]) % day
        deviation = 4.0 * sun[hour, 0] + within[0] * ou(k, tick, table_t)
        humidity = means[s, 1] - 2.0 * deviation + within[1] * ou(k ^ np.uint64(1), tick, table_h)
        out[i, 0] = _rounded(10.0 * min(max(means[s, 0] + deviation, -40.0), 49.9))
        out[i, 1] = _rounded(10.0 * min(max(humidity, 5.0), 99.9))
        out[i, 2] = 0
        if sun[hour, 1] > 0.0:
            light = sun[hour, 1] * np.exp(means[s, 2] + within[2] * ou(k ^ np.uint64(2), tick, table_l))
            out[i, 2] = _rounded(min(light, 9800.0))
        dust = np.exp(means[s, 3] + within[3] * ou(k ^ np.uint64(3), tick, table_l))
        air = np.exp(means[s, 4] + within[4] * ou(k ^ np.uint64(4), tick, table_a))
        if dirt:
            # the dust sensor sticks at its floor for five minutes, air quality jumps for one
            if uniform(mix(k ^ mix(np.uint64(tick // 30) + np.uint64(0xD1B54A32D192ED03)))) < 0.019:
                dust = 0.62
            h = mix(k ^ mix(np.uint64(tick // 6) + np.uint64(0xABC98388FB8FAC03)))
            if uniform(h) < 0.02:
                air = 100.0 - 90.0 * np.log(uniform(mix(h)))
        out[i, 3] = _rounded(100.0 * min(max(dust, 0.62), 10427.9))
        out[i, 4] = _rounded(min(max(air, 4.0), 970.0))
        if dirt:
            h = mix(k ^ mix(np.uint64(tick) + np.uint64(0x8BB84B93962EACC9)))
            if h >> np.uint64(60) == np.uint64(0) and uniform(mix(h)) < 0.016:
                out[i, 3] = -100
            for f in range(5):
                part = np.int64((h >> np.uint64(12 * f)) & np.uint64(4095))
                if part < 41:
                    out[i, f] = NULL
                elif part < 82:
                    out[i, f] = _outlier(f, h + np.uint64(f))


@kernel
def city_text(
    base: Any,
    period: Any,
    offsets: Any,
    rank_of: Any,
    sensor_of: Any,
    tick_of: Any,
    values: Any,
    decimals: Any,
    names: Any,
    name_edges: Any,
    variant: Any,
    parts: Any,
    edges: Any,
    newline: Any,
    out: Any,
    ends: Any,
) -> Any:
    """The messages in the wire format, end to end."""
    originals = name_edges.size // 3
    p = 0
    ends[0] = 0
    for i in range(sensor_of.size):
        s = sensor_of[i]
        start = p
        p = put_digits(out, p, base + tick_of[i] * period + offsets[rank_of[s]], 13)
        stop = p
        p = put_part(out, p, parts, edges, 0)
        original = s % originals
        p = put(out, p, names, 25 * original, 25 * original + 25)
        p = put_digits(out, p, s // originals, 1)
        v = original * 3 + variant[s]
        p = put_part(out, p, names, name_edges, v)
        for f in range(5):
            if values[i, f] == NULL:
                p = put_part(out, p, parts, edges, 6)
            else:
                p = put_decimal(out, p, values[i, f], decimals[f], True)
            p = put_part(out, p, parts, edges, 1 + f)
        p = put(out, p, out, start, stop)
        p = put_part(out, p, parts, edges, 7)
        if not newline:
            p -= 1
        ends[i + 1] = p
    return p


@kernel
def put_sensor_id(out: Any, p: Any, names: Any, s: Any, originals: Any) -> Any:
    original = s % originals
    p = put(out, p, names, 25 * original, 25 * original + 25)
    return put_digits(out, p, s // originals, 1)


@kernel
def city_observations(
    first: Any,
    base: Any,
    period: Any,
    offsets: Any,
    rank_of: Any,
    sensor_of: Any,
    tick_of: Any,
    values: Any,
    scales: Any,
    names: Any,
    originals: Any,
    repeat: Any,
    seq: Any,
    times: Any,
    number: Any,
    ids: Any,
    ends: Any,
) -> Any:
    """Columns with ``repeat`` rows per message (5: an observation each, 1: the id and times only)."""
    p = 0
    ends[0] = 0
    for i in range(sensor_of.size):
        s = sensor_of[i]
        time = (base + tick_of[i] * period + offsets[rank_of[s]]) * 1000
        start = p
        for f in range(repeat):
            r = i * repeat + f
            if f == 0:
                p = put_sensor_id(ids, p, names, s, originals)
                width = p - start
            else:
                p = put(ids, p, ids, start, start + width)
            ends[r + 1] = p
            seq[r] = first + i
            times[r] = time
        for f in range(5):
            if values[i, f] == NULL:
                number[i, f] = np.nan
            else:
                number[i, f] = values[i, f] / scales[f]
    return p


class CitySource(GeneratedSource):
    """The CITY stream of RIoTBench, generated: same fields, marginals, dirt and losses.

    Each sensor stands in one of the seven cities (one original in London), has its own mean, a daily
    cycle in local time and AR(1) noise; it expects to report every 10 s at an offset of its own.
    Message *i* is a function of the parameters and *i* alone: any part can be generated anywhere, and
    a replay gives the same bytes. That is why noise is made by refinement
    (:mod:`riot_ops.streams.noise`), and why losses are made exact within blocks of 8,192 expected
    messages: the number of messages before any time is then known without counting.

    Parameters
    ----------
    sensors : int, >= 1, default 1000
        Number of sensors; from 90 on, copies of the first 90 with a number after the id.
    messages : int or None
        Length; None: without end.
    days : float, > 0, or None
        Length in event time, instead of ``messages``. 7 is the benchmark's.
    seed : int, default 0
    format : "senml", "observations" or "wide", default "senml"
        Wire-format text without line break (:data:`~riot_ops.schema.RAW`), a row per observed value
        (:data:`~riot_ops.schema.OBSERVATIONS`), or a row per message with a column per field.
    drop : float, 0 <= drop < 1, default 0.29
        Share of expected messages that are lost: half of them in outages of geometric length with a
        mean of 10 minutes (51.2 ticks / (1 - drop / 2)), the others singly.
    dirt : bool, default True
        Swapped coordinates of 9.4 % and a wrong sign of 1.7 % of the sensors; dust stuck at 0.62 (1.9 %
        of the time, five minutes each) or at -1 (0.1 %); air quality above 100 (2 %, one minute each);
        1 % of the observed values null (text ``null``) and 1 % beyond every valid range.

    Shapes and rates
    ----------------
    A message has about 381 bytes (367 without time), or 5 observations. Memory: 80 bytes per sensor.

    Examples
    --------
    >>> source = CitySource(sensors=90, messages=100, format="observations")
    >>> batch = next(source.read({"start": 0, "end": 2}))
    >>> batch.num_rows, batch.column("obs_type")[0].as_py()
    (10, 'temperature')
    """

    stream = CITY

    def __init__(
        self,
        sensors: int = 1000,
        messages: int | None = None,
        days: float | None = None,
        seed: int = 0,
        format: Format = "senml",
        drop: float = 0.29,
        dirt: bool = True,
    ) -> None:
        super().__init__(messages, seed, format)
        if not isinstance(sensors, int) or sensors < 1:
            raise ConfigError(f"sensors must be >= 1, got {sensors!r}")
        if not 0 <= drop < 1:
            raise ConfigError(f"drop must be >= 0 and < 1, got {drop!r}")
        if days is not None and (messages is not None or not 0 < days < 36500):
            raise ConfigError(f"days must be > 0, and not be given together with messages; got {days!r}")
        self.sensors = sensors
        self.drop = float(drop)
        self.dirt = bool(dirt)
        if days is not None:
            self.messages = self._messages_until(BASE_MS + round(days * 86_400_000) - 1)

    # -- which slots -------------------------------------------------------------------------------

    def _quota(self, block: int) -> int:
        """Messages before a block of slots."""
        return block * BLOCK * round((1 - self.drop) * 1_000_000) // 1_000_000

    def _kept(self, block: int) -> npt.NDArray[np.int64]:
        """The delivered slots of a block, counted from its start."""
        cache: dict[int, npt.NDArray[np.int64]] = self.__dict__.setdefault("_blocks", {})
        found = cache.get(block)
        if found is None:
            quota = self._quota(block + 1) - self._quota(block)
            found = np.empty(quota, np.int64)
            if quota == BLOCK:
                found[:] = np.arange(BLOCK)
            else:
                single = self.drop / 2 / (1 - self.drop / 2)
                with np.errstate(over="ignore"):
                    kept_slots(
                        block,
                        self._tables["order"],
                        self._key,
                        below(self.drop / 2),
                        below(single),
                        quota,
                        np.empty(BLOCK, np.uint8),
                        found,
                    )
            if len(cache) >= 8:
                cache.pop(next(iter(cache)))
            cache[block] = found
        return found

    def _block_of(self, message: int) -> int:
        block = message * 1_000_000 // (BLOCK * round((1 - self.drop) * 1_000_000))
        while self._quota(block + 1) <= message:
            block += 1
        while self._quota(block) > message:
            block -= 1
        return block

    def _slots(self, start: int, end: int) -> npt.NDArray[np.int64]:
        parts = []
        block = self._block_of(start)
        while start < end:
            before = self._quota(block)
            part = self._kept(block)[start - before : end - before]
            parts.append(part + block * BLOCK)
            start += len(part)
            block += 1
        return readonly(np.concatenate(parts) if len(parts) != 1 else parts[0])

    def _time_of(self, message: int) -> int:
        tick, rank = divmod(int(self._slots(message, message + 1)[0]), self.sensors)
        return BASE_MS + tick * PERIOD_MS + int(self._tables["offsets"][rank])

    def _messages_until(self, time_ms: int) -> int:
        tick, rest = divmod(time_ms - BASE_MS, PERIOD_MS)
        if tick < 0:
            return 0
        slot = tick * self.sensors + int(np.searchsorted(self._tables["offsets"], rest, "right"))
        block, within = divmod(slot, BLOCK)
        return self._quota(block) + int(np.searchsorted(self._kept(block), within))

    # -- tables ------------------------------------------------------------------------------------

    @property
    def _key(self) -> np.uint64:
        return np.uint64(self.seed & 0xFFFFFFFFFFFFFFFF) ^ np.uint64(0xC17C17C17C17C17C)

    @property
    def _tables(self) -> dict[str, Any]:
        found: dict[str, Any] | None = self.__dict__.get("_cached")
        if found is None:
            with np.errstate(over="ignore"):
                found = self._cached = self._build()
        return found

    def _build(self) -> dict[str, Any]:
        n, key = self.sensors, self._key
        rng = np.random.Generator(np.random.PCG64([self.seed & 0xFFFFFFFFFFFFFFFF, 3]))
        # cities take turns, so that few sensors stand in many of them
        turns = sorted((((k + 0.5) / p[1], i) for i, p in enumerate(PLACES) for k in range(p[1])))
        place_of = np.array([i for _, i in turns])
        places = np.array([p[2:] for p in PLACES])
        shift = np.array([[p[2], p[3]] for p in PLACES])[place_of]
        where = np.rint((shift + rng.normal(0, 0.05, shift.shape)) * 1e7).astype(np.int64)
        letters = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyz", np.uint8)
        ids = ["ci4" + letters[rng.integers(0, 36, 22)].tobytes().decode() for _ in range(ORIGINALS)]
        lon, lat = where[:, 0], where[:, 1]
        coordinates = np.stack([np.stack([lon, lat], 1), np.stack([lat, lon], 1), np.stack([-lon, lat], 1)], 1)
        tails = [
            f'"}},{{"v":"{_decimal(x)}","u":"lon","n":"longitude"}},{{"v":"{_decimal(y)}","u":"lat",'
            '"n":"latitude"},{"v":"'
            for variants in coordinates.tolist()
            for x, y in variants
        ]
        names, edges = pack(["".join(ids), *tails])
        # the share of sensors is met as closely as their number allows
        u = (np.arange(n) * 0.6180339887498949 + float(rng.random())) % 1.0
        variant = np.where(u < SWAPPED, 1, np.where(u < SWAPPED + WRONG_SIGN, 2, 0)).astype(np.int64) * self.dirt
        offset = rng.integers(0, PERIOD_MS, n)
        order = np.argsort(offset, kind="stable")
        rank = np.empty(n, np.int64)
        rank[order] = np.arange(n)
        means = np.empty((n, 5))
        sensor_means(
            key,
            readonly(places[:, :]),
            readonly(place_of),
            readonly(np.array(BETWEEN)),
            readonly(np.array(WITHIN)),
            means,
        )
        hours = np.arange(TICKS_PER_DAY) * 24 / TICKS_PER_DAY
        sun = np.stack([np.cos(2 * np.pi * (hours - 15) / 24), np.sin(np.pi * (hours - 6) / 12)], 1)
        zone = np.rint(places[place_of, 2] * TICKS_PER_DAY / 24).astype(np.int64)
        tables = {f"ou{i}": ou_table(phi ** (PERIOD_MS / 60_000)) for i, phi in enumerate(PHI)}
        units = dict(zip(CITY.columns, CITY.units, strict=True))
        after = [f'","u":"{units[c]}","n":"{c}"}},{{"v":"' for c in CITY.observed]
        after[-1] = after[-1].removesuffix(',{"v":"') + '],"bt":'
        parts, part_edges = pack([',{"e":[{"u":"string","n":"source","sv":"', *after, "null", "}\n"])
        found = {
            "order": order,
            "offsets": offset[order],
            "rank": rank,
            "means": means,
            "sun": sun,
            "variant": variant,
            "zone": zone[np.arange(n) % ORIGINALS],
            "within": np.array(WITHIN),
            "names": names,
            "name_edges": edges[1:],
            "parts": parts,
            "edges": part_edges,
            "decimals": np.array(DECIMALS),
            "scales": 10.0 ** np.array(DECIMALS),
            "coordinates": coordinates / 1e7,
            "longest": 26 + part_edges[-1] + 25 + len(str(n)) + max(map(len, tails)) + 5 * 12,
            **tables,
        }
        return {k: readonly(v) if isinstance(v, np.ndarray) else v for k, v in found.items()}

    # -- messages ----------------------------------------------------------------------------------

    def _values(self, start: int, end: int) -> tuple[dict[str, Any], Any, Any, Any]:
        """Tables, and sensors, ticks and values of messages."""
        t = self._tables
        slots = self._slots(start, end)
        n = slots.size
        sensor, tick, values = np.empty(n, np.int64), np.empty(n, np.int64), np.empty((n, 5), np.int64)
        with np.errstate(over="ignore"):
            city_values(
                slots,
                t["order"],
                self._key,
                t["zone"],
                t["sun"],
                t["means"],
                t["within"],
                t["ou0"],
                t["ou1"],
                t["ou2"],
                t["ou4"],
                self.dirt,
                sensor,
                tick,
                values,
            )
        return t, sensor, tick, values

    def lines(self, start: int, end: int, newline: bool = False) -> pa.RecordBatch:
        t, sensor, tick, values = self._values(start, end)
        n = sensor.size
        out = np.empty(n * t["longest"], np.uint8)
        ends = np.empty(n + 1, np.int32)
        size = city_text(
            BASE_MS,
            PERIOD_MS,
            t["offsets"],
            t["rank"],
            sensor,
            tick,
            values,
            t["decimals"],
            t["names"],
            t["name_edges"],
            t["variant"],
            t["parts"],
            t["edges"],
            newline,
            out,
            ends,
        )
        times = (BASE_MS + tick * PERIOD_MS + t["offsets"][t["rank"][sensor]]) * 1000
        return pa.RecordBatch.from_arrays(
            [pa.array(np.arange(start, end)), timestamps(times), text_column(out[:size], ends, pa.binary())], schema=RAW
        )

    def _columns(self, start: int, end: int, repeat: int) -> tuple[Any, ...]:
        t, sensor, tick, values = self._values(start, end)
        n = sensor.size
        rows = n * repeat
        seq, times, number = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty((n, 5))
        ids, ends = np.empty(rows * (25 + len(str(self.sensors))), np.uint8), np.empty(rows + 1, np.int32)
        size = city_observations(
            start,
            BASE_MS,
            PERIOD_MS,
            t["offsets"],
            t["rank"],
            sensor,
            tick,
            values,
            t["scales"],
            t["names"],
            ORIGINALS,
            repeat,
            seq,
            times,
            number,
            ids,
            ends,
        )
        return t, sensor, seq, times, text_column(ids[:size], ends), number

    def observations(self, start: int, end: int) -> pa.RecordBatch:
        _, _, seq, times, ids, number = self._columns(start, end, 5)
        return observation_batch(
            CITY, self.rows_per_batch["observations"], seq, times, ids, null_bitmap(number.reshape(-1))
        )

    def wide(self, start: int, end: int) -> pa.RecordBatch:
        t, sensor, seq, times, ids, number = self._columns(start, end, 1)
        where = t["coordinates"][sensor % ORIGINALS, t["variant"][sensor]]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(seq),
                timestamps(times),
                ids,
                *(null_bitmap(np.ascontiguousarray(where[:, i])) for i in (0, 1)),
                *(null_bitmap(np.ascontiguousarray(number[:, f])) for f in range(5)),
            ],
            schema=wide_schema(CITY),
        )


def _decimal(scaled: int) -> str:
    """A coordinate in units of 1e-7 degrees as text."""
    text = f"{abs(scaled) // 10_000_000}.{abs(scaled) % 10_000_000:07d}".rstrip("0").rstrip(".")
    return "-" + text if scaled < 0 else text


def city(
    sensors: int = 1000,
    messages: int | None = None,
    days: float | None = None,
    seed: int = 0,
    format: Format = "senml",
    rate: float | None = None,
    speed: float | None = None,
    drop: float = 0.29,
    dirt: bool = True,
) -> Source:
    """The CITY stream, generated; see :class:`CitySource` for the parameters.

    ``rate`` (messages per second) or ``speed`` (event time per wall time) paces it, see
    :class:`~riot_ops.streams.pace.Paced`.

    >>> city(sensors=7, messages=3).count({"message": 0}, {"message": 3})
    3
    """
    return paced(CitySource(sensors, messages, days, seed, format, drop, dirt), speed, rate)
