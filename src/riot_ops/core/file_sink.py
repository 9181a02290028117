"""Sinks that write files: their common base, and Parquet."""

from __future__ import annotations

import copy
import os
import re
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Protocol

import pyarrow as pa

from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.parameters import as_timedelta
from riot_ops.core.parquet_file import open_parquet, parquet_writer, read_parquet
from riot_ops.core.paths import local_path, make_folder, sync
from riot_ops.core.sink import Message, Sink, Writer, align_schemas

__all__ = ["HIDDEN", "FileSink", "ParquetSink", "TableWriter", "publish_files"]

#: Rows per row group of a file, and how many batches may wait for one.
ROW_GROUP_ROWS = 131_072
MAX_HELD_BATCHES = 4096


#: Name of the file without rows that represents a stream without records.
EMPTY = "empty"
#: Codecs of Parquet that are compiled into Arrow.
CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "lz4_raw", "zstd")
#: Files of batches that have not been committed. Readers skip hidden names, and patterns such as ``*.parquet`` do not
#: match them.
HIDDEN = ".part-*"
#: Files of batches that wait to be rolled into one have hidden names.
WAITING = ".waiting"


class TableWriter(Protocol):
    """What writes one file."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the file."""

    def write_table(self, table: pa.Table) -> None:
        """Add rows."""

    def close(self) -> None:
        """Finish the file."""


class FileSink(Sink):
    """Writes ``<folder>/<stream>/part-<batch>-<partition>.<suffix>``.

    Effectively once: an atomic rename makes files visible at the commit of their batch, and a second commit of a batch
    replaces its files. A failed batch leaves none, and a crash at most hidden temporary files, which readers skip and
    the next start removes. The sink does not touch files of other streams.

    Parameters
    ----------
    folder : str or Path
        A path or ``file:`` URI; created if missing.
    """

    #: Suffix of the files, without the dot.
    suffix: ClassVar[str]

    def __init__(self, folder: str | Path) -> None:
        self.folder: Path = local_path(folder, "folder").absolute()
        self.schemas: Mapping[str, pa.Schema] | None = None  # None: all streams in the folder

    @abstractmethod
    def open_file(self, path: Path, schema: pa.Schema) -> TableWriter:
        """Create a file."""

    @abstractmethod
    def read_file(self, path: Path, stream: str) -> pa.Table:
        """Read a file; a :class:`ConnectorError` names an unreadable file."""

    def bind(self, schemas: Mapping[str, pa.Schema]) -> FileSink:
        sink = copy.copy(self)
        sink.schemas = dict(schemas)
        return sink

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _FileWriter(self, batch_id, partition)

    def path(self, stream: str, batch_id: int, partition: int) -> Path:
        """Return the path of the committed file of one writer, for a stream in a batch."""
        return self.folder / stream / f"part-{batch_id:06d}-{partition:05d}.{self.suffix}"

    def folders(self) -> list[Path]:
        return [self.folder / stream for stream in sorted(self.schemas or ())]

    def table(self, stream: str) -> pa.Table:
        """Return all records of a stream in committed files; a damaged file raises a :class:`ConnectorError`."""
        paths = [path for _, name, path in self.files() if name == stream]
        empty = (self.folder / stream).glob(f"{EMPTY}.{self.suffix}")
        pieces = [self.read_file(path, stream) for path in paths or empty]
        return pa.concat_tables(align_schemas(pieces)) if pieces else pa.table({})

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        files = [
            (Path(path), self.path(stream, batch_id, message["partition"]), size)
            for message in messages
            for stream, path, size, _ in message["files"]
        ]
        publish_files(batch_id, self.folder, files)
        self._remove(lambda n: n == batch_id, {final for _, final, _ in files})

    def abort(self, batch_id: int) -> None:
        for path in self._glob(HIDDEN):
            with suppress(OSError):  # the next start raises it
                path.unlink(missing_ok=True)

    def sync(self, batch_id: int) -> None:
        try:
            files = [path for number, _, path in self.files() if number == batch_id]
            for path in (*files, *filter(Path.is_dir, self.folders())):
                sync(path)
        except OSError as error:
            raise ConnectorError(f"batch {batch_id} cannot be flushed to disk below {self.folder}: {error}") from error

    def begin(self, overwrite: bool) -> None:
        if self.files() and not overwrite:
            raise ConnectorError(
                f"{self.folder} holds the output of an earlier run: use another folder, "
                "continue with that run's checkpoint, or pass overwrite=True"
            )
        self.recover(0)

    def recover(self, batch_id: int) -> None:
        self._remove(lambda n: n >= batch_id, set())
        for leftover in (HIDDEN, f"{EMPTY}.{self.suffix}"):
            for path in self._glob(leftover):
                path.unlink(missing_ok=True)

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        present = {stream for _, stream, _ in self.files()}
        for stream, schema in schemas.items():
            if stream not in present:
                folder = self.folder / stream
                folder.mkdir(parents=True, exist_ok=True)
                self.open_file(folder / f"{EMPTY}.{self.suffix}", schema).close()

    def files(self) -> list[tuple[int, str, Path]]:
        """Return all committed files as ``(batch, stream, path)`` in order."""
        return self._numbered(f"part-*.{self.suffix}")

    def _numbered(self, pattern: str) -> list[tuple[int, str, Path]]:
        found = []
        for path in self._glob(pattern):
            if number := re.match(r"\.?[a-z]+-(\d+)-", path.name):
                found.append((int(number[1]), path.parent.name, path))
        return sorted(found)

    def _glob(self, pattern: str) -> Iterator[Path]:
        for path in self.folder.glob(f"*/{pattern}"):
            if self.schemas is None or path.parent.name in self.schemas:
                yield path

    def _remove(self, selects: Callable[[int], bool], keep: set[Path]) -> None:
        for number, _, path in self.files():
            if selects(number) and path not in keep:
                path.unlink(missing_ok=True)


class ParquetSink(FileSink):
    """Writes ``<folder>/<stream>/part-<batch>-<partition>.parquet``, effectively once (see :class:`FileSink`).

    By default each batch (an epoch in process, a micro-batch on Spark) becomes visible with its commit, as a file
    per writer: a service with an epoch of ten seconds writes 8,640 files a day. With ``roll_bytes`` or
    ``roll_interval`` the files of committed batches wait under hidden names until they are large or old enough, and
    the next commit makes one file of them. At the end of a run, also by Ctrl-C, what still waits becomes visible;
    after a crash it waits for the run that continues. :meth:`table` reads it, too.

    Parameters
    ----------
    folder : str or Path
        A path or ``file:`` URI; created if missing.
    compression : str, default "snappy"
        Parquet codec, such as ``snappy``, ``zstd`` or ``none``.
    roll_bytes : int, optional
        Size in bytes from which the waiting files of a stream are rolled.
    roll_interval : timedelta or str, optional
        Roll them when the oldest has waited for so long, such as ``"1h"``.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> sink = ParquetSink(folder.name, roll_interval="1h").bind({"out": pa.schema([("value", pa.float64())])})
    >>> for batch in range(3):
    ...     writer = sink.writer(batch, 0)
    ...     writer.write("out", pa.RecordBatch.from_pydict({"value": [float(batch)]}))
    ...     sink.commit(batch, [writer.finish()])
    >>> sink.end({})
    >>> [path.name for _, _, path in sink.files()], sink.table("out")["value"].to_pylist()
    (['part-000001-rolled.parquet', 'part-000002-00000.parquet'], [0.0, 1.0, 2.0])
    >>> folder.cleanup()
    """

    suffix = "parquet"

    def __init__(
        self,
        folder: str | Path,
        compression: str = "snappy",
        *,
        roll_bytes: int | None = None,
        roll_interval: timedelta | str | None = None,
    ) -> None:
        super().__init__(folder)
        if not isinstance(compression, str) or compression.lower() not in CODECS:
            raise ConfigError(f"compression must be one of {', '.join(CODECS)}, got {compression!r}")
        if roll_bytes is not None and (type(roll_bytes) is not int or roll_bytes < 1):
            raise ConfigError(f"roll_bytes must be a number of bytes, 1 or more, got {roll_bytes!r}")
        interval = as_timedelta(roll_interval)
        if interval is not None and (not isinstance(interval, timedelta) or interval <= timedelta(0)):
            raise ConfigError(f"roll_interval must be a positive duration, such as '1h', got {roll_interval!r}")
        self.compression = compression
        self.roll_bytes = roll_bytes
        self.roll_interval = interval

    @property
    def rolls(self) -> bool:
        """Whether the files of several batches become one."""
        return self.roll_bytes is not None or self.roll_interval is not None

    def open_file(self, path: Path, schema: pa.Schema) -> TableWriter:
        writer: TableWriter = parquet_writer(path, schema, self.compression)
        return writer

    def read_file(self, path: Path, stream: str) -> pa.Table:
        return read_parquet(path)

    def path(self, stream: str, batch_id: int, partition: int) -> Path:
        path = super().path(stream, batch_id, partition)
        # without a suffix, since patterns of some programs match hidden names as well
        return path.with_name(path.stem.replace("part", WAITING, 1)) if self.rolls else path

    def files(self) -> list[tuple[int, str, Path]]:
        found = super().files()
        rolled = {stream: number for number, stream, path in found if path.stem.endswith("-rolled")}
        # files that a crash left after they were rolled do not count
        waiting = [one for one in self._waiting() if one[0] > rolled.get(one[1], -1)]
        return sorted(found + waiting)

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        super().commit(batch_id, messages)
        if self.rolls:
            # earlier batches are final: no restart replaces them
            self._roll(lambda number: number < batch_id, self._due)

    def recover(self, batch_id: int) -> None:
        super().recover(batch_id)
        counted = {path for _, _, path in self.files()}
        for _, _, path in self._waiting():
            if path not in counted:
                path.unlink(missing_ok=True)
            elif not self.rolls:  # the run before this one did
                self._show(path)

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        # a query that was stopped may write its last batch again
        last = max((number for number, _, _ in self._waiting()), default=0)
        self._roll(lambda number: number < last, lambda _: True)
        for _, _, path in self._waiting():
            self._show(path)
        super().end(schemas)

    def _waiting(self) -> list[tuple[int, str, Path]]:
        return self._numbered(f"{WAITING}-*")

    def _due(self, paths: Sequence[Path]) -> bool:
        """Whether files are large or old enough to be rolled."""
        found = [path.stat() for path in paths]
        oldest = min(one.st_mtime for one in found)
        return (self.roll_bytes is not None and sum(one.st_size for one in found) >= self.roll_bytes) or (
            self.roll_interval is not None and time.time() - oldest >= self.roll_interval.total_seconds()
        )

    def _show(self, waiting: Path) -> None:
        os.replace(waiting, waiting.with_name(f"{waiting.name.replace(WAITING, 'part', 1)}.{self.suffix}"))

    def _roll(self, final: Callable[[int], bool], due: Callable[[Sequence[Path]], bool]) -> None:
        """Make one file of the waiting ones of each stream that are due."""
        by_stream: dict[str, list[tuple[int, Path]]] = {}
        for number, stream, path in self._waiting():
            if final(number):
                by_stream.setdefault(stream, []).append((number, path))
        for stream, found in by_stream.items():
            paths = [path for _, path in found]
            if due(paths):
                rolled = self.folder / stream / f"part-{found[-1][0]:06d}-rolled.{self.suffix}"
                try:
                    self._merge(paths, rolled)
                except (OSError, pa.ArrowException) as error:
                    raise ConnectorError(
                        f"cannot roll the files of stream {stream!r} into {rolled}: {error}"
                    ) from error
                for path in paths:
                    path.unlink(missing_ok=True)

    def _merge(self, paths: Sequence[Path], into: Path) -> None:
        hidden = into.with_name(f".part-{uuid.uuid4().hex}")
        writer = None
        try:
            for path in paths:
                with open_parquet(path) as file:
                    writer = writer or self.open_file(hidden, file.schema_arrow)
                    for batch in file.iter_batches(ROW_GROUP_ROWS):
                        writer.write_table(*align_schemas([pa.Table.from_batches([batch])], writer.schema))
            assert writer is not None
            writer.close()
            sync(hidden)
            os.replace(hidden, into)
            sync(into.parent)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise


class _FileWriter(Writer):
    """Writes one file per stream; collects batches into row groups of :data:`ROW_GROUP_ROWS`."""

    def __init__(self, sink: FileSink, batch_id: int, partition: int) -> None:
        self._sink = sink
        self._batch_id = batch_id
        self._partition = partition
        self._open: dict[str, tuple[Path, TableWriter]] = {}
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._total: dict[str, int] = {}

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self._held.setdefault(stream, []).append(batch)
        self._rows[stream] = self._rows.get(stream, 0) + batch.num_rows
        self._total[stream] = self._total.get(stream, 0) + batch.num_rows
        if self._rows[stream] >= ROW_GROUP_ROWS or len(self._held[stream]) >= MAX_HELD_BATCHES:
            self._flush(stream)

    def _flush(self, stream: str) -> None:
        batches = self._held.pop(stream)
        self._rows[stream] = 0
        try:
            if stream not in self._open:
                folder = self._sink.folder / stream
                make_folder(folder)
                path = folder / f".part-{uuid.uuid4().hex}"
                try:
                    self._open[stream] = path, self._sink.open_file(path, batches[0].schema)
                except OSError:
                    path.unlink(missing_ok=True)
                    raise
            schema = self._open[stream][1].schema
            self._open[stream][1].write_table(pa.Table.from_batches(align_schemas(batches, schema)))
        except OSError as error:
            raise ConnectorError(f"cannot write stream {stream!r} below {self._sink.folder}: {error}") from error

    def finish(self) -> Message:
        for stream in list(self._held):
            self._flush(stream)
        try:
            for _, file in self._open.values():
                file.close()
            files = [(s, *self._rename(s), self._total[s]) for s in self._open]
        except OSError as error:
            raise ConnectorError(f"cannot finish the files below {self._sink.folder}: {error}") from error
        return {"partition": self._partition, "files": files}

    def _rename(self, stream: str) -> tuple[str, int]:
        """Give a finished file the hidden name that any attempt to write its records gives it; returns it and the size.

        Spark fails a query if a lost task that it runs again returns another message.
        """
        path, file = self._open[stream]
        size = path.stat().st_size
        known = path.with_name(f".part-{self._batch_id:06d}-{self._partition:05d}-{self._total[stream]}-{size}")
        os.replace(path, known)
        self._open[stream] = known, file
        return str(known), size

    def abort(self) -> None:
        for path, file in self._open.values():
            # closing writes buffered data, and so fails on a full disk; the earlier error is raised
            with suppress(OSError, pa.ArrowException):
                file.close()
            with suppress(OSError):
                path.unlink(missing_ok=True)


def publish_files(batch_id: int, folder: Path, files: Sequence[tuple[Path, Path, int]]) -> None:
    """Rename the hidden files of a batch to their final names; each file is given as hidden path, final path and size.

    It checks all files before it renames the first. If a commit is repeated, they have their final names already.
    """
    present = {hidden: _size(hidden) for hidden, _, _ in files}
    for hidden, final, size in files:
        found = _size(final) if present[hidden] is None else present[hidden]
        if found != size:
            what = "is missing" if found is None else f"has {found:,} bytes instead of {size:,}"
            raise ConnectorError(
                f"batch {batch_id} is incomplete: the file {hidden}, which a writer has finished, {what}. "
                f"On a cluster {folder} must be a folder that the driver and all workers share under "
                "this path, and no other program may remove files in it"
            )
    try:
        for hidden, final, _ in files:
            if present[hidden] is not None:
                os.replace(hidden, final)
    except OSError as error:
        raise ConnectorError(f"batch {batch_id} cannot be committed below {folder}: {error}") from error


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
