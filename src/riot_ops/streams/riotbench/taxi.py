"""TAXI: trips of New York taxis, one message at the end of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.checks import check_count, check_flag
from riot_ops.core.schema import RAW, TAXI
from riot_ops.core.source import Source
from riot_ops.ingest import rates
from riot_ops.ingest.pace import paced
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.buffers import nullable_floats, text_column, timestamp_column
from riot_ops.kernels.jit import kernel
from riot_ops.streams.generator import Format, GeneratedSource, observation_batch, wide_schema
from riot_ops.streams.noise import derive_key, hash64, normal, uniform
from riot_ops.streams.text import pack, write_bytes, write_decimal, write_digits, write_hex, write_part
from riot_ops.streams.text_lines import format_decimals, format_times

__all__ = ["BASE_MS", "TaxiSource", "taxi"]

BASE_MS = 1_358_121_600_000  # 2013-01-14T00:00:00, New York time written as if it were UTC
#: Taxis of the original, which the curve of its message rate belongs to.
FLEET = 20_355
WEEK_MINUTES = 7 * 1440

# columns of the scaled values: seconds, 1/100 mile, four coordinates (1e-6 degrees), then cents
FIELDS = (
    "trip_time_in_secs",
    "trip_distance",
    "pickup_longitude",
    "pickup_latitude",
    "dropoff_longitude",
    "dropoff_latitude",
    "fare_amount",
    "surcharge",
    "mta_tax",
    "tip_amount",
    "tolls_amount",
    "total_amount",
)
SCALES = (1.0, 100.0, 1e6, 1e6, 1e6, 1e6, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0)
#: For each observed column of the stream, its place in FIELDS, or -1 for text.
OBSERVED = tuple(FIELDS.index(c) if c in FIELDS else -1 for c in TAXI.observed)


# -- kernels


@kernel
def _minute_of(edges: Any, rest: Any) -> Any:
    """Return the minute of the week in which the rest-th message of a week falls."""
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
    u = uniform(derive_key(key, 0))
    a = normal(derive_key(key, 1))
    b = normal(derive_key(key, 2))
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
            shuffle = np.int64(hash64(key ^ hash64(np.uint64(turn) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(part))))
            position = part * group + ((position - part * group) ^ (shuffle & (group - 1)))
        driver = derive_key(key, position)
        ids[i, 0] = hash64(driver + np.uint64(1))
        ids[i, 1] = hash64(driver + np.uint64(2))
        shift = np.uint64(3 + 2 * ((minutes[i] // 720) & 1))  # a driver by day, another by night
        ids[i, 2] = hash64(driver + shift)
        ids[i, 3] = hash64(driver + shift + np.uint64(1))

        trip = hash64(derive_key(key ^ np.uint64(0x7A315EED7A315EED), message))
        z = normal(derive_key(trip, 0))
        miles = min(np.exp(1.09 + 0.97 * z), 22.3)
        seconds = np.exp(6.33 + 0.72 * (0.85 * z + 0.5267826876426369 * normal(derive_key(trip, 1))))
        seconds = min(max(np.floor(seconds / 60.0 + 0.5) * 60.0, 60.0), 3300.0)
        airport = miles > 13.4 and uniform(derive_key(trip, 2)) < 0.75  # 6 % of trips are that long
        fare = 2.03 + 2.16 * miles + 0.00478 * seconds + 0.88 * normal(derive_key(trip, 3))
        fare = max(np.floor(2.0 * fare + 0.5) / 2.0, 2.5)
        tolls = 0
        u = uniform(derive_key(trip, 4))
        if airport:
            fare = 52.0
            tolls = 480 if u < 0.85 else 0
        elif miles > 5.0 and u < 0.16:  # 30 % are longer than 5 miles
            tolls = 480
        hour = minute // 60 % 24
        weekday = minute // 1440  # the base is a Monday
        busy = hour >= 20 or hour < 6 or (weekday < 5 and 16 <= hour < 20)
        pays = uniform(derive_key(trip, 5))
        card[i] = pays < 0.489
        tip = 0.0
        if pays < 0.466:  # a few leave cash instead
            tip = max(0.0, fare * (0.2 + 0.05 * normal(derive_key(trip, 6))))
        out[i, 0] = np.int64(seconds)
        out[i, 1] = np.int64(100.0 * miles + 0.5)
        to_airport = uniform(derive_key(trip, 7)) < 0.3
        x, y = _place(derive_key(trip, 8), airport and not to_airport)
        out[i, 2] = np.int64(x)
        out[i, 3] = np.int64(y)
        x, y = _place(derive_key(trip, 9), airport and to_airport)
        out[i, 4] = np.int64(x)
        out[i, 5] = np.int64(y)
        out[i, 6] = np.int64(100.0 * fare + 0.5)
        out[i, 7] = 50 if busy and not airport else 0
        out[i, 8] = 50
        out[i, 9] = np.int64(100.0 * tip + 0.5)
        out[i, 10] = tolls
        if dirt:
            u = uniform(derive_key(trip, 10))
            if u < 0.012:  # 1.2 % each, 1.5 % together
                out[i, 0] = 0
            if 0.003 <= u < 0.015:
                out[i, 1] = 0
            for end in range(2):
                u = uniform(derive_key(trip, 11 + end))
                if u < 0.02:
                    out[i, 2 + 2 * end] = 0
                if u < 0.0185:
                    out[i, 3 + 2 * end] = 0
            if uniform(derive_key(trip, 13)) < 0.003:
                out[i, 8] = 0
        out[i, 11] = out[i, 6] + out[i, 7] + out[i, 8] + out[i, 9] + out[i, 10]


@kernel
def _write_time(out: Any, p: Any, minutes: Any) -> Any:
    """Write a time ``YYYY-MM-DD hh:mm:00`` from minutes since 1970."""
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
    p = write_digits(out, p, year, 4)
    out[p] = 45
    p = write_digits(out, p + 1, month, 2)
    out[p] = 45
    p = write_digits(out, p + 1, doy - (153 * mp + 2) // 5 + 1, 2)
    out[p] = 32
    p = write_digits(out, p + 1, rest // 60, 2)
    out[p] = 58
    p = write_digits(out, p + 1, rest % 60, 2)
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
    """Write the messages end to end, in the wire format (time first and last) or as CSV (time in between)."""
    p = 0
    ends[0] = 0
    for i in range(minutes.size):
        start = p
        if not csv:
            p = write_digits(out, p, (base_minute + minutes[i]) * 60_000, 13)
        stop = p
        for k in range(2):
            p = write_part(out, p, parts, edges, k)
            p = write_hex(out, p, ids[i, 2 * k])
            p = write_hex(out, p, ids[i, 2 * k + 1])
        p = write_part(out, p, parts, edges, 2)
        p = _write_time(out, p, base_minute + minutes[i] - values[i, 0] // 60)
        if csv:
            out[p] = 44
            p = write_digits(out, p + 1, (base_minute + minutes[i]) * 60_000, 13)
        p = write_part(out, p, parts, edges, 3)
        p = write_digits(out, p, values[i, 0], 1)
        p = write_part(out, p, parts, edges, 4)
        p = write_decimal(out, p, values[i, 1], 2, False)
        for f in range(2, 6):
            p = write_part(out, p, parts, edges, 3 + f)
            p = write_decimal(out, p, values[i, f], 6, False)
        p = write_part(out, p, parts, edges, 9)
        p = write_part(out, p, parts, edges, 18 if card[i] else 17)
        for f in range(6, 12):
            p = write_part(out, p, parts, edges, 4 + f)
            p = write_decimal(out, p, values[i, f], 2, False)
        p = write_part(out, p, parts, edges, 16)
        if not csv:
            p = write_bytes(out, p, out, start, stop)
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
        p = write_hex(out, p, ids[i, word])
        p = write_hex(out, p, ids[i, word + 1])
        for _ in range(repeat - 1):
            p = write_bytes(out, p, out, start, start + 32)


# -- source


class TaxiSource(GeneratedSource):
    """The TAXI stream of RIoTBench, generated: same fields, marginals, identities and dirt.

    Message *i* is a function of the parameters and *i* alone. The ends of trips follow the benchmark's
    seven days (:func:`~riot_ops.ingest.rates.taxi` with the same seed; they start again after a week)
    in whole minutes, and the taxis take turns: each ends one trip per round, in an order that is
    shuffled a little, so that no trip begins before the taxi's last one ended. All taxis together make
    1.6 million trips in a week. (The 2 million of the benchmark's paper do not fit its rates.)

    Trip time and distance are log-normal with a correlation of 0.85 of the logarithms, the fare is
    linear in both with noise, 4.5 % are the airport flat fare; total = fare + surcharge + tax + tip +
    tolls exactly. The times are New York's, written as if they were UTC.

    Parameters
    ----------
    taxis : int, >= 1, default 20355
        Number of taxis. The message rate is proportional to it.
    messages : int or None
        Length; None: without end.
    seed : int, default 0
    format : "senml", "csv", "observations" or "wide", default "senml"
        As for :class:`~riot_ops.streams.riotbench.city.CitySource`. As observations the two ids are null.
    dirt : bool, default True
        Zero coordinates at each end of 2 % of the trips, zero time or distance in 1.5 %.

    Shapes and rates
    ----------------
    A message has about 870 bytes (856 without time; 186 as CSV), or 10 observations.

    Examples
    --------
    >>> source = TaxiSource(messages=100, format="wide")
    >>> trip = next(source.read({"start": 0, "end": 1})).to_pylist()[0]
    >>> parts = ("fare_amount", "surcharge", "mta_tax", "tip_amount", "tolls_amount")
    >>> round(sum(trip[p] for p in parts) - trip["total_amount"], 9)
    0.0
    """

    stream = TAXI

    def __init__(
        self,
        taxis: int = FLEET,
        messages: int | None = None,
        seed: int = 0,
        format: Format = "senml",
        dirt: bool = True,
    ) -> None:
        super().__init__(messages, seed, format)
        check_count(taxis=taxis)
        check_flag(dirt=dirt)
        self.taxis = taxis
        self.dirt = dirt

    @property
    def _tables(self) -> dict[str, Any]:
        found: dict[str, Any] | None = self.__dict__.get("_cached")
        if found is None:
            found = self._cached = self._build()
        return found

    def _build(self) -> dict[str, Any]:
        curve = rates.taxi(1, self.seed & 0xFFFFFFFFFFFFFFFF)
        week = np.array([curve.cumulative(60.0 * m) for m in range(WEEK_MINUTES)] + [curve.total])
        units = dict(zip(TAXI.columns, TAXI.units, strict=True))
        kinds = dict(zip(TAXI.columns, TAXI.kinds, strict=True))
        parts, close = [], ""
        for name in TAXI.columns:
            if name == TAXI.time_field:
                continue
            if kinds[name] == "sv":
                opening, closing = f'{{"u":"{units[name]}","n":"{name}","sv":"', '"}'
            else:
                opening, closing = '{"v":"', f'","u":"{units[name]}","n":"{name}"}}'
            parts.append((close + "," if close else ',{"e":[') + opening)
            close = closing
        if self.format == "csv":
            parts, close = ["", *"," * (len(parts) - 1)], ""
        else:
            close += '],"bt":'
        packed, edges = pack([*parts, close, "CSH", "CRD"])
        return {
            "edges": readonly(np.floor(week * (self.taxis / FLEET) + 0.5).astype(np.int64)),
            "parts": packed,
            "part_edges": edges,
        }

    @property
    def _group(self) -> int:
        """Turns that are shuffled: a power of two, up to 9 % of a round."""
        group = 1
        while group < 64 and 2 * group - 1 <= 0.09 * self.taxis:
            group *= 2
        return group

    def _time_of(self, message: int) -> int:
        edges = self._tables["edges"]
        week, rest = divmod(message, int(edges[-1]))
        minute = int(np.searchsorted(edges, rest, "right")) - 1
        return BASE_MS + (week * WEEK_MINUTES + minute) * 60_000

    def _messages_until(self, time_ms: int) -> int:
        week, minute = divmod((time_ms - BASE_MS) // 60_000, WEEK_MINUTES)
        edges = self._tables["edges"]
        return 0 if week < 0 else week * int(edges[-1]) + int(edges[minute + 1])

    def _values(self, start: int, end: int) -> tuple[Any, ...]:
        n = end - start
        ids, minutes = np.empty((n, 4), np.uint64), np.empty(n, np.int64)
        card, values = np.empty(n, np.bool_), np.empty((n, 12), np.int64)
        key = np.uint64(self.seed & 0xFFFFFFFFFFFFFFFF) ^ np.uint64(0x7A817A817A817A81)
        with np.errstate(over="ignore"):
            taxi_values(
                start,
                self.taxis,
                self._group,
                self._tables["edges"],
                key,
                self.dirt,
                ids,
                minutes,
                card,
                values,
            )
        return ids, minutes, card, values

    def lines(self, start: int, end: int, newline: bool = False) -> pa.RecordBatch:
        ids, minutes, card, values = self._values(start, end)
        n, t = end - start, self._tables
        out = np.empty(n * 1000, np.uint8)
        ends = np.empty(n + 1, np.int32)
        csv, edges = self.format == "csv", t["part_edges"]
        size = taxi_text(BASE_MS // 60_000, ids, minutes, card, values, t["parts"], edges, csv, newline, out, ends)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(start, end)),
                timestamp_column(BASE_MS * 1000 + minutes * 60_000_000),
                text_column(out[:size], ends, pa.binary()),
            ],
            schema=RAW,
        )

    def observations(self, start: int, end: int) -> pa.RecordBatch:
        ids, minutes, _, values = self._values(start, end)
        n, width = end - start, len(OBSERVED)
        number = np.full((n, width), np.nan)
        for to, field in enumerate(OBSERVED):
            if field >= 0:
                number[:, to] = values[:, field] / SCALES[field]
        return observation_batch(
            TAXI,
            self.rows_per_batch["observations"],
            np.repeat(np.arange(start, end), width),
            np.repeat(BASE_MS * 1000 + minutes * 60_000_000, width),
            _ids(ids, 0, width),
            nullable_floats(number.reshape(-1)),
        )

    def wide(self, start: int, end: int) -> pa.RecordBatch:
        ids, minutes, card, values = self._values(start, end)
        begun = BASE_MS // 1000 + (minutes - values[:, 0] // 60) * 60
        columns: dict[str, pa.Array] = {
            "seq": pa.array(np.arange(start, end)),
            "event_time": timestamp_column(BASE_MS * 1000 + minutes * 60_000_000),
            "taxi_identifier": _ids(ids, 0, 1),
            "hack_license": _ids(ids, 2, 1),
            "pickup_datetime": format_times(begun, "s", " "),
            "payment_type": pa.array(["CSH", "CRD"]).take(pa.array(card.astype(np.int8))),
        }
        schema = wide_schema(TAXI)
        for f, name in enumerate(FIELDS):
            numbers = values[:, f] / SCALES[f]
            is_text = pa.types.is_string(schema.field(name).type)  # coordinates travel as text
            columns[name] = format_decimals(numbers, 6) if is_text else pa.array(numbers)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _ids(ids: npt.NDArray[np.uint64], word: int, repeat: int) -> pa.Array:
    n = len(ids) * repeat
    out = np.empty(n * 32, np.uint8)
    taxi_ids(ids, word, repeat, out)
    return text_column(out, np.arange(0, 32 * n + 1, 32, dtype=np.int32))


def taxi(
    taxis: int = FLEET,
    messages: int | None = None,
    seed: int = 0,
    format: Format = "senml",
    rate: float | None = None,
    speed: float | None = None,
    curve: rates.Curve | None = None,
    dirt: bool = True,
) -> Source:
    """Return the TAXI stream, generated; see :class:`TaxiSource` for the parameters.

    ``rate`` (messages per second), ``speed`` (event time per wall time) or ``curve`` (a rate over time,
    such as :func:`~riot_ops.ingest.rates.taxi`) paces it, see :class:`~riot_ops.ingest.pace.PacedSource`.

    >>> taxi(messages=5).finished({"message": 5})
    True
    """
    return paced(TaxiSource(taxis, messages, seed, format, dirt), speed, rate, curve)
