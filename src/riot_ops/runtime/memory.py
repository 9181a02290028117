"""Memory that one batch leaves is there for the next, whichever thread takes it.

By itself the C library gives the end of its heap back to the system as soon as some megabytes of it are free, and gets
it again, page by page, for the next batch. That costs as much as a step. It also makes a heap for each thread, and
Arrow has an allocator of its own: what a batch leaves then lies where the next step does not look for it. Threads that
get pages at once wait for each other, since a process has one table of them.
"""

from __future__ import annotations

import ctypes
import os

import pyarrow as pa

__all__ = ["keep_freed"]

#: Options of ``mallopt``: the free bytes at the end of the heap that are given back, the size that is not of the heap,
#: the number of heaps.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
LARGE_BYTES, HEAPS = 32 << 20, 1
#: What is kept for each batch under way, and in all.
KEPT_BYTES, MOST_BYTES = 128 << 20, 1 << 30
#: Where somebody has settled it.
SETTLED = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
ARROW_SETTLED = "ARROW_DEFAULT_MEMORY_POOL"


def keep_freed(batches: int = 1) -> bool:
    """Have this process keep what it frees, and no heap for each thread or for Arrow; whether it will.

    It keeps up to 128 MiB for each batch that may be under way, and 1 GiB in all.

    >>> keep_freed() in (True, False)
    True
    """
    if any(name in os.environ for name in SETTLED):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    kept = min(batches * KEPT_BYTES, MOST_BYTES)
    if not all(mallopt(*one) for one in ((MMAP_THRESHOLD, LARGE_BYTES), (TRIM_THRESHOLD, kept), (ARENA_MAX, HEAPS))):
        return False
    if ARROW_SETTLED not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    return True
