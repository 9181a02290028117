"""Timing micro-batches."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from riot_ops.bench.data import needs

__all__ = ["durations", "folder", "micro_batches", "progress", "spark_session", "timed_query"]


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
    from riot_ops.runtime.spark import session

    spark = session(cores=cores, jvm=jvm, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()


def progress(streaming: Any) -> list[dict[str, Any]]:
    """What Spark reports on each micro-batch of a query."""
    return [p if isinstance(p, dict) else json.loads(p.json) for p in streaming.recentProgress]


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
    limit ran out. Meanwhile ``watch`` is called with the query every tenth of a second.
    """
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
    return durations(query), None
