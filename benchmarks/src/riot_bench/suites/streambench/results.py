"""Which results of a run are lost or doubled, without holding all of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riot_bench.suites.streambench.data import NumberedLines
from riot_bench.suites.streambench.forms import PROGRAMS, latest, settled
from riot_bench.suites.streambench.formulas import lost_and_doubled
from riot_bench.suites.streambench.runs import flow_of
from riot_ops.core.sink import CallbackSink, ParquetSink

__all__ = ["Expected", "Numbers", "written"]


class Numbers:
    """Results by the number of their line: of each a checksum of what is wanted and whether it came, five bytes.

    Parameters
    ----------
    lines : int
        Numbers are from 0 up to these.

    Examples
    --------
    >>> numbers = Numbers(4)
    >>> numbers.want([0, 1, 3], [b"a", b"b", b"d"])
    >>> numbers.difference([([0, 0, 3], [b"a", b"a", b"x"])])
    (2, 2)
    """

    def __init__(self, lines: int) -> None:
        self.wanted = np.zeros(lines, np.uint32)  # 0: none

    def want(self, seq: Any, values: Iterable[Any]) -> None:
        self.wanted[np.asarray(seq, np.int64)] = _checksums(values)

    def difference(self, parts: Iterable[tuple[Any, Iterable[Any]]]) -> tuple[int, int]:
        """How many results are missing, and how many came too often or are none."""
        came, right, found = np.zeros(self.wanted.size, np.bool_), 0, 0
        for numbers, values in parts:
            seq, sums = np.asarray(numbers, np.int64), _checksums(values)
            found += seq.size
            inside = (seq >= 0) & (seq < came.size)
            seq, sums = seq[inside], sums[inside]
            fresh = np.unique(seq[(self.wanted[seq] == sums) & ~came[seq]])
            came[fresh] = True
            right += fresh.size
        return int(np.count_nonzero(self.wanted)) - right, found - right


class Expected:
    """What a program in process makes of lines; of a program with keys the last result of each is held."""

    def __init__(self, name: str, data: NumberedLines) -> None:
        self.name, one = name, PROGRAMS[name]
        self._columns = one.columns
        self._numbers = Numbers(data.total) if "seq" in one.fields else None
        self._records: list[Any] = []

        def take(stream: str, batch: pa.RecordBatch) -> None:
            if stream != one.stream:
                return
            if self._numbers is not None:
                self._numbers.want(*self._part(batch))
            else:
                self._records = latest(name, [*self._records, *batch.select(self._columns).to_pylist()])

        flow_of(name).run(data.source(), sinks=CallbackSink(take))

    def difference(self, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
        """Results that are lost and doubled in what a run put out."""
        if self._numbers is not None:
            return self._numbers.difference(map(self._part, batches))
        found = (row for batch in batches for row in batch.select(self._columns).to_pylist())
        return lost_and_doubled(settled(self.name, self._records), settled(self.name, found))

    def _part(self, batch: pa.RecordBatch) -> tuple[Any, list[Any]]:
        seq, value = (batch.column(name) for name in self._columns)
        return seq.to_numpy(zero_copy_only=False), value.to_pylist()


def written(name: str, out: Path) -> Iterator[pa.RecordBatch]:
    """The results of a program in a folder of Parquet files, one batch after the other."""
    for _, stream, path in ParquetSink(out).files():
        if stream == PROGRAMS[name].stream:
            yield from pq.ParquetFile(path).iter_batches()


def _checksums(values: Iterable[Any]) -> Any:
    texts = (value.encode() if isinstance(value, str) else value for value in values)
    return np.fromiter((zlib.crc32(text.rstrip(b"\r\n")) or 1 for text in texts), np.uint32)
