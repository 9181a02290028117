"""Folders that a run has for itself: two runs at once in one would double and lose records."""

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

__all__ = ["Claim", "claimed_by"]

LOCK = ".riot_ops.lock"

#: The claims of this process, by folder.
_HELD: dict[Path, Claim] = {}


class _Owner(msgspec.Struct):
    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        here = self.host == socket.gethostname()
        who = "this process" if here and self.pid == os.getpid() else f"process {self.pid}"
        return f"{who} on {'this host' if here else self.host} since {self.since}"


class Claim:
    """Holds folders against all other runs until it is released, or the process ends in whatever way.

    The lock is the operating system's own on a file in the folder, so that one that a killed process left
    is no hindrance; the file tells others who the owner is.

    Parameters
    ----------
    folders : paths
        Made where they are missing.
    over : function, optional
        Tells whether the run is over although nobody released the claim; another run in this process then
        takes the folders.

    Raises
    ------
    ConnectorError
        Where another run has one of the folders, with its owner.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> claim = Claim([folder])
    >>> Claim([folder])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    riot_ops.core.errors.ConnectorError: the folder /tmp/… is in use by this process on this host since …
    >>> claim.release()
    >>> Claim([folder]).release()
    """

    def __init__(self, folders: Iterable[Path], over: Callable[[], bool] = lambda: False) -> None:
        self.over = over
        self._files: dict[Path, IO[bytes]] = {}
        try:
            for folder in folders:
                self._take(folder.resolve())
        except BaseException:
            self.release()
            raise

    def _take(self, folder: Path) -> None:
        other = _HELD.get(folder)
        if other is not None and other is not self and other.over():
            other.release()
        path = folder / LOCK
        try:
            make_folder(folder)
            file = _locked(path)
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
            raise ConnectorError(f"the folder {folder} cannot be taken for a run: {error}") from error

    def release(self) -> None:
        """Let others have the folders; may be called twice."""
        while self._files:
            folder, file = self._files.popitem()
            _HELD.pop(folder, None)
            (folder / LOCK).unlink(missing_ok=True)  # while it is locked: nobody else's is removed
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def claimed_by(folder: Path) -> bytes:
    """What the owner of a folder has left there, as long as it is his, without taking part in who gets it."""
    try:
        return (folder / LOCK).read_bytes()
    except OSError:
        return b""


def _locked(path: Path) -> IO[bytes] | None:
    """The file, locked, or None where it is another's."""
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
        file.close()  # its owner has removed it meanwhile


def _owner(path: Path) -> str:
    try:
        return str(msgspec.json.decode(path.read_bytes(), type=_Owner))
    except (OSError, msgspec.MsgspecError):
        return excerpt(f"another run, which holds {path}")
