"""A blob store in memory, for tests and examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from riot_ops.connectors.stores.blob import BlobStore, check_name

__all__ = ["MemoryBlobs"]


class MemoryBlobs(BlobStore):
    """Blobs in the memory of this process, shared by all stores of one name.

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

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        found = self._blobs.get(check_name(name))
        if found is None:
            raise self._missing(name)
        self._check_size(name, len(found), max_bytes)
        return found

    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        if overwrite:
            self._blobs[check_name(name)] = data
        elif self._blobs.setdefault(check_name(name), data) != data:
            raise self._exists(name)

    def delete(self, name: str) -> None:
        self._blobs.pop(check_name(name), None)
