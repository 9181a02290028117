"""Packing of charts and other files into zip files in a folder."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.paths import local_path
from riot_ops.task import Case, register
from riot_ops.tasks.io.zip_to_store import ZipToStore, zip_cases

__all__ = ["ZipToFolder"]


@register
@dataclass(frozen=True, kw_only=True)
class ZipToFolder(ZipToStore):
    """Pack files into zip archives in a folder, and emit the paths of the archives.

    Like :class:`ZipToStore`, but each archive is written to a file, atomically: an archive written again after a
    crash replaces the same file. At least once: until the batch is committed, a file may exist without its record.

    Parameters
    ----------
    directory : str
        Folder for the archives, created if missing. On a cluster it must be shared by all workers.
    size : int, 1 to 65535, default 100
        Most entries per archive.
    max_bytes : int, 1 to 2**30, default 67108864
        Most bytes of all entries together, before compression.
    field : str, default "data"
        Binary or text field with the content of an entry.
    entry : str or None, default "name"
        Text field with the name of an entry; None: names are entry-1, entry-2 and so on.
    prefix : str, default "archive"
        Prefix of the names of archives.
    compress : bool, default True
        Whether to deflate the entries.
    by : tuple of str, default ()
        Key; each key has its own archives.
    ttl
        Not used.

    Shapes and rates
    ----------------
    N:1, one record per archive, as for :class:`ZipToStore`, with ``path`` (text) and ``bytes`` (int64, the
    size of the file) in place of ``data``.

    Missing values
    --------------
    As for :class:`ZipToStore`.

    Errors
    ------
    ``missing`` (null content); ``too_big`` (an entry above ``max_bytes``). A folder that cannot be
    written to stops the dataflow with a :class:`ConnectorError`.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task LZP.

    Examples
    --------
    >>> import tempfile, zipfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pack = ZipToFolder(directory=folder, size=1).session()
    ...     row = pack.push({"name": "a.svg", "data": b"<svg/>"})[0]
    ...     zipfile.ZipFile(row["path"]).namelist()
    ['a.svg']
    """

    code: ClassVar[str] = "LZP"

    directory: str

    def validate(self) -> None:
        super().validate()
        folder = local_path(self.directory, "directory")
        if not self.directory or (folder.exists() and not folder.is_dir()):
            raise ConfigError(f"directory must name a folder, got {self.directory!r}")

    def _added_fields(self) -> list[pa.Field]:
        return [
            pa.field("name", pa.string()),
            pa.field("path", pa.string()),
            pa.field("bytes", pa.int64()),
            pa.field("entries", pa.int64()),
        ]

    def _row(self, name: str, content: bytes, entries: int) -> Sequence[Any]:
        path = local_path(self.directory, "directory").absolute() / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".zip-", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(temporary, 0o644)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            raise ConnectorError(f"cannot write the archive {path}: {error}") from error
        return name, str(path), len(content), entries

    @classmethod
    def cases(cls) -> Iterable[Case]:
        yield from zip_cases(cls, directory=_case_directory())


@functools.cache
def _case_directory() -> str:
    """Create a folder for the contract suite; it is removed at the end of the process."""
    folder = tempfile.mkdtemp(prefix="riot_ops-zip-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
