"""The source that reads a topic, and the throttle of a query that writes one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import pyarrow as pa

from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.source import Offset, Source, Split
from riot_ops.reuse.topic import Marker, Topic, TopicFile

__all__ = ["TopicSource", "read_topic_file"]


class TopicSource(Source):
    """The streams of a topic, from the batch at which the reader joined; an offset is the number of a batch.

    Records keep their fields and their message numbers.

    Parameters
    ----------
    topic : Topic
    reader : str
        The name under which the reader joined the topic.
    schemas : mapping of str to pyarrow.Schema or None
        The streams to read, with their fields; None for all fields unchanged. Other streams are skipped.
    """

    def __init__(self, topic: Topic, reader: str, schemas: Mapping[str, pa.Schema | None]) -> None:
        if not schemas:
            raise ConfigError("schemas must name at least one stream of the topic")
        self.topic, self.reader, self.schemas = topic, reader, dict(schemas)

    @property
    def schema(self) -> pa.Schema:
        return next(iter(self.schemas.values())) or pa.schema([])

    def local_files(self) -> list[str]:
        return [str(self.topic.folder)]

    def initial(self) -> Offset:
        found = self.topic.readers()
        if self.reader not in found:
            raise ConnectorError(f"the topic {self.topic.folder} has no reader {self.reader!r}: join it first")
        return {"batch": found[self.reader]}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        batch, rows = start["batch"], 0
        for number, marker in self.topic.pending(batch):
            rows += self._rows(marker)
            if limit is not None and rows > limit and number > start["batch"]:
                break  # at least one batch: a limit below its size must not stop the reader
            batch = number + 1
        return {"batch": batch}

    def finished(self, offset: Offset) -> bool:
        if not self.topic.ended:
            return False
        there = self.topic.batch_numbers()
        return not there or offset["batch"] > there[-1]

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        """Split into whole batches if there are enough, otherwise into parts of their files."""
        files = [
            [number, file.stream, file.path, file.size, file.rows, file.at]
            for number in range(start["batch"], end["batch"])
            for file in self.topic.marker(number).files
            if file.stream in self.schemas
        ]
        edges = [len(files) * i // n for i in range(n + 1)]
        return [{"files": files[a:b]} for a, b in itertools.pairwise(edges) if a < b]

    def read_inputs(self, name: str, split: Split) -> Iterator[dict[str, list[pa.RecordBatch]]]:
        """Yield the records of a part: a batch of the topic at once, by stream."""
        found: dict[int, dict[str, list[pa.RecordBatch]]] = {}
        mapped: dict[str, pa.Buffer] = {}
        for number, *file in split["files"]:
            if number not in found and found:
                yield from found.values()
                found, mapped = {}, {}
            one = TopicFile(*file)
            found.setdefault(number, {}).setdefault(one.stream, []).extend(self._records(one, mapped))
        yield from found.values()

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for inputs in self.read_inputs("", split):
            for batches in inputs.values():
                yield from batches

    def waits(self) -> bool:
        return True  # whether its writer continues is not known here

    def count(self, start: Offset, end: Offset) -> int | None:
        return sum(self._rows(self.topic.marker(number)) for number in range(start["batch"], end["batch"]))

    def commit(self, end: Offset) -> None:
        self.topic.join(self.reader, end["batch"])
        self.topic.trim()

    def _rows(self, marker: Marker) -> int:
        return sum(file.rows for file in marker.files if file.stream in self.schemas)

    def _records(self, file: TopicFile, mapped: dict[str, pa.Buffer]) -> list[pa.RecordBatch]:
        """Return the batches of a file, as its stream has them."""
        schema = self.schemas[file.stream]
        batches = read_topic_file(self.topic, file, mapped)
        if schema is None or not batches:
            return batches
        if missing := sorted(set(schema.names) - set(batches[0].schema.names)):
            raise ConnectorError(f"the topic {self.topic.folder} has no field {missing[0]!r} in stream {file.stream!r}")
        table = pa.Table.from_batches(batches)
        return list(table.select(schema.names).cast(schema).to_batches())


def read_topic_file(topic: Topic, file: TopicFile, mapped: dict[str, pa.Buffer]) -> list[pa.RecordBatch]:
    """Read a section of a topic's file, without empty batches; ``mapped`` holds the files that are open already."""
    end = file.at + file.size
    try:
        if file.path not in mapped:
            with pa.memory_map(str(topic.folder / file.path)) as whole:
                mapped[file.path] = whole.read_buffer()
        if (there := mapped[file.path].size) < end:
            raise ConnectorError(f"the topic {topic.folder} is damaged: {file.path} has {there:,} bytes of {end:,}")
        batches = [*pa.ipc.open_stream(mapped[file.path].slice(file.at, file.size))]
    except FileNotFoundError:
        raise ConnectorError(f"the topic {topic.folder} is damaged: {file.path} is not there") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise ConnectorError(f"the topic {topic.folder} is damaged: {file.path}: {error}") from error
    return [batch for batch in batches if batch.num_rows]
