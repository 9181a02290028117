"""The collector of garbage in Spark's Python processes, which Spark calls behind each task and each commit.

It goes through all that has been read by then, modules and code above all, which takes longer than a small task.
"""

from __future__ import annotations

import functools
import gc

__all__ = ["settle"]


@functools.cache
def settle() -> None:
    """Take what there is out of the collector's sight, once per process: behind its first task it is none.

    Workers that are forked from a process of riot_ops' own begin so, and remember it. The collector is not asked: it
    would go through all that is out of its sight to count it, over 10 ms of each task.
    """
    gc.freeze()
