"""Event-time windows: in process against plain Python, on Spark against Spark's own aggregation."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import riot_ops as ro
from riot_bench.baselines.python.windows import plain_window_means
from riot_bench.baselines.spark.windows import spark_window_means
from riot_bench.harness.data import RecordFiles
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import durations, timed_query
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median, median_seconds
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.core.schema import TIMESTAMP

__all__ = ["SCHEMA", "WINDOWS", "measures", "readings", "window_flow"]

#: A reading of a device with its time.
SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        ("event_time", TIMESTAMP),
        ("device", pa.string()),
        ("value", pa.float64()),
    ]
)
KEYS = 1000
MINUTE = timedelta(minutes=1)
MEANS = {"mean": ("value", "mean"), "n": "count"}
#: Windows that are measured in process, and their target in rows per second.
WINDOWS: dict[str, tuple[t.Window, float]] = {
    "tumbling": (t.Window(by=("device",), frame=MINUTE, aggregates=MEANS), 10e6),
    "hopping": (t.Window(by=("device",), frame=w.Hopping(MINUTE, MINUTE / 6), aggregates=MEANS), 3e6),
    "session": (t.Window(by=("device",), frame=w.Session(timedelta(seconds=5)), aggregates=MEANS), 5e6),
}


def readings(rows: int, first: int = 0) -> pa.Table:
    """Generate readings of 1,000 devices in order of time, 1,000 per second."""
    rng = np.random.default_rng([1, first])
    names = pa.array([f"device-{k:07d}" for k in range(KEYS)])
    seq = np.arange(first, first + rows)
    times = 1_714_564_800_000_000 + seq * 1_000
    columns = [
        pa.array(seq),
        pa.array(times).cast(TIMESTAMP),
        names.take(pa.array(rng.integers(0, KEYS, rows))),
        pa.array(20.0 + rng.standard_normal(rows)),
    ]
    return pa.table(columns, schema=SCHEMA)


def window_flow(task: t.Window) -> ro.Dataflow:
    """Create the dataflow of source, window and sink."""
    flow = ro.Dataflow("windows")
    return flow.sink("out", flow.source("readings", schema=SCHEMA).to(task, id="window"))


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite."""
    rows, repetitions = (200_000, 1) if quick else (4_000_000, 3)
    table = readings(rows)
    rates = {}
    with pinned_to_one_core():
        for name, (task, reach) in WINDOWS.items():
            run = window_flow(task)
            run.run(table.slice(0, 100_000), sinks=DiscardSink(), cores=1)
            rates[name] = rows / median_seconds(
                functools.partial(run.run, table, sinks=DiscardSink(), cores=1), repetitions
            )
            how = f"mean and count per key and {_frame_name(task)}, {KEYS:,} keys, one core, nothing written"
            yield Measure(f"windows/{name}", rates[name], "rows/s", how, reach)
        plain = rows / median_seconds(lambda: plain_window_means(table), repetitions)
    yield Measure("windows/plain-python", plain, "rows/s", "a dict per minute over lists in memory, one core")
    yield Measure("windows/vs-plain-python", rates["tumbling"] / plain, "ratio", "tumbling, one core each")
    yield from _on_spark(quick)


def _frame_name(task: t.Window) -> str:
    frame = task.frame
    return "session" if isinstance(frame, w.Session) else "minute" + " each ten seconds" * isinstance(frame, w.Hopping)


# -- on Spark --------------------------------------------------------------------------------------


def _on_spark(quick: bool) -> Iterator[Measure]:
    """Compare the packed dataflow and ``transform`` with Spark's own windows over the same files, alternating."""
    sizes = {"": 50_000} if quick else {"": 4_000_000, "-small-batches": 2_000_000}
    batches, repetitions = (4, 1) if quick else (5, 2)
    with spark_session(jvm="full") as spark, temporary_folder() as base:
        small = _write(base / "warm-up", 20, 10_000)
        implementations = _Implementations(spark, base)
        for run in (implementations.packed, implementations.transform, implementations.sql):
            run(small, 10_000)
        for suffix, rows in sizes.items():
            data = _write(base / f"rows-{rows}", batches, rows)
            rates: dict[str, list[float]] = {"packed": [], "transform": [], "sql": []}
            for _ in range(repetitions):
                for name, run in zip(
                    rates, (implementations.packed, implementations.transform, implementations.sql), strict=True
                ):
                    rates[name] += [rows / s for s in run(data, rows)[1:]]
            packed, transform, sql = (median(values) for values in rates.values())
            how = f"micro-batches of {rows:,} rows, {KEYS:,} keys, local[2], after a warm-up"
            yield Measure(f"windows/packed{suffix}", packed, "rows/s", how)
            yield Measure(f"windows/transform{suffix}", transform, "rows/s", how)
            yield Measure(f"windows/spark-sql{suffix}", sql, "rows/s", how)
            what = "withWatermark.groupBy(window, key).agg in the JVM, over the same files and micro-batches"
            yield Measure(f"windows/vs-spark-sql{suffix}", packed / sql, "ratio", what, 0.8 if suffix else 1.0)
            yield Measure(f"windows/transform-vs-spark-sql{suffix}", transform / sql, "ratio", what, 0.5)


def _write(path: Path, batches: int, rows: int) -> Path:
    """Write two files for each micro-batch."""
    path.mkdir()
    for i in range(2 * batches):
        pq.write_table(readings(rows // 2, i * rows // 2), path / f"{i:05d}.parquet")
    return path


class _Implementations:
    """Implementations of the aggregation over files of readings.

    Each method returns the seconds of its micro-batches.
    """

    def __init__(self, spark: Any, base: Path) -> None:
        self._spark = spark
        self._base = base
        self._queries = 0

    def packed(self, data: Path, rows: int) -> list[float]:
        """Run the dataflow with a source that reads the files."""
        source = RecordFiles(data, rows // 2, SCHEMA)
        query = window_flow(WINDOWS["tumbling"][0]).start(self._spark, source, sinks=DiscardSink(), max_records=rows)
        query.wait()
        return durations(query.streaming)

    def transform(self, data: Path, rows: int) -> list[float]:
        """Transform a DataFrame."""
        return self._timed(WINDOWS["tumbling"][0].transform(self._read(data)))

    def sql(self, data: Path, rows: int) -> list[float]:
        """Aggregate with Spark SQL."""
        return self._timed(spark_window_means(self._read(data)))

    def _timed(self, frame: Any) -> list[float]:
        self._queries += 1
        return timed_query(frame, self._base / f"checkpoint-{self._queries}")[0]

    def _read(self, data: Path) -> Any:
        fields = "seq long, event_time timestamp, device string, value double"
        return self._spark.readStream.schema(fields).option("maxFilesPerTrigger", 2).parquet(str(data))
