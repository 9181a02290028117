"""Detection of lost and duplicate results without keeping all of them in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riot_bench.harness.numbered_lines import NumberedLines
from riot_bench.suites.streambench.formulas import count_lost_and_duplicated
from riot_bench.suites.streambench.programs import PROGRAMS, final_results, latest_records
from riot_bench.suites.streambench.runs import program_flow
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.sink import CallbackSink

__all__ = ["ExpectedResults", "NumberedResults", "read_results"]


class NumberedResults:
    """Expected results by line number, with a checksum and a flag, five bytes per line.

    Parameters
    ----------
    lines : int
        Number of lines.

    Examples
    --------
    >>> numbers = NumberedResults(4)
    >>> numbers.want([0, 1, 3], [b"a", b"b", b"d"])
    >>> numbers.difference([([0, 0, 3], [b"a", b"a", b"x"])])
    (2, 2)
    """

    def __init__(self, lines: int) -> None:
        self.wanted = np.zeros(lines, np.uint32)  # 0: no result

    def want(self, seq: Any, values: Iterable[Any]) -> None:
        """Add expected results."""
        self.wanted[np.asarray(seq, np.int64)] = _checksums(values)

    def difference(self, parts: Iterable[tuple[Any, Iterable[Any]]]) -> tuple[int, int]:
        """Count the missing results, and the duplicate or wrong ones."""
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


class ExpectedResults:
    """Results of a program in process; for a program with keys, the last result of each key."""

    def __init__(self, name: str, data: NumberedLines) -> None:
        self.name, one = name, PROGRAMS[name]
        self._columns = one.columns
        self._numbers = NumberedResults(data.total) if "seq" in one.fields else None
        self._records: list[Any] = []

        def take(stream: str, batch: pa.RecordBatch) -> None:
            if stream != one.stream:
                return
            if self._numbers is not None:
                self._numbers.want(*self._part(batch))
            else:
                self._records = latest_records(name, [*self._records, *batch.select(self._columns).to_pylist()])

        program_flow(name).run(data.source(), sinks=CallbackSink(take))

    def difference(self, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
        """Count the lost and duplicate results in the output of a run."""
        if self._numbers is not None:
            return self._numbers.difference(map(self._part, batches))
        found = (row for batch in batches for row in batch.select(self._columns).to_pylist())
        return count_lost_and_duplicated(final_results(self.name, self._records), final_results(self.name, found))

    def _part(self, batch: pa.RecordBatch) -> tuple[Any, list[Any]]:
        seq, value = (batch.column(name) for name in self._columns)
        return seq.to_numpy(zero_copy_only=False), value.to_pylist()


def read_results(name: str, out: Path) -> Iterator[pa.RecordBatch]:
    """Read the results of a program from a folder of Parquet files, batch by batch."""
    for _, stream, path in ParquetSink(out).files():
        if stream == PROGRAMS[name].stream:
            yield from pq.ParquetFile(path).iter_batches()


def _checksums(values: Iterable[Any]) -> Any:
    texts = (value.encode() if isinstance(value, str) else value for value in values)
    return np.fromiter((zlib.crc32(text.rstrip(b"\r\n")) or 1 for text in texts), np.uint32)
