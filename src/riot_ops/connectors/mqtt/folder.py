"""An MQTT broker made of files in a folder, for ``file://`` URLs.

It needs no server, works across the processes of one machine (or a shared file system), and keeps all messages until
the folder is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from riot_ops.connectors.mqtt.memory import PublishedMessage, is_shared, subscribes, topic_matches
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import local_path, scheme_of, sync, write_atomic

__all__ = ["FolderBroker", "folder_of"]

SUFFIX = ".messages"
#: Messages are in subfolders by time of publication: the first digits of a file's name, which count steps of 10 s. So a
#: reader lists few files again.
PART_DIGITS = 10
#: A folder may change again at the same time of change, as file systems count in steps of up to 2 s; so it is listed
#: until its last change is this old, and at least this often.
CLOCK_STEP_SECONDS, LIST_SECONDS = 2.5, 1.0
#: A part that has not changed for this long is quiet: only publishers that were stopped or whose clocks are wrong still
#: write to it. So many quiet parts are visited, in turn, each time that this many seconds have passed, and listed only
#: if they have changed.
QUIET_SECONDS, VISITED_PARTS, VISIT_SECONDS = 30.0, 64, 1.0
_DECODER = msgspec.msgpack.Decoder(list[PublishedMessage])


class FolderBroker:
    """A broker that stores messages in a folder.

    Each call of :meth:`publish` writes one file. A session is a file with the names of those that its client has read,
    one per line. Like the session of a server it begins when the client first subscribes, with the last retained
    message of each topic.

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
        part = self.folder / name[:PART_DIGITS]
        try:
            if not part.is_dir():
                part.mkdir(parents=True, exist_ok=True)
                sync(self.folder)
            write_atomic(part / name, msgspec.msgpack.encode(list(messages)))
        except OSError as error:
            raise ConnectorError(f"cannot publish to {self.folder}: {error}") from error

    def session(self, client_id: str, filters: Sequence[str]) -> FolderSession:
        """Return the session of a client, which persists between connections."""
        return FolderSession(self, client_id, filters)

    def names(self) -> list[str]:
        """List the files of messages by their paths in the folder, the oldest first."""
        return sorted(name for part in self.parts() for name in self.names_of(part))

    def parts(self) -> list[str]:
        """List the subfolders of messages."""
        try:
            return [entry.name for entry in os.scandir(self.folder) if entry.name.isdigit()]
        except FileNotFoundError:
            return []

    def names_of(self, part: str) -> list[str]:
        """List the files of messages in a subfolder, in any order."""
        try:
            return [f"{part}/{name}" for name in os.listdir(f"{self._path}/{part}") if name.endswith(SUFFIX)]
        except FileNotFoundError:
            return []

    def changed_ns(self, part: str = "") -> int:
        """When a file was last added to a subfolder, or a subfolder to the folder, in ns since 1970; -1 without it."""
        try:
            return os.stat(f"{self._path}/{part}").st_mtime_ns
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
        self._path = broker.folder / "sessions" / f"{quote(client_id, safe='')}.txt"
        self._unread: set[str] = set()
        self._pending: list[str] = []
        #: Files without a message for this client; the next acknowledgement writes them as well.
        self._skipped: list[str] = []
        self._initial: list[PublishedMessage] = []
        self._files = _NewFiles(broker)
        if self._path.exists():
            lines = self._path.read_bytes()
            self._size = lines.rfind(b"\n") + 1  # without a line of which only a part was written
            self._read = set(lines[: self._size].decode().split("\n")) - {""}
        else:
            self._read = set(broker.names())
            self._initial = list(self._retained())
            self._save()

    def next(self) -> list[PublishedMessage]:
        """Return the new messages, again until :meth:`done` is called."""
        self._unread = {name for name in self._unread if (self._broker.folder / name).exists()}  # not deleted since
        self._unread.update(name for name in self._files.changed() if name not in self._read)
        messages = [*self._initial]
        self._pending = []
        for name in sorted(self._unread):
            received = [m for m in self._broker.read(name) if self._receives(name, m.topic)]
            messages += received
            if received:
                self._pending.append(name)
            else:
                self._read.add(name)
                self._unread.remove(name)
                self._skipped.append(name)
        return messages

    def done(self) -> None:
        """Acknowledge the messages that :meth:`next` returned."""
        if self._pending or self._initial:
            self._read.update(self._pending)
            self._unread.difference_update(self._pending)
            self._append([*self._skipped, *self._pending])
            self._skipped, self._pending, self._initial = [], [], []

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
        lines = _lines(sorted(self._read))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, lines)
        except OSError as error:
            raise ConnectorError(f"cannot write the session {self._path}: {error}") from error
        self._size = len(lines)

    def _append(self, names: Sequence[str]) -> None:
        """Add names to the file, in place of a line of which only a part was written."""
        lines = _lines(names)
        try:
            with open(self._path, "r+b") as file:
                if complete := file.seek(0, os.SEEK_END) >= self._size:
                    file.truncate(self._size)
                    file.seek(self._size)
                    file.write(lines)
                    file.flush()
                    os.fsync(file.fileno())
        except FileNotFoundError:  # the folder was deleted
            complete = False
        except OSError as error:
            raise ConnectorError(f"cannot write the session {self._path}: {error}") from error
        if complete:
            self._size += len(lines)
        else:
            self._save()


class _NewFiles:
    """Finds the files that were added to the folder of a broker, and lists only the parts that may have changed."""

    def __init__(self, broker: FolderBroker) -> None:
        self._broker = broker
        #: By part: its time of change when it was last listed, and when that was.
        self._listed: dict[str, tuple[int, float]] = {}
        self._active: set[str] = set()
        self._quiet: deque[str] = deque()
        self._parts_listed: tuple[int, float] = -2, 0.0
        self._visited = 0.0

    def changed(self) -> list[str]:
        """Return the files in the parts that have changed since the last call, or may have."""
        now = time.time()
        self._find_parts(now)
        visited = [*self._active]
        if not 0 <= now - self._visited < VISIT_SECONDS:
            self._visited = now
            visited += [self._quiet.popleft() for _ in range(min(VISITED_PARTS, len(self._quiet)))]
        names: list[str] = []
        for part in visited:
            changed_ns = self._broker.changed_ns(part)
            seconds = LIST_SECONDS if part in self._active else math.inf
            if not _is_current(self._listed.get(part), changed_ns, now, seconds):
                names += self._broker.names_of(part)
                self._listed[part] = changed_ns, now
            quiet = now - changed_ns / 1e9 > QUIET_SECONDS
            (self._active.discard if quiet else self._active.add)(part)
            if quiet:
                self._quiet.append(part)
        return names

    def _find_parts(self, now: float) -> None:
        changed_ns = self._broker.changed_ns()
        if not _is_current(self._parts_listed, changed_ns, now, LIST_SECONDS):
            self._active.update(part for part in self._broker.parts() if part not in self._listed)
            self._parts_listed = changed_ns, now


def _is_current(listed: tuple[int, float] | None, changed_ns: int, now: float, seconds: float) -> bool:
    """Whether a list of a folder has all its files: it is from after the last change, and not older than that."""
    if listed is None:
        return False
    before, at = listed
    return changed_ns == before and changed_ns < (at - CLOCK_STEP_SECONDS) * 1e9 and 0 <= now - at < seconds


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def folder_of(url: str) -> Path:
    """Return the folder of a ``file://`` URL."""
    folder = local_path(url, "url")
    if scheme_of(url) != "file" or not folder.is_absolute() or folder == Path("/"):
        raise ConfigError(f"url must be file:///folder, got the folder {folder}")
    return folder
