"""The loops that make the TAXI stream: trips, and messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.streams.noise import key_of, mix, normal, uniform
from riot_ops.streams.text import put, put_decimal, put_digits, put_hex, put_part

__all__ = ["taxi_decimals", "taxi_ids", "taxi_text", "taxi_times", "taxi_values"]


@kernel
def _minute_of(edges: Any, rest: Any) -> Any:
    """The minute of the week in which the rest-th message of a week falls."""
    low = 0
    high = edges.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if edges[middle] <= rest:
            low = middle
        else:
            high = middle
    return low


@kernel
def _place(key: Any, airport: Any) -> Any:
    """Longitude and latitude in 1e-6 degrees: Manhattan, or an airport."""
    u = uniform(key_of(key, 0))
    a = normal(key_of(key, 1))
    b = normal(key_of(key, 2))
    if airport:
        x = -73_784_000.0 + 4_000.0 * a
        y = 40_645_500.0 + 2_000.0 * b
    elif u < 0.04:
        x = -73_872_000.0 + 2_000.0 * a
        y = 40_773_500.0 + 1_000.0 * b
    elif u < 0.14:
        x = -73_950_000.0 + 28_000.0 * a
        y = 40_710_000.0 + 35_000.0 * b
    else:
        # Manhattan leans to the east towards the north
        x = -73_982_000.0 + 7_000.0 * a + 0.55 * 17_000.0 * b
        y = 40_752_000.0 + 17_000.0 * b
    return x, y


@kernel
def taxi_values(
    first: Any,
    taxis: Any,
    group: Any,
    edges: Any,
    key: Any,
    dirt: Any,
    ids: Any,
    minutes: Any,
    card: Any,
    out: Any,
) -> None:
    """Ids (four words), end (minutes since the base), payment and scaled values of messages."""
    for i in range(minutes.size):
        message = first + i
        week = message // edges[-1]
        minute = _minute_of(edges, message - week * edges[-1])
        minutes[i] = week * (edges.size - 1) + minute
        # the taxis take turns, their order shuffled a little in each round
        turn = message // taxis
        position = message - turn * taxis
        part = position // group
        if (part + 1) * group <= taxis:
            shuffle = np.int64(mix(key ^ mix(np.uint64(turn) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(part))))
            position = part * group + ((position - part * group) ^ (shuffle & (group - 1)))
        driver = key_of(key, position)
        ids[i, 0] = mix(driver + np.uint64(1))
        ids[i, 1] = mix(driver + np.uint64(2))
        shift = np.uint64(3 + 2 * ((minutes[i] // 720) & 1))  # a driver by day, another by night
        ids[i, 2] = mix(driver + shift)
        ids[i, 3] = mix(driver + shift + np.uint64(1))

        trip = mix(key_of(key ^ np.uint64(0x7A315EED7A315EED), message))
        z = normal(key_of(trip, 0))
        miles = min(np.exp(1.09 + 0.97 * z), 22.3)
        seconds = np.exp(6.33 + 0.72 * (0.85 * z + 0.5267826876426369 * normal(key_of(trip, 1))))
        seconds = min(max(np.floor(seconds / 60.0 + 0.5) * 60.0, 60.0), 3300.0)
        airport = miles > 13.4 and uniform(key_of(trip, 2)) < 0.75  # 6 % of trips are that long
        fare = 2.03 + 2.16 * miles + 0.00478 * seconds + 0.88 * normal(key_of(trip, 3))
        fare = max(np.floor(2.0 * fare + 0.5) / 2.0, 2.5)
        tolls = 0
        u = uniform(key_of(trip, 4))
        if airport:
            fare = 52.0
            tolls = 480 if u < 0.85 else 0
        elif miles > 5.0 and u < 0.16:  # 30 % are longer than 5 miles
            tolls = 480
        hour = minute // 60 % 24
        weekday = minute // 1440  # the base is a Monday
        busy = hour >= 20 or hour < 6 or (weekday < 5 and 16 <= hour < 20)
        pays = uniform(key_of(trip, 5))
        card[i] = pays < 0.489
        tip = 0.0
        if pays < 0.466:  # a few leave cash instead
            tip = max(0.0, fare * (0.2 + 0.05 * normal(key_of(trip, 6))))
        out[i, 0] = np.int64(seconds)
        out[i, 1] = np.int64(100.0 * miles + 0.5)
        to_airport = uniform(key_of(trip, 7)) < 0.3
        x, y = _place(key_of(trip, 8), airport and not to_airport)
        out[i, 2] = np.int64(x)
        out[i, 3] = np.int64(y)
        x, y = _place(key_of(trip, 9), airport and to_airport)
        out[i, 4] = np.int64(x)
        out[i, 5] = np.int64(y)
        out[i, 6] = np.int64(100.0 * fare + 0.5)
        out[i, 7] = 50 if busy and not airport else 0
        out[i, 8] = 50
        out[i, 9] = np.int64(100.0 * tip + 0.5)
        out[i, 10] = tolls
        if dirt:
            u = uniform(key_of(trip, 10))
            if u < 0.012:  # 1.2 % each, 1.5 % together
                out[i, 0] = 0
            if 0.003 <= u < 0.015:
                out[i, 1] = 0
            for end in range(2):
                u = uniform(key_of(trip, 11 + end))
                if u < 0.02:
                    out[i, 2 + 2 * end] = 0
                if u < 0.0185:
                    out[i, 3 + 2 * end] = 0
            if uniform(key_of(trip, 13)) < 0.003:
                out[i, 8] = 0
        out[i, 11] = out[i, 6] + out[i, 7] + out[i, 8] + out[i, 9] + out[i, 10]


@kernel
def _put_time(out: Any, p: Any, minutes: Any) -> Any:
    """A time ``YYYY-MM-DD hh:mm:00`` from minutes since 1970."""
    days = minutes // 1440
    rest = minutes - days * 1440
    z = days + 719_468
    era = z // 146_097
    doe = z - era * 146_097
    yoe = (doe - doe // 1460 + doe // 36_524 - doe // 146_096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = mp + 3 if mp < 10 else mp - 9
    year = yoe + era * 400 + (1 if month <= 2 else 0)
    p = put_digits(out, p, year, 4)
    out[p] = 45
    p = put_digits(out, p + 1, month, 2)
    out[p] = 45
    p = put_digits(out, p + 1, doy - (153 * mp + 2) // 5 + 1, 2)
    out[p] = 32
    p = put_digits(out, p + 1, rest // 60, 2)
    out[p] = 58
    p = put_digits(out, p + 1, rest % 60, 2)
    out[p] = 58
    out[p + 1] = 48
    out[p + 2] = 48
    return p + 3


@kernel
def taxi_text(
    base_minute: Any,
    ids: Any,
    minutes: Any,
    card: Any,
    values: Any,
    parts: Any,
    edges: Any,
    csv: Any,
    newline: Any,
    out: Any,
    ends: Any,
) -> Any:
    """The messages end to end, in the wire format (time first and last) or as CSV (time in between)."""
    p = 0
    ends[0] = 0
    for i in range(minutes.size):
        start = p
        if not csv:
            p = put_digits(out, p, (base_minute + minutes[i]) * 60_000, 13)
        stop = p
        for k in range(2):
            p = put_part(out, p, parts, edges, k)
            p = put_hex(out, p, ids[i, 2 * k])
            p = put_hex(out, p, ids[i, 2 * k + 1])
        p = put_part(out, p, parts, edges, 2)
        p = _put_time(out, p, base_minute + minutes[i] - values[i, 0] // 60)
        if csv:
            out[p] = 44
            p = put_digits(out, p + 1, (base_minute + minutes[i]) * 60_000, 13)
        p = put_part(out, p, parts, edges, 3)
        p = put_digits(out, p, values[i, 0], 1)
        p = put_part(out, p, parts, edges, 4)
        p = put_decimal(out, p, values[i, 1], 2, False)
        for f in range(2, 6):
            p = put_part(out, p, parts, edges, 3 + f)
            p = put_decimal(out, p, values[i, f], 6, False)
        p = put_part(out, p, parts, edges, 9)
        p = put_part(out, p, parts, edges, 18 if card[i] else 17)
        for f in range(6, 12):
            p = put_part(out, p, parts, edges, 4 + f)
            p = put_decimal(out, p, values[i, f], 2, False)
        p = put_part(out, p, parts, edges, 16)
        if not csv:
            p = put(out, p, out, start, stop)
            out[p] = 125
            p += 1
        if newline:
            out[p] = 10
            p += 1
        ends[i + 1] = p
    return p


@kernel
def taxi_ids(ids: Any, word: Any, repeat: Any, out: Any) -> None:
    """An id of 32 hexadecimal digits per row, ``repeat`` rows per message."""
    p = 0
    for i in range(ids.shape[0]):
        start = p
        p = put_hex(out, p, ids[i, word])
        p = put_hex(out, p, ids[i, word + 1])
        for _ in range(repeat - 1):
            p = put(out, p, out, start, start + 32)


@kernel
def taxi_times(base_minute: Any, minutes: Any, trip: Any, out: Any) -> None:
    """The times at which trips began, as text of 19 characters."""
    p = 0
    for i in range(minutes.size):
        p = _put_time(out, p, base_minute + minutes[i] - trip[i, 0] // 60)


@kernel
def taxi_decimals(scaled: Any, decimals: Any, out: Any, ends: Any) -> Any:
    """Scaled numbers as text, end to end."""
    p = 0
    ends[0] = 0
    for i in range(scaled.size):
        p = put_decimal(out, p, scaled[i], decimals, False)
        ends[i + 1] = p
    return p
