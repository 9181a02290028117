"""Bytes that an application on Spark moves through shuffles, and between the JVM and Python workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.input_lines import FILES_PER_BATCH, InputLines
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import timed_query
from riot_bench.harness.spark_bytes import ByteLog
from riot_bench.suites.dspbench.spark_comparison import state_store, text_frames

__all__ = ["network_measures", "spark_network_measures"]

#: Seconds between looks at a query.
LOOK_S = 0.02


def spark_network_measures(
    spark: Any, data: InputLines, given: Baseline, build: Any, limit_s: float
) -> Iterator[Measure]:
    """Count the bytes of both sides over the same lines, in the same micro-batches.

    Parameters
    ----------
    spark : SparkSession
    data : InputLines
        Lines of all micro-batches.
    given, build : Baseline, function
        The application in plain PySpark.
    limit_s : float
        Time limit of plain PySpark.
    """
    batch, where = data.lines_per_file * FILES_PER_BATCH, spark.sparkContext.master
    ours, theirs = ByteLog(), ByteLog()
    flow = data.application.builder(**given.parameters)
    most = batch * (len(data.files) if flow.merging == "number" else 1)  # the limit is for all sources together
    query = flow.start(spark, data.sources(), sinks=DiscardSink(), max_records=most)
    while query.streaming.isActive:
        ours.watch(query.streaming)
        time.sleep(LOOK_S)
    query.wait()
    yield from network_measures("spark-network", data, ours, where)
    with temporary_folder() as base, state_store(spark, given):
        frame = build(text_frames(spark, data, base / "in", FILES_PER_BATCH, given.preloaded))
        _, unfinished = timed_query(frame, base / "checkpoint", limit_s=limit_s, mode=given.mode, watch=theirs.watch)
    if unfinished is not None:  # it has not read all lines
        return
    # the batch that reads preloaded sources is no part of the query
    apart = f" without {' and '.join(given.preloaded)}" if given.preloaded else ""
    yield from network_measures("spark-idiomatic-network", data, theirs, where + apart)


def network_measures(name: str, data: InputLines, log: ByteLog, where: str) -> Iterator[Measure]:
    """Yield bytes per line, and the bytes per second that shuffles write, by micro-batch."""
    at, batches = f"dspbench/{data.application.code}/{name}", log.batches()
    how = f"{where}, {data.total:,} lines in {len(batches)} micro-batches"
    kinds = ("shuffle-written", "shuffle-read", "to-python", "from-python")
    for kind, numbers in zip(kinds, zip(*(found for found, _ in batches), strict=True), strict=True):
        yield Measure(f"{at}/{kind}", sum(numbers) / data.total, "bytes/line", how)
    rates = [found.written / 1e6 / seconds for found, seconds in batches]
    for share in (50, 95):
        rate = float(np.percentile(rates, share))
        yield Measure(f"{at}/shuffle-rate-p{share}", rate, "MB/s", f"written; {how}", sample=tuple(rates))
