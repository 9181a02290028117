"""Garbage collection in Spark's Python processes, which Spark triggers after each task and each commit.

It traverses all live objects, mostly modules and code, which takes longer than a small task.
"""

from __future__ import annotations

import functools
import gc

__all__ = ["freeze_once"]


@functools.cache
def freeze_once() -> None:
    """Freeze the live objects, once per process: objects alive after its first task are not garbage.

    Workers forked from riot_ops' own daemon inherit this state. ``gc.get_freeze_count()`` is not used, as it traverses
    the frozen objects to count them, over 10 ms of each task.
    """
    gc.freeze()
