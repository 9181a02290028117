"""Topics: streams that one query passes to others, as folders of Arrow files with one batch per micro-batch."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import make_folder, write_atomic

__all__ = ["Head", "Marker", "Topic", "TopicFile", "UpstreamProgress"]

#: File that marks the end of the streams.
END = "ended"
#: File that marks that the writer will not return.
RETIRED = "retired"
#: File with the writer's progress, which trimming keeps.
HEAD = "head.json"


class TopicFile(msgspec.Struct):
    """The part of a stream in a batch: a section of a file below the topic's folder."""

    stream: str
    path: str
    size: int
    rows: int
    at: int = 0


class UpstreamProgress(msgspec.Struct):
    """How much of the sources upstream of a topic is in it.

    Attributes
    ----------
    roots : dict of str to int
        By query that reads sources, the number of its micro-batches in the topic.
    next : dict of str to int
        By source, the number of its first message that is not in the topic.
    ended : list of str
        The sources that have ended.
    """

    roots: dict[str, int] = {}
    next: dict[str, int] = {}
    ended: list[str] = []


class Marker(msgspec.Struct):
    """Marks a batch as complete; with the progress of its query before and after it.

    ``control`` is the version of the control that the query followed, ``taken`` the records of each step in the batch.
    """

    files: list[TopicFile]
    control: int = 0
    before: UpstreamProgress = msgspec.field(default_factory=UpstreamProgress)
    after: UpstreamProgress = msgspec.field(default_factory=UpstreamProgress)
    taken: dict[str, int] = {}

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class Head(msgspec.Struct):
    """The progress of a topic's writer, kept when batches are trimmed; ``taken`` counts the records of each step."""

    batch: int = -1
    control: int = 0
    place: UpstreamProgress = msgspec.field(default_factory=UpstreamProgress)
    taken: dict[str, int] = {}


@dataclass(frozen=True)
class Topic:
    """A folder with the micro-batches of some streams, and the progress of each reader.

    ``batch-<number>.json`` marks a batch, and appears when its files are complete; ``readers/<name>.json`` holds the
    first batch that a reader has not read.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from riot_ops.reuse.topic_sink import TopicSink
    >>> from riot_ops.reuse.topic_source import TopicSource
    >>> topic = Topic(Path(tempfile.mkdtemp()))
    >>> topic.join("average", 0)
    >>> sink = TopicSink(topic)
    >>> writer = sink.writer(0, 0)
    >>> writer.write("parse", pa.record_batch({"seq": [0, 1], "value": [2.5, 4.0]}))
    >>> sink.commit(0, [writer.finish()])
    >>> source = TopicSource(topic, "average", {"parse": pa.schema([("seq", pa.int64()), ("value", pa.float64())])})
    >>> (split,) = source.splits(source.initial(), source.latest(source.initial()), 1)
    >>> [batch["value"].to_pylist() for inputs in source.read_inputs("parse", split) for batch in inputs["parse"]]
    [[2.5, 4.0]]
    >>> source.commit({"batch": 1})
    >>> topic.batches()
    []
    """

    folder: Path

    # -- batches -----------------------------------------------------------------------------------

    def batches(self, since: int = 0) -> list[int]:
        """Return the numbers of the complete batches from ``since`` on, without gaps."""
        found = [number for number in self.batch_numbers() if number >= since]
        if found and found != list(range(found[0], found[-1] + 1)):
            lacking = next(n for n in range(found[0], found[-1]) if n not in found)
            raise ConnectorError(f"the topic {self.folder} lacks the marker of batch {lacking}, and has later ones")
        return found

    def pending(self, since: int) -> Iterator[tuple[int, Marker]]:
        """Return the batches from ``since`` on with their markers; raise if batch ``since`` has been trimmed."""
        made = self.head().batch  # first: a concurrent batch may be listed or not
        found = self.batches(since)
        if (first := found[0] if found else made + 1) > since:
            raise ConnectorError(f"the topic {self.folder} begins with batch {first}, batch {since} is gone")
        return ((number, self.marker(number)) for number in found)

    def marker(self, batch: int) -> Marker:
        """Return the marker of a batch."""
        found: Marker = self._read(self._marker_path(batch), Marker)
        return found

    def available(self, since: int = 0) -> list[Marker]:
        """Return the markers of the existing batches from ``since`` on; another reader may trim them at any time."""
        found = (self._marker(number) for number in self.batch_numbers() if number >= since)
        return [marker for marker in found if marker is not None]

    def publish(self, batch: int, files: Sequence[TopicFile], **details: Any) -> None:
        """Mark a batch as complete."""
        self._write(self._marker_path(batch), Marker(list(files), **details))

    def head(self) -> Head:
        """Return the writer's progress."""
        try:
            found: Head = self._read(self.folder / HEAD, Head)
        except ConnectorError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # concurrent trimming may remove it
                raise
            found = Head()
        return found

    def write_head(self, head: Head) -> None:
        """Write the writer's progress."""
        self._write(self.folder / HEAD, head)

    def head_version(self) -> int:
        """Return a number that changes with the writer's progress."""
        try:
            return (self.folder / HEAD).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def end(self) -> None:
        """Mark the end of the streams."""
        self._write(self.folder / END, {})

    def resume(self) -> None:
        """Remove the end mark: the writer continues."""
        (self.folder / END).unlink(missing_ok=True)

    @property
    def ended(self) -> bool:
        """Whether the streams have ended."""
        return (self.folder / END).exists()

    # -- readers -----------------------------------------------------------------------------------

    def readers(self) -> dict[str, int]:
        """By reader, the first batch that it has not read."""
        found = {}
        for path in sorted((self.folder / "readers").glob("*.json")):
            with contextlib.suppress(FileNotFoundError):  # the reader has left in the meantime
                found[path.stem] = self._decode(path, path.read_bytes(), int)
        return found

    def join(self, reader: str, batch: int) -> None:
        """Keep all batches from ``batch`` on for a reader."""
        self._write(self._reader_path(reader), batch)

    def leave(self, reader: str) -> None:
        """Keep nothing more for a reader."""
        self._reader_path(reader).unlink(missing_ok=True)
        self.trim()
        if (self.folder / RETIRED).exists():
            self._remove_if_left()

    def retire(self) -> None:
        """Note that the writer will not return; remove the topic when its last reader has left."""
        if self.folder.is_dir():
            self._write(self.folder / RETIRED, {})
        self._remove_if_left()

    def _remove_if_left(self) -> None:
        if not self.readers():
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()  # unless it holds other topics

    def trim(self) -> None:
        """Remove the batches that all readers have read; without a reader, all."""
        numbers = self.batch_numbers()
        least = min(self.readers().values(), default=numbers[-1] + 1 if numbers else 0)
        for batch in [n for n in numbers if n < least]:
            marker = self._marker(batch)
            self._marker_path(batch).unlink(missing_ok=True)  # first: a batch without files must not look complete
            for path in {file.path for file in marker.files} if marker is not None else ():
                (self.folder / path).unlink(missing_ok=True)

    def unread_bytes(self, counted: Callable[[str], bool] = lambda reader: True) -> int:
        """Return the bytes that some reader has not read yet; ``counted`` selects the readers."""
        least = min((at for reader, at in self.readers().items() if counted(reader)), default=None)
        if least is None:
            return 0
        return sum(marker.size for marker in self.available(least))

    # -- files -------------------------------------------------------------------------------------

    def batch_numbers(self) -> list[int]:
        """Return the numbers of the existing batches; another reader may trim them at any time."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        found = (re.fullmatch(r"batch-(\d+)\.json", name) for name in names)
        return sorted(int(one[1]) for one in found if one)

    def _marker(self, batch: int) -> Marker | None:
        """Return the marker of a batch; None if it has been trimmed."""
        try:
            found: Marker = self._decode(path := self._marker_path(batch), path.read_bytes(), Marker)
        except FileNotFoundError:
            return None
        return found

    def _marker_path(self, batch: int) -> Path:
        return self.folder / f"batch-{batch:06d}.json"

    def _reader_path(self, reader: str) -> Path:
        if not re.fullmatch(r"[\w.-]+", reader) or reader.startswith("."):
            raise ConfigError(f"a reader's name must be letters, digits, '_', '-' and '.', got {reader!r}")
        return self.folder / "readers" / f"{reader}.json"

    def _write(self, path: Path, content: Any) -> None:
        """Write a small file atomically and durably."""
        try:
            make_folder(path.parent)
            write_atomic(path, msgspec.json.encode(content))
        except OSError as error:
            raise ConnectorError(f"the topic {self.folder} cannot be written: {error}") from error

    def _read(self, path: Path, cls: Any) -> Any:
        try:
            return self._decode(path, path.read_bytes(), cls)
        except OSError as error:
            raise ConnectorError(f"the topic {self.folder} cannot be read: {error}") from error

    def _decode(self, path: Path, data: bytes, cls: Any) -> Any:
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise ConnectorError(f"the topic {self.folder} is damaged: {path.name}: {error}") from None
