"""Replay of recorded streams from files of lines."""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.casting import Problem
from riot_ops.core.checks import check_count, check_encoding
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.core.file_paths import (
    StorageOptions,
    absolute_path,
    file_size,
    is_remote,
    list_files,
    path_in_store,
    readable_path,
)
from riot_ops.core.operator import StatelessOperator
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import RAW, TIMESTAMP
from riot_ops.core.secret import Secret
from riot_ops.core.source import Offset, Source, Split
from riot_ops.ingest.file_positions import FilePosition, ReadFile, describe_origin, parts_between, read_file
from riot_ops.ingest.line_file import LineFile, null_times, time_column
from riot_ops.ingest.line_time import LineTime
from riot_ops.ingest.pace import TimedSource, paced
from riot_ops.ingest.replay_kernels import NO_TIME
from riot_ops.ingest.step import mark_rejected
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.kernels.text.encodings import to_utf8

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
    path : str, Path, folder, glob pattern, address such as ``s3://bucket/folder``, or a list of those
        Files are read in sorted order within a pattern or folder; files whose name ends in ``.gz`` are unpacked to a
        temporary file at first use.
    repeat : int, >= 1, default 1
        How many times to read all files; each time the event times advance by the recorded span plus 1 s, and ``seq``
        continues. The leading number of a line advances in the payload as well, with equal numbers of ten digits or
        more, such as the base time of SenML. Times in other formats advance if ``times`` is a :class:`LineTime`, dates
        by whole days; otherwise they do not change, and a dataflow that parses them gets late records.
    has_header : bool, default False
        Skip the first line of each file.
    follow : bool, default False
        Wait for more lines in the last file (the list of files is fixed). Only complete lines are read.
    encoding : str, default "utf-8"
        Encoding of the lines, by a name that Python knows, such as "latin-1"; other encodings than UTF-8 must have the
        line break of ASCII. The payload is UTF-8; a line that cannot be decoded goes to the errors stream as
        ``invalid_encoding``. UTF-8 is not checked here, but by parsers.
    times : LineTime or task without state, optional
        Where and how lines of another format write their time; the generated streams have theirs as ``line_time``. Or a
        task that parses lines into records with ``seq`` and ``event_time``, such as
        :class:`riot_ops.tasks.ParseLines`. Pacing uses these times; the records have no event time, which the parser of
        the dataflow adds.
    storage_options : mapping of str to str or Secret, optional
        Settings of the object store by name, such as ``aws_region``; by default those of the environment. They travel
        to the workers with the source, and nothing shows them.

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
    >>> end["line"], source.finished(end)
    (2, True)
    >>> [part] = source.splits(source.initial(), end, 1)
    >>> next(source.read(part)).column("payload").to_pylist()
    [b'1000,a\n', b'2000,b\n']
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        *,
        repeat: int = 1,
        has_header: bool = False,
        follow: bool = False,
        encoding: str = "utf-8",
        times: LineTime | StatelessOperator | None = None,
        storage_options: Mapping[str, str | Secret] | None = None,
    ) -> None:
        check_count(repeat=repeat)
        check_encoding(encoding, of_lines=True)
        self._storage_options = storage_options
        self.paths: list[str] = find_files(path, storage_options)
        self._origin = describe_origin(map(readable_path, [path] if isinstance(path, str | Path) else path))
        if follow and (repeat > 1 or self.paths[-1].endswith(".gz")):
            raise ConfigError("follow cannot be combined with repeat or with a compressed file")
        if follow and is_remote(self.paths[-1]):
            raise ConfigError(f"follow needs a file on this machine, and {self.paths[-1]} is an address")
        self.repeat = repeat
        self.has_header: bool = bool(has_header)
        self.follow: bool = bool(follow)
        self.encoding = encoding
        self.times = times
        self._files: dict[str, LineFile] = {}
        self._step: int | None = None
        self._sizes = {p: -1 if p.endswith(".gz") else file_size(p) for p in self.paths}
        self._reset()

    def _reset(self) -> None:
        #: The position that the order follows; before it, files of this order were read by an earlier run.
        self._before = FilePosition(self._origin, {})
        #: The files in the order of their numbers, each with the bytes that an earlier run has read.
        self._order: list[tuple[str, int]] = [(path, 0) for path in self.paths]
        #: Number of the first file of this order that the position does not contain.
        self._first_number = 0
        #: By number, the identity of a file that was read to its end.
        self._whole: dict[int, ReadFile] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}, "_whole": {}}

    @property
    def schema(self) -> pa.Schema:
        return RAW

    def local_files(self) -> list[str]:
        return [path for path in self.paths if not is_remote(path)]

    def description(self) -> dict[str, Any]:
        return {
            "source": self.name(),
            "paths": [absolute_path(path) for path in self.paths],
            "repeat": self.repeat,
            "has_header": self.has_header,
            "follow": self.follow,
            "encoding": self.encoding,
            "times": None if self.times is None else self.times.to_dict(),
        }

    # -- files -------------------------------------------------------------------------------------

    def _open(self, path: str) -> LineFile:
        file = self._files.get(path)
        if file is None:
            place = path_in_store(path, self._storage_options)
            file = self._files[path] = LineFile(place, self._sizes.get(path, -1), self.has_header)
            self._sizes[path] = file.size
        return file

    def _path(self, number: int) -> str:
        return self._order[number % len(self._order)][0]

    def _file(self, number: int) -> LineFile:
        """Return the open file with this number, which counts on through the repetitions."""
        return self._open(self._path(number))

    def _begin(self, number: int) -> int:
        """Return the first byte of a file that is to be read."""
        return max(self._file(number).first, self._order[number % len(self._order)][1])

    def _grow(self, number: int) -> None:
        """Look for lines that were appended to a file."""
        self._sizes[self._path(number)] = self._file(number).grow()

    @property
    def _count(self) -> int:
        return len(self._order) * self.repeat

    def _open_ended(self, number: int) -> bool:
        return self.follow and number == len(self._order) - 1

    def _offset(self, number: int, byte: int, line: int) -> Offset:
        """Return the canonical offset: the end of a file is the beginning of the next."""
        while number < self._count and not self._open_ended(number):
            byte = max(byte, self._begin(number))
            if byte < self._file(number).size:
                break
            number, byte = number + 1, 0
        if number == 0 and byte <= self._begin(0):
            return {"file": 0, "byte": 0, "line": 0}
        byte = max(byte, self._begin(number)) if number < self._count else 0
        return {"file": number, "byte": byte, "line": line, **self._position(number, byte)}

    # -- positions ---------------------------------------------------------------------------------

    def _position(self, number: int, byte: int) -> dict[str, Any]:
        """Return the fields of an offset that identify the read files."""
        within = number < self._count and byte > self._begin(number)
        if self.repeat > 1:
            return {"of": self._origin, "all": self._all_files} if number or within else {}
        position = self._before.after(map(self._whole_file, range(self._first_number, number)))
        if within:
            position = replace(position, path=self._path(number), current=self._read_file(number, byte))
        return position.to_offset() if position.done or within else {}

    def _whole_file(self, number: int) -> ReadFile:
        if number not in self._whole:
            self._whole[number] = self._read_file(number, self._file(number).size)
        return self._whole[number]

    def _read_file(self, number: int, byte: int) -> ReadFile:
        path = self._path(number)
        return read_file(path, None if path.endswith(".gz") else byte, byte)

    @cached_property
    def _all_files(self) -> str:
        """Hash of all files, which must not change while they are repeated."""
        return hashlib.blake2b(b"".join(read_file(path).to_bytes() for path in self.paths), digest_size=6).hexdigest()

    def _adopt(self, offset: Offset) -> None:
        """Take the order of files of an offset, which may come from an earlier run over other files."""
        number, byte = offset["file"], offset["byte"]
        fields = _fields(offset)
        if self.repeat > 1:
            if fields and fields.get("all") != self._all_files:
                raise StateError(
                    f"the files of {self._origin} are not those of the checkpoint, and must not change while they are "
                    "repeated; use a new checkpoint"
                )
            return
        if self._first_number <= number <= self._count:
            with contextlib.suppress(ConnectorError):  # another file has this number here
                if fields == self._position(number, byte):
                    return
        if not fields and offset["line"]:
            raise StateError(f"the position in {self._origin} names no file; use a new checkpoint")
        position = FilePosition.from_offset(fields, self._origin)
        self._reset()
        self._order = [("", 0)] * number + position.unread(self.paths, self._origin)
        self._first_number = number
        self._before = FilePosition(self._origin, position.done)

    def _times(self, file: LineFile, starts: Positions, ends: Positions) -> Positions:
        """Return the event times of lines in microseconds, for pacing."""
        if self.times is None:
            return file.times(starts, ends)
        if isinstance(self.times, LineTime):
            return self.times.read(file.column(starts, ends))
        found = np.full(starts.size, NO_TIME)
        lines = pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(starts.size)),
                pa.nulls(starts.size, TIMESTAMP),
                to_utf8(file.column(starts, ends), self.encoding)[0],
            ],
            schema=RAW,
        )
        for parsed in self.times.batches(lines, RejectedRecords("times")):
            times, present = microseconds(parsed.column("event_time"))
            found[int_column(parsed.column("seq"))[present]] = times[present]
        return found

    def _shift(self, number: int) -> int:
        """Return the offset in µs that a repetition adds to event times."""
        rounds = number // len(self._order)
        if rounds == 0:
            return 0
        if self._step is None:
            low, high = np.iinfo(np.int64).max, NO_TIME
            for path in self.paths:
                file = self._open(path)
                for ends, starts in file.chunks(file.first, file.size):
                    times = self._times(file, starts, ends)
                    times = times[times != NO_TIME]
                    if times.size:
                        low, high = min(low, int(times.min())), max(high, int(times.max()))
            step = max(high - low, 0) + 1_000_000 if high != NO_TIME else 0
            unit = self.times.step if isinstance(self.times, LineTime) else 1
            self._step = -(-step // unit) * unit
        return rounds * self._step

    # -- source ------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        fresh = copy.copy(self)
        fresh._reset()  # noqa: SLF001 (of the copy): the order of another offset has no place for it
        return fresh._offset(0, 0, 0)  # noqa: SLF001

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        self._adopt(start)
        number, byte, line = start["file"], start["byte"], start["line"]
        remaining = limit
        while number < self._count and remaining != 0:
            if self._open_ended(number):
                self._grow(number)
            file = self._file(number)
            byte, lines = file.skip(max(byte, self._begin(number)), remaining, whole=self._open_ended(number))
            line += lines
            remaining = None if remaining is None else remaining - lines
            if byte < file.size or self._open_ended(number):
                break
            number, byte = number + 1, 0
        return self._offset(number, byte, line)

    def finished(self, offset: Offset) -> bool:
        self._adopt(offset)
        return bool(self._offset(offset["file"], offset["byte"], offset["line"])["file"] >= self._count)

    def _pieces(self, start: Offset, end: Offset) -> list[dict[str, Any]]:
        """Return the parts of files in a range."""
        parts: list[tuple[str, int, int, int]] = []
        if self.repeat > 1:
            for number in range(start["file"], min(end["file"] + 1, self._count)):
                byte = start["byte"] if number == start["file"] else 0
                stop = end["byte"] if number == end["file"] else self._file(number).size
                parts.append((self._path(number), byte, stop, self._shift(number)))
        else:
            known = parts_between(_fields(start), _fields(end), self.paths, self._origin)
            parts += [(path, byte, stop, 0) for path, byte, stop in known]
        pieces, line = [], start["line"]
        for path, byte, stop, shift in parts:
            file = self._open(path)
            byte = max(byte, file.first)
            if byte < stop:
                pieces.append({"path": str(path), "start": byte, "end": stop, "line": line, "shift": shift})
                line += file.count(byte, stop)
        return pieces

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        self._adopt(end)
        pieces = self._pieces(start, end)
        total = sum(p["end"] - p["start"] for p in pieces)
        found: list[Split] = []
        done = 0
        for i in range(1, n + 1):
            parts: list[dict[str, Any]] = []
            while pieces and done < total * i // n:
                piece, room = pieces[0], total * i // n - done
                if piece["end"] - piece["start"] <= room:
                    parts.append(pieces.pop(0))
                else:
                    file = self._open(piece["path"])
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
            file = self._open(part["path"])
            if part["end"] > file.size:
                self._sizes[file.path] = file.grow()
            if part["end"] > file.size:
                raise ConnectorError(f"{file.path} has {file.size} bytes, fewer than the {part['end']} it had")
            line = part["line"]
            for ends, starts in file.chunks(part["start"], part["end"]):
                n = ends.size
                if self.times is not None or file.timeless(starts, ends):
                    times, raw = null_times(n), file.column(starts, ends)
                    if part["shift"] and isinstance(self.times, LineTime):
                        raw = self.times.shift(raw, part["shift"])
                else:
                    found = file.times(starts, ends)
                    times = time_column(found, part["shift"])
                    if part["shift"]:
                        raw = file.shifted_column(starts, ends, found, part["shift"])
                    else:
                        raw = file.column(starts, ends)
                batch = pa.RecordBatch.from_arrays([pa.array(np.arange(line, line + n)), times, raw], schema=RAW)
                payload, wrong = to_utf8(raw, self.encoding)
                if payload is not raw:
                    problem = Problem("invalid_encoding", f"the line is not {self.encoding}")
                    batch = mark_rejected(batch, dict.fromkeys(np.flatnonzero(wrong).tolist(), problem))
                    batch = batch.set_column(RAW.get_field_index("payload"), RAW.field("payload"), payload)
                yield batch
                line += n

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["line"] - start["line"])

    def time_at(self, offset: Offset) -> int | None:
        self._adopt(offset)
        number, byte = offset["file"], offset["byte"]
        if number >= self._count:
            return None
        if self._open_ended(number):
            self._grow(number)
        file = self._file(number)
        found = next(iter(file.chunks(max(byte, self._begin(number)), file.size, 1)), None)
        if found is None:
            return None
        ends, starts = found
        value = int(self._times(file, starts[:1], ends[:1])[0])
        return None if value == NO_TIME else value + self._shift(number)

    def until(self, start: Offset, event_time: int, limit: int | None = None) -> Offset:
        self._adopt(start)
        number, byte, line = start["file"], start["byte"], start["line"]
        remaining = limit
        while number < self._count and remaining != 0:
            if self._open_ended(number):
                self._grow(number)
            file = self._file(number)
            byte = max(byte, self._begin(number))
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


def _fields(offset: Offset) -> Offset:
    """Return the fields of an offset that identify the read files."""
    return {name: offset[name] for name in ("of", "read", "path", "as", "all") if name in offset}


def find_files(path: str | Path | Sequence[str | Path], options: StorageOptions | None = None) -> list[str]:
    """Find the files of a path, folder or glob pattern, or of a list of those, in sorted order within each."""
    paths = [path] if isinstance(path, str | Path) else list(path)
    if not paths:
        raise ConfigError("no path given")
    found: list[str] = []
    for item in paths:
        found += list_files(readable_path(item, options=options))
    return found


def replay(
    path: str | Path | Sequence[str | Path],
    speed: float | None = None,
    rate: float | None = None,
    repeat: int = 1,
    *,
    has_header: bool = False,
    follow: bool = False,
    encoding: str = "utf-8",
    times: LineTime | StatelessOperator | None = None,
    storage_options: Mapping[str, str | Secret] | None = None,
) -> Source:
    r"""Read recorded messages from files; see :class:`ReplaySource` for the parameters.

    ``speed`` (event time per wall time: 1 is the original pace, RIoTBench uses 1000) or ``rate`` (messages per second)
    paces it, see :class:`~riot_ops.ingest.pace.PacedSource`; without either the files are read as fast as possible.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("lines")
    >>> _ = flow.sink("out", flow.source("city"))
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "two.csv")
    ...     _ = path.write_text("1443033000000,first\n1443033001000,second\n")
    ...     result = flow.run(ro.streams.replay(path, repeat=2))
    >>> result["city"]["payload"].to_pylist()
    [b'1443033000000,first\n', b'1443033001000,second\n', b'1443033002000,first\n', b'1443033003000,second\n']
    """
    source = ReplaySource(
        path,
        repeat=repeat,
        has_header=has_header,
        follow=follow,
        encoding=encoding,
        times=times,
        storage_options=storage_options,
    )
    return paced(source, speed, rate)
