"""The file with the progress of a dispatcher."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.reuse.spark.cursor import TopicCursor
from riot_ops.reuse.spark.files import write_json
from riot_ops.reuse.spark.subscriber import Progress, Subscriber

__all__ = ["DispatcherProgress", "ProgressFile"]

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
