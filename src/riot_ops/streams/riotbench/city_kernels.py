"""The loops that make the CITY stream: values, and messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.streams.noise import key_of, mix, normal, ou, uniform
from riot_ops.streams.text import put, put_decimal, put_digits, put_part

__all__ = ["city_observations", "city_text", "city_values", "sensor_means"]

#: A value that is missing.
NULL = np.iinfo(np.int64).min


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
    csv: Any,
    newline: Any,
    out: Any,
    ends: Any,
) -> Any:
    """The messages end to end, in the wire format or as CSV (which has no second time)."""
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
        if not csv:
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
