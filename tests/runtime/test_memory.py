"""Freed memory is reused: a process that requests pages again has page faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")

SCRIPT = """
import ctypes, resource, sys, threading
import pyarrow as pa
from riot_ops.runtime.memory import retain_freed_memory

kept = retain_freed_memory({batches})
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
c.free.argtypes, c.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
SIZE = 16 << 20

def turn():
    blocks = [c.malloc(SIZE) for _ in range({blocks})]
    for block in blocks:
        c.memset(block, 1, SIZE)
    for block in blocks[::-1]:
        c.free(block)

turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
turn()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
meet, places = threading.Barrier(8), []

def place():
    meet.wait()
    places.append(c.malloc(100_000))
    meet.wait()

threads = [threading.Thread(target=place) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(kept, pa.default_memory_pool().backend_name, faults, len({{one >> 26 for one in places}}))
"""


def measure(batches=1, blocks=5, **settings):
    """Return whether freed memory is retained, Arrow's allocator, page faults of a second turn, heaps of eight threads."""
    environment = {k: v for k, v in os.environ.items() if k not in (*SETTINGS, "ARROW_DEFAULT_MEMORY_POOL")}
    script = SCRIPT.format(batches=batches, blocks=blocks)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment | settings, capture_output=True, text=True, check=True
    )
    kept, pool, faults, heaps = done.stdout.split()
    return kept == "True", pool, int(faults), int(heaps)


@pytest.mark.long
def test_threads_and_arrow_share_one_heap():
    kept, pool, faults, heaps = measure()
    if not kept:
        pytest.skip("another C library")
    assert pool == "system"
    assert heaps <= 4  # heaps of earlier threads remain
    assert faults < 1000  # 80 MiB are 20,000 pages


@pytest.mark.long
def test_retained_memory_grows_with_batches_in_flight():
    if not measure()[0]:
        pytest.skip("another C library")
    assert measure(2, 12)[2] < 1000
    assert measure(1, 12)[2] > 20_000


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_user_settings_take_precedence(name):
    value = "glibc.malloc.tcache_count=3" if name == "GLIBC_TUNABLES" else "8"
    kept, pool, _, heaps = measure(**{name: value})
    assert not kept
    assert pool != "system"
    assert heaps > 4 or "MMAP" in name  # with a threshold of 8 bytes no block is on a heap


def test_arrow_allocator_of_user_stays():
    assert measure(ARROW_DEFAULT_MEMORY_POOL="jemalloc")[1] == "jemalloc"
