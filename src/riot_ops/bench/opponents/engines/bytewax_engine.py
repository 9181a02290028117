"""The programs on bytewax, one worker: ``python -m … PROGRAM FILE...``."""

from __future__ import annotations

from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSource, run_main

from riot_ops.bench.opponents.engines.programs import Checksum, Program, lines_of, main

__all__ = ["run"]

#: Lines that the source gives at once.
BATCH = 1000


class _Partition(StatelessSinkPartition[Any]):
    def __init__(self, found: Checksum) -> None:
        self.found = found

    def write_batch(self, items: list[Any]) -> None:
        for _, row in items:
            self.found.add(row)


class _Sink(DynamicSink[Any]):
    def __init__(self, found: Checksum) -> None:
        self.found = found

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Partition:
        return _Partition(self.found)


def run(program: Program, files: list[str]) -> Checksum:
    """Run a program."""
    found = Checksum()
    flow = Dataflow("program")
    lines = op.input("lines", flow, TestingSource(lines_of(files), batch_size=BATCH))
    keyed = op.flat_map("expand", lines, program.expand)
    op.output("out", op.stateful_flat_map("step", keyed, program.step), _Sink(found))
    run_main(flow)
    return found


if __name__ == "__main__":
    main(run)
