"""What a sink is, and the built-in ones: memory, Parquet files, console.

Output is written in numbered batches. A writer keeps what it gets out of sight; the commit of the
batch makes it visible. Committing the same batch again, as happens after a crash between commit and
checkpoint, replaces it: that is how files are written effectively once.
"""

from __future__ import annotations

import copy
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from riot_ops.core.errors import ConnectorError
from riot_ops.core.paths import local_path, make_folder, sync

__all__ = ["CallbackSink", "ConsoleSink", "MemorySink", "ParquetSink", "Sink", "Writer", "alike", "appear"]

#: Rows per row group of a file, and most batches kept for one.
ROW_GROUP = 131_072
MOST_HELD = 4096

#: Name of the file without rows that stands for a stream without records.
EMPTY = "empty.parquet"

T = TypeVar("T", pa.RecordBatch, pa.Table)

#: What a writer hands to the commit, maybe in another process: plain values and bytes.
Message = dict[str, Any]


class Writer(ABC):
    """Takes the records of one partition of one batch."""

    @abstractmethod
    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        """Add records of a stream."""

    @abstractmethod
    def finish(self) -> Message:
        """Make the records durable, though not yet visible; called once, after the last write."""

    def abort(self) -> None:
        """Throw away what was written."""


class Sink(ABC):
    """Where streams end. Instances are picklable; writers are made where the records are."""

    #: Whether it must run in the process that started the dataflow (it shows or keeps objects).
    in_process: ClassVar[bool] = False

    @abstractmethod
    def writer(self, batch_id: int, partition: int) -> Writer:
        """A writer for one partition of a batch."""

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        """Make a batch visible; may be called again for the same batch after a crash."""

    def sync(self, batch_id: int) -> None:
        """Wait until a committed batch is where a power cut leaves it: a checkpoint will say that it is there."""

    def bound(self, streams: Collection[str]) -> Sink:
        """The sink for a run in which these streams end in it."""
        return self

    def folders(self) -> list[Path]:
        """Folders that a run must have for itself."""
        return []

    def table(self, stream: str) -> pa.Table:
        """All records of a stream that are committed; KeyError where this sink does not give them back."""
        raise KeyError(
            f"the records of {stream!r} went to a {type(self).__name__}, which does not give them back; "
            "a MemorySink and Parquet files (out=) do"
        )

    def begin(self, overwrite: bool) -> None:
        """A new run starts: remove the output of an earlier one, or refuse to mix with it."""

    def recover(self, batch_id: int) -> None:
        """Take back what was committed from this batch on: it is going to be written again."""

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        """The run is over: make streams that had no records readable as well."""


# -- in process ------------------------------------------------------------------------------------


class CallbackSink(Sink):
    """Hands each batch to a function ``f(stream, batch)`` in the user's process.

    At least once: after a crash a batch may come again.
    """

    in_process = True

    def __init__(self, function: Callable[[str, pa.RecordBatch], None]) -> None:
        self.function = function

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _Calling(self.function)


class _Calling(Writer):
    def __init__(self, function: Callable[[str, pa.RecordBatch], None]) -> None:
        self._function = function

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self._function(stream, batch)

    def finish(self) -> Message:
        return {}


class MemorySink(CallbackSink):
    """Keeps all records; for notebooks, tests and small data.

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
        batches = alike(self._batches.get(stream, []))
        return pa.Table.from_batches(batches) if batches else pa.table({})


class ConsoleSink(CallbackSink):
    """Prints the first records of each batch."""

    def __init__(self, rows: int = 10, write: Callable[[str], None] = print) -> None:
        super().__init__(self._show)
        self._rows = rows
        self._write = write

    def _show(self, stream: str, batch: pa.RecordBatch) -> None:
        for row in batch.slice(0, self._rows).to_pylist():
            self._write(f"{stream}: " + " ".join(f"{k}={v}" for k, v in row.items()))
        if batch.num_rows > self._rows:
            self._write(f"{stream}: … {batch.num_rows - self._rows} more")


# -- files -----------------------------------------------------------------------------------------


class ParquetSink(Sink):
    """Writes ``<directory>/<stream>/part-<batch>-<partition>.parquet``.

    Effectively once: files appear by an atomic rename at the commit of their batch, and a batch that
    is committed again replaces its files. A crash leaves at most hidden temporary files, which the
    next start removes. Files of other streams are left alone.

    Parameters
    ----------
    directory : str or Path
        A path or ``file:`` URI; made if missing.
    compression : str
        Parquet codec, such as ``snappy``, ``zstd`` or ``none``.
    """

    #: What the names of its files end with.
    ending: ClassVar[str] = "parquet"

    def __init__(self, directory: str | Path, compression: str = "snappy") -> None:
        self.directory = local_path(directory, "directory").absolute()
        self.compression = compression
        self.streams: frozenset[str] | None = None  # all that there are

    def bound(self, streams: Collection[str]) -> ParquetSink:
        one = copy.copy(self)
        one.streams = frozenset(streams)
        return one

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _FileWriter(self, partition)

    def open_file(self, path: Path, schema: pa.Schema) -> Any:
        """A file writer with ``schema``, ``write_table`` and ``close``."""
        # numbers seldom repeat: trying a dictionary for them costs more than all the rest
        texts = [f.name for f in schema if pa.types.is_string(f.type)]
        return pq.ParquetWriter(path, schema, compression=self.compression, use_dictionary=texts)

    def path(self, stream: str, batch_id: int, partition: int) -> Path:
        """The committed file of a stream of one writer in a batch."""
        return self.directory / stream / f"part-{batch_id:06d}-{partition:05d}.{self.ending}"

    def folders(self) -> list[Path]:
        return [self.directory / stream for stream in sorted(self.streams or ())]

    def table(self, stream: str) -> pa.Table:
        """All records of a stream in committed files."""
        paths = [path for _, name, path in self.files() if name == stream]
        pieces = [pq.ParquetFile(path).read() for path in paths or (self.directory / stream).glob(EMPTY)]
        return pa.concat_tables(alike(pieces)) if pieces else pa.table({})

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        files = [
            (Path(path), self.path(stream, batch_id, message["partition"]), size)
            for message in messages
            for stream, path, size, _ in message["files"]
        ]
        appear(batch_id, self.directory, files)
        self._remove(lambda n: n == batch_id, {final for _, final, _ in files})

    def sync(self, batch_id: int) -> None:
        try:
            for path in (*self._glob(f"part-{batch_id:06d}-*.{self.ending}"), *filter(Path.is_dir, self.folders())):
                sync(path)
        except OSError as error:
            raise ConnectorError(f"batch {batch_id} cannot be kept below {self.directory}: {error}") from error

    def begin(self, overwrite: bool) -> None:
        if self.files() and not overwrite:
            raise ConnectorError(
                f"{self.directory} holds the output of an earlier run: use another directory, "
                "continue with that run's checkpoint, or pass overwrite=True"
            )
        self.recover(0)

    def recover(self, batch_id: int) -> None:
        self._remove(lambda n: n >= batch_id, set())
        for leftover in (".part-*", EMPTY):
            for path in self._glob(leftover):
                path.unlink(missing_ok=True)

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        present = {stream for _, stream, _ in self.files()}
        for stream, schema in schemas.items():
            if stream not in present:
                folder = self.directory / stream
                folder.mkdir(parents=True, exist_ok=True)
                self.open_file(folder / EMPTY, schema).close()

    def files(self) -> list[tuple[int, str, Path]]:
        """All committed files as ``(batch, stream, path)`` in order."""
        found = []
        for path in self._glob(f"part-*.{self.ending}"):
            number = re.match(r"part-(\d+)-", path.name)
            if number:
                found.append((int(number[1]), path.parent.name, path))
        return sorted(found)

    def _glob(self, pattern: str) -> Iterator[Path]:
        for path in self.directory.glob(f"*/{pattern}"):
            if self.streams is None or path.parent.name in self.streams:
                yield path

    def _remove(self, which: Callable[[int], bool], kept: set[Path]) -> None:
        for number, _, path in self.files():
            if which(number) and path not in kept:
                path.unlink(missing_ok=True)


class _FileWriter(Writer):
    """One file per stream; batches are gathered into row groups of a good size."""

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
        if self._rows[stream] >= ROW_GROUP or len(self._held[stream]) >= MOST_HELD:
            self._flush(stream)

    def _flush(self, stream: str) -> None:
        batches = self._held.pop(stream)
        self._rows[stream] = 0
        try:
            if stream not in self._open:
                folder = self._sink.directory / stream
                make_folder(folder)
                path = folder / f".part-{uuid.uuid4().hex}"
                self._open[stream] = path, self._sink.open_file(path, batches[0].schema)
            schema = self._open[stream][1].schema
            self._open[stream][1].write_table(pa.Table.from_batches(alike(batches, schema)))
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
            file.close()
            path.unlink(missing_ok=True)


def appear(batch_id: int, directory: Path, files: Sequence[tuple[Path, Path, int]]) -> None:
    """Give the files of a batch their names, each with the one that it has and its size."""
    # all are looked at before the first can be seen; where a commit is done again they have their names already
    there = {hidden: _size(hidden) for hidden, _, _ in files}
    for hidden, final, size in files:
        found = _size(final) if there[hidden] is None else there[hidden]
        if found != size:
            what = "is not there" if found is None else f"has {found:,} bytes instead of {size:,}"
            raise ConnectorError(
                f"batch {batch_id} is incomplete: the file {hidden}, which a writer has finished, {what}. "
                f"On a cluster {directory} must be a folder that the driver and all workers share under "
                "this name, and nothing else may remove files in it"
            )
    try:
        for hidden, final, _ in files:
            if there[hidden] is not None:
                os.replace(hidden, final)
    except OSError as error:
        raise ConnectorError(f"batch {batch_id} cannot be committed below {directory}: {error}") from error


def alike(pieces: Sequence[T], schema: pa.Schema | None = None) -> list[T]:
    """Batches or tables with the fields of a schema, in its order; by default that of the first."""
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


class Fan(Writer):
    """Writes each stream to the sinks that it ends in, and counts."""

    def __init__(
        self, routes: Mapping[str, Iterable[str]], sinks: Mapping[str, Sink], batch_id: int, partition: int
    ) -> None:
        self._routes = {stream: list(names) for stream, names in routes.items()}
        self._writers = {name: sink.writer(batch_id, partition) for name, sink in sinks.items()}
        self.rows: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.steps: dict[str, tuple[int, int]] = {}

    def count(self, steps: Mapping[str, tuple[int, int]]) -> None:
        """Note how many records each step took and rejected."""
        for step, (taken, rejected) in steps.items():
            t, r = self.steps.get(step, (0, 0))
            self.steps[step] = t + taken, r + rejected

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
