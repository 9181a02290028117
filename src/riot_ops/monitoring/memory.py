"""The memory of this process, and of those that it has started."""

from __future__ import annotations

import contextlib
import os
import time

from riot_ops.core.errors import MissingExtraError
from riot_ops.measure.processes import ProcessTree

__all__ = ["Memory"]

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
#: Time between looks at other processes, which take milliseconds.
OTHERS_SECONDS = 5.0


class Memory:
    """Reads the memory of this process, and every few seconds that of a JVM and workers that it has started.

    Examples
    --------
    >>> found = Memory().read(others=False)
    >>> found["memory_bytes"] > 1e6, found["children_memory_bytes"]
    (True, None)
    """

    def __init__(self) -> None:
        self._tree: ProcessTree | None = None
        with contextlib.suppress(MissingExtraError):
            self._tree = ProcessTree()
        self._read_at = -OTHERS_SECONDS
        self._others: int | None = None

    def read(self, *, others: bool) -> dict[str, int | None]:
        """Return ``memory_bytes`` and ``children_memory_bytes``, each None where it is not known."""
        now = time.monotonic()
        if others and self._tree is not None and now - self._read_at >= OTHERS_SECONDS:
            self._read_at = now
            self._others = sum(size for _, size in self._tree.memory_by_program())
        return {"memory_bytes": _own(), "children_memory_bytes": self._others}


def _own() -> int | None:
    """Return the resident memory of this process, where Linux reports it."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES
    return None
