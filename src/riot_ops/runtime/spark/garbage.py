"""The collector of garbage in Spark's Python processes, which Spark calls behind each task and each commit.

It goes through all that has been read by then, modules and code above all, which takes longer than a small task.
"""

from __future__ import annotations

import gc

__all__ = ["settle"]

#: Whether this process has; forks of it inherit that. To ask the collector would take as long as to collect, as it
#: goes through all that is out of its sight to count it.
_settled = False


def settle() -> None:
    """Take what there is out of the collector's sight, once per process: behind its first task it is none.

    Workers that are forked from a process of riot_ops' own begin so.
    """
    global _settled
    if not _settled:
        gc.freeze()
        _settled = True
