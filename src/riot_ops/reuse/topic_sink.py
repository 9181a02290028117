"""The end of a query at which it writes a topic."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from riot_ops.core.paths import sync
from riot_ops.core.sink import Message, ParquetSink
from riot_ops.reuse.topic import Topic, TopicFile

__all__ = ["TopicSink"]


class TopicSink(ParquetSink):
    """Writes streams to a topic; a batch is there for readers when it has been committed, and stays as it was then.

    A micro-batch that is committed again, as after a crash, gives the same records: the first commit counts.
    """

    ending: ClassVar[str] = "arrow"

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic.folder, "lz4")
        self.topic = topic

    def open_file(self, path: Path, schema: pa.Schema) -> Any:
        return _ArrowFile(path, schema, self.compression)

    def commit(self, batch_id: int, messages: Sequence[Message], **told: Any) -> None:
        """Make a batch visible, with what else its marker tells."""
        if batch_id in self.topic.numbers():
            self.drop(messages)
            return
        super().commit(batch_id, messages)
        files = []
        for message in messages:
            for stream, _, size, rows in message["files"]:
                path = self.path(stream, batch_id, message["partition"])
                sync(path)  # the marker outlives a power cut, so must they
                files.append(TopicFile(stream, str(path.relative_to(self.directory)), size, rows))
        self.topic.mark(batch_id, files, **told)

    def drop(self, messages: Sequence[Message]) -> None:
        """Remove what writers wrote for a batch that is there already."""
        for message in messages:
            for _, hidden, _, _ in message["files"]:
                Path(hidden).unlink(missing_ok=True)

    def recover(self, batch_id: int) -> None:
        """Remove what was never committed; what was, a reader may have read, and it would be written again as it is."""
        there = set(self.topic.numbers())
        for number, _, path in self.files():
            if number not in there:
                path.unlink(missing_ok=True)
        for path in self.directory.glob("*/.part-*"):
            path.unlink(missing_ok=True)

    def begin(self, overwrite: bool) -> None:
        self.topic.resume()

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        self.topic.end()

    def table(self, stream: str) -> pa.Table:
        raise KeyError(f"the records of {stream!r} went to a topic, which its readers trim")


class _ArrowFile:
    """A file of Arrow batches, as :class:`ParquetSink` writes files."""

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self.schema = schema
        self._file = pa.OSFile(str(path), "wb")
        options = pa.ipc.IpcWriteOptions(compression=compression)
        self._writer = pa.ipc.new_file(self._file, schema, options=options)

    def write_table(self, table: pa.Table) -> None:
        """Add records."""
        self._writer.write_table(table)

    def close(self) -> None:
        """Finish the file."""
        with contextlib.closing(self._file):
            self._writer.close()
