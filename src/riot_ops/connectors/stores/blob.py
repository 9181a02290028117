"""The contract of blob stores, which hold named bytes."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

from riot_ops.core.errors import RecordError, excerpt

__all__ = ["TEMPORARY_FOLDER", "BlobNotFoundError", "BlobStore", "check_name", "name_problem"]

#: Folder of a store for files that are being written; no blob name may begin with it.
TEMPORARY_FOLDER = ".riot_ops"
MAX_NAME_LENGTH, MAX_SEGMENT_BYTES = 1024, 255


class BlobNotFoundError(RecordError, FileNotFoundError):
    """There is no blob of this name."""


class BlobStore(ABC):
    """A store of named bytes. Writes are atomic, and durable when the call returns.

    All stores accept the same names, see :func:`check_name`. A problem with one blob raises :class:`RecordError` with
    the reason ``bad_name``, ``not_found``, ``exists`` or ``too_large``; a problem with the store
    :class:`ConnectorError`.
    """

    #: Name of the store in messages.
    label: str

    @abstractmethod
    def create(self) -> None:
        """Create the store itself (folder, container, table) unless it exists."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[str]:
        """List the names that begin with a prefix, sorted."""

    @abstractmethod
    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Read a blob; ``too_large`` if it has more than ``max_bytes``."""

    @abstractmethod
    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        """Write a blob.

        Without ``overwrite`` an existing blob raises ``exists``, unless its content is the same: it may stem from a
        retried write whose response was lost.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a blob if it exists."""

    def close(self) -> None:
        """Close connections; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _missing(self, name: str) -> BlobNotFoundError:
        return BlobNotFoundError(f"{self.label} has no blob {excerpt(name)!r}", reason="not_found")

    def _exists(self, name: str) -> RecordError:
        return RecordError(f"{self.label} has another blob {excerpt(name)!r} already", reason="exists")

    def _check_size(self, name: str, size: int, max_bytes: int | None) -> None:
        if max_bytes is not None and size > max_bytes:
            raise RecordError(
                f"the blob {excerpt(name)!r} of {self.label} has {size} bytes, allowed are {max_bytes}",
                reason="too_large",
            )


def check_name(name: str) -> str:
    """Return the name of a blob if every store accepts it; otherwise :class:`RecordError` ``bad_name``.

    A name has 1 to 1024 characters: segments of 1 to 255 bytes of UTF-8 separated by ``/``. No segment is ``.`` or
    ``..``, ends with a dot or a space, or begins with a space. Backslashes, control characters and noncharacters are
    not allowed. The first segment is not ``.riot_ops``.

    >>> check_name("models/CITY-MLR-1422748800000.model")
    'models/CITY-MLR-1422748800000.model'
    >>> check_name("../etc/passwd")
    Traceback (most recent call last):
    riot_ops.core.errors.RecordError: the blob name '../etc/passwd' is not allowed: it has the segment '..'
    """
    problem = name_problem(name)
    if problem:
        raise RecordError(f"the blob name {excerpt(name)!r} is not allowed: {problem}", reason="bad_name")
    return name


def name_problem(name: str) -> str:
    """Describe what is wrong with the name of a blob; empty if it is valid."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH:
        return f"it has {len(name)} characters, not 1 to {MAX_NAME_LENGTH}"
    for c in name:
        if c == "\\" or unicodedata.category(c) in ("Cc", "Cs") or ord(c) & 0xFFFE == 0xFFFE:
            return f"it has the character U+{ord(c):04X}"
    segments = name.split("/")
    for segment in segments:
        if segment in ("", ".", ".."):
            return f"it has the segment {segment!r}"
        if segment[0].isspace() or segment[-1].isspace() or segment[-1] == ".":
            return f"its segment {excerpt(segment)!r} begins or ends with a space, or ends with a dot"
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            return f"a segment has more than {MAX_SEGMENT_BYTES} bytes"
    return f"{TEMPORARY_FOLDER} is reserved for the store" if segments[0] == TEMPORARY_FOLDER else ""
