"""What a batch leaves is there for the next one: who asks for pages anew has faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")

SCRIPT = """
import ctypes, resource, sys, threading
import pyarrow as pa
from riot_ops.runtime.memory import keep_freed

kept = keep_freed({batches})
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


def told(batches=1, blocks=5, **settings):
    """Whether freed memory is kept, Arrow's allocator, the faults of a second turn, heaps of eight threads."""
    environment = {k: v for k, v in os.environ.items() if k not in (*SETTINGS, "ARROW_DEFAULT_MEMORY_POOL")}
    script = SCRIPT.format(batches=batches, blocks=blocks)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment | settings, capture_output=True, text=True, check=True
    )
    kept, pool, faults, heaps = done.stdout.split()
    return kept == "True", pool, int(faults), int(heaps)


def test_all_threads_and_arrow_share_a_heap_whose_pages_stay():
    kept, pool, faults, heaps = told()
    if not kept:
        pytest.skip("another C library")
    assert pool == "system"
    assert heaps <= 4  # those that other threads have had before stay
    assert faults < 1000  # 80 MiB are 20,000 pages


def test_more_is_kept_where_more_batches_are_under_way():
    if not told()[0]:
        pytest.skip("another C library")
    assert told(2, 12)[2] < 1000
    assert told(1, 12)[2] > 20_000


@pytest.mark.parametrize("name", SETTINGS)
def test_what_somebody_has_settled_stays(name):
    value = "glibc.malloc.tcache_count=3" if name == "GLIBC_TUNABLES" else "8"
    kept, pool, _, heaps = told(**{name: value})
    assert not kept
    assert pool != "system"
    assert heaps > 4 or "MMAP" in name  # a threshold of 8 bytes: none is of a heap


def test_an_allocator_that_was_chosen_for_arrow_stays():
    assert told(ARROW_DEFAULT_MEMORY_POOL="jemalloc")[1] == "jemalloc"
