"""Data that every side of a comparison reads: files of messages, files of readings."""

from __future__ import annotations

import itertools
import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riot_ops import dataflows
from riot_ops.core.errors import MissingExtraError
from riot_ops.core.schema import RAW, TIMESTAMP
from riot_ops.core.sink import Message, Sink, Writer
from riot_ops.core.source import Offset, Source, Split
from riot_ops.dataflow import Dataflow

__all__ = [
    "READINGS",
    "Discard",
    "LineFiles",
    "RecordFiles",
    "block_stats",
    "needs",
    "numbered",
    "write_city",
    "write_readings",
]

#: One reading of a device.
READINGS = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("device", pa.string()), ("value", pa.float64())])


def block_stats() -> Dataflow:
    """STATS as every side of a comparison computes it: averages of blocks of ten values, no meta fields."""
    return dataflows.stats(average_window=10, sliding=False, meta=False)


def needs(feature: str, extra: str, *modules: str) -> None:
    """Raise where a module of an extra is not installed."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            raise MissingExtraError(feature, extra) from None


def write_city(folder: Path, messages: int, files: int, sensors: int = 1000) -> Path:
    """CITY messages as text files, a message per line."""
    from riot_ops.streams.riotbench.city import CitySource

    folder.mkdir(parents=True)
    source = CitySource(sensors, messages)
    each = messages // files
    for i in range(files):
        lines = source.lines(i * each, (i + 1) * each, newline=True).column("payload")
        path = folder / f"{i:05d}.txt"
        path.write_bytes(memoryview(lines.buffers()[2])[: _length(lines)])
        numbered(path, i)
    return folder


def numbered(path: Path, number: int) -> None:
    """Give a file a time by its number: Spark's own sources take the oldest first, and many are of one moment."""
    os.utime(path, (1e9 + number, 1e9 + number))


def _length(lines: pa.Array) -> int:
    offsets = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1)
    return int(offsets[-1])


def write_readings(
    folder: Path,
    batches: int,
    rows: int,
    keys: int,
    of: int | None = None,
    seed: int = 0,
    files: int = 2,
    first: int = 0,
) -> Path:
    """Readings of random devices as Parquet files, ``files`` of them for each of the batches.

    ``of``: only the first so many of the keys occur.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, keys, first])
    names = pa.array([f"device-{k:07d}" for k in range(of or keys)])
    each = rows // files
    for i in range(first * files, (first + batches) * files):
        table = pa.table(
            [
                pa.array(np.arange(i * each, (i + 1) * each)),
                names.take(pa.array(rng.integers(0, of or keys, each))),
                pa.array(20.0 + rng.standard_normal(each)),
            ],
            schema=READINGS,
        )
        path = folder / f"{i:05d}.parquet"
        pq.write_table(table, path)
        numbered(path, i)
    return folder


class _Files(Source):
    """Files of one folder with equally many records each; an offset is a number of files."""

    def __init__(self, folder: Path, records: int) -> None:
        self.files = sorted(str(f) for f in folder.iterdir())
        self.records = records  # per file

    def initial(self) -> Offset:
        return {"file": 0}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        most = len(self.files) if limit is None else max(1, limit // self.records)
        return {"file": min(len(self.files), start["file"] + most)}

    def finished(self, offset: Offset) -> bool:
        return bool(offset["file"] >= len(self.files))

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        edges = [start["file"] + (end["file"] - start["file"]) * i // n for i in range(n + 1)]
        return [{"first": a, "end": b} for a, b in itertools.pairwise(edges) if a < b]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for number in range(split["first"], split["end"]):
            yield from self.batches(number)

    @abstractmethod
    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """The records of one file."""

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["file"] - start["file"]) * self.records


class LineFiles(_Files):
    """The text files that :func:`write_city` wrote."""

    @property
    def schema(self) -> pa.Schema:
        return RAW

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        data = np.fromfile(self.files[number], np.uint8)
        ends = np.flatnonzero(data == ord("\n")) + 1
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        n = len(ends)
        payload = pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0)
        seq = pa.array(np.arange(number * self.records, number * self.records + n))
        yield pa.RecordBatch.from_arrays([seq, pa.nulls(n, TIMESTAMP), payload], schema=RAW)


class RecordFiles(_Files):
    """Parquet files of records with a schema."""

    def __init__(self, folder: Path, records: int, schema: pa.Schema = READINGS) -> None:
        super().__init__(folder, records)
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        table = pq.read_table(self.files[number], use_threads=False).cast(self._schema)
        yield from table.to_batches(max_chunksize=65_536)


class Discard(Sink):
    """Takes records and forgets them: what Spark's ``noop`` format does."""

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _Nothing()


class _Nothing(Writer):
    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        pass

    def finish(self) -> Message:
        return {}
