"""The sink that writes a topic."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_ops.core.errors import ConnectorError
from riot_ops.core.file_sink import HIDDEN, publish_files
from riot_ops.core.paths import make_folder, sync
from riot_ops.core.sink import Message, Sink, Writer, align_schemas
from riot_ops.reuse.topic import Topic, TopicFile

__all__ = ["TopicSink"]

#: A stream is written after this many rows or batches.
FLUSH_ROWS, FLUSH_BATCHES = 131_072, 4096
#: Below this size, compressing takes five times as long as writing.
MIN_COMPRESSED_BYTES = 1 << 16
PLAIN, PACKED = pa.ipc.IpcWriteOptions(), pa.ipc.IpcWriteOptions(compression="lz4")


class TopicSink(Sink):
    """Writes streams to a topic. A committed batch becomes visible to readers and never changes.

    A writer makes one file per batch with all streams one after the other, so that hundreds of streams cost no more
    files than one. If a micro-batch is committed again, as after a crash, the first commit counts; both hold the same
    records.
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    @property
    def folder(self) -> Path:
        """Folder of the data files."""
        return self.topic.folder / "data"

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _TopicWriter(self.folder, batch_id, partition)

    def folders(self) -> list[Path]:
        return [self.folder]

    def commit(self, batch_id: int, messages: Sequence[Message], **details: Any) -> None:
        """Make a batch visible, with further details for its marker."""
        if batch_id in self.topic.batch_numbers():
            self.drop(messages)
            return
        written = [
            (Path(m["path"]), self.folder / f"part-{batch_id:06d}-{m['partition']:05d}.arrow", m)
            for m in messages
            if m["path"]
        ]
        publish_files(batch_id, self.folder, [(hidden, final, m["size"]) for hidden, final, m in written])
        files = []
        for _, final, message in written:
            sync(final)  # the marker survives a power cut, so the file must as well
            path = str(final.relative_to(self.topic.folder))
            files += [TopicFile(stream, path, size, rows, at) for stream, at, size, rows in message["parts"]]
        self.topic.publish(batch_id, files, **details)

    def drop(self, messages: Sequence[Message]) -> None:
        """Remove the files written for a batch that has been committed already."""
        for message in messages:
            if message["path"]:
                Path(message["path"]).unlink(missing_ok=True)

    def abort(self, batch_id: int) -> None:
        for path in self.folder.glob(HIDDEN):
            with contextlib.suppress(OSError):  # the next start raises it
                path.unlink(missing_ok=True)

    def recover(self, batch_id: int) -> None:
        """Remove uncommitted files. Committed ones may have been read, and would be written again unchanged."""
        there = set(self.topic.batch_numbers())
        for path in self.folder.glob("*part-*"):
            number = re.match(r"part-(\d+)-", path.name)
            if number is None or int(number[1]) not in there:
                path.unlink(missing_ok=True)

    def begin(self, overwrite: bool) -> None:
        self.topic.resume()

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        self.topic.end()

    def table(self, stream: str) -> pa.Table:
        raise KeyError(f"the records of {stream!r} are in a topic, which its readers trim")


class _TopicWriter(Writer):
    """Writes one file; each stream has sections in it, in Arrow's stream format."""

    def __init__(self, folder: Path, batch_id: int, partition: int) -> None:
        self._folder, self._batch_id, self._partition = folder, batch_id, partition
        self._path: Path | None = None
        self._file: Any = None
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._parts: list[tuple[str, int, int, int]] = []

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        held = self._held.setdefault(stream, [])
        held.append(batch)
        self._rows[stream] = self._rows.get(stream, 0) + batch.num_rows
        if self._rows[stream] >= FLUSH_ROWS or len(held) >= FLUSH_BATCHES:
            with self._translated_errors():
                self._flush(stream)

    def _flush(self, stream: str) -> None:
        if self._path is None:
            make_folder(self._folder)
            self._path = self._folder / f".part-{uuid.uuid4().hex}"
            self._file = pa.OSFile(str(self._path), "wb")
        batches = align_schemas(self._held.pop(stream))
        begin = self._file.tell()
        options = PACKED if sum(batch.nbytes for batch in batches) >= MIN_COMPRESSED_BYTES else PLAIN
        with pa.ipc.new_stream(self._file, batches[0].schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self._parts.append((stream, begin, self._file.tell() - begin, self._rows.pop(stream)))

    def finish(self) -> Message:
        size = 0
        with self._translated_errors():
            for stream in list(self._held):
                self._flush(stream)
            if self._path is not None:
                size = self._file.tell()
                self._file.close()
                # the name that any attempt to write these records gives: Spark fails a query if a lost task that it
                # runs again returns another message
                known = self._folder / f".part-{self._batch_id:06d}-{self._partition:05d}-{size}"
                self._path = self._path.replace(known)
        path = None if self._path is None else str(self._path)
        return {"partition": self._partition, "path": path, "size": size, "parts": self._parts}

    def abort(self) -> None:
        if self._path is not None:
            # closing writes buffered data, and so fails on a full disk
            with contextlib.suppress(OSError, pa.ArrowException):
                self._file.close()
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConnectorError(f"cannot write below {self._folder}: {error}") from error
