"""Replay of recorded streams from files."""

from __future__ import annotations

import glob
import gzip
import mmap
import os
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.errors import ConfigError, ConnectorError
from riot_ops.kernels.arrow import readonly
from riot_ops.schema import RAW
from riot_ops.source import Offset, Source, Split
from riot_ops.streams.generator import timestamps
from riot_ops.streams.pace import TimedSource, paced
from riot_ops.streams.replay_kernels import NO_TIME, count_breaks, leading_times, line_ends

__all__ = ["ReplaySource", "replay"]

#: Lines in a batch.
BATCH_LINES = 16_384
#: Bytes between places of which the line number is remembered.
MARK = 1 << 18


class ReplaySource(TimedSource):
    r"""Read recorded messages, one per line: ``<ms since the epoch>,<message>``.

    A record's payload is its whole line as it stands in the file, with the time and the line break,
    not copied from the memory-mapped file; its event time is the leading number (null where there is
    none), its ``seq`` the number of the line over all files. No line is skipped, not the first and not
    an empty one (parsers send those to the errors stream).

    Parameters
    ----------
    path : str, Path, glob pattern, or a list of those
        Files are read in sorted order within a pattern or folder; names that end in ``.gz`` are
        unpacked to a temporary file at first use.
    repeat : int, >= 1, default 1
        Times to read all files; each time the event times move on by the recorded span + 1 s (the
        payload keeps its own) and ``seq`` goes on.
    header : bool, default False
        Skip the first line of each file.
    follow : bool, default False
        Wait for more lines in the last file (the list of files is fixed). Only complete lines are
        read.

    Errors
    ------
    A missing file, or one that has become shorter, raises :class:`ConnectorError` with its name.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "two.csv"
    >>> _ = file.write_text("1000,a\n2000,b\n")
    >>> source = ReplaySource(file)
    >>> end = source.latest(source.initial())
    >>> end
    {'file': 1, 'byte': 0, 'line': 2}
    >>> [part] = source.splits(source.initial(), end, 1)
    >>> next(source.read(part)).column("payload").to_pylist()
    [b'1000,a\n', b'2000,b\n']
    """

    def __init__(
        self, path: str | Path | Sequence[str | Path], *, repeat: int = 1, header: bool = False, follow: bool = False
    ) -> None:
        if not isinstance(repeat, int) or repeat < 1:
            raise ConfigError(f"repeat must be >= 1, got {repeat!r}")
        self.paths = _find(path)
        if follow and (repeat > 1 or self.paths[-1].endswith(".gz")):
            raise ConfigError("follow cannot be combined with repeat or with a compressed file")
        self.repeat = repeat
        self.header = bool(header)
        self.follow = bool(follow)
        self._files: dict[int, _File] = {}
        self._step: int | None = None
        self._sizes = [-1 if p.endswith(".gz") else os.path.getsize(p) for p in self.paths]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}

    @property
    def schema(self) -> pa.Schema:
        return RAW

    # -- files -------------------------------------------------------------------------------------

    def _file(self, number: int) -> _File:
        """An open file; ``number`` counts on through the repetitions."""
        i = number % len(self.paths)
        file = self._files.get(i)
        if file is None:
            file = self._files[i] = _File(self.paths[i], self._sizes[i], self.header)
            self._sizes[i] = file.size
        return file

    @property
    def _count(self) -> int:
        return len(self.paths) * self.repeat

    def _open_ended(self, number: int) -> bool:
        return self.follow and number == len(self.paths) - 1

    def _offset(self, number: int, byte: int, line: int) -> Offset:
        """The canonical offset: the end of a file is the beginning of the next."""
        while number < self._count and not self._open_ended(number):
            file = self._file(number)
            if max(byte, file.first) < file.size:
                break
            number, byte = number + 1, 0
        if number < self._count:
            byte = max(byte, self._file(number).first)
        return {"file": number, "byte": byte, "line": line}

    def _shift(self, number: int) -> int:
        """What to add to the event times (µs) of a repetition."""
        rounds = number // len(self.paths)
        if rounds == 0:
            return 0
        if self._step is None:
            low, high = np.iinfo(np.int64).max, NO_TIME
            for i in range(len(self.paths)):
                file = self._file(i)
                for ends, starts in file.chunks(file.first, file.size):
                    times = file.times(starts, ends)
                    times = times[times != NO_TIME]
                    if times.size:
                        low, high = min(low, int(times.min())), max(high, int(times.max()))
            self._step = max(high - low, 0) + 1_000_000 if high != NO_TIME else 0
        return rounds * self._step

    # -- source ------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        return self._offset(0, 0, 0)

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        number, byte, line = start["file"], start["byte"], start["line"]
        left = limit
        while number < self._count and left != 0:
            file = self._file(number)
            if self._open_ended(number):
                self._sizes[number % len(self.paths)] = file.grow()
            byte, lines = file.skip(max(byte, file.first), left, whole=self._open_ended(number))
            line += lines
            left = None if left is None else left - lines
            if byte < file.size or self._open_ended(number):
                break
            number, byte = number + 1, 0
        return self._offset(number, byte, line)

    def finished(self, offset: Offset) -> bool:
        return bool(offset["file"] >= self._count)

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        pieces = []
        number, byte, line = start["file"], start["byte"], start["line"]
        while number < self._count and (number, byte) < (end["file"], end["byte"]):
            file = self._file(number)
            byte = max(byte, file.first)
            stop = end["byte"] if number == end["file"] else file.size
            if byte < stop:
                pieces.append({"file": number, "start": byte, "end": stop, "line": line, "shift": self._shift(number)})
            if number == end["file"]:
                break
            line += file.count(byte, stop)
            number, byte = number + 1, 0
        total = sum(p["end"] - p["start"] for p in pieces)
        found: list[Split] = []
        done = 0
        for i in range(1, n + 1):
            parts: list[dict[str, int]] = []
            while pieces and done < total * i // n:
                piece, room = pieces[0], total * i // n - done
                if piece["end"] - piece["start"] <= room:
                    parts.append(pieces.pop(0))
                else:
                    file = self._file(piece["file"])
                    cut = min(file.line_start(piece["start"] + room), piece["end"])
                    parts.append({**piece, "end": cut})
                    if cut == piece["end"]:
                        pieces.pop(0)
                    else:
                        lines = file.count(piece["start"], cut)
                        pieces[0] = {**piece, "start": cut, "line": piece["line"] + lines}
                done += parts[-1]["end"] - parts[-1]["start"]
            if parts:
                found.append({"parts": parts})
        return found

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for part in split["parts"]:
            file = self._file(part["file"])
            if part["end"] > file.size:
                self._sizes[part["file"] % len(self.paths)] = file.grow()
            if part["end"] > file.size:
                raise ConnectorError(f"{file.path} has {file.size} bytes, fewer than the {part['end']} it had")
            line = part["line"]
            for ends, starts in file.chunks(part["start"], part["end"]):
                n = ends.size
                times = file.times(starts, ends)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(np.arange(line, line + n)),
                        _time_column(times, part["shift"]),
                        file.column(starts, ends),
                    ],
                    schema=RAW,
                )
                line += n

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["line"] - start["line"])

    def time_at(self, offset: Offset) -> int | None:
        number, byte = offset["file"], offset["byte"]
        if number >= self._count:
            return None
        file = self._file(number)
        if self._open_ended(number):
            file.grow()
        found = next(iter(file.chunks(max(byte, file.first), file.size, 1)), None)
        if found is None:
            return None
        ends, starts = found
        value = int(file.times(starts[:1], ends[:1])[0])
        return None if value == NO_TIME else value + self._shift(number)

    def until(self, start: Offset, event_time: int, limit: int | None = None) -> Offset:
        number, byte, line = start["file"], start["byte"], start["line"]
        left = limit
        while number < self._count and left != 0:
            file = self._file(number)
            if self._open_ended(number):
                self._sizes[number % len(self.paths)] = file.grow()
            byte = max(byte, file.first)
            shift = self._shift(number)
            for ends, starts in file.chunks(byte, file.size, left, whole=self._open_ended(number)):
                late = np.flatnonzero(file.times(starts, ends) > event_time - shift)
                n = int(late[0]) if late.size else ends.size
                byte, line = (int(ends[n - 1]) if n else byte), line + n
                left = None if left is None else left - n
                if late.size or left == 0:
                    return self._offset(number, byte, line)
            if self._open_ended(number):
                break
            number, byte = number + 1, 0
        return self._offset(number, byte, line)

    def close(self) -> None:
        """Forget the files; they unmap when the last batch over them is gone."""
        self._files.clear()


class _File:
    """A memory-mapped file and what is known of its lines."""

    def __init__(self, path: str, size: int, header: bool) -> None:
        self.path = path
        self.size = 0
        self.data: npt.NDArray[np.uint8] = readonly(np.empty(0, np.uint8))
        self._unpacked = _unpack(path) if path.endswith(".gz") else None
        self._map(size)
        self.first = 0
        if header and self.size:
            ends = np.empty(1, np.int64)
            self.first = int(ends[0]) if self._scan(0, self.size, ends) else self.size
        # line breaks before some places, growing in step with what has been scanned
        self._marks: list[int] = [self.first]
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
        self.words = readonly(self.data[: self.size // 8 * 8].view(np.uint64))

    def grow(self) -> int:
        """Map what has been added since; returns the size."""
        try:
            actual = os.path.getsize(self.path)
        except FileNotFoundError:
            raise ConnectorError(f"no such file: {self.path}") from None
        if actual < self.size:
            raise ConnectorError(f"{self.path} has {actual} bytes, fewer than the {self.size} it had")
        if actual > self.size and self._unpacked is None:
            self._map(actual)
        return self.size

    def _scan(self, start: int, end: int, out: npt.NDArray[np.int64]) -> int:
        with np.errstate(over="ignore"):
            return int(line_ends(self.data, self.words, start, end, out))

    def chunks(
        self,
        start: int,
        end: int,
        limit: int | None = None,
        whole: bool = False,
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Ends and starts of lines from a line's start on; a last line without break counts unless ``whole``."""
        left = end if limit is None else limit
        while start < end and left > 0:
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
            # a batch holds less than 2 GiB of text
            if ends[-1] - start > 1 << 30:
                n = max(1, int(np.searchsorted(ends, start + (1 << 30), "right")))
                ends, starts = ends[:n], starts[:n]
            yield ends, starts
            left -= n
            start = int(ends[-1])

    def skip(self, start: int, lines: int | None, whole: bool) -> tuple[int, int]:
        """The place so many lines further, or the end; and how many lines they are."""
        if lines is None and not whole:
            return self.size, self.count(start, self.size)
        passed, byte = 0, start
        for ends, _ in self.chunks(start, self.size, lines, whole):
            passed, byte = passed + ends.size, int(ends[-1])
        return byte, passed

    def count(self, start: int, end: int) -> int:
        """Number of lines that begin in a range that begins with a line."""
        if start >= end:
            return 0
        open_end = int(end == self.size and self.data[end - 1] != 10)
        return self._breaks(end) - self._breaks(start) + open_end

    def _breaks(self, end: int) -> int:
        """Line breaks between the file's first line and a place."""
        i = bisect_right(self._marks, end) - 1
        if i < 0:
            return 0
        at, n = self._marks[i], self._lines[i]
        while at < end:
            stop = min(at + MARK, end)
            n += int(count_breaks(self.data[at:stop]))
            at = stop
            if at == self._marks[-1] + MARK:
                self._marks.append(at)
                self._lines.append(n)
        return n

    def line_start(self, byte: int) -> int:
        """The first start of a line at a place or after it."""
        if byte <= self.first:
            return self.first
        end = np.empty(1, np.int64)
        return int(end[0]) if self._scan(byte - 1, self.size, end) else self.size

    def times(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Event times in µs."""
        out = np.empty(starts.size, np.int64)
        leading_times(self.data, starts, ends, out)
        return out

    def column(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> pa.Array:
        """The lines as a binary column over the mapped file."""
        n, base = ends.size, int(starts[0])
        offsets = np.empty(n + 1, np.int32)
        offsets[0] = 0
        offsets[1:] = ends - base
        data = self.buffer.slice(base, int(ends[-1]) - base)
        return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), data], 0)


def _time_column(times: npt.NDArray[np.int64], shift: int) -> pa.Array:
    missing = times == NO_TIME
    if not missing.any():
        return timestamps(times + shift if shift else times)
    values = np.where(missing, 0, times + shift)
    bits = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(RAW.field("event_time").type, times.size, [bits, pa.py_buffer(values)], -1)


def _unpack(path: str) -> Any:
    """The content of a gzip file as an unnamed temporary file."""
    target = tempfile.TemporaryFile()  # noqa: SIM115  (stays open as long as the mapping)
    try:
        with gzip.open(path, "rb") as source:
            shutil.copyfileobj(source, target, 1 << 20)
    except FileNotFoundError:
        raise ConnectorError(f"no such file: {path}") from None
    except (OSError, EOFError) as error:
        raise ConnectorError(f"{path} cannot be unpacked: {error}") from None
    target.flush()
    target.seek(0)
    return target


def _find(path: str | Path | Sequence[str | Path]) -> list[str]:
    given = [path] if isinstance(path, str | Path) else list(path)
    if not given:
        raise ConfigError("no path given")
    found: list[str] = []
    for item in [os.fspath(g) for g in given]:
        if os.path.isdir(item):
            names = sorted(os.path.join(item, n) for n in os.listdir(item) if not n.startswith("."))
            names = [n for n in names if os.path.isfile(n)]
        elif os.path.exists(item):
            names = [item]
        else:
            names = sorted(n for n in glob.glob(item, recursive=True) if os.path.isfile(n))
        if not names:
            raise ConnectorError(f"no such file: {item}")
        found += names
    return [os.path.abspath(n) for n in found]


def replay(
    path: str | Path | Sequence[str | Path],
    speed: float | None = None,
    rate: float | None = None,
    repeat: int = 1,
    *,
    header: bool = False,
    follow: bool = False,
) -> Source:
    """Read recorded messages from files; see :class:`ReplaySource` for the parameters.

    ``speed`` (event time per wall time: 1 is the original pace, 1000 the benchmark's) or ``rate``
    (messages per second) paces it, see :class:`~riot_ops.streams.pace.Paced`; without either the files
    are read as fast as possible.
    """
    return paced(ReplaySource(path, repeat=repeat, header=header, follow=follow), speed, rate)
