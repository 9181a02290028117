"""Sinks that write files: their common base, and Parquet."""

from __future__ import annotations

import copy
import os
import re
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from riot_ops.core.checks import check_count
from riot_ops.core.claim import Claim
from riot_ops.core.compaction import (
    CommittedFile,
    check_joined,
    compaction_groups,
    files_changed,
    first_open_batch,
    joined_name,
    joined_span,
    superseded_by_folder,
)
from riot_ops.core.errors import ConfigError, ConnectorError, read_error
from riot_ops.core.file_writer import ROW_GROUP_ROWS, HiddenFileWriter, TableWriter, publish_files
from riot_ops.core.folder_lock import FolderLock
from riot_ops.core.parameters import as_timedelta
from riot_ops.core.parquet_file import open_parquet, parquet_writer, read_parquet
from riot_ops.core.paths import sync
from riot_ops.core.secret import Secret
from riot_ops.core.sink import Message, Sink, Writer, align_schemas
from riot_ops.core.storage import PAUSES, Address, open_place
from riot_ops.core.stored_files import EMPTY, WAITING, Joining, StoredFiles, StoredWriter, earlier_output

__all__ = ["HIDDEN", "FileSink", "ParquetSink", "TableWriter", "publish_files"]

#: Codecs of Parquet that are compiled into Arrow.
CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "lz4_raw", "zstd")
#: Size of the files that :meth:`FileSink.optimize` makes.
TARGET_BYTES = 128 << 20
#: Files of batches that have not been committed. Readers skip hidden names, and patterns such as ``*.parquet`` do not
#: match them.
HIDDEN = ".part-*"


class FileSink(Sink):
    """Writes ``<folder>/<stream>/part-<batch>-<partition>.<suffix>``.

    Effectively once: on a disk an atomic rename makes files visible at the commit of their batch, and a second commit
    of a batch replaces its files. A failed batch leaves none, and a crash at most hidden temporary files, which readers
    skip and the next start removes. The sink does not touch files of other streams.

    An object store has no such rename: writers put files under their final names, and a manifest per batch,
    ``<folder>/_riot_ops/*.json``, lists those that count. :meth:`table` reads only these. Other programs see the files
    of a batch shortly before its commit; a batch that is written again replaces them, and the next start removes what
    no manifest lists.

    By default each batch (an epoch in process, a micro-batch on Spark) becomes visible with its commit, as a file
    per writer: a service with an epoch of ten seconds writes 8,640 files a day. With ``roll_bytes`` or
    ``roll_interval`` the files of committed batches wait under hidden names until they are large or old enough, and
    the next commit makes one file of them. At the end of a run, also by Ctrl-C, what still waits becomes visible;
    after a crash it waits for the run that continues. :meth:`table` reads it, too.

    Parameters
    ----------
    folder : str or Path
        A path, ``file:`` URI, or address such as ``s3://bucket/folder``; created if missing.
    roll_bytes : int, optional
        Size in bytes from which the waiting files of a stream are rolled.
    roll_interval : timedelta or str, optional
        Roll them when the oldest has waited for so long, such as ``"1h"``.
    storage_options : mapping of str to str or Secret, optional
        Settings of an object store, such as ``{"aws_region": "eu-central-1"}``; by default those of the environment.
    """

    #: Suffix of the files, without the dot.
    suffix: ClassVar[str]

    def __init__(
        self,
        folder: str | Path | Address,
        *,
        roll_bytes: int | None = None,
        roll_interval: timedelta | str | None = None,
        storage_options: Mapping[str, str | Secret] | None = None,
    ) -> None:
        self.folder: Path | Address = open_place(folder, storage_options, "folder")
        if roll_bytes is not None and (type(roll_bytes) is not int or roll_bytes < 1):
            raise ConfigError(f"roll_bytes must be a number of bytes, 1 or more, got {roll_bytes!r}")
        interval = as_timedelta(roll_interval)
        if interval is not None and (not isinstance(interval, timedelta) or interval <= timedelta(0)):
            raise ConfigError(f"roll_interval must be a positive duration, such as '1h', got {roll_interval!r}")
        self.roll_bytes = roll_bytes
        self.roll_interval = interval
        self.schemas: Mapping[str, pa.Schema] | None = None  # None: all streams in the folder
        self._claim = self._new_claim(None)

    def _new_claim(self, streams: Iterable[str] | None) -> Claim | None:
        return Claim(self.folder, self.suffix, streams) if isinstance(self.folder, Address) else None

    @abstractmethod
    def open_file(self, path: Path | BinaryIO, schema: pa.Schema) -> TableWriter:
        """Create a file, at a path or in an open one, which stays open."""

    @abstractmethod
    def read_file(self, path: Path | Address, stream: str) -> pa.Table:
        """Read a file; a :class:`ConnectorError` names an unreadable file."""

    @property
    def rolls(self) -> bool:
        """Whether the files of several batches become one."""
        return self.roll_bytes is not None or self.roll_interval is not None

    @abstractmethod
    def join_files(self, parts: Sequence[Path | Address | BinaryIO], into: Path | BinaryIO) -> None:
        """Write the records of files into one, at a path or in an open one, which stays open."""

    def form_of(self, path: Path | Address) -> object:
        """Return what files must have in common to be joined; by default any can be."""
        return None

    def optimize(self, *, target_bytes: int = TARGET_BYTES) -> dict[str, dict[str, int]]:
        """Join small committed files of each stream; the records stay the same.

        Call it on the sink of a run that has ended, or in another process on a sink with the same arguments. The files
        of the last two batches stay, since a run that continues may write them again. On a disk a folder that a run
        writes to is refused. In an object store a run that still writes ends at its next commit, with an error, and
        continues when it is started again.

        Readers of this library see either the old files or the new one, also after a crash; the next start, or the next
        call, then removes what was left. Other programs may see records twice until then.

        Parameters
        ----------
        target_bytes : int, default 134,217,728
            Size of the files to make, in bytes: files are joined as long as they are not larger together.

        Returns
        -------
        dict of str to dict
            By stream, ``numFilesAdded`` and ``numFilesRemoved``.

        Raises
        ------
        ConnectorError
            If a run writes to the folder, or a file cannot be read or written. Nothing is lost then.
        """
        check_count(target_bytes=target_bytes)
        if isinstance(self.folder, Address):
            return self._stored.optimize(target_bytes, self.form_of, self.join_files)
        with FolderLock({path.parent for _, _, path in self._local_files()}):
            return self._optimize_local(target_bytes)

    def _optimize_local(self, target_bytes: int) -> dict[str, dict[str, int]]:
        self._remove_superseded()
        found: dict[str, list[CommittedFile]] = {}
        for number, stream, path in self._local_files():
            if not path.name.startswith(WAITING):
                found.setdefault(stream, []).append(CommittedFile(number, path.stat().st_size, path))
        until = first_open_batch(file.batch for files in found.values() for file in files)
        result = {}
        for stream, files in found.items():
            groups = compaction_groups(files, target_bytes, until, self.form_of)
            for first, members in groups:
                into = members[-1].place.with_name(joined_name(first, members[-1].batch, self.suffix))
                try:
                    self._merge([file.place for file in members], into)
                except (OSError, pa.ArrowException) as error:
                    raise ConnectorError(f"cannot join files of stream {stream!r} into {into}: {error}") from error
                for file in members:
                    file.place.unlink(missing_ok=True)
            result[stream] = files_changed(groups)
        return result

    def _remove_superseded(self) -> None:
        """Remove files that a crash has left after they were joined."""
        counted = {path for _, _, path in self._local_files()}
        for _, _, path in self._numbered(f"part-*.{self.suffix}"):
            if path not in counted:
                path.unlink(missing_ok=True)

    def bind(self, schemas: Mapping[str, pa.Schema]) -> FileSink:
        sink = copy.copy(self)
        sink.__dict__.update(schemas=dict(schemas), _claim=self._new_claim(schemas))
        return sink

    def identify(self, run: str) -> None:
        if self._claim is not None:  # each start is another, also of a run that continues
            self._claim.expected = True

    def writer(self, batch_id: int, partition: int) -> Writer:
        if isinstance(self.folder, Address):
            return StoredWriter(
                self.folder, self.open_file, lambda s: self.path(s, batch_id, partition).name, partition
            )
        return HiddenFileWriter(self.folder, self.open_file, batch_id, partition)

    def path(self, stream: str, batch_id: int, partition: int) -> Path | Address:
        """Return the path of the committed file of one writer, for a stream in a batch."""
        # waiting ones have no suffix, since patterns of some programs match hidden names as well
        name = f"{batch_id:06d}-{partition:05d}"
        if self._claim is not None:  # a run that another has replaced may still write
            name = f"{name}-{self._claim.token}"
        return self.folder / stream / (f"{WAITING}-{name}" if self.rolls else f"part-{name}.{self.suffix}")

    def folders(self) -> list[Path]:
        if isinstance(self.folder, Address):
            return []
        return [self.folder / stream for stream in sorted(self.schemas or ())]

    def worker_folders(self) -> list[Path]:
        return [self.folder] if isinstance(self.folder, Path) and self.folders() else []

    def table(self, stream: str) -> pa.Table:
        """Return all records of a stream in committed files; a damaged file raises a :class:`ConnectorError`."""
        before = None
        while True:
            paths = [path for _, name, path in self.files() if name == stream]
            try:
                pieces = [self._read(path, stream) for path in paths or self._empty(stream)]
            except ConnectorError:
                if paths == before:
                    raise
                before = paths  # files may be joined while they are read
                continue
            return pa.concat_tables(align_schemas(pieces)) if pieces else pa.table({})

    def _read(self, path: Path | Address, stream: str) -> pa.Table:
        """Read a file, again after a failure of the store that may pass."""
        for pause in PAUSES if isinstance(path, Address) else ():
            try:
                return self.read_file(path, stream)
            except ConnectorError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or isinstance(cause, FileNotFoundError):
                    raise
                time.sleep(pause)
        return self.read_file(path, stream)

    def _empty(self, stream: str) -> list[Path | Address]:
        name = f"{EMPTY}.{self.suffix}"
        if isinstance(self.folder, Address):
            place = self.folder / stream / name
            return [] if place.size() is None else [place]
        return list((self.folder / stream).glob(name))

    @property
    def _stored(self) -> StoredFiles:
        """The files in an object store."""
        assert isinstance(self.folder, Address)
        joining = Joining(self.roll_bytes, self.roll_interval, self.join_files) if self.rolls else None
        return StoredFiles(self.folder, self.suffix, self.schemas, self.open_file, joining, self._claim)

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        if isinstance(self.folder, Address):
            self._stored.commit(batch_id, messages)
            return
        files = [
            (Path(path), _local(self.path(stream, batch_id, message["partition"])), size)
            for message in messages
            for stream, path, size, _ in message["files"]
        ]
        publish_files(batch_id, self.folder, files)
        self._remove(lambda n: n == batch_id, {final for _, final, _ in files})
        if self.rolls:  # earlier batches are final: no restart replaces them
            self._roll(lambda number: number < batch_id, self._due)

    def abort(self, batch_id: int) -> None:
        if isinstance(self.folder, Address):
            return  # the next attempt replaces its files, or the next start removes them
        for path in self._glob(HIDDEN):
            with suppress(OSError):  # the next start raises it
                path.unlink(missing_ok=True)

    def sync(self, batch_id: int) -> None:
        if isinstance(self.folder, Address):
            return  # a store keeps what it has accepted
        try:
            files = [path for number, _, path in self._local_files() if number == batch_id]
            for path in (*files, *filter(Path.is_dir, self.folders())):
                sync(path)
        except OSError as error:
            raise ConnectorError(f"batch {batch_id} cannot be flushed to disk below {self.folder}: {error}") from error

    def begin(self, overwrite: bool) -> None:
        if isinstance(self.folder, Address):
            self._stored.begin(overwrite)
            return
        if self.files() and not overwrite:
            raise ConnectorError(earlier_output(self.folder))
        self.recover(0)

    def recover(self, batch_id: int) -> None:
        if isinstance(self.folder, Address):
            self._stored.recover(batch_id)
            return
        spans = [(path, *span) for _, _, path in self._local_files() if (span := joined_span(path.name))]
        check_joined(batch_id, spans)
        self._remove_superseded()
        self._remove(lambda n: n >= batch_id, set())
        for leftover in (HIDDEN, f"{EMPTY}.{self.suffix}"):
            for path in self._glob(leftover):
                path.unlink(missing_ok=True)
        counted = {path for _, _, path in self.files()}
        for _, _, path in self._waiting():
            if path not in counted:
                path.unlink(missing_ok=True)
            elif not self.rolls:  # the run before this one did
                self._show(path)

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        if isinstance(self.folder, Address):
            self._stored.end(schemas)
            return
        # a query that was stopped may write its last batch again
        last = max((number for number, _, _ in self._waiting()), default=0)
        self._roll(lambda number: number < last, lambda _: True)
        for _, _, path in self._waiting():
            self._show(path)
        present = {stream for _, stream, _ in self.files()}
        for stream, schema in schemas.items():
            if stream not in present:
                folder = self.folder / stream
                folder.mkdir(parents=True, exist_ok=True)
                self.open_file(folder / f"{EMPTY}.{self.suffix}", schema).close()

    def files(self) -> list[tuple[int, str, Any]]:
        """Return all committed files as ``(batch, stream, path)`` in order; in an object store with their address."""
        if isinstance(self.folder, Address):
            return self._stored.files()
        return self._local_files()

    def _local_files(self) -> list[tuple[int, str, Path]]:
        found = self._numbered(f"part-*.{self.suffix}")
        joined = superseded_by_folder(path for _, _, path in found)
        found = [one for one in found if one[2] not in joined]
        rolled = {stream: number for number, stream, path in found if "-rolled" in path.stem or "-joined-" in path.stem}
        # files that a crash left after they were rolled do not count
        waiting = [one for one in self._waiting() if one[0] > rolled.get(one[1], -1)]
        return sorted(found + waiting)

    def _numbered(self, pattern: str) -> list[tuple[int, str, Path]]:
        found = []
        for path in self._glob(pattern):
            if number := re.match(r"\.?[a-z]+-(\d+)-", path.name):
                found.append((int(number[1]), path.parent.name, path))
        return sorted(found)

    def _glob(self, pattern: str) -> Iterator[Path]:
        for path in _local(self.folder).glob(f"*/{pattern}"):
            if self.schemas is None or path.parent.name in self.schemas:
                yield path

    def _remove(self, selects: Callable[[int], bool], keep: set[Path]) -> None:
        for number, _, path in self.files():
            if selects(number) and path not in keep:
                path.unlink(missing_ok=True)

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
                rolled = _local(self.folder) / stream / f"part-{found[-1][0]:06d}-rolled.{self.suffix}"
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
        try:
            self.join_files(paths, hidden)
            sync(hidden)
            os.replace(hidden, into)
            sync(into.parent)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise


class ParquetSink(FileSink):
    """Writes ``<folder>/<stream>/part-<batch>-<partition>.parquet``, effectively once (see :class:`FileSink`).

    Parameters
    ----------
    folder : str or Path
        A path, ``file:`` URI, or address such as ``s3://bucket/folder``; created if missing.
    compression : str, default "snappy"
        Parquet codec, such as ``snappy``, ``zstd`` or ``none``.
    roll_bytes : int, optional
        Size in bytes from which the waiting files of a stream are rolled.
    roll_interval : timedelta or str, optional
        Roll them when the oldest has waited for so long, such as ``"1h"``.
    storage_options : mapping of str to str or Secret, optional
        Settings of an object store; by default those of the environment.

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
        folder: str | Path | Address,
        compression: str = "snappy",
        *,
        roll_bytes: int | None = None,
        roll_interval: timedelta | str | None = None,
        storage_options: Mapping[str, str | Secret] | None = None,
    ) -> None:
        super().__init__(folder, roll_bytes=roll_bytes, roll_interval=roll_interval, storage_options=storage_options)
        if not isinstance(compression, str) or compression.lower() not in CODECS:
            raise ConfigError(f"compression must be one of {', '.join(CODECS)}, got {compression!r}")
        self.compression = compression

    def open_file(self, path: Path | BinaryIO, schema: pa.Schema) -> TableWriter:
        writer: TableWriter = parquet_writer(path, schema, self.compression)
        return writer

    def read_file(self, path: Path | Address, stream: str) -> pa.Table:
        return read_parquet(path)

    def join_files(self, parts: Sequence[Path | Address | BinaryIO], into: Path | BinaryIO) -> None:
        writer = None
        held: list[pa.Table] = []  # row groups of small files would be small
        for part in parts:
            with open_parquet(part) as file:
                writer = writer or self.open_file(into, file.schema_arrow)
                for batch in file.iter_batches(ROW_GROUP_ROWS):
                    held += align_schemas([pa.Table.from_batches([batch])], writer.schema)
                    if sum(table.num_rows for table in held) >= ROW_GROUP_ROWS:
                        writer.write_table(pa.concat_tables(held))
                        held = []
        assert writer is not None
        if held:
            writer.write_table(pa.concat_tables(held))
        writer.close()

    def form_of(self, path: Path | Address) -> object:
        try:
            with open_parquet(path) as file:
                return file.schema_arrow.remove_metadata()
        except (pa.ArrowException, OSError) as error:
            raise read_error(path, error) from error


def _local(path: Path | Address) -> Path:
    assert isinstance(path, Path)
    return path
