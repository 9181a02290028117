"""A durable queue on disk for received messages that are not yet processed."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.core.paths import sync

__all__ = ["Message", "Spool", "end_within", "first_number", "read_messages"]

SUFFIX = ".spool"
COMMITTED = "committed"
#: Header of a block: length, checksum, number of the first message, and number of messages.
BLOCK_HEADER = struct.Struct("<IIqI")
SEGMENT_BYTES = 16 << 20
#: Number of message identities that are remembered.
MAX_IDS = 10_000
ID_BYTES = 16
#: Bytes of the last messages that the writer keeps for readers in its process.
RECENT_BYTES, MESSAGE_BYTES = 4 << 20, 200
#: How long to wait for the lock: the process of a query may end after the query.
LOCK_TIMEOUT_S, LOCK_POLL_S = 5.0, 0.02


class Message(msgspec.Struct, array_like=True):
    """A received message. ``packet`` is its packet id at the broker for QoS 2, ``id`` its identity."""

    time_us: int | None
    topic: str | None
    payload: bytes
    packet: int = 0
    id: bytes = b""


class _Block(msgspec.Struct, array_like=True):
    """The content of one block: messages, and changes of packets of QoS 2."""

    messages: Sequence[Message] = ()
    released: Sequence[int] = ()
    forget: bool = False  # the broker has a new session: its packet ids start again


class _Start(msgspec.Struct, array_like=True):
    """The first block of a segment: the state after earlier segments, which can then be deleted."""

    unreleased: Sequence[int] = ()
    ids: bytes = b""


class Spool:
    """The writer of a spool; only one can be open at a time.

    Messages are numbered from 0 and appended to segment files in blocks; each block is on disk when :meth:`append`
    returns. :meth:`commit` deletes whole segments. The next start removes a block that a crash has truncated.

    Parameters
    ----------
    folder : Path
        Created if missing; it must outlive the process.
    max_bytes : int
        The spool is :attr:`full` from this size on; several MiB.
    cancelled : threading.Event, optional
        While set, a spool in use by another process is an error at once.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> spool = Spool(folder, 1 << 20)
    >>> spool.append([Message(0, "a", b"1"), Message(0, "a", b"2")])
    >>> [m.payload for _, messages in read_messages(folder, 1, 2) for m in messages]
    [b'2']
    >>> spool.commit(2)
    >>> spool.end, first_number(folder), len(list(folder.glob("*.spool")))
    (2, 2, 1)
    """

    def __init__(self, folder: Path, max_bytes: int, cancelled: threading.Event | None = None) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.segment_bytes = min(SEGMENT_BYTES, max_bytes // 4)
        self.size = self._used = self.end = 0
        self.unreleased: set[int] = set()
        self._ids: deque[bytes] = deque()
        self._id_set: set[bytes] = set()
        self._lock = threading.Lock()
        self._recent: deque[tuple[int, Sequence[Message]]] = deque()  # with the number of the first message
        self._recent_bytes = 0
        self._file: IO[bytes] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._guard = open(folder / ".lock", "wb")  # noqa: SIM115 (held until it is closed)
        except OSError as error:
            raise _not_usable(folder, error) from None
        if not _try_lock(self._guard, cancelled or threading.Event()):
            self._guard.close()
            raise ConnectorError(
                f"the spool {folder} is in use by another process: each subscriber needs its own, and a source that "
                "is open here must be closed before a run on Spark",
                retryable=True,
            ) from None
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    # -- state -------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the spool has reached ``max_bytes``, so that appends should wait for a commit."""
        return self.size >= self.max_bytes

    def contains_id(self, identity: bytes) -> bool:
        """Whether a message with this identity is among the remembered ones."""
        return identity in self._id_set

    def _recover(self) -> None:
        segments = _segments(self.folder)
        self.size = sum(path.stat().st_size for _, path in segments)
        if segments:
            number, path = segments[-1]
            with open(path, "rb") as file:
                length, self.end = self._replay(path, number, file)
            if length == 0:  # the first block of a segment is written atomically
                raise ConnectorError(f"the spool {path} has lost its beginning: it is damaged")
            self._file = open(path, "r+b")  # noqa: SIM115 (stays open)
            self._file.truncate(length)
            self._file.seek(length)
            self.size += length - path.stat().st_size
            self._used = length
        else:
            self.end = max(_read_committed(self.folder), 0)
            self._begin()

    def _replay(self, path: Path, number: int, file: IO[bytes]) -> tuple[int, int]:
        """Read the last segment; return the length of its complete blocks, and the next number."""
        length = 0
        for first, count, body in _blocks(path, file, torn=True):
            if length == 0:
                start = _decode(path, body, _Start)
                self.unreleased = set(start.unreleased)
                for i in range(0, len(start.ids), ID_BYTES):
                    self._remember(start.ids[i : i + ID_BYTES])
            else:
                self._apply(_decode(path, body, _Block))
            length, number = file.tell(), first + count
        return length, number

    def _apply(self, block: _Block) -> None:
        if block.forget:
            self.unreleased.clear()
        for message in block.messages:
            if message.packet:
                self.unreleased.add(message.packet)
            if message.id:
                self._remember(message.id)
        self.unreleased.difference_update(block.released)

    def _remember(self, identity: bytes) -> None:
        self._ids.append(identity)
        self._id_set.add(identity)
        if len(self._ids) > MAX_IDS:
            self._id_set.discard(self._ids.popleft())

    # -- writing -----------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message] = (), released: Iterable[int] = (), forget: bool = False) -> None:
        """Append messages and changes; return when they are on disk."""
        block = _Block(messages, list(released), forget)
        with self._lock:
            if self._used >= self.segment_bytes:
                self._begin()
            self._write(block, len(messages))
            self._apply(block)
            if messages:
                self._recent.append((self.end, messages))
                self._recent_bytes += _memory_of(messages)
            while self._recent_bytes > RECENT_BYTES:
                self._forget_first()
            self.end += len(messages)

    def _forget_first(self) -> None:
        _, messages = self._recent.popleft()
        self._recent_bytes -= _memory_of(messages)

    def recent(self, start: int, end: int) -> list[Sequence[Message]] | None:
        """Return the messages of a range in order if all are in memory, else None: they are on disk."""
        with self._lock:
            if not self._recent or start < self._recent[0][0] or end > self.end:
                return None
            held = [(first, messages) for first, messages in self._recent if first < end]
        found = [messages[max(start - first, 0) : end - first] for first, messages in held]
        return [messages for messages in found if messages]

    def _write(self, body: Any, count: int) -> None:
        assert self._file is not None
        data = msgspec.msgpack.encode(body)
        try:
            self._file.write(BLOCK_HEADER.pack(len(data), zlib.crc32(data), self.end, count) + data)
            self._file.flush()
            os.fdatasync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):  # the disk is full: leave no partial block
                self._file.seek(self._used)
                self._file.truncate(self._used)
            raise ConnectorError(f"the spool {self.folder} cannot be written: {error}") from None
        self._used += BLOCK_HEADER.size + len(data)
        self.size += BLOCK_HEADER.size + len(data)

    def _begin(self) -> None:
        """Start a new segment; it appears atomically with its first block."""
        path = self.folder / f"{self.end:020d}{SUFFIX}"
        old, self._used = self._file, 0
        try:
            self._file = open(path.with_suffix(".new"), "w+b")  # noqa: SIM115 (stays open)
            self._write(_Start(sorted(self.unreleased), b"".join(self._ids)), 0)
            os.replace(path.with_suffix(".new"), path)
            sync(self.folder)
        except OSError as error:
            raise ConnectorError(f"the spool {self.folder} cannot be written: {error}") from None
        if old is not None:
            old.close()

    def commit(self, number: int) -> None:
        """Mark the messages before a number as processed, and delete segments that only contain these."""
        with self._lock:
            if self._file is None or number <= _read_committed(self.folder):
                return
            temporary = self.folder / f"{COMMITTED}.new"
            try:
                with open(temporary, "wb") as file:
                    file.write(b"%d" % number)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self.folder / COMMITTED)
                segments = _segments(self.folder)
                if number >= self.end and segments[-1][0] < self.end:
                    self._begin()
                    segments = _segments(self.folder)
                while self._recent and self._recent[0][0] + len(self._recent[0][1]) <= number:
                    self._forget_first()
                for (_, path), (next_one, _) in itertools.pairwise(segments):
                    if next_one <= number:
                        self.size -= path.stat().st_size
                        path.unlink()
            except OSError as error:
                raise ConnectorError(f"the spool {self.folder} cannot be written: {error}") from None

    def close(self) -> None:
        """Release the spool for other processes; may be called twice."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
            self._guard.close()


def _memory_of(messages: Sequence[Message]) -> int:
    return sum(len(m.payload) + MESSAGE_BYTES for m in messages)


def _try_lock(file: IO[bytes], cancelled: threading.Event) -> bool:
    """Try to lock a file; wait :data:`LOCK_TIMEOUT_S`, since a process that is ending still holds it."""
    until = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until or cancelled.wait(LOCK_POLL_S):
                return False


# -- reading -----------------------------------------------------------------------------------------


def first_number(folder: Path) -> int:
    """Return the number of the first uncommitted message."""
    segments = _segments(folder)
    return max(segments[0][0] if segments else 0, _read_committed(folder))


def read_messages(folder: Path, start: int, end: int) -> Iterator[tuple[int, list[Message]]]:
    """Read the messages of a range in order, as ``(number of the first, messages)`` per block.

    Needs no lock and no writer; raises :class:`ConnectorError` if a part is missing.
    """
    segments = _segments(folder)
    at = start
    for i, (_, path) in enumerate(segments):
        if at >= end or (i + 1 < len(segments) and segments[i + 1][0] <= at):
            continue
        try:
            with open(path, "rb") as file:
                for first, count, body in _blocks(path, file, torn=i + 1 == len(segments), since=at):
                    if first > at or first >= end:
                        break
                    if body and count:
                        found = list(_decode(path, body, _Block).messages)[at - first : end - first]
                        yield at, found
                        at += len(found)
                    if at >= end:
                        break
        except FileNotFoundError:
            break
    if at < end:
        raise ConnectorError(f"the spool {folder} does not hold the messages {at} to {end - 1} (any more)")


def end_within(folder: Path, start: int, end: int, max_bytes: int) -> int:
    """Return the end of a range, or an earlier one between blocks with which it has about ``max_bytes``.

    At least the first block is within. Only the headers are read.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> spool = Spool(folder, 1 << 20)
    >>> for _ in range(3):
    ...     spool.append([Message(0, "a", bytes(1000))] * 10)
    >>> [end_within(folder, 5, 30, size) for size in (1, 15_000, 25_000, 99_000)]
    [10, 10, 20, 30]
    >>> spool.close()
    """
    segments = _segments(folder)
    at, size = start, 0
    for i, (_, path) in enumerate(segments):
        if i + 1 < len(segments) and segments[i + 1][0] <= start:
            continue
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            while len(head := file.read(BLOCK_HEADER.size)) == BLOCK_HEADER.size:
                length, _, first, count = BLOCK_HEADER.unpack(head)
                file.seek(length, os.SEEK_CUR)
                if not count or first + count <= start:
                    continue
                size += length
                if first >= end or (at > start and size > max_bytes):
                    return min(at, end)
                at = first + count
    return end  # the rest is not on disk yet, or read_messages() will report it missing


def _segments(folder: Path) -> list[tuple[int, Path]]:
    return sorted((int(path.stem), path) for path in folder.glob(f"*{SUFFIX}"))


def _read_committed(folder: Path) -> int:
    try:
        return int((folder / COMMITTED).read_bytes())
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _not_usable(folder, error) from None
    except ValueError:
        raise ConnectorError(f"the file {folder / COMMITTED} is damaged") from None


def _not_usable(folder: Path, error: OSError) -> ConnectorError:
    return ConnectorError(
        f"the spool {folder} cannot be opened: {error.strerror or error}; spool must be a folder on a local disk that "
        "this user may write to"
    )


def _blocks(path: Path, file: IO[bytes], torn: bool, since: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Read the number of the first message, the count and the content of each block; empty content before ``since``.

    An incomplete last block ends the segment if it may be ``torn``; otherwise it is an error.
    """
    while head := file.read(BLOCK_HEADER.size):
        length, checksum, first, count = BLOCK_HEADER.unpack(head) if len(head) == BLOCK_HEADER.size else (0, 1, 0, 0)
        if first + count <= since and len(head) == BLOCK_HEADER.size and count:
            file.seek(length, os.SEEK_CUR)
            yield first, count, b""
            continue
        body = file.read(length)
        if not length or len(body) < length or zlib.crc32(body) != checksum:
            if torn and (len(body) < length or not file.read().strip(b"\0")):
                return
            raise ConnectorError(f"the spool {path} is damaged near message {first}")
        yield first, count, body


def _decode(path: Path, body: bytes, block_type: type[Any]) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=block_type)
    except msgspec.MsgspecError:
        raise ConnectorError(f"the spool {path} holds a block that cannot be read") from None
