"""Files to read, by path or by address of an object store: listed, measured and opened."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_ops.core.compaction import superseded
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.manifest import committed_names
from riot_ops.core.paths import local_path, scheme_of
from riot_ops.core.secret import Secret
from riot_ops.core.storage import Address, check_storage_options

__all__ = [
    "StorageOptions",
    "StoredPath",
    "absolute_path",
    "file_size",
    "input_stream",
    "is_remote",
    "list_files",
    "open_binary",
    "path_in_store",
    "readable_path",
]

StorageOptions = Mapping[str, str | Secret]

#: By suffix, the codec of a packed file.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class StoredPath(str):
    """The address of a file with the settings of its store; shown and compared as its text alone.

    Parameters
    ----------
    url : str
    options : mapping of str to str or Secret
    """

    __slots__ = ("options",)
    options: dict[str, str | Secret]

    def __new__(cls, url: str, options: StorageOptions) -> StoredPath:
        made = super().__new__(cls, url)
        made.options = dict(options)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredPath, (str(self), self.options)


def path_in_store(path: str, options: StorageOptions | None) -> str:
    """Return an address with the settings of its store, if there are any.

    >>> path_in_store("s3://bucket/day.csv", {"aws_region": "eu-central-1"})
    's3://bucket/day.csv'
    """
    return StoredPath(path, options) if options else path


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address of another file system than that of this machine.

    >>> is_remote("s3://bucket/day.csv"), is_remote("file:///tmp/day.csv"), is_remote("/Volumes/main/plant/day.csv")
    (True, False, False)
    """
    return isinstance(path, str | os.PathLike) and scheme_of(path) not in ("", "file")


def readable_path(path: str | Path, what: str = "path", options: StorageOptions | None = None) -> str:
    """Return a local path or a checked address, which is as it was given except for a slash at its end.

    Settings of a store belong to an address; ConfigError for a path.

    >>> readable_path("file:///tmp/x"), readable_path("s3://bucket/days/")
    ('/tmp/x', 's3://bucket/days')
    """
    if is_remote(path):
        return path_in_store(Address.of(path, options or {}, what).url, options)
    found = str(local_path(path, what))
    if options and check_storage_options(options):
        raise ConfigError(f"storage_options are for object stores, and {what} is the path {found}")
    return found


def _address(path: str) -> Address:
    return Address.of(path, path.options if isinstance(path, StoredPath) else {})


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return an absolute path, or the address."""
    return str(os.fspath(path)) if is_remote(path) else os.path.abspath(path)


def file_size(path: str) -> int:
    """Return the size of a file; OSError if there is none."""
    if not is_remote(path):
        return os.path.getsize(path)
    found = _address(path).size()
    if found is None:
        raise FileNotFoundError(2, "No such file or directory", path)
    return found


def open_binary(path: str) -> Any:
    """Open a file to read bytes at any position."""
    return _address(path).open() if is_remote(path) else open(path, "rb")


def input_stream(path: str) -> Any:
    """Open a file to read it from its beginning; one with the suffix of a codec is unpacked."""
    if not is_remote(path):
        return pa.input_stream(path, compression="detect")
    file = open_binary(path)
    codec = CODECS.get(os.path.splitext(path.lower())[1])
    return file if codec is None else pa.CompressedInputStream(file, codec)


def list_files(item: str) -> list[str]:
    """Return the files of a path, address, folder or glob pattern, in sorted order; hidden names are passed over.

    Of a stream's folder in an object store only the files that a manifest lists are returned.

    Raises
    ------
    ConnectorError
        If there are none.
    """
    if is_remote(item):
        found = _stored_files(item)
        if not found:
            raise ConnectorError(
                f"no such file, and no files in a folder: {item}; check the bucket, the name, and whether the account "
                "may list it"
            )
        return found
    if os.path.isdir(item):
        found = [n for n in os.listdir(item) if not n.startswith(".")]
        joined = superseded(found)
        names = sorted(os.path.join(item, n) for n in found if n not in joined)
        names = [n for n in names if os.path.isfile(n)]
    elif os.path.exists(item):
        names = [item]
    else:
        names = sorted(n for n in glob.glob(item, recursive=True) if os.path.isfile(n))
    if not names:
        raise ConnectorError(
            f"the folder {item} holds no files whose names do not begin with '.'; check the path"
            if os.path.isdir(item)
            else f"no such file: {item}; check the path"
        )
    return [os.path.abspath(n) for n in names]


def _stored_files(url: str) -> list[str]:
    address = _address(url)
    options = dict(address.options)
    if not re.search(r"[*?\[]", url.partition("://")[2]):
        if address.size() is not None:
            return [path_in_store(address.url, options)]
        committed = committed_names(address)
        return [
            path_in_store(f"{address.url}/{one.name}", options)
            for one in address.files()
            if not one.name.startswith((".", "_")) and (committed is None or one.name in committed)
        ]
    folder, _, pattern = address.url.rpartition("/")
    if re.search(r"[*?\[]", folder):
        raise ConnectorError(f"a pattern in an address may stand in its last part only, got {url}")
    names = [one.name for one in address.parent.files() if not one.name.startswith(".")]
    return [path_in_store(f"{folder}/{name}", options) for name in names if fnmatch.fnmatchcase(name, pattern)]
