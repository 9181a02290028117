"""Applications of DSPBench on Spark, beside the same in plain PySpark."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from riot_bench.baselines.spark.dspbench.opponent import Opponent
from riot_bench.harness.data import Discard
from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import Rate, durations, progress, rate_of, timed_query
from riot_bench.suites.dspbench.lines import PARTS, Lines, write_lines
from riot_ops.core.errors import RiotError

__all__ = ["counted", "on_one_core", "on_spark", "opponent", "packed", "text"]

#: Over so many lines of each source the sides are held against each other, before either is timed.
CHECKED = 50_000
OPPONENTS = "riot_bench.baselines.spark.dspbench"
#: State of Spark's own aggregations is fastest in its store in memory; state in Python needs the other one.
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def opponent(name: str) -> tuple[Opponent, Any] | None:
    """An application in plain PySpark: what it is, and its function; None where there is none."""
    if importlib.util.find_spec(f"{OPPONENTS}.{name}") is None:
        return None
    module = importlib.import_module(f"{OPPONENTS}.{name}")
    return module.OPPONENT, getattr(module, name)


@contextmanager
def _store(spark: Any, given: Opponent) -> Iterator[None]:
    before = spark.conf.get(PROVIDER)
    if not given.python:
        spark.conf.set(PROVIDER, IN_MEMORY)
    try:
        yield
    finally:
        spark.conf.set(PROVIDER, before)


def on_spark(spark: Any, data: Lines, base: Path, batch: int, limit_s: float) -> Iterator[Measure]:
    """Both sides over the same micro-batches, warm."""
    one = data.application
    at, how = f"dspbench/{one.code}", f"{{}}, micro-batches of {batch:,} lines, after a warm-up"
    where = spark.sparkContext.master
    packed(spark, data.first(batch), {}, data.each)
    yield Measure(f"{at}/spark", packed(spark, data, {}, batch)[0], "lines/s", how.format(where))
    found = opponent(one.name)
    if found is None:
        return
    given, build = found
    few = write_lines(one, base / "few", CHECKED, CHECKED)
    _, ours = packed(spark, few, given.parameters, few.each)
    theirs = counted(spark, few, base / "counted", given, build)
    wanted = sum(ours.get(stream, 0) for stream in one.results)
    if wanted != theirs and not (given.open_end and wanted > theirs):
        raise RiotError(f"the sides do not agree on the number of results of {one.name}: {wanted} and {theirs}")
    fast = packed(spark, data, given.parameters, batch, len(given.first))[0]
    said = f"{where}; {', '.join(f'{k}={v}' for k, v in given.parameters.items())}".rstrip("; ")
    yield Measure(f"{at}/spark-same", fast, "lines/s", how.format(said))
    slow = idiomatic(spark, data, base / "idiomatic", given, build, batch, limit_s)
    yield Measure(f"{at}/spark-idiomatic", slow.value, "lines/s", how.format(where) + slow.note)
    reach = 10 if given.python else 1
    more = f"; {wanted:,} records to {theirs:,}" if wanted > theirs else ""
    against = f"{given.by}; both with micro-batches of {batch:,} lines{more}{slow.note}"
    gain = fast / slow.value
    yield Measure(f"{at}/spark-vs-idiomatic", gain, "ratio", against, reach, lower_bound=slow.stopped)


def on_one_core(spark: Any, data: Lines, batch: int, two: float) -> Iterator[Measure]:
    """What a session with one core does, beside what one with two did."""
    at, how = f"dspbench/{data.application.code}", f"{spark.sparkContext.master}, micro-batches of {batch:,} lines"
    packed(spark, data.first(batch), {}, data.each)
    rate = packed(spark, data, {}, batch)[0]
    yield Measure(f"{at}/spark-one-core", rate, "lines/s", how)
    yield Measure(f"{at}/spark-vs-one-core", two / rate, "ratio", "local[2] against local[1], one after the other")


def packed(
    spark: Any, data: Lines, parameters: Mapping[str, Any], batch: int, first: int = 0
) -> tuple[float, dict[str, int]]:
    """Lines per second of the later micro-batches of so many lines of each source, and what came out of all.

    Of sources in sequence, the ``first`` so many do not count.
    """
    flow = data.application.builder(**parameters)
    together = 1 if flow.merging == "sequence" else len(data.files)
    most = batch * (together if flow.merging == "number" else 1)  # this one is for all sources together
    query = flow.start(spark, data.sources(), sinks=Discard(), max_records=most)
    query.wait()
    spent = durations(query.streaming)[: data.total // (batch * together)]
    spent = spent[first * len(spent) // len(data.files) :]
    return median(together * batch / s for s in spent[1:] or spent), query.summary.rows


def text(spark: Any, data: Lines, folder: Path, files: int, first: Sequence[str] = ()) -> dict[str, Any]:
    """The lines as streaming DataFrames that take so many files at once; of the ``first`` sources as DataFrames."""
    found = {}
    for name, paths in data.files.items():
        (folder / name).mkdir(parents=True)
        for path in paths:
            (folder / name / path.name).symlink_to(path)
        reader = spark.read if name in first else spark.readStream.option("maxFilesPerTrigger", files)
        found[name] = reader.text(str(folder / name))
    return found


def counted(spark: Any, data: Lines, base: Path, given: Opponent, build: Any) -> int:
    """The number of results of plain PySpark in micro-batches of one file."""
    from pyspark.sql import functions as f

    # in one part, so that the lines of a key stay in order
    frame = build({name: lines.coalesce(1) for name, lines in text(spark, data, base / "in", 1, given.first).items()})
    of_results = f.col("stream").isin(*data.application.results) if "stream" in frame.columns else f.lit(True)
    frame = frame.observe("results", f.count(f.when(of_results, 1)).alias("rows"))
    writer = frame.writeStream.format("noop").outputMode(given.mode)
    with _store(spark, given):
        query = writer.option("checkpointLocation", str(base / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
    return sum(p["observedMetrics"]["results"]["rows"] for p in progress(query) if p.get("observedMetrics"))


def idiomatic(spark: Any, data: Lines, base: Path, given: Opponent, build: Any, batch: int, limit_s: float) -> Rate:
    """Lines per second of plain PySpark in micro-batches of so many lines of each source."""
    frame = build(text(spark, data, base / "in", PARTS, given.first))
    with _store(spark, given):
        timed = timed_query(frame, base / "checkpoint", limit_s=limit_s, mode=given.mode)
    return rate_of(timed, batch * (len(data.files) - len(given.first)), limit_s)
