"""An MQTT broker made of files in a folder, for ``file://`` URLs.

It needs no server, works across the processes of one machine (or a shared file system), and keeps all messages until
the folder is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from riot_ops.connectors.mqtt.memory import PublishedMessage, is_shared, subscribes, topic_matches
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import local_path, scheme_of, write_atomic

__all__ = ["FolderBroker", "folder_of"]

SUFFIX = ".messages"
#: A folder may change again at the same time of change, as file systems count in steps of up to 2 s; so it is listed
#: until its last change is this old, and at least this often.
CLOCK_STEP_SECONDS, LIST_SECONDS = 2.5, 1.0
_DECODER = msgspec.msgpack.Decoder(list[PublishedMessage])


class FolderBroker:
    """A broker that stores messages in a folder.

    Each call of :meth:`publish` writes one file. A session is a file with the names of those that its client has read;
    like the session of a server it begins when the client first subscribes, with the last retained message of each
    topic.

    Examples
    --------
    >>> import tempfile
    >>> broker = FolderBroker("file://" + tempfile.mkdtemp())
    >>> broker.publish(PublishedMessage("models/city", text, retain=True) for text in (b"1", b"2"))
    >>> session = broker.session("me", ["models/#"])
    >>> [m.payload for m in session.next()], session.done()
    ([b'2'], None)
    >>> broker.publish([PublishedMessage("models/city", b"3")])
    >>> [m.payload for m in broker.session("me", ["models/#"]).next()]
    [b'3']
    """

    def __init__(self, url: str) -> None:
        self.folder = folder_of(url)
        self._path = str(self.folder)

    def publish(self, messages: Iterable[PublishedMessage]) -> None:
        """Publish messages atomically."""
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex}{SUFFIX}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self.folder / name, msgspec.msgpack.encode(list(messages)))
        except OSError as error:
            raise ConnectorError(f"cannot publish to {self.folder}: {error}") from error

    def session(self, client_id: str, filters: Sequence[str]) -> FolderSession:
        """Return the session of a client, which persists between connections."""
        return FolderSession(self, client_id, filters)

    def names(self) -> list[str]:
        """List the files of messages, the oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(SUFFIX))

    def changed_ns(self) -> int:
        """When a file was last added, in ns since 1970; -1 without a folder."""
        try:
            return os.stat(self._path).st_mtime_ns
        except FileNotFoundError:
            return -1

    def read(self, name: str) -> list[PublishedMessage]:
        """Read the messages of a file."""
        try:
            return _DECODER.decode((self.folder / name).read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            raise ConnectorError(f"{self.folder / name} cannot be read: {error}") from error


class FolderSession:
    """The messages that a client has not read yet."""

    def __init__(self, broker: FolderBroker, client_id: str, filters: Sequence[str]) -> None:
        self._broker = broker
        self._filters = tuple(filters)
        self._claimant = _digest(client_id)
        self._path = broker.folder / "sessions" / f"{quote(client_id, safe='')}.json"
        self._pending: list[str] = []
        self._initial: list[PublishedMessage] = []
        self._listed: tuple[int, float] | None = None  # the folder's time of change, and when it was listed
        if self._path.exists():
            self._read = set(json.loads(self._path.read_text(encoding="utf-8")))
        else:
            self._read = set(broker.names())
            self._initial = list(self._retained())
            self._save()

    def next(self) -> list[PublishedMessage]:
        """Return the new messages, again until :meth:`done` is called."""
        changed_ns, now = self._broker.changed_ns(), time.time()
        if not self._pending and not self._initial and self._listed is not None:
            before, listed = self._listed
            settled = 0 <= changed_ns < (listed - CLOCK_STEP_SECONDS) * 1e9
            if changed_ns == before and settled and 0 <= now - listed < LIST_SECONDS:
                return []
        new = [name for name in self._broker.names() if name not in self._read]
        self._listed = changed_ns, now
        self._pending = new
        return [*self._initial, *(m for name in new for m in self._broker.read(name) if self._receives(name, m.topic))]

    def done(self) -> None:
        """Acknowledge the messages that :meth:`next` returned."""
        if self._pending or self._initial:
            self._read.update(self._pending)
            self._pending, self._initial = [], []
            self._save()

    def _receives(self, name: str, topic: str) -> bool:
        return subscribes(self._filters, topic) or any(
            self._claims(one, name) for one in self._filters if is_shared(one) and topic_matches(one, topic)
        )

    def _claims(self, shared: str, name: str) -> bool:
        """Whether this client is the first of the group to claim a file of messages, now or earlier."""
        path = self._broker.folder / "claims" / _digest(shared) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.symlink_to(self._claimant)  # the claim and its owner appear in one step
            return os.readlink(path) == self._claimant
        except OSError as error:
            raise ConnectorError(f"cannot write the claim {path}: {error}") from error

    def _retained(self) -> Iterator[PublishedMessage]:
        last: dict[str, PublishedMessage] = {}
        for name in sorted(self._read):
            for message in self._broker.read(name):
                if message.retain and subscribes(self._filters, message.topic):
                    last[message.topic] = message
        return (m for m in last.values() if m.payload)

    def _save(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(sorted(self._read)).encode())
        except OSError as error:
            raise ConnectorError(f"cannot write the session {self._path}: {error}") from error


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def folder_of(url: str) -> Path:
    """Return the folder of a ``file://`` URL."""
    folder = local_path(url, "url")
    if scheme_of(url) != "file" or not folder.is_absolute() or folder == Path("/"):
        raise ConfigError(f"url must be file:///folder, got the folder {folder}")
    return folder
