"""What a store of named bytes is."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

from riot_ops.core.errors import RecordError, excerpt

__all__ = ["HIDDEN", "BlobNotFoundError", "BlobStore", "check_name", "name_problem"]

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
    riot_ops.core.errors.RecordError: the blob name '../etc/passwd' is not allowed: it has the segment '..'
    """
    problem = name_problem(name)
    if problem:
        raise RecordError(f"the blob name {excerpt(name)!r} is not allowed: {problem}", reason="bad_name")
    return name


def name_problem(name: str) -> str:
    """What is wrong with the name of a blob, or nothing."""
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
