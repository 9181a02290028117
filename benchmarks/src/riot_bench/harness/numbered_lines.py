"""Numbered lines as Parquet files, which all implementations of a program read."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from riot_bench.harness.data import RecordFiles
from riot_ops import streams
from riot_ops.core.schema import RAW, TIMESTAMP
from riot_ops.core.source import Offset, Split
from riot_ops.runtime.parallel import available_cores

__all__ = ["FILES_PER_BATCH", "NumberedFiles", "NumberedLines", "measure_read_rate", "write_numbered"]

#: Files of a micro-batch.
FILES_PER_BATCH = 4
#: Columns of a file, as Spark reads them.
COLUMNS = "seq bigint, value string"
SCHEMA = pa.schema([pa.field("seq", pa.int64(), nullable=False), pa.field("value", pa.string(), nullable=False)])


@dataclass(frozen=True)
class NumberedLines:
    """Files of numbered lines in reading order.

    Attributes
    ----------
    stream : str
        Name of the generated stream.
    files : tuple of Path
        Parquet files with the columns ``seq`` and ``value``.
    lines_per_file : int
    """

    stream: str
    files: tuple[Path, ...]
    lines_per_file: int

    @property
    def total(self) -> int:
        """Number of lines of all files."""
        return len(self.files) * self.lines_per_file

    @property
    def batch(self) -> int:
        """Number of lines of a micro-batch."""
        return FILES_PER_BATCH * self.lines_per_file

    @property
    def line_bytes(self) -> float:
        """Mean bytes of a line with its newline."""
        values = pq.read_table(self.files[0], columns=["value"]).column("value").combine_chunks()
        return float(values.nbytes) / len(values) - 4 + 1  # without the offsets

    def first_batches(self, batches: int) -> NumberedLines:
        """Return the first micro-batches."""
        return NumberedLines(self.stream, self.files[: batches * FILES_PER_BATCH], self.lines_per_file)

    def repeated_to(self, number: int) -> NumberedLines:
        """Repeat the files until there are at least ``number`` lines."""
        files = -(-number // self.lines_per_file)
        return NumberedLines(
            self.stream, tuple(itertools.islice(itertools.cycle(self.files), files)), self.lines_per_file
        )

    def source(self, splits: int | None = None) -> NumberedFiles:
        """Return the files as a source of riot_ops with at most ``splits`` splits."""
        return NumberedFiles(self.files, self.lines_per_file, splits)

    def frame(self, spark: Any, base: Path, *, streaming: bool = True, files: int = FILES_PER_BATCH) -> Any:
        """Read the files as a DataFrame with ``seq`` and ``value``; a stream takes ``files`` per micro-batch."""
        folder = base / "in"
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            for number, path in enumerate(self.files):
                (folder / f"{number:05d}.parquet").symlink_to(path)
        reader = spark.readStream.option("maxFilesPerTrigger", files) if streaming else spark.read
        return reader.schema(COLUMNS).parquet(str(folder))


class NumberedFiles(RecordFiles):
    """Numbered lines as a source of messages.

    Parameters
    ----------
    splits : int, optional
        Maximum number of splits of a range of files.
    """

    def __init__(self, files: Sequence[Path], records: int, splits: int | None = None) -> None:
        super().__init__(files[0].parent, records, RAW)
        self.files = [str(file) for file in files]
        self.max_splits = splits

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return super().splits(start, end, n if self.max_splits is None else min(n, self.max_splits))

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        again = number - self.files.index(self.files[number])  # repeated files
        for batch in _read_table(self.files[number]).to_batches(max_chunksize=65_536):
            payload = batch.column("value").cast(pa.binary())
            times = pa.nulls(batch.num_rows, TIMESTAMP)
            seq = batch.column("seq")
            if again:
                seq = pc.add(seq, again * self.records)
            yield pa.RecordBatch.from_arrays([seq, times, payload], schema=RAW)


def _read_table(file: str | Path) -> pa.Table:
    return pq.read_table(file, use_threads=False, memory_map=True)


def write_numbered(stream: str, folder: Path, batches: int, batch: int, seed: int = 1) -> NumberedLines:
    """Generate a stream and write it: line *k* is line *k* modulo the size of the seed set.

    The columns are plain, without dictionary or compression. With a dictionary of the seed set, a file would have
    little but indices, unlike a log.

    Parameters
    ----------
    stream : str
        Name of the stream, such as ``searches``.
    folder : Path
    batches, batch : int
        Number of micro-batches, and lines of each, a multiple of :data:`FILES_PER_BATCH`.
    seed : int, default 1

    Examples
    --------
    >>> import tempfile
    >>> made = write_numbered("searches", Path(tempfile.mkdtemp()), 2, 40)
    >>> len(made.files), made.total, made.first_batches(1).total
    (8, 80, 40)
    """
    each = batch // FILES_PER_BATCH
    source = streams.generate(stream, messages=batches * batch, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    files, at = [], source.initial()
    for number in range(batches * FILES_PER_BATCH):
        path, end = folder / f"{number:05d}.parquet", source.latest(at, each)
        with pq.ParquetWriter(path, SCHEMA, use_dictionary=False, compression="none") as file:
            for split in source.splits(at, end, 1):
                for records in source.read(split):
                    payload = records.column("payload").cast(pa.string())
                    file.write_table(pa.table([records.column("seq"), payload], schema=SCHEMA))
        at = end
        os.utime(path, (1e9 + number, 1e9 + number))  # Spark reads the oldest file first
        files.append(path)
    return NumberedLines(stream, tuple(files), each)


def measure_read_rate(data: NumberedLines) -> float:
    """Measure the lines per second that all cores can read without processing them."""
    with ThreadPoolExecutor(available_cores()) as threads:
        begun = time.perf_counter()
        list(threads.map(lambda file: _read_table(file).num_rows, data.files))
        return data.total / (time.perf_counter() - begun)
