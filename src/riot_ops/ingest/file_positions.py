"""Positions in a set of files: which files were read, as what, and how far.

A position identifies the files that it has read by path and content, so that a restart finds new files in any order,
continues files that have grown, and refuses by name what it cannot continue: a file that was replaced, shortened or
renamed while it was being read, or other files. The content of a file is identified by its size and its first and last
bytes.

An offset has the text of all files that were read to their end (22 bytes a file), and the path, size and content of the
one being read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from riot_ops.core.errors import ConnectorError, StateError
from riot_ops.core.file_paths import absolute_path, file_size, open_binary

__all__ = ["FilePosition", "ReadFile", "describe_origin", "parts_between", "read_file"]

#: Bytes at either end of a file by which its content is known.
EDGE = 4096
#: Bytes of a hash, and of a number, in the text of read files.
HASH, NUMBER = 6, 5
#: Suffixes of files whose last bytes are no text.
PACKED = (".gz", ".bz2", ".zst", ".parquet")


@dataclass(frozen=True)
class ReadFile:
    """The part of a file that was read.

    Attributes
    ----------
    path : bytes
        Hash of its absolute path.
    size : int
        Its size when it was opened.
    content : bytes
        Hash of its first and last bytes up to that size.
    read : int
        How much of it was read, in the unit of the source: rows or bytes.
    """

    path: bytes
    size: int
    content: bytes
    read: int

    def to_bytes(self) -> bytes:
        """Encode it."""
        return self.path + self.size.to_bytes(NUMBER) + self.content + self.read.to_bytes(NUMBER)

    @classmethod
    def from_bytes(cls, data: bytes) -> ReadFile:
        """Decode it."""
        a, b, c = HASH, HASH + NUMBER, 2 * HASH + NUMBER
        return cls(data[:a], int.from_bytes(data[a:b]), data[b:c], int.from_bytes(data[c:]))


def path_hash(path: str) -> bytes:
    """Return the hash of a path."""
    return hashlib.blake2b(os.fsencode(absolute_path(path)), digest_size=HASH).digest()


def read_file(path: str, size: int | None = None, read: int = 0) -> ReadFile:
    """Return the identity of a file up to a size.

    Raises
    ------
    ConnectorError
        If it cannot be read, or is smaller.
    """
    try:
        with open_binary(path) as file:
            actual = file.seek(0, os.SEEK_END)
            file.seek(0)
            size = actual if size is None else size
            if actual < size:
                raise ConnectorError(f"{path} has {actual} bytes, fewer than the {size} it had")
            content = hashlib.blake2b(file.read(min(EDGE, size)), digest_size=HASH)
            file.seek(max(0, size - EDGE))
            content.update(file.read(min(EDGE, size)))
    except OSError as error:
        if isinstance(error, ConnectorError):
            raise
        raise ConnectorError(f"{path} cannot be read: {error.strerror or error}") from None
    return ReadFile(path_hash(path), size, content.digest(), read)


def describe_origin(paths: Iterable[str | os.PathLike[str]]) -> str:
    """Return a short text of the paths, folders and patterns that name files."""
    names = [absolute_path(path) for path in paths]
    text = names[0]
    if len(names) > 1:
        digest = hashlib.blake2b(os.fsencode("\0".join(names)), digest_size=4).hexdigest()
        text += f" and {len(names) - 1} more ({digest})"
    return text


@dataclass(frozen=True)
class FilePosition:
    """Which files were read, and how far the current one was.

    Attributes
    ----------
    origin : str
        What names the files, see :func:`describe_origin`.
    done : mapping of bytes to ReadFile
        The files that were read to their end, by hash of their path, in this order.
    path : str or None
        The file being read.
    current : ReadFile or None
        The part of it that was read.
    """

    origin: str
    done: Mapping[bytes, ReadFile]
    path: str | None = None
    current: ReadFile | None = None

    def to_offset(self) -> dict[str, Any]:
        """Return the fields of an offset."""
        found: dict[str, Any] = {"of": self.origin}
        if self.done:
            found["read"] = base64.b64encode(b"".join(one.to_bytes() for one in self.done.values())).decode()
        if self.current is not None:
            found |= {"path": str(self.path), "as": base64.b64encode(self.current.to_bytes()).decode()}
        return found

    @classmethod
    def from_offset(cls, offset: Mapping[str, Any], origin: str) -> FilePosition:
        """Decode the fields of an offset; one of a source that has read nothing has none of them."""
        size = 2 * (HASH + NUMBER)
        if "of" not in offset and any(offset.values()):
            raise StateError(f"the position in {origin} names no file; use a new checkpoint")
        try:
            data = base64.b64decode(offset.get("read", ""), validate=True)
            done = [ReadFile.from_bytes(data[at : at + size]) for at in range(0, len(data), size)]
            current = ReadFile.from_bytes(base64.b64decode(offset["as"], validate=True)) if "as" in offset else None
            if len(data) % size:
                raise ValueError("its length is wrong")
        except (binascii.Error, ValueError, TypeError) as error:
            raise StateError(f"the position in {origin} is damaged: {error}; use a new checkpoint") from None
        return cls(offset.get("of", origin), {one.path: one for one in done}, offset.get("path"), current)

    def after(self, files: Iterable[ReadFile]) -> FilePosition:
        """Return the position after the current file, and then these, have been read to their end."""
        done = dict(self.done)
        for one in (*(() if self.current is None else (self.current,)), *files):
            done.pop(one.path, None)  # a file that has grown is read last
            done[one.path] = one
        return FilePosition(self.origin, done)

    def all_read(self) -> list[tuple[bytes, ReadFile]]:
        """Return the part that was read of each file, by hash of its path, in order."""
        current = [] if self.current is None else [(self.current.path, self.current)]
        return [*((key, one) for key, one in self.done.items() if not current or key != current[0][0]), *current]

    def read_of(self, key: bytes) -> int:
        """Return how much was read of the file whose path has this hash."""
        if self.current is not None and self.current.path == key:
            return self.current.read
        return self.done[key].read if key in self.done else 0

    def unread(self, paths: Sequence[str], origin: str) -> list[tuple[str, int]]:
        """Return the files that are to be read, each with how much of it was read before.

        Raises
        ------
        StateError
            If a file cannot be continued, or these are other files.
        """
        keys = {path_hash(path): path for path in paths}
        known = set(keys) & {*self.done, *([self.current.path] if self.current is not None else ())}
        if (self.done or self.current) and not known and self.origin != origin:
            raise StateError(
                f"the checkpoint is of the files of {self.origin}, and none of them is among those of {origin}; use a "
                "new checkpoint"
            )
        found: list[tuple[str, int]] = []
        if self.current is not None:
            if self.current.path not in keys:
                raise StateError(
                    f"the checkpoint ends within {self.path}, which is not among the files of {origin} any more; put "
                    "it back, or use a new checkpoint"
                )
            check_unchanged(keys[self.current.path], self.current)
            found.append((keys[self.current.path], self.current.read))
        for key, path in keys.items():
            before = self.done.get(key)
            if self.current is not None and key == self.current.path:
                continue
            if before is None:
                found.append((path, 0))
            elif check_unchanged(path, before):
                found.append((path, before.read))
        return found


def parts_between(
    start: Mapping[str, Any], end: Mapping[str, Any], paths: Sequence[str], origin: str
) -> list[tuple[str, int, int]]:
    """Return the parts of files between two offsets, in order: path, and how much was read of it before and after.

    Raises
    ------
    StateError
        If a file is not among the paths any more.
    """
    before, after = (FilePosition.from_offset(one, origin) for one in (start, end))
    known = {path_hash(path): path for path in paths}
    found = []
    for key, one in after.all_read():
        if one.read > before.read_of(key):
            path = after.path if one is after.current else known.get(key)
            if path is None:
                raise StateError(
                    f"records of a file must be read again that is not among the files of {origin} any more; put it "
                    "back, or use a new checkpoint"
                )
            found.append((path, before.read_of(key), one.read))
    return found


def check_unchanged(path: str, before: ReadFile) -> bool:
    """Return whether a file has grown since it was read.

    Raises
    ------
    StateError
        If it has other content, is shorter, or its last line was unfinished and has changed.
    """
    remedy = "give the new file another name, or use a new checkpoint"
    try:
        size = file_size(path)
        same = size >= before.size and read_file(path, before.size).content == before.content
    except OSError as error:
        raise ConnectorError(f"{path} cannot be read: {error.strerror or error}") from None
    if not same:
        how = f"has {size} bytes, fewer than the {before.size} it had" if size < before.size else "has other content"
        raise StateError(f"{path} is not the file that was read: it {how}; {remedy}")
    if size > before.size and path.lower().endswith(".parquet"):
        raise StateError(f"{path} is not the file that was read: it has other content; {remedy}")
    if size > before.size and before.size and before.read and not path.lower().endswith(PACKED):
        with open_binary(path) as file:
            file.seek(before.size - 1)
            last, following = file.read(2)
        if last not in b"\r\n" and following not in b"\r\n":
            raise StateError(f"the last line of {path} was unfinished when it was read, and has changed; {remedy}")
    return size > before.size
