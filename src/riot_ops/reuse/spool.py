"""Files for the records that wait for slow sinks: a topic with one reader."""

from __future__ import annotations

import shutil
import weakref
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from riot_ops.core.paths import temporary_folder
from riot_ops.reuse.topic import Topic
from riot_ops.reuse.topic_sink import TopicSink
from riot_ops.reuse.topic_source import TopicSource

__all__ = ["Spool"]

#: Records of this many bytes become a batch of the topic.
BATCH_BYTES = 4 << 20
READER = "sinks"


class Spool:
    """Keeps records in files until they are taken, each stream in its order.

    Attributes
    ----------
    rows : Counter
        By stream, the records that were not taken; the caller of :meth:`put` counts them.
    """

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self._folder = temporary_folder("riot_ops-reuse-")
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.topic = Topic(self._folder / "topic")
        self.topic.join(READER, 0)
        self._sink = TopicSink(self.topic)
        self._source = TopicSource(self.topic, READER, schemas)
        self._writer = self._sink.writer(0, 0)
        self._written = self._read = 0
        #: Bytes that are not in files yet.
        self._held = 0
        self.rows: Counter[str] = Counter()

    def put(self, stream: str, batch: pa.RecordBatch) -> None:
        """Append records."""
        self._writer.write(stream, batch)
        self._held += batch.nbytes
        if self._held >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._sink.commit(self._written, [self._writer.finish()])
            self._held = 0
            self._written += 1
            self._writer = self._sink.writer(self._written, 0)

    def take(self) -> list[tuple[str, pa.RecordBatch]]:
        """Remove the next records; empty only if there are none."""
        if self._read == self._written:
            self._flush()
        if self._read == self._written:
            return []
        found = []
        for split in self._source.splits({"batch": self._read}, {"batch": self._read + 1}, 1):
            for inputs in self._source.read_inputs("", split):
                found += [(stream, batch) for stream, batches in inputs.items() for batch in batches]
        self._read += 1
        self._source.commit({"batch": self._read})
        for stream, batch in found:
            self.rows[stream] -= batch.num_rows
        return found

    @property
    def empty(self) -> bool:
        """Whether all records have been taken."""
        return not self._held and self._read == self._written

    @property
    def nbytes(self) -> int:
        """Bytes that have not been taken yet."""
        return self._held + self.topic.unread_bytes()

    def close(self) -> None:
        """Remove the files."""
        self._writer.abort()
        self._remove()
