"""Input files that all implementations of a comparison read: messages as text, readings as Parquet."""

from __future__ import annotations

import itertools
import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riot_ops.core.schema import RAW, TIMESTAMP
from riot_ops.core.source import Offset, Source, Split

__all__ = ["READINGS", "LineFiles", "RecordFiles", "set_file_order", "write_city", "write_readings"]

#: One reading of a device.
READINGS = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("device", pa.string()), ("value", pa.float64())])


def write_city(folder: Path, messages: int, files: int, sensors: int = 1000) -> Path:
    """Write CITY messages as text files, one message per line."""
    from riot_ops.streams.riotbench.city import CitySource

    folder.mkdir(parents=True)
    source = CitySource(sensors, messages)
    each = messages // files
    for i in range(files):
        lines = source.lines(i * each, (i + 1) * each, newline=True).column("payload")
        path = folder / f"{i:05d}.txt"
        path.write_bytes(memoryview(lines.buffers()[2])[: _payload_bytes(lines)])
        set_file_order(path, i)
    return folder


def set_file_order(path: Path, number: int) -> None:
    """Set a file's modification time by its number: Spark's sources read the oldest file first, and times may tie."""
    os.utime(path, (1e9 + number, 1e9 + number))


def _payload_bytes(lines: pa.Array) -> int:
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
    """Write readings of random devices as Parquet files, ``files`` of them per batch.

    Parameters
    ----------
    folder : Path
    batches, rows : int
        Number of batches, and rows of each.
    keys : int
        Number of devices.
    of : int, optional
        Only the first ``of`` devices occur.
    seed : int, default 0
    files : int, default 2
        Files of a batch.
    first : int, default 0
        Number of the first batch.
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
        set_file_order(path, i)
    return folder


class _FolderSource(Source):
    """Files of a folder with the same number of records each; the offset is a number of files."""

    def __init__(self, folder: Path, records: int) -> None:
        self.files = sorted(str(f) for f in folder.iterdir())
        self.records = records  # per file

    def initial(self) -> Offset:
        return {"file": 0}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        limit_files = len(self.files) if limit is None else max(1, limit // self.records)
        return {"file": min(len(self.files), start["file"] + limit_files)}

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
        """Read the records of one file."""

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["file"] - start["file"]) * self.records


class LineFiles(_FolderSource):
    """Source of the text files that :func:`write_city` writes."""

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


class RecordFiles(_FolderSource):
    """Source of Parquet files with a schema."""

    def __init__(self, folder: Path, records: int, schema: pa.Schema = READINGS) -> None:
        super().__init__(folder, records)
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        table = pq.read_table(self.files[number], use_threads=False).cast(self._schema)
        yield from table.to_batches(max_chunksize=65_536)
