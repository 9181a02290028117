"""Applications of DSPBench on Spark, against the same in plain PySpark."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.input_lines import FILES_PER_BATCH, InputLines, write_input_lines
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import Rate, durations, progress, rate_of, timed_query
from riot_bench.harness.timing import median
from riot_ops.core.errors import RiotError

__all__ = [
    "comparison_measures",
    "count_baseline_results",
    "find_baseline",
    "one_core_measures",
    "run_packed",
    "text_frames",
]

#: Lines of each source over which the numbers of results are compared before either implementation is timed.
CHECKED_LINES = 50_000
BASELINES = "riot_bench.baselines.spark.dspbench"
#: Spark's own aggregations are fastest with its in-memory state store; state in Python needs RocksDB.
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def find_baseline(name: str) -> tuple[Baseline, Any] | None:
    """Return the description and the function of an application in plain PySpark, or None."""
    if importlib.util.find_spec(f"{BASELINES}.{name}") is None:
        return None
    module = importlib.import_module(f"{BASELINES}.{name}")
    return module.BASELINE, getattr(module, name)


@contextmanager
def _state_store(spark: Any, given: Baseline) -> Iterator[None]:
    before = spark.conf.get(PROVIDER)
    if not given.python:
        spark.conf.set(PROVIDER, IN_MEMORY)
    try:
        yield
    finally:
        spark.conf.set(PROVIDER, before)


def comparison_measures(spark: Any, data: InputLines, base: Path, batch: int, limit_s: float) -> Iterator[Measure]:
    """Compare both implementations over the same micro-batches in a warm session."""
    one = data.application
    at, how = f"dspbench/{one.code}", f"{{}}, micro-batches of {batch:,} lines, after a warm-up"
    where = spark.sparkContext.master
    run_packed(spark, data.take(batch), {}, data.lines_per_file)
    yield Measure(f"{at}/spark", run_packed(spark, data, {}, batch)[0], "lines/s", how.format(where))
    found = find_baseline(one.name)
    if found is None:
        return
    given, build = found
    few = write_input_lines(one, base / "few", CHECKED_LINES, CHECKED_LINES)
    _, ours = run_packed(spark, few, given.parameters, few.lines_per_file)
    theirs = count_baseline_results(spark, few, base / "counted", given, build)
    wanted = sum(ours.get(stream, 0) for stream in one.results)
    if wanted != theirs and not (given.omits_open_windows and wanted > theirs):
        raise RiotError(f"the implementations of {one.name} differ in the number of results: {wanted} and {theirs}")
    fast = run_packed(spark, data, given.parameters, batch, len(given.preloaded))[0]
    said = f"{where}; {', '.join(f'{k}={v}' for k, v in given.parameters.items())}".rstrip("; ")
    yield Measure(f"{at}/spark-same", fast, "lines/s", how.format(said))
    slow = run_baseline(spark, data, base / "idiomatic", given, build, batch, limit_s)
    yield Measure(f"{at}/spark-idiomatic", slow.value, "lines/s", how.format(where) + slow.note)
    reach = 10 if given.python else 1
    more = f"; {wanted:,} records to {theirs:,}" if wanted > theirs else ""
    against = f"{given.description}; both with micro-batches of {batch:,} lines{more}{slow.note}"
    gain = fast / slow.value
    yield Measure(f"{at}/spark-vs-idiomatic", gain, "ratio", against, reach, lower_bound=slow.stopped)


def one_core_measures(spark: Any, data: InputLines, batch: int, two: float) -> Iterator[Measure]:
    """Measure a session with one core, against the rate ``two`` of two cores."""
    at, how = f"dspbench/{data.application.code}", f"{spark.sparkContext.master}, micro-batches of {batch:,} lines"
    run_packed(spark, data.take(batch), {}, data.lines_per_file)
    rate = run_packed(spark, data, {}, batch)[0]
    yield Measure(f"{at}/spark-one-core", rate, "lines/s", how)
    yield Measure(f"{at}/spark-vs-one-core", two / rate, "ratio", "local[2] against local[1], one after the other")


def run_packed(
    spark: Any, data: InputLines, parameters: Mapping[str, Any], batch: int, first: int = 0
) -> tuple[float, dict[str, int]]:
    """Run the dataflow; return lines per second without the first micro-batch, and the number of results by stream.

    A micro-batch has ``batch`` lines of each source. The first ``first`` of sources in sequence do not count.
    """
    flow = data.application.builder(**parameters)
    together = 1 if flow.merging == "sequence" else len(data.files)
    most = batch * (together if flow.merging == "number" else 1)  # the limit is for all sources together
    query = flow.start(spark, data.sources(), sinks=DiscardSink(), max_records=most)
    query.wait()
    spent = durations(query.streaming)[: data.total // (batch * together)]
    spent = spent[first * len(spent) // len(data.files) :]
    return median(together * batch / s for s in spent[1:] or spent), query.summary.rows


def text_frames(spark: Any, data: InputLines, folder: Path, files: int, first: Sequence[str] = ()) -> dict[str, Any]:
    """Read the lines as streaming DataFrames with ``files`` files per micro-batch, the ``first`` sources as a batch."""
    found = {}
    for name, paths in data.files.items():
        (folder / name).mkdir(parents=True)
        for path in paths:
            (folder / name / path.name).symlink_to(path)
        reader = spark.read if name in first else spark.readStream.option("maxFilesPerTrigger", files)
        found[name] = reader.text(str(folder / name))
    return found


def count_baseline_results(spark: Any, data: InputLines, base: Path, given: Baseline, build: Any) -> int:
    """Count the results of plain PySpark with micro-batches of one file."""
    from pyspark.sql import functions as f

    # one partition, so that the lines of a key stay in order
    frame = build(
        {name: lines.coalesce(1) for name, lines in text_frames(spark, data, base / "in", 1, given.preloaded).items()}
    )
    of_results = f.col("stream").isin(*data.application.results) if "stream" in frame.columns else f.lit(True)
    frame = frame.observe("results", f.count(f.when(of_results, 1)).alias("rows"))
    writer = frame.writeStream.format("noop").outputMode(given.mode)
    with _state_store(spark, given):
        query = writer.option("checkpointLocation", str(base / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
    return sum(p["observedMetrics"]["results"]["rows"] for p in progress(query) if p.get("observedMetrics"))


def run_baseline(
    spark: Any, data: InputLines, base: Path, given: Baseline, build: Any, batch: int, limit_s: float
) -> Rate:
    """Return the lines per second of plain PySpark with micro-batches of ``batch`` lines of each source."""
    frame = build(text_frames(spark, data, base / "in", FILES_PER_BATCH, given.preloaded))
    with _state_store(spark, given):
        timed = timed_query(frame, base / "checkpoint", limit_s=limit_s, mode=given.mode)
    return rate_of(timed, batch * (len(data.files) - len(given.preloaded)), limit_s)
