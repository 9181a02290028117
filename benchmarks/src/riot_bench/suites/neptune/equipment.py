"""Monitoring of equipment as one job among several: the readings, and a run over them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_bench.harness.data import Discard
from riot_ops.core.buffering import Buffering
from riot_ops.dataflows import equipment_monitoring
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.streams.dspbench.equipment import EquipmentSource

__all__ = ["fairness", "monitored", "write_readings"]

SEED = 1


def write_readings(path: Path, lines: int) -> Path:
    """Readings as an Arrow file, which jobs share in memory."""
    source = EquipmentSource(messages=lines, seed=SEED, dirt=False)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, source.schema) as writer:
        for batch in source.read({"start": 0, "end": lines}):
            writer.write_batch(batch)
    return path


def monitored(path: Path, buffering: Buffering, lines: int | None = None) -> dict[str, Any]:
    """Monitor the first so many readings of a file: how many were taken, what came out, and the seconds."""
    with pa.memory_map(str(path)) as file:
        readings = pa.ipc.open_file(file).read_all()
        source = MemorySource(readings if lines is None else readings.slice(0, lines))
        begun = time.monotonic()
        summary = equipment_monitoring().run(source, sinks=Discard(), buffering=buffering, cores=1).summary
        return {"messages": summary.messages, "rows": summary.rows, "seconds": time.monotonic() - begun}


def fairness(rates: Sequence[float]) -> float:
    """Jain's index: 1 where all have the same, 1/n where one has all.

    >>> fairness([2.0, 2.0, 2.0]), fairness([4.0, 0.0])
    (1.0, 0.5)
    """
    return float(sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)))
