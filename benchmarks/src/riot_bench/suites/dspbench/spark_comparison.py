"""Applications of DSPBench on Spark, against the same in plain PySpark."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.input_lines import FILES_PER_BATCH, InputLines, write_input_lines
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import Rate, durations, rate_of, timed_query
from riot_bench.harness.timing import median
from riot_bench.harness.validation import compare_columns
from riot_ops.core.errors import RiotError

__all__ = [
    "SparkSizes",
    "baseline_results",
    "compare_results",
    "comparison_measures",
    "find_baseline",
    "format_lines",
    "one_core_measures",
    "run_packed",
    "side_by_side_measures",
    "state_store",
    "text_frames",
]

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
def state_store(spark: Any, given: Baseline) -> Iterator[None]:
    """Use the state store in memory while plain PySpark without state in Python runs."""
    before = spark.conf.get(PROVIDER)
    if not given.python:
        spark.conf.set(PROVIDER, IN_MEMORY)
    try:
        yield
    finally:
        spark.conf.set(PROVIDER, before)


@dataclass(frozen=True)
class SparkSizes:
    """Amount of work on Spark.

    Attributes
    ----------
    batches : mapping of int to int
        Number of micro-batches by their lines of each source, ascending; the first micro-batch is not counted.
    repetitions : int
    checked : int
        Lines of each source over which all results are compared.
    limit_s : float
        Time limit of a query in plain PySpark.
    """

    batches: Mapping[int, int]
    repetitions: int
    checked: int
    limit_s: float


def comparison_measures(spark: Any, data: InputLines, sizes: SparkSizes) -> Iterator[Measure]:
    """Compare both implementations over the same micro-batches in a warm session, after all their results agree.

    Parameters
    ----------
    spark : SparkSession
    data : InputLines
        Lines of the largest micro-batches.
    sizes : SparkSizes
    """
    one, largest = data.application, max(sizes.batches)
    found = find_baseline(one.name)
    if found is not None:
        yield from side_by_side_measures(spark, data, sizes, *found)
    # after these queries, as a session with one core comes later and finds a JVM that has compiled everything
    run_packed(spark, data.take(largest), {}, data.lines_per_file)
    how = f"{spark.sparkContext.master}, micro-batches of {largest:,} lines, after a warm-up"
    yield Measure(f"dspbench/{one.code}/spark", run_packed(spark, data, {}, largest)[0], "lines/s", how)


def side_by_side_measures(
    spark: Any, data: InputLines, sizes: SparkSizes, given: Baseline, build: Any
) -> Iterator[Measure]:
    """Compare all results of both sides, then time both for each size of micro-batches.

    The lines are ``data`` for the largest micro-batches, unless ``given`` has options of streams.
    """
    one, largest = data.application, max(sizes.batches)
    with temporary_folder() as base:
        few = write_input_lines(one, base / "few", sizes.checked, sizes.checked, **given.stream_options)
        agreement = compare_results(spark, few, base / "compared", given, build)
    for batch, number in sizes.batches.items():
        with temporary_folder() as base:
            lines = data
            if batch != largest or given.stream_options:
                lines = write_input_lines(one, base / "lines", batch * number, batch, **given.stream_options)
            yield from _timed_measures(spark, lines, base, given, build, batch, sizes, agreement)


def _timed_measures(
    spark: Any, data: InputLines, base: Path, given: Baseline, build: Any, batch: int, sizes: SparkSizes, agreement: str
) -> Iterator[Measure]:
    """Time both sides in turn, after one query of each over the first micro-batch as the warm-up."""
    at, of, size = f"dspbench/{data.application.code}", len(given.preloaded), format_lines(batch)

    def ours(lines: InputLines) -> float:
        return run_packed(spark, lines, given.parameters, batch, of)[0]

    def theirs(lines: InputLines, name: str) -> Rate:
        return run_baseline(spark, lines, base / name, given, build, batch, sizes.limit_s)

    ours(data.take(batch)), theirs(data.take(batch), "warm")
    fast, slow = list[float](), list[Rate]()
    for turn in range(sizes.repetitions):
        fast.append(ours(data))
        slow.append(theirs(data, f"turn-{turn}"))
    how = f"{spark.sparkContext.master}, micro-batches of {batch:,} lines, after a warm-up of each side"
    # of a path its name, as its folder is temporary
    parameters = "".join(f", {k}={Path(str(v)).name}" for k, v in given.parameters.items())
    rates = tuple(rate.value for rate in slow)
    note, stopped = slow[-1].note, any(rate.stopped for rate in slow)
    yield Measure(f"{at}/spark-same/{size}", median(fast), "lines/s", how + parameters, sample=tuple(fast))
    yield Measure(f"{at}/spark-idiomatic/{size}", median(rates), "lines/s", how + note, sample=rates)
    ratios = tuple(a / b for a, b in zip(fast, rates, strict=True))
    against = f"{given.description}{note}; {agreement}"
    reach = 10 if given.python else 1
    name = f"{at}/spark-vs-idiomatic/{size}"
    yield Measure(name, median(ratios), "ratio", against, reach, sample=ratios, lower_bound=stopped)


def format_lines(number: int) -> str:
    """Format a number of lines for the name of a measure.

    >>> [format_lines(n) for n in (50_000, 250_000, 4_000_000)]
    ['50k', '250k', '4M']
    """
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)


def one_core_measures(spark: Any, data: InputLines, batch: int, two: float) -> Iterator[Measure]:
    """Measure a session with one core, against the rate ``two`` of two cores."""
    at, how = f"dspbench/{data.application.code}", f"{spark.sparkContext.master}, micro-batches of {batch:,} lines"
    run_packed(spark, data.take(batch), {}, data.lines_per_file)
    rate = run_packed(spark, data, {}, batch)[0]
    yield Measure(f"{at}/spark-one-core", rate, "lines/s", how)
    yield Measure(f"{at}/spark-vs-one-core", two / rate, "ratio", "local[2] against local[1], one after the other")


def run_packed(
    spark: Any,
    data: InputLines,
    parameters: Mapping[str, Any],
    batch: int,
    first: int = 0,
    partitions: int | None = None,
) -> tuple[float, dict[str, int]]:
    """Run the dataflow; return lines per second without the first micro-batch, and the number of results by stream.

    A micro-batch has ``batch`` lines of each source. The first ``first`` of sources in sequence do not count.
    ``partitions`` is those of the session by default.
    """
    flow = data.application.builder(**parameters)
    together = 1 if flow.merging == "sequence" else len(data.files)
    most = batch * (together if flow.merging == "number" else 1)  # the limit is for all sources together
    query = flow.start(spark, data.sources(), sinks=DiscardSink(), max_records=most, partitions=partitions)
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


def compare_results(spark: Any, data: InputLines, base: Path, given: Baseline, build: Any) -> str:
    """Compare all results of both sides, with micro-batches of one file; return a description of the comparison.

    Raises
    ------
    RiotError
        They differ, or there are none.
    """
    one = data.application
    flow = one.builder(**given.parameters)
    together = 1 if flow.merging != "number" else len(data.files)
    query = flow.start(spark, data.sources(), max_records=data.lines_per_file * together)
    query.wait()
    theirs = baseline_results(spark, data, base, given, build)
    compared = more = 0
    for stream, fields in one.results.items():
        kept = [name for name in fields if name not in given.omitted_fields]
        found, wanted = query[stream].select(kept), theirs[stream]
        time = given.open_windows.get(stream)
        if time is not None and wanted.num_rows:
            last = pc.max(wanted.column(time).cast(found.schema.field(time).type))
            later = pc.greater(found.column(time), last)
            more += pc.sum(later).as_py() or 0
            found = found.filter(pc.invert(later))
        difference = compare_columns(stream, found, wanted)
        if not difference.equal:
            raise RiotError(f"the implementations of {one.name} differ on Spark: {difference}")
        compared += difference.wanted
    if not compared:
        raise RiotError(f"the implementations of {one.name} have no results in {data.total:,} lines")
    agreement = f"all {compared:,} results of {data.total:,} lines agree"
    agreement += f", {more:,} of windows that are open at the end apart" if more else ""
    return agreement + (f", without {' and '.join(given.omitted_fields)}" if given.omitted_fields else "")


def baseline_results(spark: Any, data: InputLines, base: Path, given: Baseline, build: Any) -> dict[str, pa.Table]:
    """Run plain PySpark with micro-batches of one file; return its results by stream."""
    # one partition, so that the lines of a key stay in order
    frame = build(
        {name: lines.coalesce(1) for name, lines in text_frames(spark, data, base / "in", 1, given.preloaded).items()}
    )
    parts: list[pa.Table] = []
    writer = frame.writeStream.outputMode(given.mode).foreachBatch(lambda batch, _: parts.append(batch.toArrow()))
    with state_store(spark, given):
        query = writer.option("checkpointLocation", str(base / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
    rows, found = pa.concat_tables(parts), {}
    for stream, fields in data.application.results.items():
        own = rows.filter(pc.equal(rows.column("stream"), stream)) if "stream" in rows.column_names else rows
        found[stream] = own.select([name for name in fields if name not in given.omitted_fields])
    return found


def run_baseline(
    spark: Any, data: InputLines, base: Path, given: Baseline, build: Any, batch: int, limit_s: float
) -> Rate:
    """Return the lines per second of plain PySpark with micro-batches of ``batch`` lines of each source."""
    frame = build(text_frames(spark, data, base / "in", FILES_PER_BATCH, given.preloaded))
    with state_store(spark, given):
        timed = timed_query(frame, base / "checkpoint", limit_s=limit_s, mode=given.mode)
    return rate_of(timed, batch * (len(data.files) - len(given.preloaded)), limit_s)
