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

KEYS = (1000, 100_000)
#: Per-key state is measured on so many keys at most, with as many rows per key.
SLICE = 10_000


def kalman() -> t.KalmanFilter:
    """The task of all sides."""
    return t.KalmanFilter(by=("device",))


def kalman_flow() -> ro.Dataflow:
    """Source, task, sink."""
    flow = ro.Dataflow("keyed")
    return flow.sink("out", flow.source("readings", schema=READINGS).to(kalman(), id="kalman"))


def measures(quick: bool = False) -> Iterator[Measure]:
    """The suite."""
    rows, batches, repetitions, limit_s = (200_000, 2, 1, 30.0) if quick else (2_000_000, 3, 3, 150.0)
    with spark_session() as spark, folder() as base:
        for keys in KEYS:
            data = write_readings(base / f"keys-{keys}", batches, rows, keys)
            yield from _against_pass(spark, base, data, keys, rows, repetitions)
            yield from _against_keys(spark, base, data, keys, rows, limit_s)


_LAST: dict[int, float] = {}


def _against_pass(spark: Any, base: Path, data: Path, keys: int, rows: int, repetitions: int) -> Iterator[Measure]:
    from riot_ops.bench.opponents.keyed import bare_pass

    rates: dict[str, list[float]] = {"packed": [], "transform": [], "bare": []}
    for i in range(repetitions):
        query = kalman_flow().start(spark, ReadingFiles(data, rows // 2), sinks=Discard(), max_records=rows)
        query.wait()
        rates["packed"] += [rows / s for s in durations(query.streaming)[1:]]
        for name, frame in (("transform", kalman().transform(_read(spark, data))), ("bare", bare_pass(_read(spark, data)))):
            done, _ = timed_query(frame, base / f"checkpoint-{name}-{keys}-{i}")
            rates[name] += [rows / s for s in done[1:]]
    found = {name: median(values) for name, values in rates.items()}
    _LAST[keys] = found["packed"]
    how = f"micro-batches of {rows:,} rows, {keys:,} keys, local[2], after a warm-up"
    yield Measure(f"keyed/packed/{keys}", found["packed"], "rows/s", how)
    yield Measure(f"keyed/transform/{keys}", found["transform"], "rows/s", how)
    yield Measure(f"keyed/bare-pass/{keys}", found["bare"], "rows/s", how)
    yield Measure(f"keyed/vs-bare-pass/{keys}", found["packed"] / found["bare"], "ratio",
                  "repartition(key).mapInArrow(identity) over the same files and micro-batches", 1.5)
    yield Measure(f"keyed/transform-vs-bare-pass/{keys}", found["transform"] / found["bare"], "ratio",
                  "the same, for transform(df): rows in, rows out", 0.7)


def _against_keys(spark: Any, base: Path, data: Path, keys: int, rows: int, limit_s: float) -> Iterator[Measure]:
    from riot_ops.bench.opponents.keyed import kalman_per_key

    part = min(keys, SLICE)
    n = rows * part // keys
    if part < keys:
        data = write_readings(base / f"slice-{keys}", 2, n, keys, of=part)
    slow = kalman_per_key(_read(spark, data))
    done, unfinished = timed_query(slow, base / f"checkpoint-per-key-{keys}", limit_s=limit_s)
    what = "transformWithStateInPandas per key, pure Python arithmetic, the same micro-batches"
    if part < keys:
        what += f" cut down to {part:,} of the keys"
    if done[1:]:
        rate = median(n / s for s in done[1:])
    else:
        rate = n / (done[0] if done else unfinished or limit_s)
        what += (", first micro-batch only" if done
                 else f"; not one micro-batch finished in {limit_s:g} s: the ratio is a lower bound")
    yield Measure(f"keyed/per-key/{keys}", rate, "rows/s", what)
    yield Measure(f"keyed/vs-per-key/{keys}", _LAST[keys] / rate, "ratio", what, 8 if keys == KEYS[0] else 50)


def _read(spark: Any, data: Path) -> Any:
    return (spark.readStream.schema("seq long, device string, value double")
            .option("maxFilesPerTrigger", 2).parquet(str(data)))
