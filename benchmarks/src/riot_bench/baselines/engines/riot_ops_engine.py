"""The programs on riot_ops with one core: ``python -m … PROGRAM FILE...``."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from riot_bench.baselines.engines.programs import Checksum, RowCounter, main
from riot_bench.harness.workload import tumbling_stats
from riot_ops import streams
from riot_ops.core.sink import CallbackSink
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import application

__all__ = ["FIELDS", "build"]

#: Compared fields by program and result stream; rows of STATS begin with the name of the stream.
FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "wc": {"counts": ("word", "count")},
    "fd": {"outliers": ("entity_id", "score", "states")},
    "stats": {
        "avg": ("sensor_id", "obs_type", "value"),
        "slr": ("sensor_id", "obs_type", "value"),
        "dac": ("obs_type", "value"),
    },
}


def build(name: str, files: list[str], into: RowCounter) -> Callable[[], None]:
    """Build a program."""
    fields = FIELDS[name]
    flow: Dataflow = tumbling_stats() if name == "stats" else application(name).builder()

    def take(stream: str, batch: pa.RecordBatch) -> None:
        if stream not in fields:
            return
        if not isinstance(into, Checksum):
            into.count += batch.num_rows
            return
        label = (stream,) if name == "stats" else ()
        for row in zip(*(batch.column(field).to_pylist() for field in fields[stream]), strict=True):
            into.add((*label, *row))

    def run() -> None:
        flow.run(streams.replay(files), sinks=CallbackSink(take), cores=1)

    return run


if __name__ == "__main__":
    main(build)
