"""The contract of sinks, and the built-in ones: memory, Parquet files, console.

Output is written in numbered batches. What a writer writes stays invisible until the commit of the batch. A second
commit of the same batch, as after a crash between commit and checkpoint, replaces the first: files are written
effectively once.
"""

from __future__ import annotations

import copy
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConnectorError, escape_control
from riot_ops.core.parquet_file import parquet_writer, read_parquet
from riot_ops.core.paths import local_path, make_folder, sync

__all__ = [
    "CallbackSink",
    "ConsoleSink",
    "MemorySink",
    "ParquetSink",
    "Sink",
    "Writer",
    "align_schemas",
    "publish_files",
]

#: Rows per row group of a file, and how many batches may wait for one.
ROW_GROUP_ROWS = 131_072
MAX_HELD_BATCHES = 4096

#: Name of the file without rows that represents a stream without records.
EMPTY_FILE = "empty.parquet"

T = TypeVar("T", pa.RecordBatch, pa.Table)

#: The result of a writer for the commit, possibly in another process: plain values and bytes.
Message = dict[str, Any]


class Writer(ABC):
    """Writes the records of one partition of one batch."""

    @abstractmethod
    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        """Add records of a stream."""

    @abstractmethod
    def finish(self) -> Message:
        """Make the records durable, but not yet visible; called once, after the last write."""

    def abort(self) -> None:
        """Discard the records that were written."""


class Sink(ABC):
    """The end of streams. Instances are picklable; writers are created in the process that holds the records."""

    #: Whether it must run in the process that started the dataflow, because it shows or stores objects there.
    in_process: ClassVar[bool] = False

    @abstractmethod
    def writer(self, batch_id: int, partition: int) -> Writer:
        """Create a writer for one partition of a batch."""

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        """Make a batch visible; may be called again for the same batch after a crash."""

    def sync(self, batch_id: int) -> None:
        """Flush a committed batch to disk: the next checkpoint relies on it after a power failure."""

    def bind(self, streams: Collection[str]) -> Sink:
        """Return the sink for a run in which these streams end in it."""
        return self

    def folders(self) -> list[Path]:
        """The folders that no other run may use at the same time."""
        return []

    def table(self, stream: str) -> pa.Table:
        """All committed records of a stream; KeyError if this sink cannot return them."""
        raise KeyError(
            f"the records of {stream!r} are in a {type(self).__name__}, which cannot return them; "
            "use a MemorySink or Parquet files (out=)"
        )

    def begin(self, overwrite: bool) -> None:
        """Start a new run: remove the output of an earlier one if ``overwrite``, or raise if there is any."""

    def recover(self, batch_id: int) -> None:
        """Remove what was committed from this batch on: it will be written again."""

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        """End a run: make streams without records readable as well."""


# -- in process ------------------------------------------------------------------------------------


class CallbackSink(Sink):
    """Calls a function ``f(stream, batch)`` with each batch, in the user's process.

    At least once: after a crash a batch may be passed again.
    """

    in_process = True

    def __init__(self, function: Callable[[str, pa.RecordBatch], None]) -> None:
        self.function = function

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _CallbackWriter(self.function)


class _CallbackWriter(Writer):
    def __init__(self, function: Callable[[str, pa.RecordBatch], None]) -> None:
        self._function = function

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self._function(stream, batch)

    def finish(self) -> Message:
        return {}


class MemorySink(CallbackSink):
    """Keeps all records in memory; for notebooks, tests and small data.

    Examples
    --------
    >>> sink = MemorySink()
    >>> sink.writer(0, 0).write("out", pa.RecordBatch.from_pydict({"value": [1.0]}))
    >>> sink.table("out").to_pylist()
    [{'value': 1.0}]
    """

    def __init__(self) -> None:
        super().__init__(self._keep)
        self._batches: dict[str, list[pa.RecordBatch]] = {}

    def _keep(self, stream: str, batch: pa.RecordBatch) -> None:
        self._batches.setdefault(stream, []).append(batch)

    def table(self, stream: str) -> pa.Table:
        """All records of a stream."""
        batches = align_schemas(self._batches.get(stream, []))
        return pa.Table.from_batches(batches) if batches else pa.table({})


class ConsoleSink(CallbackSink):
    """Prints the first records of each batch, a line each; control characters are escaped."""

    def __init__(self, rows: int = 10, write: Callable[[str], None] = print) -> None:
        super().__init__(self._show)
        self._rows = rows
        self._write = write

    def _show(self, stream: str, batch: pa.RecordBatch) -> None:
        for row in batch.slice(0, self._rows).to_pylist():
            self._write(escape_control(f"{stream}: " + " ".join(f"{k}={v}" for k, v in row.items())))
        if batch.num_rows > self._rows:
            self._write(f"{stream}: … {batch.num_rows - self._rows} more")


# -- files -----------------------------------------------------------------------------------------


class ParquetSink(Sink):
    """Writes ``<directory>/<stream>/part-<batch>-<partition>.parquet``.

    Effectively once: an atomic rename makes files visible at the commit of their batch, and a second commit of a batch
    replaces its files. A crash leaves at most hidden temporary files, which the next start removes. The sink does not
    touch files of other streams.

    Parameters
    ----------
    directory : str or Path
        A path or ``file:`` URI; created if missing.
    compression : str, default "snappy"
        Parquet codec, such as ``snappy``, ``zstd`` or ``none``.
    """

    #: Suffix of the files, without the dot.
    suffix: ClassVar[str] = "parquet"

    def __init__(self, directory: str | Path, compression: str = "snappy") -> None:
        self.directory = local_path(directory, "directory").absolute()
        self.compression = compression
        self.streams: frozenset[str] | None = None  # None: all streams in the directory

    def bind(self, streams: Collection[str]) -> ParquetSink:
        sink = copy.copy(self)
        sink.streams = frozenset(streams)
        return sink

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _FileWriter(self, partition)

    def open_file(self, path: Path, schema: pa.Schema) -> Any:
        """Open a file writer with ``schema``, ``write_table`` and ``close``."""
        return parquet_writer(path, schema, self.compression)

    def path(self, stream: str, batch_id: int, partition: int) -> Path:
        """The path of the committed file of one writer, for a stream in a batch."""
        return self.directory / stream / f"part-{batch_id:06d}-{partition:05d}.{self.suffix}"

    def folders(self) -> list[Path]:
        return [self.directory / stream for stream in sorted(self.streams or ())]

    def table(self, stream: str) -> pa.Table:
        """All records of a stream in committed files; a damaged file raises a :class:`ConnectorError`."""
        paths = [path for _, name, path in self.files() if name == stream]
        pieces = [read_parquet(path) for path in paths or (self.directory / stream).glob(EMPTY_FILE)]
        return pa.concat_tables(align_schemas(pieces)) if pieces else pa.table({})

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        files = [
            (Path(path), self.path(stream, batch_id, message["partition"]), size)
            for message in messages
            for stream, path, size, _ in message["files"]
        ]
        publish_files(batch_id, self.directory, files)
        self._remove(lambda n: n == batch_id, {final for _, final, _ in files})

    def sync(self, batch_id: int) -> None:
        try:
            for path in (*self._glob(f"part-{batch_id:06d}-*.{self.suffix}"), *filter(Path.is_dir, self.folders())):
                sync(path)
        except OSError as error:
            raise ConnectorError(
                f"batch {batch_id} cannot be flushed to disk below {self.directory}: {error}"
            ) from error

    def begin(self, overwrite: bool) -> None:
        if self.files() and not overwrite:
            raise ConnectorError(
                f"{self.directory} holds the output of an earlier run: use another directory, "
                "continue with that run's checkpoint, or pass overwrite=True"
            )
        self.recover(0)

    def recover(self, batch_id: int) -> None:
        self._remove(lambda n: n >= batch_id, set())
        for leftover in (".part-*", EMPTY_FILE):
            for path in self._glob(leftover):
                path.unlink(missing_ok=True)

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        present = {stream for _, stream, _ in self.files()}
        for stream, schema in schemas.items():
            if stream not in present:
                folder = self.directory / stream
                folder.mkdir(parents=True, exist_ok=True)
                self.open_file(folder / EMPTY_FILE, schema).close()

    def files(self) -> list[tuple[int, str, Path]]:
        """All committed files as ``(batch, stream, path)`` in order."""
        found = []
        for path in self._glob(f"part-*.{self.suffix}"):
            number = re.match(r"part-(\d+)-", path.name)
            if number:
                found.append((int(number[1]), path.parent.name, path))
        return sorted(found)

    def _glob(self, pattern: str) -> Iterator[Path]:
        for path in self.directory.glob(f"*/{pattern}"):
            if self.streams is None or path.parent.name in self.streams:
                yield path

    def _remove(self, selects: Callable[[int], bool], keep: set[Path]) -> None:
        for number, _, path in self.files():
            if selects(number) and path not in keep:
                path.unlink(missing_ok=True)


class _FileWriter(Writer):
    """Writes one file per stream; collects batches into row groups of :data:`ROW_GROUP_ROWS`."""

    def __init__(self, sink: ParquetSink, partition: int) -> None:
        self._sink = sink
        self._partition = partition
        self._open: dict[str, tuple[Path, Any]] = {}
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
                folder = self._sink.directory / stream
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
            raise ConnectorError(f"cannot write stream {stream!r} below {self._sink.directory}: {error}") from error

    def finish(self) -> Message:
        for stream in list(self._held):
            self._flush(stream)
        try:
            for _, file in self._open.values():
                file.close()
            files = [(s, str(path), path.stat().st_size, self._total[s]) for s, (path, _) in self._open.items()]
        except OSError as error:
            raise ConnectorError(f"cannot finish the files below {self._sink.directory}: {error}") from error
        return {"partition": self._partition, "files": files}

    def abort(self) -> None:
        for path, file in self._open.values():
            # closing writes what is buffered, and so fails on a full disk; the error that led here is the one to see
            with suppress(OSError, pa.ArrowException):
                file.close()
            with suppress(OSError):
                path.unlink(missing_ok=True)


def publish_files(batch_id: int, directory: Path, files: Sequence[tuple[Path, Path, int]]) -> None:
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
                f"On a cluster {directory} must be a folder that the driver and all workers share under "
                "this path, and no other program may remove files in it"
            )
    try:
        for hidden, final, _ in files:
            if present[hidden] is not None:
                os.replace(hidden, final)
    except OSError as error:
        raise ConnectorError(f"batch {batch_id} cannot be committed below {directory}: {error}") from error


def align_schemas(pieces: Sequence[T], schema: pa.Schema | None = None) -> list[T]:
    """Select and cast the fields of a schema in batches or tables; by default the schema of the first."""
    return [
        p if p.schema.equals(wanted) else p.select(wanted.names).cast(wanted)
        for p in pieces
        for wanted in [schema or pieces[0].schema]
    ]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


class FanOutWriter(Writer):
    """Writes each stream to all its sinks, and counts records."""

    def __init__(
        self, routes: Mapping[str, Iterable[str]], sinks: Mapping[str, Sink], batch_id: int, partition: int
    ) -> None:
        self._routes = {stream: list(names) for stream, names in routes.items()}
        self._writers = {name: sink.writer(batch_id, partition) for name, sink in sinks.items()}
        self.rows: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.steps: dict[str, tuple[int, int]] = {}

    def count(self, steps: Mapping[str, tuple[int, int]]) -> None:
        """Add the numbers of records that each step has read and rejected."""
        for step, (read, rejected) in steps.items():
            total, total_rejected = self.steps.get(step, (0, 0))
            self.steps[step] = total + read, total_rejected + rejected

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self.rows[stream] = self.rows.get(stream, 0) + batch.num_rows
        if stream == "errors":
            found = pc.binary_join_element_wise(batch.column("task"), batch.column("reason"), ": ").value_counts()
            for reason, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
                self.reasons[reason] = self.reasons.get(reason, 0) + count
        for name in self._routes.get(stream, ()):
            self._writers[name].write(stream, batch)

    def finish(self) -> Message:
        return {
            "sinks": {name: writer.finish() for name, writer in self._writers.items()},
            "rows": self.rows,
            "reasons": self.reasons,
            "steps": self.steps,
        }

    def abort(self) -> None:
        for writer in self._writers.values():
            writer.abort()
