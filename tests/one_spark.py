"""Which tests share a worker of pytest-xdist: those of a file, and all files that use the session of Spark."""

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
    """What the tests of a file go with."""
    path = ROOT / file
    return "spark" if path.suffix == ".py" and TAKES_SPARK.search(path.read_text(encoding="utf-8")) else file


class OneSpark(LoadFileScheduling):
    """One worker has Spark: a second JVM takes as much as thirty tests until its first query has run."""

    def _split_scope(self, nodeid: str) -> str:
        return group(super()._split_scope(nodeid))
