"""Local paths, plain or as ``file:`` URIs, and durable writes to them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from riot_ops.core.errors import ConfigError

__all__ = [
    "as_uri",
    "check_regular",
    "local_path",
    "make_folder",
    "safe_file_name",
    "scheme_of",
    "sync",
    "temporary_folder",
    "write_atomic",
]

#: The file by whose lock a temporary folder is known to be in use, and the open files of this process.
IN_USE = ".in-use"
_TEMPORARY: dict[Path, IO[bytes]] = {}


def scheme_of(path: str | os.PathLike[str]) -> str:
    """Return the scheme of a URI in lower case; empty for a plain path.

    >>> scheme_of("s3a://bucket/x"), scheme_of("file:/tmp/x"), scheme_of("out/12:30"), scheme_of("C:/x")
    ('s3a', 'file', '', '')
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", os.fspath(path))
    return found[1].lower() if found else ""


def safe_file_name(name: str) -> str:
    """Return a name that is one part of a path, for a name from a descriptor or a user.

    >>> safe_file_name("../../etc/x"), safe_file_name("/"), safe_file_name("fleet 7"), safe_file_name("größe")
    ('__.._etc_x', '_', 'fleet_7', 'größe')
    """
    return re.sub(r"[^\w.-]+|^\.+", "_", name)[:100] or "_"


def local_path(path: str | os.PathLike[str], what: str = "path") -> Path:
    """Convert a plain path or a ``file:`` URI, whose escapes (``%20``) are resolved.

    Parameters
    ----------
    path : str or path
    what : str, default "path"
        Name of the option, for the error message.

    Raises
    ------
    ConfigError
        For URIs with another scheme or host, paths with a NUL character, and objects that are not paths.

    Examples
    --------
    >>> str(local_path("file:///tmp/my%20data")), str(local_path("file:/tmp/x")), str(local_path("out/x"))
    ('/tmp/my data', '/tmp/x', 'out/x')
    >>> local_path("s3a://bucket/x", "out")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: out is an address of the kind s3a:, which is not supported here: give a path, or
    file:///… of a folder or file that this machine (and on a cluster each worker) sees
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise ConfigError(f"{what} must be a path, got {path!r}")
    text = os.fspath(path)
    scheme = scheme_of(text)
    if not scheme:
        return _without_nul(text, what)
    if scheme != "file":
        raise ConfigError(  # does not show the rest, which may hold a password
            f"{what} is an address of the kind {scheme}:, which is not supported here: give a path, or file:///… of "
            "a folder or file that this machine (and on a cluster each worker) sees"
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path:
        raise ConfigError(f"{what} must be file:///folder/file without a host, and with '?' and '#' as %3F and %23")
    return _without_nul(unquote(parts.path), what)


def _without_nul(path: str, what: str) -> Path:
    if "\0" in path:  # the file functions of Python raise a ValueError
        raise ConfigError(f"{what} must be a path without NUL characters, got {path!r}")
    return Path(path)


def check_regular(path: Path) -> None:
    """Raise an OSError unless a path is that of a file: a pipe or a device may never end.

    >>> check_regular(Path("/dev/null"))
    Traceback (most recent call last):
    OSError: [Errno 22] not a regular file: '/dev/null'
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def as_uri(path: str | os.PathLike[str]) -> str:
    """Convert a local checkpoint path to a ``file:`` URI, which no default file system changes; keep other URIs.

    >>> as_uri("/tmp/x"), as_uri("file:///tmp/x"), as_uri("s3a://bucket/x")
    ('file:/tmp/x', 'file:/tmp/x', 's3a://bucket/x')
    """
    if not isinstance(path, str | os.PathLike) or scheme_of(path) in ("", "file"):
        return f"file:{local_path(path, 'checkpoint').absolute()}"
    return str(path)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk, so that they survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder with its missing parents, and flush them to disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as above:
    ...     make_folder(Path(above, "a", "b"))
    ...     Path(above, "a", "b").is_dir()
    True
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):  # a folder may be writable but not readable
        sync(folder.parent)


def temporary_folder(prefix: str) -> Path:
    """Make a folder for this process, and remove those that killed processes of this user have left.

    ``prefix`` begins with ``riot_ops-``. A folder is in use while a process holds the lock on the file in it.
    """
    for lock in Path(tempfile.gettempdir()).glob(f"riot_ops-*/{IN_USE}"):
        with contextlib.suppress(OSError):
            status = lock.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > 60:  # it may not be locked yet
                with lock.open("rb") as held:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(lock.parent, ignore_errors=True)
    for folder in [one for one in tuple(_TEMPORARY) if not one.exists()]:  # other threads may add some
        if (unused := _TEMPORARY.pop(folder, None)) is not None:
            unused.close()
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    _TEMPORARY[folder] = file = (folder / IN_USE).open("wb")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder


def write_atomic(path: Path, data: bytes) -> None:
    """Write a small file atomically and flush it to disk; an existing file is replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomic(Path(folder, "a"), b"some")
    ...     write_atomic(Path(folder, "a"), b"more")
    ...     [path.name for path in Path(folder).iterdir()], Path(folder, "a").read_bytes()
    (['a'], b'more')
    """
    hidden = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        hidden.write_bytes(data)
        sync(hidden)
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    sync(path.parent)
