"""Base class of CITY, FIT and GRID: every sensor reports once per period, at an offset of its own."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.checks import check_count, check_flag, stream_length
from riot_ops.core.parameters import Duration
from riot_ops.core.schema import RAW
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.buffers import nullable_floats, text_column, timestamp_column
from riot_ops.kernels.jit import kernel
from riot_ops.streams.generator import GeneratedSource, observation_batch, wide_schema
from riot_ops.streams.text import pack, write_bytes, write_decimal, write_digits, write_part

__all__ = ["RegularSource"]

I64 = npt.NDArray[np.int64]
DAY_MS = 86_400_000


# -- kernels

#: A value that is missing.
NULL = np.iinfo(np.int64).min


@kernel
def regular_slots(
    first: Any, base: Any, period: Any, order: Any, offsets: Any, sensor: Any, tick: Any, time: Any
) -> None:
    """Sensor, period and time of messages from the first on."""
    sensors = order.size
    t = first // sensors
    rank = first - t * sensors
    for i in range(sensor.size):
        sensor[i] = order[rank]
        tick[i] = t
        time[i] = base + t * period + offsets[rank]
        rank += 1
        if rank == sensors:
            rank = 0
            t += 1


@kernel
def write_name(out: Any, p: Any, names: Any, edges: Any, name: Any, number: Any) -> Any:
    """Write the name of a sensor: a packed text, and a number."""
    return write_digits(out, write_part(out, p, names, edges, name), number, 1)


@kernel
def regular_text(
    time: Any, name: Any, number: Any, rest: Any, names: Any, name_edges: Any, values: Any, decimals: Any, parts: Any,
    edges: Any, place: Any, newline: Any, out: Any, ends: Any,
) -> Any:  # fmt: skip
    """Write the messages end to end, in the wire format (time first and last) or as CSV.

    Packed in ``names`` are the first parts of the names, and what follows them. The other parts are the text before the
    name, after each value, and after the time at the end; then the word for a missing value. ``place`` is where the
    time stands: 0 first, 1 after the name, 2 first and last.
    """
    fields = values.shape[1]
    p = 0
    ends[0] = 0
    for i in range(time.size):
        start = p
        if place != 1:
            p = write_digits(out, p, time[i], 13)
        stop = p
        p = write_part(out, p, parts, edges, 0)
        p = write_name(out, p, names, name_edges, name[i], number[i])
        if place == 1:
            out[p] = 44
            p = write_digits(out, p + 1, time[i], 13)
        p = write_part(out, p, names, name_edges, rest[i])
        for f in range(fields):
            if values[i, f] == NULL:
                p = write_part(out, p, parts, edges, fields + 2)
            else:
                p = write_decimal(out, p, values[i, f], decimals[f], True)
            p = write_part(out, p, parts, edges, 1 + f)
        if place == 2:
            p = write_bytes(out, p, out, start, stop)
        p = write_part(out, p, parts, edges, fields + 1)
        if newline:
            out[p] = 10
            p += 1
        ends[i + 1] = p
    return p


@kernel
def numbered_ids(names: Any, edges: Any, name: Any, number: Any, repeat: Any, out: Any, ends: Any) -> Any:
    """Write the names of sensors, each into ``repeat`` rows."""
    p = 0
    r = 0
    ends[0] = 0
    for i in range(number.size):
        start = p
        p = write_name(out, p, names, edges, name[i], number[i])
        stop = p
        for k in range(repeat):
            if k > 0:
                p = write_bytes(out, p, out, start, stop)
            r += 1
            ends[r] = p
    return p


@kernel
def unscaled(values: Any, columns: Any, scales: Any, out: Any) -> None:
    """Some columns of scaled whole numbers as floats, NaN where missing."""
    for i in range(values.shape[0]):
        for c in range(columns.size):
            value = values[i, columns[c]]
            out[i, c] = np.nan if value == NULL else value / scales[columns[c]]


# -- source


class RegularSource(GeneratedSource):
    """A stream whose message *i* comes from sensor number ``i % sensors`` in the order of a period.

    Subclasses define the length of a period, the names of the sensors, and their measurements.
    """

    #: Name of the parameter and attribute with the number of sensors.
    counted: ClassVar[str]
    base_ms: ClassVar[int]
    period_ms: ClassVar[int]
    #: Prefix of the sensors' names, followed by a number from ``first_id`` on.
    id_prefix: ClassVar[str] = ""
    first_id: ClassVar[int] = 1
    #: Decimals of the columns other than id and time.
    decimals: ClassVar[tuple[int, ...]]
    #: Whether the base time is written as text in the wire format, and before the name as CSV.
    quoted_time: ClassVar[bool] = False
    time_first: ClassVar[bool] = False

    def __init__(
        self, sensors: int, messages: int | None, duration: Duration | None, seed: int, format: str, dirt: bool
    ) -> None:
        super().__init__(messages, seed, format)
        check_count(**{self.counted: sensors})
        length = stream_length(duration, messages)
        check_flag(dirt=dirt)
        setattr(self, self.counted, sensors)
        self.dirt = dirt
        if length is not None:
            self.messages: int = self._messages_until(self.base_ms + length // timedelta(milliseconds=1) - 1)

    # -- what subclasses provide -------------------------------------------------------------------

    @abstractmethod
    def _offsets(self) -> I64:
        """When in its period each sensor reports, in ms."""

    @abstractmethod
    def _fill(self, sensor: I64, tick: I64, observed: bool, values: I64) -> None:
        """Measurements (a column per field) of sensors in periods, scaled by their decimals.

        With ``observed``, only the observed columns need values.
        """

    @property
    def _values_of(self) -> tuple[str, ...]:
        """The fields with a decimal each."""
        return tuple(c for c in self.stream.columns if c not in (self.stream.id_field, self.stream.time_field))

    def _names(self) -> list[str]:
        """The texts that names are made of, and the text after a name."""
        return [self.id_prefix, "," if self.format == "csv" else '"},{"v":"']

    def _naming(self, sensor: I64) -> tuple[I64, I64, I64]:
        """By sensor: the index of the text that its name begins with, its number, and the index of what follows."""
        return np.zeros_like(sensor), sensor + self.first_id, np.ones_like(sensor)

    def _places(self, sensor: I64) -> list[npt.NDArray[np.float64]]:
        """Return the columns of the wide format between name and values."""
        return []

    # -- tables ------------------------------------------------------------------------------------

    @property
    def _sensors(self) -> int:
        return int(getattr(self, self.counted))

    @property
    def _tables(self) -> dict[str, Any]:
        found: dict[str, Any] | None = self.__dict__.get("_cached")
        if found is None:
            found = self._cached = self._build()
        return found

    def _build(self) -> dict[str, Any]:
        offsets = self._offsets()
        order = np.argsort(offsets, kind="stable")
        units = {c: u.replace("/", "\\/") for c, u in zip(self.stream.columns, self.stream.units, strict=True)}
        quote = '"' if self.quoted_time else ""
        after = [f'","u":"{units[f]}","n":"{f}"}},{{"v":"' for f in self._values_of]
        after[-1] = after[-1].removesuffix(',{"v":"') + f'],"bt":{quote}'
        first = f',{{"e":[{{"u":"{units[self.stream.id_field]}","n":"{self.stream.id_field}","sv":"'
        csv = ["," if self.time_first else "", *[","] * (len(after) - 1), "", "", "null"]
        parts, edges = pack(csv if self.format == "csv" else [first, *after, quote + "}", "null"])
        names, name_edges = pack(self._names())
        return {
            "order": readonly(order),
            "offsets": readonly(offsets[order]),
            "parts": parts,
            "edges": edges,
            "names": names,
            "name_edges": name_edges,
            "decimals": readonly(np.array(self.decimals)),
            "scales": readonly(10.0 ** np.array(self.decimals)),
            "longest_name": int(np.diff(name_edges).max()) + 20,
            # a time twice, and at most 12 digits, sign and point per value
            "longest": int(edges[-1] + 2 * np.diff(name_edges).max()) + 2 * 13 + 20 + 14 * len(after) + 1,
            "observed": readonly(np.array([self._values_of.index(c) for c in self.stream.observed])),
        }

    def _time_of(self, message: int) -> int:
        tick, rank = divmod(message, self._sensors)
        return self.base_ms + tick * self.period_ms + int(self._tables["offsets"][rank])

    def _messages_until(self, time_ms: int) -> int:
        tick, rest = divmod(time_ms - self.base_ms, self.period_ms)
        return 0 if tick < 0 else tick * self._sensors + int(np.searchsorted(self._tables["offsets"], rest, "right"))

    # -- messages ----------------------------------------------------------------------------------

    def _slots(self, start: int, end: int) -> tuple[I64, I64, I64]:
        """Sensors, periods and times (ms) of messages."""
        sensor, tick, time = np.empty((3, end - start), np.int64)
        regular_slots(
            start, self.base_ms, self.period_ms, self._tables["order"], self._tables["offsets"], sensor, tick, time
        )
        return sensor, tick, time

    def _values(self, start: int, end: int, observed: bool = False) -> tuple[I64, I64, I64]:
        """Sensors, times (ms) and scaled values of messages."""
        sensor, tick, time = self._slots(start, end)
        values = np.empty((end - start, len(self.decimals)), np.int64)
        with np.errstate(over="ignore"):
            self._fill(sensor, tick, observed, values)
        return sensor, time, values

    def lines(self, start: int, end: int, newline: bool = False) -> pa.RecordBatch:
        sensor, time, values = self._values(start, end)
        t, n = self._tables, end - start
        out, ends = np.empty(n * t["longest"], np.uint8), np.empty(n + 1, np.int32)
        place = 2 if self.format != "csv" else int(not self.time_first)
        names = (*self._naming(sensor), t["names"], t["name_edges"])
        size = regular_text(time, *names, values, t["decimals"], t["parts"], t["edges"], place, newline, out, ends)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(start, end)),
                timestamp_column(time * 1000),
                text_column(out[:size], ends, pa.binary()),
            ],
            schema=RAW,
        )

    def _ids(self, sensor: I64, repeat: int) -> pa.Array:
        t, rows = self._tables, sensor.size * repeat
        out, ends = np.empty(rows * t["longest_name"], np.uint8), np.empty(rows + 1, np.int32)
        name, number, _ = self._naming(sensor)
        size = numbered_ids(t["names"], t["name_edges"], name, number, repeat, out, ends)
        return text_column(out[:size], ends)

    def _numbers(self, values: I64, columns: I64) -> npt.NDArray[np.float64]:
        out = np.empty((values.shape[0], columns.size))
        unscaled(values, columns, self._tables["scales"], out)
        return out

    def observations(self, start: int, end: int) -> pa.RecordBatch:
        sensor, time, values = self._values(start, end, observed=True)
        columns = self._tables["observed"]
        return observation_batch(
            self.stream,
            self.rows_per_batch["observations"],
            np.repeat(np.arange(start, end), columns.size),
            np.repeat(time * 1000, columns.size),
            self._ids(sensor, columns.size),
            nullable_floats(self._numbers(values, columns).reshape(-1)),
        )

    def wide(self, start: int, end: int) -> pa.RecordBatch:
        sensor, time, values = self._values(start, end)
        numbers = self._numbers(values, np.arange(len(self.decimals)))
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(start, end)),
                timestamp_column(time * 1000),
                self._ids(sensor, 1),
                *(nullable_floats(np.ascontiguousarray(column)) for column in (*self._places(sensor), *numbers.T)),
            ],
            schema=wide_schema(self.stream),
        )
