"""A scheduler of pytest-xdist that gives all files whose tests use the Spark session to one worker."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

__all__ = ["OneSpark"]

ROOT = Path(__file__).resolve().parent.parent
#: A test or fixture that takes the session.
TAKES_SPARK = re.compile(r"^ *def \w+\([^)]*\bspark\b", re.MULTILINE)


@functools.cache
def group(file: str) -> str:
    """The group of a file: the files on Spark are one group, every other file is its own."""
    path = ROOT / file
    return "spark" if path.suffix == ".py" and TAKES_SPARK.search(path.read_text(encoding="utf-8")) else file


class OneSpark(LoadFileScheduling):
    """One worker has Spark: a second JVM costs as much as thirty tests before its first query has run."""

    def _split_scope(self, nodeid: str) -> str:
        return group(super()._split_scope(nodeid))
