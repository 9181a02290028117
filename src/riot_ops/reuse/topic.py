"""Streams that one running query hands to others: folders of Arrow files, one more with each micro-batch."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import make_folder, sync

__all__ = ["Head", "Marker", "Place", "Topic", "TopicFile"]

#: The file that says that nothing more will come.
END = "ended"
#: The file that says that the writer has gone for good.
RETIRED = "retired"
#: The file that says where the writer stands, which trimming leaves.
HEAD = "head.json"


class TopicFile(msgspec.Struct):
    """What a batch has of a stream in a file below the topic's folder, and where in that."""

    stream: str
    path: str
    size: int
    rows: int
    at: int = 0


class Place(msgspec.Struct):
    """How far the queries above a topic are.

    Attributes
    ----------
    roots : dict of str to int
        By query that reads sources, how many of its micro-batches are in the topic.
    next : dict of str to int
        By source, the number of its first message that is not in it.
    ended : list of str
        The sources that have ended.
    """

    roots: dict[str, int] = {}
    next: dict[str, int] = {}
    ended: list[str] = []


class Marker(msgspec.Struct):
    """What says that a batch is there, and whole; where its query stood before and after it.

    ``control`` is the version of what its query was told to forward, ``taken`` are the records of each step in it.
    """

    files: list[TopicFile]
    control: int = 0
    before: Place = msgspec.field(default_factory=Place)
    after: Place = msgspec.field(default_factory=Place)
    taken: dict[str, int] = {}

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class Head(msgspec.Struct):
    """What outlives the newest batch of a topic when it is trimmed; ``taken`` are the records of each step so far."""

    batch: int = -1
    control: int = 0
    place: Place = msgspec.field(default_factory=Place)
    taken: dict[str, int] = {}


@dataclass(frozen=True)
class Topic:
    """A folder with the micro-batches of some streams, and how far each reader is.

    ``batch-<number>.json`` is the marker of a batch, which appears when its files are whole; ``readers/<name>.json``
    says from which batch on a reader has not read yet.

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
    >>> [batch["value"].to_pylist() for inputs in source.inputs("parse", split) for batch in inputs["parse"]]
    [[2.5, 4.0]]
    >>> source.commit({"batch": 1})
    >>> topic.batches()
    []
    """

    folder: Path

    # -- batches -----------------------------------------------------------------------------------

    def batches(self, since: int = 0) -> list[int]:
        """The numbers of the batches that are there, from one on, one after the other."""
        found = [number for number in self.numbers() if number >= since]
        if found and found != list(range(found[0], found[-1] + 1)):
            lacking = next(n for n in range(found[0], found[-1]) if n not in found)
            raise ConnectorError(f"the topic {self.folder} lacks the marker of batch {lacking}, and has later ones")
        return found

    def left(self, since: int) -> Iterator[tuple[int, Marker]]:
        """The same, with their files, for a reader that has not read that one yet: it is there, if there is one."""
        made = self.head().batch  # first: what is made meanwhile may be there or not
        found = self.batches(since)
        if (first := found[0] if found else made + 1) > since:
            raise ConnectorError(f"the topic {self.folder} begins with batch {first}, batch {since} is gone")
        return ((number, self.marker(number)) for number in found)

    def marker(self, batch: int) -> Marker:
        """The files of a batch."""
        found: Marker = self._read(self._marker_path(batch), Marker)
        return found

    def there(self, since: int = 0) -> list[Marker]:
        """What is there of batches from one on, while others may trim."""
        found = (self._marker(number) for number in self.numbers() if number >= since)
        return [marker for marker in found if marker is not None]

    def mark(self, batch: int, files: Sequence[TopicFile], **told: Any) -> None:
        """Say that a batch is there."""
        self._write(self._marker_path(batch), Marker(list(files), **told))

    def head(self) -> Head:
        """Where the writer stands."""
        try:
            found: Head = self._read(self.folder / HEAD, Head)
        except ConnectorError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # it may vanish while somebody looks
                raise
            found = Head()
        return found

    def stand(self, head: Head) -> None:
        """Note where the writer stands."""
        self._write(self.folder / HEAD, head)

    def stamp(self) -> int:
        """A number that changes when the writer stands elsewhere."""
        try:
            return (self.folder / HEAD).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def end(self) -> None:
        """Say that nothing more will come."""
        self._write(self.folder / END, {})

    def resume(self) -> None:
        """Take that back: its writer goes on."""
        (self.folder / END).unlink(missing_ok=True)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return (self.folder / END).exists()

    # -- readers -----------------------------------------------------------------------------------

    def readers(self) -> dict[str, int]:
        """The first batch that each reader has not read."""
        found = {}
        for path in sorted((self.folder / "readers").glob("*.json")):
            with contextlib.suppress(FileNotFoundError):  # it has left meanwhile
                found[path.stem] = self._decoded(path, path.read_bytes(), int)
        return found

    def join(self, reader: str, batch: int) -> None:
        """A reader needs all from a batch on."""
        self._write(self._reader_path(reader), batch)

    def leave(self, reader: str) -> None:
        """A reader needs nothing any more."""
        self._reader_path(reader).unlink(missing_ok=True)
        self.trim()
        if (self.folder / RETIRED).exists():
            self._vanish()

    def retire(self) -> None:
        """Its writer has gone for good: it goes itself when its readers have left."""
        if self.folder.is_dir():
            self._write(self.folder / RETIRED, {})
        self._vanish()

    def _vanish(self) -> None:
        if not self.readers():
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()  # unless there is more in it

    def trim(self) -> None:
        """Remove the batches that all readers have read; without a reader, all."""
        numbers = self.numbers()
        least = min(self.readers().values(), default=numbers[-1] + 1 if numbers else 0)
        for batch in [n for n in numbers if n < least]:
            marker = self._marker(batch)
            self._marker_path(batch).unlink(missing_ok=True)  # first: a batch without files must never seem to be there
            for path in {file.path for file in marker.files} if marker is not None else ():
                (self.folder / path).unlink(missing_ok=True)

    def unread(self, counted: Callable[[str], bool] = lambda reader: True) -> int:
        """Bytes that some reader, of those that count, has not read yet."""
        least = min((at for reader, at in self.readers().items() if counted(reader)), default=None)
        if least is None:
            return 0
        return sum(marker.size for marker in self.there(least))

    # -- files -------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """The numbers of the batches that are there now, while others may trim."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        found = (re.fullmatch(r"batch-(\d+)\.json", name) for name in names)
        return sorted(int(one[1]) for one in found if one)

    def _marker(self, batch: int) -> Marker | None:
        """The files of a batch, if it is still there."""
        try:
            found: Marker = self._decoded(path := self._marker_path(batch), path.read_bytes(), Marker)
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
        """Make a small file appear whole, and stay after a power cut."""
        try:
            make_folder(path.parent)
            hidden = path.parent / f".{path.name}-{uuid.uuid4().hex}"
            hidden.write_bytes(msgspec.json.encode(content))
            sync(hidden)
            os.replace(hidden, path)
            sync(path.parent)
        except OSError as error:
            raise ConnectorError(f"the topic {self.folder} cannot be written: {error}") from error

    def _read(self, path: Path, kind: Any) -> Any:
        try:
            return self._decoded(path, path.read_bytes(), kind)
        except OSError as error:
            raise ConnectorError(f"the topic {self.folder} cannot be read: {error}") from error

    def _decoded(self, path: Path, data: bytes, kind: Any) -> Any:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise ConnectorError(f"the topic {self.folder} is damaged: {path.name}: {error}") from None
