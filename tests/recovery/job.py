"""A dataflow in a separate process that tests kill: ``job.py local|spark <folder> <rows> <until>``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.source import Offset

DEVICES = 9


def table(rows: int) -> pa.Table:
    """Return readings, some of which are missing or infinite."""
    random = np.random.default_rng(17)
    values = random.normal(20, 5, rows)
    values[random.random(rows) < 0.02] = np.inf
    return pa.table(
        {
            "device": [f"d{i}" for i in random.integers(0, DEVICES, rows)],
            "value": pa.array(values, mask=random.random(rows) < 0.05),
        }
    )


def dataflow(process_noise: float = 0.125, *, average: str = "average") -> ro.Dataflow:
    """Return a dataflow with two keyed stages, output at the end and rejected records."""
    flow = ro.Dataflow("recovery")
    readings = flow.source("readings", schema={"device": "string", "value": "double"})
    smooth = readings.to(t.KalmanFilter(by=("device",), process_noise=process_noise), id="smooth")
    flow.sink("out", smooth, smooth.to(t.MovingAverage(window=7, partial=True), id=average))
    return flow


class GatedSource(ro.MemorySource):
    """A source with its first ``until`` records available: a run over it waits for more and cannot end."""

    def __init__(self, records: pa.Table, until: int) -> None:
        super().__init__(records)
        self._until = until

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        return {"row": max(start["row"], min(super().latest(start, limit)["row"], self._until))}


def run(runner: str, folder: Path, rows: int, until: int) -> Any:
    """Run the dataflow in small steps, with many points at which it can be killed."""
    if runner == "local":
        return dataflow().run(GatedSource(table(rows), until), batch_size=64, epoch_rows=128, **places(folder))
    from riot_ops.spark import session

    spark = session(cores=2, memory="1g")
    return query(spark, folder, rows, until).wait()


def query(spark: Any, folder: Path, rows: int, until: int) -> Any:
    """Start the dataflow on Spark in an existing session."""
    return dataflow().start(spark, GatedSource(table(rows), until), max_records=500, partitions=2, **places(folder))


def places(folder: Path) -> dict[str, Path]:
    """Return the folders of output and checkpoint."""
    return {"out": folder / "out", "checkpoint": folder / "checkpoint"}


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
