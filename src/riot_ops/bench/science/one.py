"""One experiment in a process of its own: ``python -m riot_ops.bench.science.one PIPE SOURCE KEY FORM``.

Each measure goes as a line of JSON to the pipe with that number; what the experiment prints is its own affair.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from riot_ops.bench.measure import load, machine
from riot_ops.bench.science.plan import find

__all__ = ["main"]


def main(pipe: int, source: str, key: str, quick: bool) -> None:
    """Run it."""
    os.set_inheritable(pipe, False)  # what the experiment starts may outlive it
    where, before = machine(), load()
    with os.fdopen(pipe, "w", encoding="utf-8") as file:
        for measure in find(source, key).measures(quick):
            print(replace(measure, machine=where, load=((before, load()),)).to_json(), file=file, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "quick")
