"""Timing of micro-batches and of streaming queries."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from riot_bench.harness.timing import median
from riot_ops.core.errors import RiotError

__all__ = ["Rate", "completed_batches", "durations", "intervals", "micro_batches", "progress", "rate_of", "timed_query"]


class Rate(NamedTuple):
    """Rows per second of a query, a note, and whether it was stopped before a micro-batch was done.

    The rate of a stopped query is an upper bound, and a ratio against it a lower bound.
    """

    value: float
    note: str
    stopped: bool


def progress(streaming: Any) -> list[dict[str, Any]]:
    """Return Spark's progress reports on the micro-batches of a query."""
    return [_parse_progress(p) for p in streaming.recentProgress]


def completed_batches(streaming: Any) -> int:
    """Return the number of completed micro-batches, from the last report: reading all takes a hundred JVM calls."""
    last = streaming.lastProgress
    return 0 if last is None else 1 + int(_parse_progress(last)["batchId"])


def _parse_progress(report: Any) -> dict[str, Any]:
    return report if isinstance(report, dict) else json.loads(report.json)


def micro_batches(streaming: Any) -> list[tuple[float, float]]:
    """Return begin (seconds since the epoch) and duration of each micro-batch with data, in order."""
    found = {
        p["batchId"]: (datetime.fromisoformat(p["timestamp"]).timestamp(), p["durationMs"]["triggerExecution"] / 1000)
        for p in progress(streaming)
        if p["numInputRows"]
    }
    return [found[i] for i in sorted(found)]


def durations(streaming: Any) -> list[float]:
    """Return the duration of each micro-batch with data in seconds, in order."""
    return [seconds for _, seconds in micro_batches(streaming)]


def intervals(streaming: Any, limit: int) -> list[float]:
    """Return the seconds between the ends of the first ``limit`` micro-batches, the wait for the trigger included."""
    ends = [begun + seconds for begun, seconds in micro_batches(streaming)[:limit]]
    return [after - before for before, after in itertools.pairwise(ends)]


def timed_query(
    frame: Any,
    checkpoint: Path,
    form: str = "noop",
    limit_s: float | None = None,
    out: Path | None = None,
    mode: str = "append",
    watch: Callable[[Any], None] | None = None,
) -> tuple[list[float], float | None]:
    """Run a streaming DataFrame to its end.

    ``watch`` is called with the query every tenth of a second, and at the end.

    Returns
    -------
    tuple of list of float and float or None
        The seconds of each finished micro-batch, and those spent in an unfinished one if the limit was reached.

    Raises
    ------
    RiotError
        The query failed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from riot_ops.spark.exceptions import find_cause

    try:
        return _run_timed(frame, checkpoint, form, limit_s, out, mode, watch)
    except (PySparkException, Py4JError) as error:
        raise RiotError(f"a query in plain PySpark failed: {find_cause(str(error))[1]}") from error


def _run_timed(
    frame: Any,
    checkpoint: Path,
    form: str,
    limit_s: float | None,
    out: Path | None,
    mode: str,
    watch: Callable[[Any], None] | None,
) -> tuple[list[float], float | None]:
    writer = frame.writeStream.format(form).outputMode(mode).option("checkpointLocation", str(checkpoint))
    if out is not None:
        writer = writer.option("path", str(out))
    query = writer.trigger(availableNow=True).start()
    begun = time.monotonic()
    while query.awaitTermination(0.1 if watch is not None else limit_s) is False:
        if watch is not None:
            watch(query)
        if limit_s is not None and time.monotonic() - begun >= limit_s:
            query.stop()
            done = durations(query)
            return done, time.monotonic() - begun - sum(done)
    if watch is not None:
        watch(query)
    return durations(query), None


def rate_of(timed: tuple[list[float], float | None], rows: int, limit_s: float) -> Rate:
    """Return the rate of a :func:`timed_query` with ``rows`` per micro-batch.

    The first micro-batch counts only if it is the only one.

    >>> rate_of(([9.0, 2.0, 1.0, 4.0], None), 100, 60.0)
    Rate(value=50.0, note='', stopped=False)
    >>> rate_of(([], 50.0), 100, 50.0)
    Rate(value=2.0, note='; none finished within 50 s', stopped=True)
    """
    done, unfinished = timed
    if done[1:]:
        return Rate(median(rows / s for s in done[1:]), "", False)
    if done:
        return Rate(rows / done[0], "; the first micro-batch only", False)
    return Rate(rows / (unfinished or limit_s), f"; none finished within {limit_s:g} s", True)
