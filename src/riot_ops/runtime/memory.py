"""Memory of the process: what one batch frees stays available to the next, in any thread, or is returned.

By default the C library returns the end of its heap to the system as soon as a few megabytes of it are free, and gets
it back page by page for the next batch, which costs as much as a step. It also keeps a heap per thread, and Arrow has
its own allocator, so memory freed by one step is not where the next step looks for it. Threads that allocate pages at
the same time wait for each other, since a process has one page table.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from typing import Literal

import pyarrow as pa

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError

__all__ = [
    "SMALL_BATCH_SIZE",
    "SMALL_BUFFERING",
    "Memory",
    "check_memory",
    "retain_freed_memory",
    "return_freed_memory",
]

Memory = Literal["normal", "small"]
#: Size of batches with ``memory="small"``.
SMALL_BATCH_SIZE, SMALL_BUFFERING = 1_024, Buffering(capacity=64 << 10, queue=256 << 10)

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


def return_freed_memory() -> None:
    """Return the memory that this process has freed to the system.

    >>> return_freed_memory()
    """
    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def check_memory(memory: object) -> None:
    """Raise unless the option ``memory`` of a runner has one of its values.

    >>> check_memory("tiny")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: memory must be 'normal' or 'small', got 'tiny'
    """
    if memory not in ("normal", "small"):
        raise ConfigError(f"memory must be 'normal' or 'small', got {memory!r}")
