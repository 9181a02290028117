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
from riot_ops.streams.generator import Format, GeneratedSource, observation_batch, wide_schema
from riot_ops.streams.riotbench.taxi_kernels import taxi_decimals, taxi_ids, taxi_text, taxi_times, taxi_values
from riot_ops.streams.text import pack

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
        n = end - start
        text = np.empty(n * 19, np.uint8)
        taxi_times(BASE_MS // 60_000, minutes, values, text)
        columns: dict[str, pa.Array] = {
            "seq": pa.array(np.arange(start, end)),
            "event_time": timestamp_column(BASE_MS * 1000 + minutes * 60_000_000),
            "taxi_identifier": _ids(ids, 0, 1),
            "hack_license": _ids(ids, 2, 1),
            "pickup_datetime": text_column(text, np.arange(0, 19 * n + 1, 19, dtype=np.int32)),
            "payment_type": pa.array(["CSH", "CRD"]).take(pa.array(card.astype(np.int8))),
        }
        schema = wide_schema(TAXI)
        for f, name in enumerate(FIELDS):
            column = pa.array(values[:, f] / SCALES[f])
            if pa.types.is_string(schema.field(name).type):  # coordinates travel as text
                size, offsets = np.empty(n * 16, np.uint8), np.empty(n + 1, np.int32)
                p = taxi_decimals(np.ascontiguousarray(values[:, f]), 6, size, offsets)
                column = text_column(size[:p], offsets)
            columns[name] = column
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
    """The TAXI stream, generated; see :class:`TaxiSource` for the parameters.

    ``rate`` (messages per second), ``speed`` (event time per wall time) or ``curve`` (a rate over time,
    such as :func:`~riot_ops.ingest.rates.taxi`) paces it, see :class:`~riot_ops.ingest.pace.PacedSource`.

    >>> taxi(messages=5).finished({"message": 5})
    True
    """
    return paced(TaxiSource(taxis, messages, seed, format, dirt), speed, rate, curve)
