"""A message broker made of files in a folder: what stands behind ``file://`` URLs.

It needs no server, works across the processes of one machine (or a shared file system), and keeps what
is published until the folder is removed.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from riot_ops.connectors.mqtt.memory import Published, matches
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import local_path, scheme_of, write_whole

__all__ = ["FolderBroker", "folder_of"]

SUFFIX = ".messages"
_DECODER = msgspec.msgpack.Decoder(list[Published])


class FolderBroker:
    """Messages in a folder.

    Each call of :meth:`publish` makes one file. A session is a file with the names of those that its
    client has had; like a broker's session it begins when the client first subscribes, with the last
    retained message of each topic.

    Examples
    --------
    >>> import tempfile
    >>> broker = FolderBroker("file://" + tempfile.mkdtemp())
    >>> broker.publish([Published("models/city", b"1", retain=True), Published("models/city", b"2", retain=True)])
    >>> session = broker.session("me", ["models/#"])
    >>> [m.payload for m in session.next()], session.done()
    ([b'2'], None)
    >>> broker.publish([Published("models/city", b"3")])
    >>> [m.payload for m in broker.session("me", ["models/#"]).next()]
    [b'3']
    """

    def __init__(self, url: str) -> None:
        self.folder = folder_of(url)

    def publish(self, messages: Iterable[Published]) -> None:
        """Make messages visible, all at once."""
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex}{SUFFIX}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / name, msgspec.msgpack.encode(list(messages)))
        except OSError as error:
            raise ConnectorError(f"cannot publish to {self.folder}: {error}") from error

    def session(self, client_id: str, filters: Sequence[str]) -> FolderSession:
        """The session of a client, which goes on where the client left it."""
        return FolderSession(self, client_id, filters)

    def names(self) -> list[str]:
        """The files of messages, the oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(SUFFIX))

    def read(self, name: str) -> list[Published]:
        """The messages of a file."""
        try:
            return _DECODER.decode((self.folder / name).read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            raise ConnectorError(f"{self.folder / name} cannot be read: {error}") from error


class FolderSession:
    """What a client has not had yet."""

    def __init__(self, broker: FolderBroker, client_id: str, filters: Sequence[str]) -> None:
        self._broker = broker
        self._filters = tuple(filters)
        self._path = broker.folder / "sessions" / f"{quote(client_id, safe='')}.json"
        self._given: list[str] = []
        self._first: list[Published] = []
        if self._path.exists():
            self._had = set(json.loads(self._path.read_text(encoding="utf-8")))
        else:
            self._had = set(broker.names())
            self._first = list(self._retained())
            self._save()

    def next(self) -> list[Published]:
        """The messages that have come and are not :meth:`done`."""
        new = [name for name in self._broker.names() if name not in self._had]
        self._given = new
        return [*self._first, *(m for name in new for m in self._broker.read(name) if self._wants(m.topic))]

    def done(self) -> None:
        """What :meth:`next` gave will not come again."""
        if self._given or self._first:
            self._had.update(self._given)
            self._given, self._first = [], []
            self._save()

    def _wants(self, topic: str) -> bool:
        return any(matches(one, topic) for one in self._filters)

    def _retained(self) -> Iterator[Published]:
        last: dict[str, Published] = {}
        for name in sorted(self._had):
            for message in self._broker.read(name):
                if message.retain and self._wants(message.topic):
                    last[message.topic] = message
        return (m for m in last.values() if m.payload)

    def _save(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(sorted(self._had)).encode())
        except OSError as error:
            raise ConnectorError(f"cannot keep the session {self._path}: {error}") from error


def folder_of(url: str) -> Path:
    """The folder of a ``file://`` URL."""
    folder = local_path(url, "url")
    if scheme_of(url) != "file" or not folder.is_absolute() or folder == Path("/"):
        raise ConfigError(f"url must be file:///folder, got the folder {folder}")
    return folder
