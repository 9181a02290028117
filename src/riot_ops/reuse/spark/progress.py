"""The progress of a dispatcher: the position of its reader in several topics, and the file that keeps it."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.reuse.spark.files import write_json
from riot_ops.reuse.spark.subscriber import Progress, Subscriber
from riot_ops.reuse.topic import Topic

__all__ = ["DispatcherProgress", "ProgressFile", "TopicCursor"]


class TopicCursor:
    """The first unread batch of each topic that a reader reads; the topics keep batches until it commits.

    Parameters
    ----------
    reader : str
        Its name among the readers of the topics.
    topics : mapping of str to Topic
        By fragment.
    at : mapping of str to int
        By fragment, the batch to start at; batches before the position known to the topic are read already.
    """

    def __init__(self, reader: str, topics: Mapping[str, Topic], at: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self.reader, self.topics = reader, dict(topics)
        self.at = {name: max(at[name], topic.readers().get(reader, 0)) for name, topic in topics.items()}
        try:
            for name, topic in topics.items():
                topic.join(reader, self.at[name])
        except BaseException:
            self.leave()
            raise

    def positions(self) -> list[tuple[str, Topic, int]]:
        """Return a consistent copy of the topics with their first unread batches, while other threads change them."""
        with self._lock:
            return [(name, topic, self.at[name]) for name, topic in self.topics.items()]

    def has_unread(self, name: str) -> bool:
        """Return whether a topic has unread batches."""
        return self.topics[name].head().batch >= self.at[name]

    def lags(self) -> bool:
        """Return whether any topic has unread batches."""
        return any(topic.head().batch >= at for _, topic, at in self.positions())

    def has_read(self, batches: Mapping[str, int]) -> bool:
        """Return whether these batches are read, of topics that it still reads."""
        return all(self.at.get(name, batch + 1) > batch for name, batch in batches.items())

    def advance(self, end: Mapping[str, int]) -> None:
        """Move forward to these batches, of topics that it still reads; :meth:`commit` makes it known to the topics."""
        with self._lock:
            known = {name: batch for name, batch in end.items() if name in self.topics}
            self.at = self.at | {name: max(batch, self.at[name]) for name, batch in known.items()}

    def commit(self) -> None:
        """Let the topics trim the batches that are read."""
        with self._lock:
            for name, topic in self.topics.items():
                if topic.readers().get(self.reader) != self.at[name]:
                    topic.join(self.reader, self.at[name])
                    topic.trim()

    def add(self, name: str, topic: Topic, at: int) -> None:
        """Read a further topic from batch ``at`` on; does nothing for a topic that it reads already."""
        if name not in self.topics:
            if self.reader not in topic.readers():
                topic.join(self.reader, at)
            with self._lock:
                self.at = {**self.at, name: at}
                self.topics = {**self.topics, name: topic}  # a copy, as other threads may be iterating

    def retain(self, wanted: Callable[[str], bool]) -> list[Topic]:
        """Stop reading all other topics; returns those, which the caller still has to leave."""
        with self._lock:
            dropped = [topic for name, topic in self.topics.items() if not wanted(name)]
            self.topics = {name: topic for name, topic in self.topics.items() if wanted(name)}
            self.at = {name: at for name, at in self.at.items() if wanted(name)}
        return dropped

    def leave(self) -> None:
        """Stop reading all topics."""
        for topic in self.topics.values():
            if topic.folder.is_dir():
                topic.leave(self.reader)


_log = logging.getLogger("riot_ops")


class DispatcherProgress(msgspec.Struct):
    """The next batch of each topic that a dispatcher reads, and the progress of its dataflows."""

    at: dict[str, int]
    dataflows: dict[str, Progress]


class ProgressFile:
    """The file with the progress of a dispatcher.

    Attributes
    ----------
    unsaved : bool
        Whether progress could not be written, or not be committed to the topics. It must be before the dispatcher
        continues.
    """

    def __init__(self, path: Path, progress: DispatcherProgress) -> None:
        self.path = path
        self.unsaved = self._deleted = False
        self._lock = threading.Lock()
        write_json(path, progress)
        self._written = progress

    def write(self, at: Mapping[str, int], subscribers: Iterable[Subscriber]) -> None:
        """Write the progress if it has changed, with the records that the subscribers' sinks lack."""
        with self._lock:
            progress = DispatcherProgress(dict(at), {one.name: one.snapshot() for one in subscribers})
            if progress != self._written and not self._deleted:
                write_json(self.path, progress)
                self._written = progress

    def save(self, cursor: TopicCursor, subscribers: Sequence[Subscriber], changed: bool = True) -> bool:
        """Write progress that has changed, then commit the cursor; False if the disk has no room at the moment.

        Raises
        ------
        ConnectorError
            If a file of a topic is damaged.
        """
        warned, self.unsaved = self.unsaved, True
        try:
            if changed or warned:
                self.write(cursor.at, subscribers)
            cursor.commit()
        except ConnectorError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            if not warned:
                names = ", ".join(one.name for one in subscribers)
                _log.warning("the sinks of %s get no records until their progress can be written: %s", names, error)
            return False
        self.unsaved = False
        return True

    def sibling(self) -> Path:
        """Return the path for a further dispatcher's file."""
        return self.path.with_name(f"{uuid.uuid4().hex}.json")

    def delete(self) -> None:
        """Delete the file; later writes are ignored."""
        with self._lock:
            self._deleted = True
            self.path.unlink(missing_ok=True)
