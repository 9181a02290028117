"""Memory that one batch leaves is there for the next, whichever thread takes it.

By itself the C library gives the end of its heap back to the system as soon as some megabytes of it are free, and gets
it again, page by page, for the next batch. That costs as much as a step. It also has a heap for each thread, and Arrow an
allocator of its own: what a batch leaves then lies where the next step does not look for it. Threads that get pages
at once wait for each other, since a process has one table of them.
"""

from __future__ import annotations

import ctypes
import functools
import os

import pyarrow as pa

__all__ = ["keep_freed"]

#: Options of ``mallopt``: the free bytes at the end of the heap that are given back, the size that is not of the heap,
#: the number of heaps.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
KEPT_BYTES, LARGE_BYTES, HEAPS = 128 << 20, 32 << 20, 1
#: Where somebody has settled it.
SETTLED = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
ARROW_SETTLED = "ARROW_DEFAULT_MEMORY_POOL"


@functools.cache
def keep_freed() -> bool:
    """Have this process keep up to 128 MiB of what it frees, in one heap for all threads and Arrow; whether it will.

    >>> keep_freed() in (True, False)
    True
    """
    if any(name in os.environ for name in SETTLED):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    options = {MMAP_THRESHOLD: LARGE_BYTES, TRIM_THRESHOLD: KEPT_BYTES, ARENA_MAX: HEAPS}
    kept = all(mallopt(option, value) for option, value in options.items())
    if kept and ARROW_SETTLED not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    return kept
