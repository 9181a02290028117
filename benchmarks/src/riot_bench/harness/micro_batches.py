"""Timing micro-batches."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from riot_bench.harness.data import needs
from riot_bench.harness.measure import median
from riot_ops.core.errors import RiotError

__all__ = [
    "Rate",
    "durations",
    "finished",
    "folder",
    "intervals",
    "micro_batches",
    "progress",
    "rate_of",
    "spark_session",
    "timed_query",
]


class Rate(NamedTuple):
    """Rows per second of a query, a remark, and whether it was stopped before a micro-batch was done.

    In that case it is at most so fast, and what is compared with it by so much faster, or more.
    """

    value: float
    note: str
    stopped: bool


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder."""
    path = Path(tempfile.mkdtemp(prefix="riot_ops-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def spark_session(
    cores: int = 2, *, jvm: Literal["light", "full"] = "light", settings: dict[str, str] | None = None
) -> Iterator[Any]:
    """A local session, stopped at the end; beside Spark's own operators with all that Spark gives them."""
    needs("this benchmark", "bench", "psutil", "orjson")
    needs("this benchmark", "spark", "pyspark", "pandas")
    from riot_ops.spark import session

    spark = session(cores=cores, jvm=jvm, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()


def progress(streaming: Any) -> list[dict[str, Any]]:
    """What Spark reports on each micro-batch of a query."""
    return [_as_dict(p) for p in streaming.recentProgress]


def finished(streaming: Any) -> int:
    """How many micro-batches of a query are through: the last one tells, while all are a hundred calls of the JVM."""
    last = streaming.lastProgress
    return 0 if last is None else 1 + int(_as_dict(last)["batchId"])


def _as_dict(told: Any) -> dict[str, Any]:
    return told if isinstance(told, dict) else json.loads(told.json)


def micro_batches(streaming: Any) -> list[tuple[float, float]]:
    """When each micro-batch began (seconds since the epoch) and what it took, in order; those without data left out."""
    found = {
        p["batchId"]: (datetime.fromisoformat(p["timestamp"]).timestamp(), p["durationMs"]["triggerExecution"] / 1000)
        for p in progress(streaming)
        if p["numInputRows"]
    }
    return [found[i] for i in sorted(found)]


def durations(streaming: Any) -> list[float]:
    """Seconds that each micro-batch took, in order; those without data left out."""
    return [seconds for _, seconds in micro_batches(streaming)]


def intervals(streaming: Any, most: int) -> list[float]:
    """Seconds from the end of each of the first micro-batches to that of the next: waiting for the trigger counts."""
    ends = [begun + seconds for begun, seconds in micro_batches(streaming)[:most]]
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

    Returns the seconds of each finished micro-batch, and those spent in an unfinished one where the
    limit ran out. Meanwhile ``watch`` is called with the query every tenth of a second, and at the end. Raises
    :class:`RiotError` where the query fails.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from riot_ops.spark.query import cause_of

    try:
        return _timed(frame, checkpoint, form, limit_s, out, mode, watch)
    except (PySparkException, Py4JError) as error:
        raise RiotError(f"a query in plain PySpark failed: {cause_of(str(error))[1]}") from error


def _timed(
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
    """What :func:`timed_query` found, of micro-batches of so many rows; the first counts where it is the only one.

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
