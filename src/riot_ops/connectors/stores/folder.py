"""A blob store in a folder."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from riot_ops.connectors.stores.blob import TEMPORARY_FOLDER, BlobStore, check_name, name_problem
from riot_ops.core.errors import ConnectorError, RecordError, excerpt
from riot_ops.core.paths import local_path, sync

__all__ = ["FolderBlobs"]


class FolderBlobs(BlobStore):
    """Blobs as files below a folder; ``/`` in names makes subfolders.

    A blob is written to a temporary file, flushed to disk and renamed, so that a crash leaves the old or the new one.
    No name leads out of the folder, also not through symbolic links. Unlike in other stores, ``a/b`` cannot be a blob
    if ``a`` is one (``bad_name``).

    Parameters
    ----------
    folder : str or Path
        Created by the first write.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = local_path(folder, "folder").absolute()
        self.label = f"the folder {self.folder}"

    def create(self) -> None:
        try:
            (self.folder / TEMPORARY_FOLDER).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConnectorError(f"{self.label} cannot be created: {error.strerror}") from None

    def list(self, prefix: str = "") -> Iterator[str]:
        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise ConnectorError(f"{self.label} cannot be listed: {error.strerror}")

        found = []
        for parent, folders, files in os.walk(self.folder, onerror=failed):
            relative = Path(parent).relative_to(self.folder)
            if not relative.parts and TEMPORARY_FOLDER in folders:
                folders.remove(TEMPORARY_FOLDER)
            found += [
                name
                for name in ((relative / file).as_posix() for file in files)
                if name.startswith(prefix) and not name_problem(name) and not (self.folder / name).is_symlink()
            ]
        return iter(sorted(found))

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        path = self._path(name)
        try:
            with open(path, "rb", opener=_no_link) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise self._missing(name)
                self._check_size(name, status.st_size, max_bytes)
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise self._missing(name) from None
        except OSError as error:
            raise self._failed(name, "read", error) from None

    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        path = self._path(name)
        self.create()
        temporary = self.folder / TEMPORARY_FOLDER / uuid.uuid4().hex
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if overwrite:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)  # unlike a rename it fails where the file exists
            sync(path.parent)
        except FileExistsError:
            if not path.is_file():
                raise self._blocked(name) from None
            if self.read(name) != data:
                raise self._exists(name) from None
        except (NotADirectoryError, IsADirectoryError):
            raise self._blocked(name) from None
        except OSError as error:
            raise self._failed(name, "written", error) from None
        finally:
            temporary.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        path = self._path(name)
        try:
            path.unlink()
            sync(path.parent)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            pass
        except OSError as error:
            raise self._failed(name, "deleted", error) from None

    def _path(self, name: str) -> Path:
        path = self.folder / check_name(name)
        if not path.parent.resolve().is_relative_to(self.folder.resolve()):
            raise RecordError(f"the blob name {excerpt(name)!r} leads out of {self.label}", reason="bad_name")
        return path

    def _blocked(self, name: str) -> RecordError:
        return RecordError(
            f"{excerpt(name)!r} cannot be a blob of {self.label}: a folder or a file is in its place", reason="bad_name"
        )

    def _failed(self, name: str, done: str, error: OSError) -> Exception:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EILSEQ):
            return RecordError(f"the blob name {excerpt(name)!r} is not allowed: {error.strerror}", reason="bad_name")
        return ConnectorError(f"the blob {excerpt(name)!r} of {self.label} cannot be {done}: {error.strerror}")


def _no_link(path: str, flags: int) -> int:
    """Open a file without following a symbolic link and without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
