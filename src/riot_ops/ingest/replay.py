"""Replay of recorded streams from files of lines."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.checks import check_count
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.operator import StatelessOperator
from riot_ops.core.paths import local_path
from riot_ops.core.schema import RAW, TIMESTAMP
from riot_ops.core.source import Offset, Source, Split
from riot_ops.ingest.line_file import LineFile, null_times, time_column
from riot_ops.ingest.pace import TimedSource, paced
from riot_ops.ingest.replay_kernels import NO_TIME
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.timestamps import microseconds

Positions = npt.NDArray[np.int64]

__all__ = ["ReplaySource", "find_files", "replay"]


class ReplaySource(TimedSource):
    r"""Read recorded messages, one per line: ``<ms since the epoch>,<message>``.

    The payload of a record is its whole line, unchanged, with the time and the line break; it is not copied from the
    memory-mapped file. The event time is the leading number (null if there is none), ``seq`` the number of the line
    over all files. No line is skipped, neither the first nor an empty one (parsers send those to the errors stream). A
    UTF-8 byte order mark at the beginning of a file does not belong to its first line.

    Parameters
    ----------
    path : str, Path, glob pattern, or a list of those
        Files are read in sorted order within a pattern or folder; files whose name ends in ``.gz`` are unpacked to a
        temporary file at first use.
    repeat : int, >= 1, default 1
        How many times to read all files; each time the event times advance by the recorded span plus 1 s (the payload
        does not change) and ``seq`` continues.
    header : bool, default False
        Skip the first line of each file.
    follow : bool, default False
        Wait for more lines in the last file (the list of files is fixed). Only complete lines are read.
    times : task without state, optional
        Parses the times of lines of another format into records with ``seq`` and ``event_time``, such as
        :class:`riot_ops.tasks.ParseLines`. Pacing uses these times; the records have no event time, which the parser of
        the dataflow adds.

    Errors
    ------
    A missing or truncated file raises :class:`ConnectorError` with its name.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "two.csv"
    >>> _ = file.write_text("1000,a\n2000,b\n")
    >>> source = ReplaySource(file)
    >>> end = source.latest(source.initial())
    >>> end
    {'file': 0, 'byte': 14, 'line': 2}
    >>> [part] = source.splits(source.initial(), end, 1)
    >>> next(source.read(part)).column("payload").to_pylist()
    [b'1000,a\n', b'2000,b\n']
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        *,
        repeat: int = 1,
        header: bool = False,
        follow: bool = False,
        times: StatelessOperator | None = None,
    ) -> None:
        check_count(repeat=repeat)
        self.paths = find_files(path)
        if follow and (repeat > 1 or self.paths[-1].endswith(".gz")):
            raise ConfigError("follow cannot be combined with repeat or with a compressed file")
        self.repeat = repeat
        self.header = bool(header)
        self.follow = bool(follow)
        self.times = times
        self._files: dict[int, LineFile] = {}
        self._step: int | None = None
        self._sizes = [-1 if p.endswith(".gz") else os.path.getsize(p) for p in self.paths]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}

    @property
    def schema(self) -> pa.Schema:
        return RAW

    def description(self) -> dict[str, Any]:
        return {
            "source": self.name(),
            "paths": [os.path.abspath(path) for path in self.paths],
            "repeat": self.repeat,
            "header": self.header,
            "follow": self.follow,
            "times": None if self.times is None else self.times.to_dict(),
        }

    # -- files -------------------------------------------------------------------------------------

    def _file(self, number: int) -> LineFile:
        """The open file with this number, which counts on through the repetitions."""
        i = number % len(self.paths)
        file = self._files.get(i)
        if file is None:
            file = self._files[i] = LineFile(self.paths[i], self._sizes[i], self.header)
            self._sizes[i] = file.size
        return file

    @property
    def _count(self) -> int:
        return len(self.paths) * self.repeat

    def _open_ended(self, number: int) -> bool:
        return self.follow and number == len(self.paths) - 1

    def _offset(self, number: int, byte: int, line: int) -> Offset:
        """The canonical offset: the end of a file is the beginning of the next.

        The end of the last file is kept, so that a later run continues there if the file has grown.
        """
        last = self._count - 1
        if number > last:
            number, byte = last, self._file(last).size
        while number < last and max(byte, self._file(number).first) >= self._file(number).size:
            number, byte = number + 1, 0
        byte = max(byte, self._file(number).first)
        return {"file": number, "byte": byte, "line": line}

    def _times(self, file: LineFile, starts: Positions, ends: Positions) -> Positions:
        """The event times of lines in microseconds, for pacing."""
        if self.times is None:
            return file.times(starts, ends)
        found = np.full(starts.size, NO_TIME)
        lines = pa.RecordBatch.from_arrays(
            [pa.array(np.arange(starts.size)), pa.nulls(starts.size, TIMESTAMP), file.column(starts, ends)], schema=RAW
        )
        for parsed in self.times.batches(lines, DeadLetters("times")):
            times, present = microseconds(parsed.column("event_time"))
            found[int_column(parsed.column("seq"))[present]] = times[present]
        return found

    def _shift(self, number: int) -> int:
        """The offset in µs that a repetition adds to event times."""
        rounds = number // len(self.paths)
        if rounds == 0:
            return 0
        if self._step is None:
            low, high = np.iinfo(np.int64).max, NO_TIME
            for i in range(len(self.paths)):
                file = self._file(i)
                for ends, starts in file.chunks(file.first, file.size):
                    times = self._times(file, starts, ends)
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
        remaining = limit
        while number < self._count and remaining != 0:
            file = self._file(number)
            if self._open_ended(number):
                self._sizes[number % len(self.paths)] = file.grow()
            byte, lines = file.skip(max(byte, file.first), remaining, whole=self._open_ended(number))
            line += lines
            remaining = None if remaining is None else remaining - lines
            if byte < file.size or self._open_ended(number):
                break
            number, byte = number + 1, 0
        return self._offset(number, byte, line)

    def finished(self, offset: Offset) -> bool:
        number = offset["file"]
        return number == self._count - 1 and not self._open_ended(number) and offset["byte"] >= self._file(number).size

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
                if self.times is not None or file.timeless(starts, ends):
                    times = null_times(n)
                else:
                    times = time_column(file.times(starts, ends), part["shift"])
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(np.arange(line, line + n)),
                        times,
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
        value = int(self._times(file, starts[:1], ends[:1])[0])
        return None if value == NO_TIME else value + self._shift(number)

    def until(self, start: Offset, event_time: int, limit: int | None = None) -> Offset:
        number, byte, line = start["file"], start["byte"], start["line"]
        remaining = limit
        while number < self._count and remaining != 0:
            file = self._file(number)
            if self._open_ended(number):
                self._sizes[number % len(self.paths)] = file.grow()
            byte = max(byte, file.first)
            shift = self._shift(number)
            for ends, starts in file.chunks(byte, file.size, remaining, whole=self._open_ended(number)):
                late = np.flatnonzero(self._times(file, starts, ends) > event_time - shift)
                n = int(late[0]) if late.size else ends.size
                byte, line = (int(ends[n - 1]) if n else byte), line + n
                remaining = None if remaining is None else remaining - n
                if late.size or remaining == 0:
                    return self._offset(number, byte, line)
            if self._open_ended(number):
                break
            number, byte = number + 1, 0
        return self._offset(number, byte, line)

    def close(self) -> None:
        """Release the files; each is unmapped when the last batch over it is deleted."""
        self._files.clear()


def find_files(path: str | Path | Sequence[str | Path]) -> list[str]:
    """Find the files of a path, folder or glob pattern, or of a list of those, in sorted order within each."""
    paths = [path] if isinstance(path, str | Path) else list(path)
    if not paths:
        raise ConfigError("no path given")
    found: list[str] = []
    for item in [str(local_path(p)) for p in paths]:
        if os.path.isdir(item):
            names = sorted(os.path.join(item, n) for n in os.listdir(item) if not n.startswith("."))
            names = [n for n in names if os.path.isfile(n)]
        elif os.path.exists(item):
            names = [item]
        else:
            names = sorted(n for n in glob.glob(item, recursive=True) if os.path.isfile(n))
        if not names:
            empty = os.path.isdir(item)
            raise ConnectorError(f"the folder {item} holds no files" if empty else f"no such file: {item}")
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
    times: StatelessOperator | None = None,
) -> Source:
    """Read recorded messages from files; see :class:`ReplaySource` for the parameters.

    ``speed`` (event time per wall time: 1 is the original pace, RIoTBench uses 1000) or ``rate`` (messages per second)
    paces it, see :class:`~riot_ops.ingest.pace.PacedSource`; without either the files are read as fast as possible.
    """
    return paced(ReplaySource(path, repeat=repeat, header=header, follow=follow, times=times), speed, rate)
