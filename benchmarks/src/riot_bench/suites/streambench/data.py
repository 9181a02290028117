"""Numbered lines as files, which every form of a program reads."""

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
from riot_ops.runtime.parallel import available

__all__ = ["PARTS", "NumberedFiles", "NumberedLines", "read_rate", "write_numbered"]

#: Files of a micro-batch.
PARTS = 4
#: Columns of a file, as Spark reads them.
COLUMNS = "seq bigint, value string"
SCHEMA = pa.schema([pa.field("seq", pa.int64(), nullable=False), pa.field("value", pa.string(), nullable=False)])


@dataclass(frozen=True)
class NumberedLines:
    """Files of lines with their numbers, in the order in which they are read.

    Attributes
    ----------
    stream : str
        Name of the generated stream.
    files : tuple of Path
        Parquet files with the columns ``seq`` and ``value``, of ``each`` lines.
    each : int
    """

    stream: str
    files: tuple[Path, ...]
    each: int

    @property
    def total(self) -> int:
        """Lines of all files."""
        return len(self.files) * self.each

    @property
    def batch(self) -> int:
        """Lines of a micro-batch."""
        return PARTS * self.each

    @property
    def line_bytes(self) -> float:
        """Mean bytes of a line with its end."""
        values = pq.read_table(self.files[0], columns=["value"]).column("value").combine_chunks()
        return float(values.nbytes) / len(values) - 4 + 1  # less the offsets

    def first(self, batches: int) -> NumberedLines:
        """So many micro-batches."""
        return NumberedLines(self.stream, self.files[: batches * PARTS], self.each)

    def lines(self, number: int) -> NumberedLines:
        """So many lines, in whole files: those that there are, over and over again."""
        files = -(-number // self.each)
        return NumberedLines(self.stream, tuple(itertools.islice(itertools.cycle(self.files), files)), self.each)

    def source(self, splits: int | None = None) -> NumberedFiles:
        """The files as riot_ops reads them, in so many parts at most."""
        return NumberedFiles(self.files, self.each, splits)

    def frame(self, spark: Any, base: Path, *, streaming: bool = True, files: int = PARTS) -> Any:
        """The files as Spark reads them, with ``seq`` and ``value``; so many at once where it streams."""
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
        In how many parts a range of files is read at most, whatever is asked for.
    """

    def __init__(self, files: Sequence[Path], records: int, splits: int | None = None) -> None:
        super().__init__(files[0].parent, records, RAW)
        self.files = [str(file) for file in files]
        self.most_splits = splits

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return super().splits(start, end, n if self.most_splits is None else min(n, self.most_splits))

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        again = number - self.files.index(self.files[number])  # files that came once more
        for batch in _read(self.files[number]).to_batches(max_chunksize=65_536):
            payload = batch.column("value").cast(pa.binary())
            times = pa.nulls(batch.num_rows, TIMESTAMP)
            seq = batch.column("seq")
            if again:
                seq = pc.add(seq, again * self.records)
            yield pa.RecordBatch.from_arrays([seq, times, payload], schema=RAW)


def _read(file: str | Path) -> pa.Table:
    return pq.read_table(file, use_threads=False, memory_map=True)


def write_numbered(stream: str, folder: Path, batches: int, batch: int, seed: int = 1) -> NumberedLines:
    """Generate a stream and write it: line *k* is line *k* modulo the size of the seed set.

    The columns are written one value after the other, without dictionary or compression. A dictionary would hold the
    seed set, and a file little but places in it, which no log has.

    Parameters
    ----------
    stream : str
        Such as ``searches``.
    batches, batch : int
        Micro-batches, and lines of each, a multiple of :data:`PARTS`.

    Examples
    --------
    >>> import tempfile
    >>> made = write_numbered("searches", Path(tempfile.mkdtemp()), 2, 40)
    >>> len(made.files), made.total, made.first(1).total
    (8, 80, 40)
    """
    each = batch // PARTS
    source = streams.generate(stream, messages=batches * batch, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    files, at = [], source.initial()
    for number in range(batches * PARTS):
        path, end = folder / f"{number:05d}.parquet", source.latest(at, each)
        with pq.ParquetWriter(path, SCHEMA, use_dictionary=False, compression="none") as file:
            for split in source.splits(at, end, 1):
                for records in source.read(split):
                    payload = records.column("payload").cast(pa.string())
                    file.write_table(pa.table([records.column("seq"), payload], schema=SCHEMA))
        at = end
        os.utime(path, (1e9 + number, 1e9 + number))  # Spark takes the oldest first
        files.append(path)
    return NumberedLines(stream, tuple(files), each)


def read_rate(data: NumberedLines) -> float:
    """Lines per second that can be read with all cores and nothing done with them."""
    with ThreadPoolExecutor(available()) as threads:
        begun = time.perf_counter()
        list(threads.map(lambda file: _read(file).num_rows, data.files))
        return data.total / (time.perf_counter() - begun)
