"""The programs on bytewax with one worker: ``python -m … PROGRAM FILE...``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from riot_bench.baselines.engines.programs import PROGRAMS, RowCounter, main, read_lines

__all__ = ["build"]

#: Lines of a source batch.
BATCH = 1000


def build(name: str, files: list[str], into: RowCounter) -> Callable[[], None]:
    """Build a program."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import TestingSource, run_main

    program = PROGRAMS[name]

    class Partition(StatelessSinkPartition[Any]):
        def write_batch(self, items: list[Any]) -> None:
            for _, row in items:
                into.add(row)

    class Sink(DynamicSink[Any]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Partition:
            return Partition()

    flow = Dataflow("program")
    lines = op.input("lines", flow, TestingSource(read_lines(files), batch_size=BATCH))
    keyed = op.flat_map("expand", lines, program.expand)
    op.output("out", op.stateful_flat_map("step", keyed, program.step), Sink())
    return lambda: run_main(flow)


if __name__ == "__main__":
    main(build)
