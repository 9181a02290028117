"""The end of a query at which it writes a topic."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_ops.core.errors import ConnectorError
from riot_ops.core.paths import make_folder, sync
from riot_ops.core.sink import Message, Sink, Writer, alike, appear
from riot_ops.reuse.topic import Topic, TopicFile

__all__ = ["TopicSink"]

#: Rows of a stream that are written at once, and most batches kept for that.
ROWS, MOST_HELD = 131_072, 4096
#: Compressing less than so many bytes takes five times as long as writing them.
WORTH_BYTES = 1 << 16
PLAIN, PACKED = pa.ipc.IpcWriteOptions(), pa.ipc.IpcWriteOptions(compression="lz4")


class TopicSink(Sink):
    """Writes streams to a topic; a batch is there for readers when it has been committed, and stays as it was then.

    A writer makes one file per batch, in which all that it has of the streams lies one behind the other: so hundreds of
    streams cost no more files than one. A micro-batch that is committed again, as after a crash, gives the same
    records: the first commit counts.
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return self.topic.folder / "data"

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _TopicWriter(self.directory, partition)

    def folders(self) -> list[Path]:
        return [self.directory]

    def commit(self, batch_id: int, messages: Sequence[Message], **told: Any) -> None:
        """Make a batch visible, with what else its marker tells."""
        if batch_id in self.topic.numbers():
            self.drop(messages)
            return
        written = [
            (Path(m["path"]), self.directory / f"part-{batch_id:06d}-{m['partition']:05d}.arrow", m)
            for m in messages
            if m["path"]
        ]
        appear(batch_id, self.directory, [(hidden, final, m["size"]) for hidden, final, m in written])
        files = []
        for _, final, message in written:
            sync(final)  # the marker outlives a power cut, so must they
            path = str(final.relative_to(self.topic.folder))
            files += [TopicFile(stream, path, size, rows, at) for stream, at, size, rows in message["parts"]]
        self.topic.mark(batch_id, files, **told)

    def drop(self, messages: Sequence[Message]) -> None:
        """Remove what writers wrote for a batch that is there already."""
        for message in messages:
            if message["path"]:
                Path(message["path"]).unlink(missing_ok=True)

    def recover(self, batch_id: int) -> None:
        """Remove what was never committed; what was, a reader may have read, and it would be written again as it is."""
        there = set(self.topic.numbers())
        for path in self.directory.glob("*part-*"):
            number = re.match(r"part-(\d+)-", path.name)
            if number is None or int(number[1]) not in there:
                path.unlink(missing_ok=True)

    def begin(self, overwrite: bool) -> None:
        self.topic.resume()

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        self.topic.end()

    def table(self, stream: str) -> pa.Table:
        raise KeyError(f"the records of {stream!r} went to a topic, which its readers trim")


class _TopicWriter(Writer):
    """One file, in which each stream has parts: Arrow's format for streams, one behind the other."""

    def __init__(self, folder: Path, partition: int) -> None:
        self._folder, self._partition = folder, partition
        self._path: Path | None = None
        self._file: Any = None
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._parts: list[tuple[str, int, int, int]] = []

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        held = self._held.setdefault(stream, [])
        held.append(batch)
        self._rows[stream] = self._rows.get(stream, 0) + batch.num_rows
        if self._rows[stream] >= ROWS or len(held) >= MOST_HELD:
            with self._told():
                self._flush(stream)

    def _flush(self, stream: str) -> None:
        if self._path is None:
            make_folder(self._folder)
            self._path = self._folder / f".part-{uuid.uuid4().hex}"
            self._file = pa.OSFile(str(self._path), "wb")
        batches = alike(self._held.pop(stream))
        begin = self._file.tell()
        options = PACKED if sum(batch.nbytes for batch in batches) >= WORTH_BYTES else PLAIN
        with pa.ipc.new_stream(self._file, batches[0].schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self._parts.append((stream, begin, self._file.tell() - begin, self._rows.pop(stream)))

    def finish(self) -> Message:
        size = 0
        with self._told():
            for stream in list(self._held):
                self._flush(stream)
            if self._path is not None:
                size = self._file.tell()
                self._file.close()
        path = None if self._path is None else str(self._path)
        return {"partition": self._partition, "path": path, "size": size, "parts": self._parts}

    def abort(self) -> None:
        if self._path is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConnectorError(f"cannot write below {self._folder}: {error}") from error
