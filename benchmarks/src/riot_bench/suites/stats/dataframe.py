"""STATS on a user's DataFrame with results written by Spark, and Spark's writing of finished results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from riot_bench.harness.micro_batches import durations
from riot_bench.harness.timing import median, median_seconds
from riot_bench.harness.workload import tumbling_stats
from riot_ops.core.file_sink import ParquetSink

__all__ = ["run_frames", "write_rate"]

#: Records of an Arrow batch on the way to Spark.
ARROW_BATCH_RECORDS = 4_096


def run_frames(lines: Any, base: Path, batch: int) -> float:
    """Run the dataflow on a streaming DataFrame of lines, write each stream as Parquet; return messages per second."""
    from pyspark.sql import functions as f

    event_time, payload = f.lit(None).cast("timestamp"), f.col("value").cast("binary")
    frames = tumbling_stats().frames(lines.select(event_time.alias("event_time"), payload.alias("payload")))
    query = frames.write_each(
        lambda stream, rows, _: _write(rows, base / "frames" / stream),
        checkpoint=base / "frames-checkpoint",
        trigger="available now",
    )
    query.awaitTermination()
    return median(batch / s for s in durations(query)[1:])


def write_rate(spark: Any, base: Path, out: Path, batch: int, repetitions: int) -> float:
    """Let Spark write the finished results of a micro-batch from Arrow files; return messages per second.

    ``out`` has the output of the dataflow for micro-batches of ``batch`` messages; the second one is used.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    results: dict[str, list[str]] = {}
    for number, stream, path in ParquetSink(out).files():
        if number == 1:
            files = results.setdefault(stream, [])
            files.append(_to_arrow_file(path, base / f"{stream}-{len(files)}.arrow"))
    frames = []
    for stream, files in results.items():
        with pa.ipc.open_file(files[0]) as first:
            schema = from_arrow_schema(first.schema)
        parts = spark.range(0, len(files), 1, len(files))
        frames.append((stream, parts.mapInArrow(_arrow_reader(files), schema)))

    def write() -> None:
        for stream, rows in frames:
            _write(rows, base / "bound" / stream)

    return batch / median_seconds(write, repetitions)


def _to_arrow_file(path: Path, to: Path) -> str:
    table = pq.read_table(path)
    table = table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))
    with pa.ipc.new_file(to, table.schema) as file:
        file.write_table(table, max_chunksize=ARROW_BATCH_RECORDS)
    return str(to)


def _arrow_reader(files: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                with pa.memory_map(files[number]) as data, pa.ipc.open_file(data) as file:
                    for i in range(file.num_record_batches):
                        yield file.get_batch(i)

    return read


def _write(rows: Any, folder: Path) -> None:
    rows.write.mode("append").parquet(str(folder))
