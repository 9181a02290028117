"""A keyed task on Spark, against per-key state and against a bare pass, over the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import riot_ops as ro
from riot_bench.harness.data import READINGS, RecordFiles, write_readings
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import durations, rate_of, timed_query
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_ops import tasks as t

__all__ = ["kalman", "kalman_flow", "measures"]

#: Numbers of keys, and the target ratio against per-key state.
KEYS = {1000: 8, 100_000: 50}
#: Rows of a warm-up micro-batch; they are small, as the JVM compiles code that has run often, not long.
WARM_UP_ROWS = 5_000
#: Spark's default batches between the JVM and Python; sessions of riot_ops set other limits.
SPARK_ARROW_BATCHES = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "64MB",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


def kalman() -> t.KalmanFilter:
    """Create the task that all implementations run."""
    return t.KalmanFilter(by=("device",))


def kalman_flow() -> ro.Dataflow:
    """Create the dataflow of source, task and sink."""
    flow = ro.Dataflow("keyed")
    return flow.sink("out", flow.source("readings", schema=READINGS).to(kalman(), id="kalman"))


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite."""
    rows, batches, warm_up, repetitions, limit_s = (50_000, 4, 2, 1, 15.0) if quick else (2_000_000, 6, 40, 2, 100.0)
    with spark_session(jvm="full") as spark, temporary_folder() as base:
        implementations = _Implementations(spark, base)
        few = write_readings(base / "warm-up", warm_up, WARM_UP_ROWS, 1000)
        for run in (
            implementations.packed,
            implementations.transform,
            implementations.bare_pass,
            implementations.bare_pass_here,
        ):
            run(few, WARM_UP_ROWS, WARM_UP_ROWS)
        implementations.per_key(few, WARM_UP_ROWS, WARM_UP_ROWS, limit_s / 3)
        for keys, reach in KEYS.items():
            data = write_readings(base / f"keys-{keys}", batches, rows, keys)
            yield from _against_bare_pass(implementations, data, keys, rows, repetitions)
            yield from _against_per_key(implementations, data, keys, rows, 2 * rows, repetitions, limit_s, reach)
            yield from _against_per_key(
                implementations, data, keys, rows, rows, repetitions, limit_s, reach, "-small-batches"
            )


class _Implementations:
    """Implementations of the filter over files of readings; each method returns the seconds of its micro-batches.

    ``rows`` is the size of a micro-batch, ``each`` that of two files.
    """

    def __init__(self, spark: Any, base: Path) -> None:
        self._spark = spark
        self._base = base
        self._queries = 0

    def packed(self, data: Path, each: int, rows: int) -> list[float]:
        source = RecordFiles(data, each // 2)
        query = kalman_flow().start(self._spark, source, sinks=DiscardSink(), max_records=rows)
        query.wait()
        return durations(query.streaming)

    def transform(self, data: Path, each: int, rows: int) -> list[float]:
        return self._timed(kalman().transform(self._read(data, each, rows)))[0]

    def bare_pass(self, data: Path, each: int, rows: int) -> list[float]:
        """Run a bare pass with Spark's default batches between the JVM and Python."""
        from riot_ops.spark.session import query_settings

        with query_settings(self._spark, SPARK_ARROW_BATCHES):
            return self.bare_pass_here(data, each, rows)

    def bare_pass_here(self, data: Path, each: int, rows: int) -> list[float]:
        """Run a bare pass with the batches of a riot_ops session."""
        from riot_bench.baselines.spark.keyed import bare_pass

        return self._timed(bare_pass(self._read(data, each, rows)))[0]

    def per_key(self, data: Path, each: int, rows: int, limit_s: float) -> tuple[list[float], float | None]:
        """Run per-key state; also return the seconds of an unfinished micro-batch if the limit was reached."""
        from riot_bench.baselines.spark.keyed import kalman_per_key

        return self._timed(kalman_per_key(self._read(data, each, rows)), limit_s)

    def _timed(self, frame: Any, limit_s: float | None = None) -> tuple[list[float], float | None]:
        self._queries += 1
        return timed_query(frame, self._base / f"checkpoint-{self._queries}", limit_s=limit_s)

    def _read(self, data: Path, each: int, rows: int) -> Any:
        return (
            self._spark.readStream.schema("seq long, device string, value double")
            .option("maxFilesPerTrigger", 2 * rows // each)
            .parquet(str(data))
        )


def _against_bare_pass(
    implementations: _Implementations, data: Path, keys: int, rows: int, repetitions: int
) -> Iterator[Measure]:
    """Compare the packed dataflow and ``transform`` with a bare pass, alternating."""
    how = f"micro-batches of {rows:,} rows, {keys:,} keys, local[2], after a warm-up"
    rates: dict[str, list[float]] = {"packed": [], "transform": [], "bare-pass": [], "here": []}
    for _ in range(repetitions):
        runs = (
            implementations.packed,
            implementations.transform,
            implementations.bare_pass,
            implementations.bare_pass_here,
        )
        for name, run in zip(rates, runs, strict=True):
            rates[name] += [rows / s for s in run(data, rows, rows)[1:]]
    packed, transform, bare, here = (median(values) for values in rates.values())
    yield Measure(f"keyed/packed/{keys}", packed, "rows/s", how)
    yield Measure(f"keyed/transform/{keys}", transform, "rows/s", how)
    yield Measure(f"keyed/bare-pass/{keys}", bare, "rows/s", f"{how}; Spark's default batches to Python")
    what = "repartition(key).mapInArrow(identity), same files and micro-batches; Spark's default batches to Python"
    yield Measure(f"keyed/vs-bare-pass/{keys}", packed / bare, "ratio", what, 1.5)
    what = "the same, for transform(df): rows in, rows out"
    yield Measure(f"keyed/transform-vs-bare-pass/{keys}", transform / bare, "ratio", what, 0.7)
    yield Measure(f"keyed/bare-pass-in-our-session/{keys}", here, "rows/s", f"{how}; riot_ops' batches to Python")
    what = "a bare pass with the batches to Python of riot_ops' sessions"
    yield Measure(f"keyed/vs-bare-pass-in-our-session/{keys}", packed / here, "ratio", what)
    yield Measure(f"keyed/transform-vs-bare-pass-in-our-session/{keys}", transform / here, "ratio", what)


def _against_per_key(
    implementations: _Implementations,
    data: Path,
    keys: int,
    each: int,
    rows: int,
    repetitions: int,
    limit_s: float,
    reach: float,
    suffix: str = "",
) -> Iterator[Measure]:
    """Compare the packed dataflow with per-key state, which is stopped at the limit if it is slow."""
    how = f"micro-batches of {rows:,} rows, {keys:,} keys, local[2], after a warm-up"
    ours = median(rows / s for _ in range(repetitions) for s in implementations.packed(data, each, rows)[1:])
    what = f"transformWithStateInPandas per key, Python arithmetic; both with micro-batches of {rows:,} rows"
    theirs = rate_of(implementations.per_key(data, each, rows, limit_s), rows, limit_s)
    what += theirs.note
    yield Measure(f"keyed/packed-beside-per-key{suffix}/{keys}", ours, "rows/s", how)
    yield Measure(f"keyed/per-key{suffix}/{keys}", theirs.value, "rows/s", what)
    gain = ours / theirs.value
    yield Measure(f"keyed/vs-per-key{suffix}/{keys}", gain, "ratio", what, reach, lower_bound=theirs.stopped)
