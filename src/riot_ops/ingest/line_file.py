"""A memory-mapped file of lines: their positions, their times, and their text without copying."""

from __future__ import annotations

import functools
import gzip
import mmap
import os
import shutil
import tempfile
from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConnectorError
from riot_ops.core.file_paths import file_size, is_remote, open_binary
from riot_ops.core.schema import TIMESTAMP
from riot_ops.ingest.replay_kernels import NO_TIME, count_breaks, leading_times, line_ends, shift_times
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.arrays.buffers import timestamp_column

__all__ = ["LineFile", "null_times", "time_column"]

#: Lines in a batch.
BATCH_LINES = 65_536
#: Bytes between the entries of the index of line numbers.
INDEX_STEP = 1 << 18


class LineFile:
    """A memory-mapped file with an index of its lines."""

    def __init__(self, path: str, size: int, header: bool) -> None:
        self.path = path
        self.size: int = 0
        self.data: npt.NDArray[np.uint8] = readonly(np.empty(0, np.uint8))
        # a range of bytes in which no line begins with a time
        self._timeless = (0, 0)
        #: A file without a name, with the content of one that is packed or in a store.
        self._unpacked = _unpack(path) if path.endswith(".gz") or is_remote(path) else None
        self._map(size)
        self._header = header
        self._begin()
        # by start position, the ends of the lines after it, which are about to be read
        self._scanned: dict[int, npt.NDArray[np.int64]] = {}
        # a range of bytes, and the number of lines that begin in it
        self._counted = (0, 0, 0)

    def _begin(self) -> None:
        """Find the first line after a byte order mark and the header, if there are any."""
        self.first: int = len(BOM_UTF8) if bytes(self.data[: len(BOM_UTF8)]) == BOM_UTF8 else 0
        if self._header and self.first < self.size:
            ends = np.empty(1, np.int64)
            self.first = int(ends[0]) if self._scan(self.first, self.size, ends) else self.size
        # index of line breaks before certain positions; it grows as the file is scanned
        self._positions: list[int] = [self.first]
        self._lines: list[int] = [0]

    def _map(self, size: int) -> None:
        try:
            with open(
                self.path if self._unpacked is None else self._unpacked.fileno(), "rb", closefd=self._unpacked is None
            ) as file:
                actual = os.fstat(file.fileno()).st_size
                if actual < size:
                    raise ConnectorError(f"{self.path} has {actual} bytes, fewer than the {size} it had")
                self.size = actual if size < 0 else size
                if self.size:
                    self._memory = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
                    self.data = readonly(np.frombuffer(self._memory, np.uint8))
        except ConnectorError:
            raise
        except OSError as error:
            raise ConnectorError(f"{self.path} cannot be read: {error.strerror}") from None
        self.buffer = pa.py_buffer(self.data)

    def grow(self) -> int:
        """Map the bytes appended since the last call; return the size."""
        try:
            actual = file_size(self.path)
        except FileNotFoundError:
            raise ConnectorError(f"no such file: {self.path}") from None
        if actual < self.size:
            raise ConnectorError(f"{self.path} has {actual} bytes, fewer than the {self.size} it had")
        if actual > self.size and self._unpacked is None:
            unread = self.size < len(BOM_UTF8) or self.first == self.size
            self._map(actual)
            if unread:
                self._begin()
        return self.size

    def _scan(self, start: int, end: int, out: npt.NDArray[np.int64]) -> int:
        n, leading = line_ends(self.data, start, end, out)
        if not leading and n:
            first, last = self._timeless
            joined = first <= start <= last
            self._timeless = (first, max(last, int(out[n - 1]))) if joined else (start, int(out[n - 1]))
        return int(n)

    def chunks(
        self,
        start: int,
        end: int,
        limit: int | None = None,
        whole: bool = False,
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield the ends and starts of lines from the start of a line on.

        A last line without a line break counts unless ``whole``.
        """
        left = end if limit is None else limit
        while start < end and left > 0:
            known = self._scanned.get(start)
            if known is not None and known.size <= left and known[-1] <= end:
                ends, n = known, known.size
            else:
                ends = np.empty(min(BATCH_LINES, left), np.int64)
                n = self._scan(start, end, ends)
            if n < ends.size and not whole and (n == 0 or ends[n - 1] < end):
                ends[n] = end
                n += 1
            if n == 0:
                return
            ends = ends[:n]
            if ends[0] - start > np.iinfo(np.int32).max:
                raise ConnectorError(f"{self.path} has a line of more than 2 GiB at byte {start}")
            starts = np.empty(n, np.int64)
            starts[0] = start
            starts[1:] = ends[:-1]
            # Arrow's binary arrays hold less than 2 GiB
            if ends[-1] - start > 1 << 30:
                n = max(1, int(np.searchsorted(ends, start + (1 << 30), "right")))
                ends, starts = ends[:n], starts[:n]
            yield ends, starts
            left -= n
            start = int(ends[-1])

    def skip(self, start: int, lines: int | None, whole: bool) -> tuple[int, int]:
        """Return the position ``lines`` lines further, at most the end; and the number of lines up to it."""
        if lines is None and not whole:
            return self.size, self.count(start, self.size)
        skipped, byte = 0, start
        found = {}
        for ends, starts in self.chunks(start, self.size, lines, whole):
            skipped, byte = skipped + ends.size, int(ends[-1])
            found[int(starts[0])] = ends
        self._scanned = found
        self._counted = (start, byte, skipped)
        return byte, skipped

    def count(self, start: int, end: int) -> int:
        """Count the lines that begin in a range whose start is the start of a line."""
        if start >= end:
            return 0
        if self._counted[:2] == (start, end):
            return self._counted[2]
        open_end = int(end == self.size and self.data[end - 1] != 10)
        return self._breaks(end) - self._breaks(start) + open_end

    def _breaks(self, end: int) -> int:
        """Count the line breaks between the first line and a position."""
        i = bisect_right(self._positions, end) - 1
        if i < 0:
            return 0
        at, n = self._positions[i], self._lines[i]
        while at < end:
            stop = min(at + INDEX_STEP, end)
            n += int(count_breaks(self.data[at:stop]))
            at = stop
            if at == self._positions[-1] + INDEX_STEP:
                self._positions.append(at)
                self._lines.append(n)
        return n

    def line_start(self, byte: int) -> int:
        """Return the start of the first line at a position or after it."""
        if byte <= self.first:
            return self.first
        end = np.empty(1, np.int64)
        return int(end[0]) if self._scan(byte - 1, self.size, end) else self.size

    def times(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Parse the event times of lines, in µs."""
        if self.timeless(starts, ends):
            return np.full(starts.size, NO_TIME)
        out = np.empty(starts.size, np.int64)
        leading_times(self.data, starts, ends, out)
        return out

    def timeless(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> bool:
        """Whether a scan has shown that none of these lines begins with a time."""
        return bool(starts.size and self._timeless[0] <= starts[0] and ends[-1] <= self._timeless[1])

    def column(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> pa.Array:
        """Make a binary column of the lines, over the mapped file."""
        n, base = ends.size, int(starts[0])
        offsets = np.empty(n + 1, np.int32)
        offsets[0] = 0
        np.subtract(ends, base, out=offsets[1:], casting="unsafe")
        data = self.buffer.slice(base, int(ends[-1]) - base)
        return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), data], 0)

    def shifted_column(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], times: npt.NDArray[np.int64], shift: int
    ) -> pa.Array:
        """Make a binary column of the lines whose times are ``shift`` µs later."""
        offsets = np.empty(starts.size + 1, np.int64)
        arguments = self.data, starts, ends, times, np.int64(shift // 1000), np.empty(20, np.uint8)
        out = np.empty(max(1, int(shift_times(*arguments, np.empty(0, np.uint8), offsets))), np.uint8)
        shift_times(*arguments, out, offsets)
        column = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
        return pa.Array.from_buffers(pa.large_binary(), starts.size, column, 0).cast(pa.binary())


def time_column(times: npt.NDArray[np.int64], shift: int) -> pa.Array:
    """Make a column of event times (µs) plus a shift; null for a line without a time."""
    missing = times == NO_TIME
    if not missing.any():
        return timestamp_column(times + shift if shift else times)
    if missing.all():
        return null_times(times.size)
    values = np.where(missing, 0, times + shift)
    bits = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(TIMESTAMP, times.size, [bits, pa.py_buffer(values)], -1)


def null_times(rows: int) -> pa.Array:
    """Return a column of ``rows`` null times."""
    return _no_times(1 << max(0, rows - 1).bit_length()).slice(0, rows)


@functools.lru_cache(16)
def _no_times(rows: int) -> pa.Array:
    """Return a column of nulls that batches share, since allocating it costs more than using it."""
    return pa.nulls(rows, TIMESTAMP)


def _unpack(path: str) -> Any:
    """Unpack a gzip file to an unnamed temporary file."""
    target = tempfile.TemporaryFile()  # noqa: SIM115  (stays open as long as the mapping)
    try:
        with open_binary(path) as file, gzip.open(file) if path.endswith(".gz") else file as source:
            shutil.copyfileobj(source, target, 1 << 20)
    except FileNotFoundError:
        raise ConnectorError(f"no such file: {path}") from None
    except (OSError, EOFError) as error:
        raise ConnectorError(f"{path} cannot be unpacked: {error}") from None
    target.flush()
    target.seek(0)
    return target
