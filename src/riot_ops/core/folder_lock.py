"""Locks on the folders of a run: two runs in one folder would duplicate and lose records."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from riot_ops.core.errors import ConnectorError, excerpt
from riot_ops.core.paths import make_folder

__all__ = ["FolderLock", "read_lock"]

LOCK = ".riot_ops.lock"

#: The locks of this process, by folder.
_HELD: dict[Path, FolderLock] = {}


class _Owner(msgspec.Struct):
    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        here = self.host == socket.gethostname()
        who = "this process" if here and self.pid == os.getpid() else f"process {self.pid}"
        return f"{who} on {'this host' if here else self.host} since {self.since}"


class FolderLock:
    """A lock on folders against all other runs, until it is released or the process ends.

    It is a lock of the operating system on a file in the folder, so the file of a killed process does not
    block other runs. The file names the owner for error messages.

    Parameters
    ----------
    folders : paths
        Created if they are missing.
    is_over : function, optional
        Whether the run has ended without releasing the lock; another run in this process may then take over
        the folders.

    Raises
    ------
    ConnectorError
        If another run holds one of the folders; the message names its owner.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> claim = FolderLock([folder])
    >>> FolderLock([folder])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    riot_ops.core.errors.ConnectorError: the folder /tmp/… is in use by this process on this host since …
    >>> claim.release()
    >>> FolderLock([folder]).release()
    """

    def __init__(self, folders: Iterable[Path], is_over: Callable[[], bool] = lambda: False) -> None:
        self.is_over = is_over
        self._files: dict[Path, IO[bytes]] = {}
        try:
            for folder in folders:
                self._take(folder.resolve())
        except BaseException:
            self.release()
            raise

    def _take(self, folder: Path) -> None:
        other = _HELD.get(folder)
        if other is not None and other is not self and other.is_over():
            other.release()
        path = folder / LOCK
        try:
            make_folder(folder)
            file = _try_lock(path)
            if file is None:
                raise ConnectorError(
                    f"the folder {folder} is in use by {_owner(path)}: one run at a time can write there; "
                    "wait for its end, stop it, or use another folder"
                )
            self._files[folder] = file
            _HELD[folder] = self
            since = datetime.now(UTC).isoformat(" ", "seconds")
            file.truncate(0)
            file.write(msgspec.json.encode(_Owner(socket.gethostname(), os.getpid(), since)))
            file.flush()
        except ConnectorError:
            raise
        except OSError as error:
            raise ConnectorError(
                f"the folder {folder} cannot be taken for a run: {error}; give a folder that is there or can be made, "
                "and that this user may write to"
            ) from error

    def release(self) -> None:
        """Release the folders; may be called twice."""
        while self._files:
            folder, file = self._files.popitem()
            _HELD.pop(folder, None)
            (folder / LOCK).unlink(missing_ok=True)  # while it is locked, so that it is no other run's file
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def read_lock(folder: Path) -> bytes:
    """Read the owner's entry in the lock file, without taking part in the locking; empty if there is none."""
    try:
        return (folder / LOCK).read_bytes()
    except OSError:
        return b""


def _try_lock(path: Path) -> IO[bytes] | None:
    """Return the locked file, or None if another run holds it."""
    while True:
        file = open(path, "a+b")  # noqa: SIM115 (held until it is closed)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        file.close()  # the previous owner has just removed it


def _owner(path: Path) -> str:
    try:
        return str(msgspec.json.decode(path.read_bytes(), type=_Owner))
    except (OSError, msgspec.MsgspecError):
        return excerpt(f"another run, which holds {path}")
