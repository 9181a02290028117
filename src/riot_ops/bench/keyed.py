"""A keyed task on Spark, against per-key state and against a bare pass, over the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.bench.data import READINGS, Discard, ReadingFiles, write_readings
from riot_ops.bench.measure import Measure, median
from riot_ops.bench.sparks import durations, folder, spark_session, timed_query

__all__ = ["kalman", "kalman_flow", "measures"]

#: Numbers of keys, and how many times as fast as per-key state it should be.
KEYS = {1000: 8, 100_000: 50}


def kalman() -> t.KalmanFilter:
    """The task of all sides."""
    return t.KalmanFilter(by=("device",))


def kalman_flow() -> ro.Dataflow:
    """Source, task, sink."""
    flow = ro.Dataflow("keyed")
    return flow.sink("out", flow.source("readings", schema=READINGS).to(kalman(), id="kalman"))


def measures(quick: bool = False) -> Iterator[Measure]:
    """The suite."""
    rows, batches, repetitions, limit_s = (200_000, 2, 1, 15.0) if quick else (2_000_000, 3, 2, 100.0)
    with spark_session() as spark, folder() as base:
        for keys, reach in KEYS.items():
            data = write_readings(base / f"keys-{keys}", batches, rows, keys)
            rates = _passes(spark, base, data, keys, rows, repetitions)
            how = f"micro-batches of {rows:,} rows, {keys:,} keys, local[2], after a warm-up"
            for name, rate in rates.items():
                yield Measure(f"keyed/{name}/{keys}", rate, "rows/s", how)
            yield Measure(
                f"keyed/vs-bare-pass/{keys}",
                rates["packed"] / rates["bare-pass"],
                "ratio",
                "repartition(key).mapInArrow(identity) over the same files and micro-batches",
                1.5,
            )
            yield Measure(
                f"keyed/transform-vs-bare-pass/{keys}",
                rates["transform"] / rates["bare-pass"],
                "ratio",
                "the same, for transform(df): rows in, rows out",
                0.7,
            )
            slow, what = _per_key(spark, base, data, keys, rows, limit_s)
            yield Measure(f"keyed/per-key/{keys}", slow, "rows/s", what)
            yield Measure(f"keyed/vs-per-key/{keys}", rates["packed"] / slow, "ratio", what, reach)


def _passes(spark: Any, base: Path, data: Path, keys: int, rows: int, repetitions: int) -> dict[str, float]:
    """Rows per second of the packed dataflow, of ``transform`` and of the bare pass, in turns."""
    from riot_ops.bench.opponents.keyed import bare_pass

    rates: dict[str, list[float]] = {"packed": [], "transform": [], "bare-pass": []}
    for i in range(1 + repetitions):
        query = kalman_flow().start(spark, ReadingFiles(data, rows // 2), sinks=Discard(), max_records=rows)
        query.wait()
        rates["packed"] += [rows / s for s in durations(query.streaming)[1:]]
        for name, frame in (
            ("transform", kalman().transform(_read(spark, data))),
            ("bare-pass", bare_pass(_read(spark, data))),
        ):
            done, _ = timed_query(frame, base / f"checkpoint-{name}-{keys}-{i}")
            rates[name] += [rows / s for s in done[1:]]
        if i == 0:  # the JVM compiles what it runs often
            for values in rates.values():
                values.clear()
    return {name: median(values) for name, values in rates.items()}


def _per_key(spark: Any, base: Path, data: Path, keys: int, rows: int, limit_s: float) -> tuple[float, str]:
    """Rows per second of per-key state, at least where it did not come far enough."""
    from riot_ops.bench.opponents.keyed import kalman_per_key

    done, unfinished = timed_query(
        kalman_per_key(_read(spark, data)), base / f"checkpoint-per-key-{keys}", limit_s=limit_s
    )
    what = "transformWithStateInPandas per key, Python arithmetic, the same micro-batches"
    if done[1:]:
        return median(rows / s for s in done[1:]), what
    if done:
        return rows / done[0], f"{what}; the first one only, the next did not finish within {limit_s:g} s"
    return rows / (unfinished or limit_s), f"{what}; none finished within {limit_s:g} s, so the ratio is a lower bound"


def _read(spark: Any, data: Path) -> Any:
    return (
        spark.readStream.schema("seq long, device string, value double")
        .option("maxFilesPerTrigger", 2)
        .parquet(str(data))
    )
