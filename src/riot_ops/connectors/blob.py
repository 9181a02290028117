"""Stores of named bytes: folders, memory, and behind the same interface Azure and SQL."""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

from riot_ops.connectors.retry import shared
from riot_ops.errors import ConfigError, ConnectorError, RecordError, excerpt
from riot_ops.paths import local_path
from riot_ops.secret import Secret

__all__ = [
    "BlobNotFoundError",
    "BlobStore",
    "FolderBlobs",
    "MemoryBlobs",
    "check_blob_url",
    "check_name",
    "open_blobs",
    "shared_blobs",
]

#: Environment variable with the connection string of the Azure storage account.
AZURE_VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"
#: Folder of a store for files that are being written; no blob can be in it.
HIDDEN = ".riot_ops"
LONGEST_NAME, LONGEST_SEGMENT = 1024, 255


class BlobNotFoundError(RecordError, FileNotFoundError):
    """There is no blob of that name."""


class BlobStore(ABC):
    """Named bytes. A blob is there as a whole or not at all, and stays when the call returns.

    Names are the same for all stores: see :func:`check_name`. What is wrong with one blob raises
    :class:`RecordError` with the reason ``bad_name``, ``not_found``, ``exists`` or ``too_large``; what is
    wrong with the store :class:`ConnectorError`.
    """

    #: What to call it in messages.
    label: str

    @abstractmethod
    def create(self) -> None:
        """Make the store itself (folder, container, table) unless it is there."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[str]:
        """The names that begin with a prefix, sorted."""

    @abstractmethod
    def read(self, name: str, most_bytes: int | None = None) -> bytes:
        """The content of a blob; ``too_large`` if there is more of it than allowed."""

    @abstractmethod
    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        """Store a blob.

        Without ``overwrite`` a blob that is there stays, and ``exists`` is raised; but not where its
        content is the same, since a write whose answer was lost is tried again.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a blob if it is there."""

    def close(self) -> None:
        """Let go of connections; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _missing(self, name: str) -> BlobNotFoundError:
        return BlobNotFoundError(f"{self.label} has no blob {excerpt(name)!r}", reason="not_found")

    def _exists(self, name: str) -> RecordError:
        return RecordError(f"{self.label} has another blob {excerpt(name)!r} already", reason="exists")

    def _check_size(self, name: str, size: int, most: int | None) -> None:
        if most is not None and size > most:
            raise RecordError(
                f"the blob {excerpt(name)!r} of {self.label} has {size} bytes, allowed are {most}", reason="too_large"
            )


def check_name(name: str) -> str:
    """The name of a blob, if every store takes it; :class:`RecordError` ``bad_name`` otherwise.

    A name is 1 to 1024 characters: segments of 1 to 255 bytes of UTF-8 separated by ``/``, none of
    which is ``.`` or ``..``, ends with a dot or a space, or begins with a space. There is no backslash, no
    control character, and no code point that is no character. The first segment is not ``.riot_ops``.

    >>> check_name("models/CITY-MLR-1422748800000.model")
    'models/CITY-MLR-1422748800000.model'
    >>> check_name("../etc/passwd")
    Traceback (most recent call last):
    riot_ops.errors.RecordError: the blob name '../etc/passwd' is not allowed: it has the segment '..'
    """
    problem = _problem(name)
    if problem:
        raise RecordError(f"the blob name {excerpt(name)!r} is not allowed: {problem}", reason="bad_name")
    return name


def _problem(name: str) -> str:
    if not 1 <= len(name) <= LONGEST_NAME:
        return f"it has {len(name)} characters, not 1 to {LONGEST_NAME}"
    for c in name:
        if c == "\\" or unicodedata.category(c) in ("Cc", "Cs") or ord(c) & 0xFFFE == 0xFFFE:
            return f"it has the character U+{ord(c):04X}"
    segments = name.split("/")
    for segment in segments:
        if segment in ("", ".", ".."):
            return f"it has the segment {segment!r}"
        if segment[0].isspace() or segment[-1].isspace() or segment[-1] == ".":
            return f"its segment {excerpt(segment)!r} begins or ends with a space, or ends with a dot"
        if len(segment.encode()) > LONGEST_SEGMENT:
            return f"a segment has more than {LONGEST_SEGMENT} bytes"
    return f"{HIDDEN} is the store's own" if segments[0] == HIDDEN else ""


# -- files -----------------------------------------------------------------------------------------


class FolderBlobs(BlobStore):
    """Blobs as files below a folder, ``/`` in names as subfolders.

    A blob is written beside, synced to the disk and then renamed, so that a crash leaves the old
    one or the new one. No name leads out of the folder, symbolic links included. The one difference
    to other stores: where ``a`` is a blob, ``a/b`` cannot be one (``bad_name``).

    Parameters
    ----------
    folder : str or Path
        Made by the first write.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = local_path(folder, "folder").absolute()
        self.label = f"the folder {self.folder}"

    def create(self) -> None:
        try:
            (self.folder / HIDDEN).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConnectorError(f"{self.label} cannot be made: {error.strerror}") from None

    def list(self, prefix: str = "") -> Iterator[str]:
        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise ConnectorError(f"{self.label} cannot be listed: {error.strerror}")

        found = []
        for parent, folders, files in os.walk(self.folder, onerror=failed):
            relative = Path(parent).relative_to(self.folder)
            if not relative.parts and HIDDEN in folders:
                folders.remove(HIDDEN)
            found += [
                name
                for name in ((relative / file).as_posix() for file in files)
                if name.startswith(prefix) and not _problem(name) and not (self.folder / name).is_symlink()
            ]
        return iter(sorted(found))

    def read(self, name: str, most_bytes: int | None = None) -> bytes:
        path = self._path(name)
        try:
            with open(path, "rb", opener=_no_link) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise self._missing(name)
                self._check_size(name, status.st_size, most_bytes)
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise self._missing(name) from None
        except OSError as error:
            raise self._failed(name, "read", error) from None

    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        path = self._path(name)
        self.create()
        temporary = self.folder / HIDDEN / uuid.uuid4().hex
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
            _sync(path.parent)
        except FileExistsError:
            if not path.is_file():
                raise self._in_the_way(name) from None
            if self.read(name) != data:
                raise self._exists(name) from None
        except (NotADirectoryError, IsADirectoryError):
            raise self._in_the_way(name) from None
        except OSError as error:
            raise self._failed(name, "written", error) from None
        finally:
            temporary.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        path = self._path(name)
        try:
            path.unlink()
            _sync(path.parent)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            pass
        except OSError as error:
            raise self._failed(name, "deleted", error) from None

    def _path(self, name: str) -> Path:
        path = self.folder / check_name(name)
        if not path.parent.resolve().is_relative_to(self.folder.resolve()):
            raise RecordError(f"the blob name {excerpt(name)!r} leads out of {self.label}", reason="bad_name")
        return path

    def _in_the_way(self, name: str) -> RecordError:
        return RecordError(
            f"{excerpt(name)!r} cannot be a blob of {self.label}: a folder or a file is in its place", reason="bad_name"
        )

    def _failed(self, name: str, done: str, error: OSError) -> Exception:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EILSEQ):
            return RecordError(f"the blob name {excerpt(name)!r} is not allowed: {error.strerror}", reason="bad_name")
        return ConnectorError(f"the blob {excerpt(name)!r} of {self.label} cannot be {done}: {error.strerror}")


def _no_link(path: str, flags: int) -> int:
    """Open a file, but neither through a symbolic link nor waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- memory ----------------------------------------------------------------------------------------


class MemoryBlobs(BlobStore):
    """Blobs of this process, shared by all stores of one name; for tests.

    >>> store = MemoryBlobs("doc")
    >>> store.write("a/b", b"1")
    >>> list(store.list("a/")), store.read("a/b")
    (['a/b'], b'1')
    """

    stores: ClassVar[dict[str, dict[str, bytes]]] = {}

    def __init__(self, name: str = "") -> None:
        self.label = f"memory://{name}"
        self._blobs = self.stores.setdefault(name, {})

    def create(self) -> None:
        pass

    def list(self, prefix: str = "") -> Iterator[str]:
        return iter(sorted(name for name in self._blobs if name.startswith(prefix)))

    def read(self, name: str, most_bytes: int | None = None) -> bytes:
        found = self._blobs.get(check_name(name))
        if found is None:
            raise self._missing(name)
        self._check_size(name, len(found), most_bytes)
        return found

    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        if overwrite:
            self._blobs[check_name(name)] = data
        elif self._blobs.setdefault(check_name(name), data) != data:
            raise self._exists(name)

    def delete(self, name: str) -> None:
        self._blobs.pop(check_name(name), None)


# -- addresses -------------------------------------------------------------------------------------


def check_blob_url(url: str, credential: Secret | None = None) -> tuple[str, str]:
    """Kind and place of a store by its address; :class:`ConfigError` if it is none.

    The address itself, which may hold a token by mistake, is only shown where it is well-formed.
    """
    if url == "memory":
        return "memory", ""
    scheme, separator, rest = url.partition("://")
    if not separator:
        if not url:
            raise ConfigError("store must be the address of a blob store, got ''")
        return "file", url
    if scheme == "file":
        return "file", str(local_path(url, "store"))
    if scheme == "memory":
        return "memory", rest
    if scheme == "azure-blob":
        if not re.fullmatch(r"[a-z0-9](?:-?[a-z0-9]){2,62}", rest) or len(rest) > 63:
            raise ConfigError(
                "store: azure-blob://CONTAINER takes the name of a container and no more: 3 to 63 lower-case letters, "
                "digits and single hyphens"
            )
        return "azure", rest
    from riot_ops.connectors.sql import check_sql_url

    others = "a folder, file:///folder, azure-blob://container, memory://name"
    check_sql_url("store", url, others, credential=credential)
    return "sql", url


def open_blobs(url: str, credential: Secret | None = None, *, retry_s: float = 60.0) -> BlobStore:
    """A blob store by its address.

    Parameters
    ----------
    url : str
        A folder (path or ``file:///path``), ``azure-blob://container``, ``memory`` or ``memory://name``
        (for tests), or the address of a database such as ``sqlite:///file.db`` (extra ``sql``).
    credential : Secret, optional
        For Azure the connection string, by default that in the environment variable
        ``AZURE_STORAGE_CONNECTION_STRING``; for a database the password.
    retry_s : float, default 60
        For how long a call that fails for a passing reason is tried again, in seconds.

    Examples
    --------
    >>> with open_blobs("memory://doc") as store:
    ...     store.write("greeting", b"hello")
    ...     store.read("greeting")
    b'hello'
    """
    kind, place = check_blob_url(url, credential)
    if kind == "file":
        return FolderBlobs(place)
    if kind == "memory":
        return MemoryBlobs(place)
    if kind == "sql":
        from riot_ops.connectors.sql import SqlBlobs

        return SqlBlobs(url, credential, retry_s=retry_s)
    from riot_ops.connectors.azure import AzureBlobs

    return AzureBlobs(place, credential or Secret.env(AZURE_VARIABLE), retry_s=retry_s)


def shared_blobs(url: str, credential: Secret | None = None, *, retry_s: float = 60.0) -> BlobStore:
    """As :func:`open_blobs`, but opened once per process and closed at its end."""
    if credential is None and check_blob_url(url)[0] == "azure":
        credential = Secret.env(AZURE_VARIABLE)
    return shared(open_blobs, url, credential, retry_s=retry_s)
