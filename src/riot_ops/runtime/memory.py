"""Memory that one batch leaves is there for the next.

By itself the C library gives the end of its heap back to the system as soon as some megabytes of it are free, and gets
it again, page by page, for the next batch. That costs as much as a step.
"""

from __future__ import annotations

import ctypes
import functools
import os

__all__ = ["keep_freed"]

#: Options of ``mallopt``: the free bytes at the end of the heap that are given back, the size that is not of the heap.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEPT_BYTES, LARGE_BYTES = 128 << 20, 32 << 20
#: Where somebody has settled it.
SETTLED = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@functools.cache
def keep_freed() -> bool:
    """Have this process keep up to 128 MiB of what it frees; whether it will.

    >>> keep_freed() in (True, False)
    True
    """
    if any(name in os.environ for name in SETTLED):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGE_BYTES) and mallopt(TRIM_THRESHOLD, KEPT_BYTES))
