"""Writers of files: what is held until it makes a row group, hidden files, and their names at the commit."""

from __future__ import annotations

import os
import uuid
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from riot_ops.core.errors import ConnectorError
from riot_ops.core.paths import make_folder
from riot_ops.core.sink import Message, Writer, align_schemas

__all__ = [
    "MAX_HELD_BATCHES",
    "ROW_GROUP_ROWS",
    "BufferedWriter",
    "HiddenFileWriter",
    "OpenFile",
    "TableWriter",
    "publish_files",
]

#: Rows per row group of a file, and how many batches may wait for one.
ROW_GROUP_ROWS = 131_072
MAX_HELD_BATCHES = 4096


class TableWriter(Protocol):
    """What writes one file."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the file."""

    def write_table(self, table: pa.Table) -> None:
        """Add rows."""

    def close(self) -> None:
        """Finish the file."""


#: Creates a file, at a path or in an open one, which stays open.
OpenFile = Callable[[Path | BinaryIO, pa.Schema], TableWriter]


class BufferedWriter(Writer):
    """Writes one file per stream; collects batches into row groups of :data:`ROW_GROUP_ROWS`.

    Parameters
    ----------
    folder : path or address
        Where the files will be; for messages.
    open_file : function
        Creates a file.
    partition : int
        The number of the writer in its batch.
    """

    def __init__(self, folder: Any, open_file: OpenFile, partition: int) -> None:
        self._folder = folder
        self._open_file = open_file
        self._partition = partition
        self._open: dict[str, tuple[Any, TableWriter]] = {}
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._total: dict[str, int] = {}

    @abstractmethod
    def _create(self, stream: str, schema: pa.Schema) -> tuple[Any, TableWriter]:
        """Create the file of a stream; returns where it is and its writer."""

    @abstractmethod
    def _publish(self, stream: str) -> tuple[Any, ...]:
        """Put a finished file where the commit finds it; returns its entry in the message, without the stream."""

    @abstractmethod
    def _discard(self, place: Any) -> None:
        """Remove a file."""

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
                self._open[stream] = self._create(stream, batches[0].schema)
            schema = self._open[stream][1].schema
            self._open[stream][1].write_table(pa.Table.from_batches(align_schemas(batches, schema)))
        except OSError as error:
            raise ConnectorError(f"cannot write stream {stream!r} below {self._folder}: {error}") from error

    def finish(self) -> Message:
        for stream in list(self._held):
            self._flush(stream)
        try:
            for _, file in self._open.values():
                file.close()
            files = [(s, *self._publish(s)) for s in self._open]
        except ConnectorError:
            raise
        except OSError as error:
            raise ConnectorError(f"cannot finish the files below {self._folder}: {error}") from error
        return {"partition": self._partition, "files": files}

    def abort(self) -> None:
        for place, file in self._open.values():
            # closing writes buffered data, and so fails on a full disk; the earlier error is raised
            with suppress(OSError, pa.ArrowException):
                file.close()
            with suppress(OSError):
                self._discard(place)


class HiddenFileWriter(BufferedWriter):
    """Writes hidden files into folders of a disk, one per stream."""

    def __init__(self, folder: Path, open_file: OpenFile, batch_id: int, partition: int) -> None:
        super().__init__(folder, open_file, partition)
        self._batch_id = batch_id

    def _create(self, stream: str, schema: pa.Schema) -> tuple[Any, TableWriter]:
        folder = self._folder / stream
        make_folder(folder)
        path = folder / f".part-{uuid.uuid4().hex}"
        try:
            return path, self._open_file(path, schema)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def _publish(self, stream: str) -> tuple[Any, ...]:
        """Give a finished file the hidden name that any attempt to write its records gives it; returns it and the size.

        Spark fails a query if a lost task that it runs again returns another message.
        """
        path, file = self._open[stream]
        size, rows = path.stat().st_size, self._total[stream]
        known = path.with_name(f".part-{self._batch_id:06d}-{self._partition:05d}-{rows}-{size}")
        os.replace(path, known)
        self._open[stream] = known, file
        return str(known), size, rows

    def _discard(self, place: Any) -> None:
        place.unlink(missing_ok=True)


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
