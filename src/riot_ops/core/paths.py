"""Paths as users give them: of this machine's file system, also as ``file:`` URIs."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from urllib.parse import unquote, urlsplit

from riot_ops.core.errors import ConfigError

__all__ = ["as_uri", "local_path", "make_folder", "scheme_of", "sync", "write_whole"]


def scheme_of(path: str | os.PathLike[str]) -> str:
    """The scheme of a URI in lower case; nothing for a plain path.

    >>> scheme_of("s3a://bucket/x"), scheme_of("file:/tmp/x"), scheme_of("out/12:30"), scheme_of("C:/x")
    ('s3a', 'file', '', '')
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", os.fspath(path))
    return found[1].lower() if found else ""


def local_path(path: str | os.PathLike[str], what: str = "path") -> Path:
    """The path that was given plainly or as a ``file:`` URI, whose escapes (``%20``) are resolved.

    Parameters
    ----------
    path : str or path
    what : str, default "path"
        What it is, for the error.

    Raises
    ------
    ConfigError
        For URIs of other schemes or hosts, and what is no path at all.

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
        return Path(text)
    if scheme != "file":
        raise ConfigError(  # without the rest, in which there may be a password
            f"{what} is an address of the kind {scheme}:, which is not supported here: give a path, or file:///… of "
            "a folder or file that this machine (and on a cluster each worker) sees"
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path:
        raise ConfigError(f"{what} must be file:///folder/file without a host, and with '?' and '#' as %3F and %23")
    return Path(unquote(parts.path))


def as_uri(path: str | os.PathLike[str]) -> str:
    """A checkpoint's path of this machine as a URI, which no default file system elsewhere takes; other URIs stay.

    >>> as_uri("/tmp/x"), as_uri("file:///tmp/x"), as_uri("s3a://bucket/x")
    ('file:/tmp/x', 'file:/tmp/x', 's3a://bucket/x')
    """
    if not isinstance(path, str | os.PathLike) or scheme_of(path) in ("", "file"):
        return f"file:{local_path(path, 'checkpoint').absolute()}"
    return str(path)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk, where a power cut leaves them."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, on disk before it returns.

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
    with contextlib.suppress(PermissionError):  # one may write to a folder without being allowed to read it
        sync(folder.parent)


def write_whole(path: Path, data: bytes) -> None:
    """Have a small file appear whole, and on disk before it returns; one that is there is replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "a"), b"some")
    ...     write_whole(Path(folder, "a"), b"more")
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
