"""Memory of the process: what one batch frees stays available to the next, in any thread.

By default the C library returns the end of its heap to the system as soon as a few megabytes of it are free, and gets
it back page by page for the next batch, which costs as much as a step. It also keeps a heap per thread, and Arrow has
its own allocator, so memory freed by one step is not where the next step looks for it. Threads that allocate pages at
the same time wait for each other, since a process has one page table.
"""

from __future__ import annotations

import ctypes
import os

import pyarrow as pa

__all__ = ["retain_freed_memory"]

#: Options of ``mallopt``: free bytes at the end of the heap that are returned, size of an allocation outside the heap,
#: number of heaps.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
LARGE_BYTES, HEAPS = 32 << 20, 1
#: Bytes to retain for each batch in flight, and in total.
RETAINED_BYTES, MAX_RETAINED_BYTES = 128 << 20, 1 << 30
#: Environment variables by which the user has chosen these settings.
USER_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
ARROW_USER_SETTING = "ARROW_DEFAULT_MEMORY_POOL"


def retain_freed_memory(batches: int = 1) -> bool:
    """Make this process retain the memory that it frees, in one heap; returns whether it does.

    It retains up to 128 MiB for each batch in flight, and 1 GiB in total.

    >>> retain_freed_memory() in (True, False)
    True
    """
    if any(name in os.environ for name in USER_SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    retained = min(batches * RETAINED_BYTES, MAX_RETAINED_BYTES)
    if not all(
        mallopt(*one) for one in ((MMAP_THRESHOLD, LARGE_BYTES), (TRIM_THRESHOLD, retained), (ARENA_MAX, HEAPS))
    ):
        return False
    if ARROW_USER_SETTING not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    return True
