"""STATS in plain Python with ``orjson`` and dicts, in one process."""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from operator import mul
from pathlib import Path
from typing import Any

import mmh3
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from riot_bench.baselines.python.senml import FIELDS
from riot_bench.baselines.python.tables import append_delta
from riot_ops.core.schema import TIMESTAMP

__all__ = ["HyperLogLog", "SensorState", "stats", "stats_to_delta"]

WINDOW, HORIZON = 10, 10
Q, R, P0 = 0.125, 0.32, 30.0
MIDDLE = (WINDOW - 1) / 2
CENTRED = [x - MIDDLE for x in range(WINDOW)]
SQUARE = sum(x * x for x in CENTRED)
AHEAD = [WINDOW + h - MIDDLE for h in range(HORIZON)]


class SensorState:
    """Average, Kalman filter and regression of one observation type of one sensor."""

    __slots__ = ("n", "p", "total", "window", "x")

    def __init__(self) -> None:
        self.total, self.n = 0.0, 0
        self.x: float | None = None  # before the first reading
        self.p = P0
        self.window: deque[float] = deque(maxlen=WINDOW)

    def average(self, z: float) -> float | None:
        """Return the mean after every ten readings."""
        self.total += z
        self.n += 1
        if self.n < WINDOW:
            return None
        mean = self.total / WINDOW
        self.total, self.n = 0.0, 0
        return mean

    def smooth(self, z: float | None) -> float | None:
        """Return the Kalman filter's estimate; None before the first reading."""
        self.p += Q
        if z is not None:
            gain = self.p / (self.p + R)
            x = self.x or 0.0
            self.x = x + gain * (z - x)
            self.p *= 1.0 - gain
        return self.x

    def predict(self, y: float | None) -> list[float] | None:
        """Extrapolate the next ten values from a line through the last ten."""
        if y is None:
            return None
        window = self.window
        window.append(y)
        if len(window) < WINDOW:
            return None
        mean = sum(window) / WINDOW
        slope = sum(map(mul, CENTRED, window)) / SQUARE
        return [mean + slope * x for x in AHEAD]


class HyperLogLog:
    """Number of distinct values, with an incremental harmonic sum."""

    def __init__(self, precision: int = 10, registers: bytes = b"", total: float = 0.0, zeros: int = 0) -> None:
        self.precision = precision
        self.m = 1 << precision
        self.registers = bytearray(registers or bytes(self.m))
        self.total = total or float(self.m)
        self.zeros = zeros if registers else self.m

    def add(self, value: float) -> None:
        """Count a value."""
        h = mmh3.hash64(struct.pack("<d", value + 0.0), signed=False)[0]
        j = h & (self.m - 1)
        rank = 65 - self.precision - (h >> self.precision).bit_length()
        old = self.registers[j]
        if rank > old:
            self.registers[j] = rank
            self.total += 2.0**-rank - 2.0**-old
            self.zeros -= old == 0

    def estimate(self) -> int:
        """Estimate the number of distinct values."""
        raw = 0.7213 / (1 + 1.079 / self.m) * self.m * self.m / self.total
        if raw <= 2.5 * self.m and self.zeros:
            raw = self.m * math.log(self.m / self.zeros)
        return round(raw)


COLUMNS = pa.schema(
    [
        ("seq", pa.int64()),
        ("ordinal", pa.int64()),
        ("event_time", TIMESTAMP),
        ("sensor_id", pa.string()),
        ("obs_type", pa.string()),
        ("value", pa.float64()),
    ]
)
SCHEMAS = {"avg": COLUMNS, "slr": COLUMNS.append(pa.field("predictions", pa.list_(pa.float64()))), "dac": COLUMNS}


class RowCount:
    """Number of rows of a stream."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, *row: Any) -> None:
        """Count a row."""
        self.rows += 1

    def close(self) -> None:
        """Do nothing."""


class ParquetResults(RowCount):
    """Rows of a stream, written to a Parquet file in batches of 100,000."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__()
        self._schema = SCHEMAS[kind]
        self._file = pq.ParquetWriter(folder / f"{kind}.parquet", self._schema)
        self._held: list[tuple[Any, ...]] = []

    def add(self, *row: Any) -> None:
        """Buffer a row."""
        self._held.append(row)
        if len(self._held) == 100_000:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        if self._held:
            columns = [pa.array(c, f.type) for c, f in zip(zip(*self._held, strict=True), self._schema, strict=True)]
            self.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            self.rows += len(self._held)
            self._held = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        self._file.write_batch(batch)

    def close(self) -> None:
        """Finish the file."""
        self.flush()
        self._file.close()


class DeltaResults(ParquetResults):
    """Rows of a stream, appended to a Delta table in one transaction when it is closed, and on disk then."""

    def __init__(self, folder: Path, kind: str) -> None:
        RowCount.__init__(self)
        self._schema = SCHEMAS[kind]
        self._path = folder / kind
        self._held = []
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep a batch."""
        self._batches.append(batch)

    def close(self) -> None:
        """Write the table."""
        self.flush()
        append_delta(self._path, pa.Table.from_batches(self._batches, self._schema))


def stats(files: Iterable[str], folder: Path | None = None) -> dict[str, int]:
    """Run STATS over CITY text files; return the number of rows by stream, and write them if a folder is given."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    results = {kind: RowCount() if folder is None else ParquetResults(folder, kind) for kind in SCHEMAS}
    _process(enumerate(_lines(files)), **results)
    return {kind: one.rows for kind, one in results.items()}


def stats_to_delta(messages: Iterable[tuple[int, bytes]], folder: Path) -> dict[str, int]:
    """Run STATS over numbered CITY messages into Delta tables; return the number of rows by stream."""
    folder.mkdir(parents=True, exist_ok=True)
    results = {kind: DeltaResults(folder, kind) for kind in SCHEMAS}
    _process(messages, **results)
    return {kind: one.rows for kind, one in results.items()}


def _lines(files: Iterable[str]) -> Iterator[bytes]:
    for path in files:
        with open(path, "rb") as lines:
            yield from lines


def _process(messages: Iterable[tuple[int, bytes]], avg: RowCount, slr: RowCount, dac: RowCount) -> None:
    states: dict[tuple[str, str], SensorState] = {}
    sketches = {name: HyperLogLog() for name in FIELDS}
    for seq, line in messages:
        message = orjson.loads(line[line.index(b",") + 1 :])
        records = {record["n"]: record for record in message["e"]}
        time = message["bt"] * 1000
        sensor = records["source"]["sv"]
        for sub, name in enumerate(FIELDS):
            text = records[name]["v"]
            value = None if text == "null" else float(text)
            state = states.get((sensor, name))
            if state is None:
                state = states[sensor, name] = SensorState()
            sketch = sketches[name]
            if value is not None:
                mean = state.average(value)
                if mean is not None:
                    avg.add(seq, sub, time, sensor, name, mean)
                sketch.add(value)
            predictions = state.predict(state.smooth(value))
            if predictions is not None:
                slr.add(seq, sub, time, sensor, name, sum(predictions) / HORIZON, predictions)
            dac.add(seq, sub, time, sensor, name, float(sketch.estimate()))
    for results in (avg, slr, dac):
        results.close()
