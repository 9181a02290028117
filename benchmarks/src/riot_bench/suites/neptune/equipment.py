"""Equipment monitoring as one of several concurrent jobs: its input and a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_bench.harness.discard import DiscardSink
from riot_ops.core.buffering import Buffering
from riot_ops.dataflows import equipment_monitoring
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.streams.dspbench.equipment import EquipmentSource

__all__ = ["fairness", "run_monitoring", "write_readings"]

SEED = 1


def write_readings(path: Path, lines: int) -> Path:
    """Write readings as an Arrow file, which jobs map into memory."""
    source = EquipmentSource(messages=lines, seed=SEED, dirt=False)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, source.schema) as writer:
        for batch in source.read({"start": 0, "end": lines}):
            writer.write_batch(batch)
    return path


def run_monitoring(path: Path, buffering: Buffering, lines: int | None = None) -> dict[str, Any]:
    """Monitor the first ``lines`` readings of a file; return the messages, the rows by stream and the seconds."""
    with pa.memory_map(str(path)) as file:
        readings = pa.ipc.open_file(file).read_all()
        source = MemorySource(readings if lines is None else readings.slice(0, lines))
        begun = time.monotonic()
        summary = equipment_monitoring().run(source, sinks=DiscardSink(), buffering=buffering, cores=1).summary
        return {"messages": summary.messages, "rows": summary.rows, "seconds": time.monotonic() - begun}


def fairness(rates: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all rates are equal, 1/n if one job has all.

    >>> fairness([2.0, 2.0, 2.0]), fairness([4.0, 0.0])
    (1.0, 0.5)
    """
    return float(sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)))
