"""Runs of a program's implementations over numbered lines, and the check that their results are equal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from riot_bench.baselines.arrow.streambench import run_batched
from riot_bench.harness.digest import digest
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.micro_batches import durations, micro_batches, timed_query
from riot_bench.harness.numbered_lines import FILES_PER_BATCH, NumberedLines
from riot_bench.harness.timing import median
from riot_bench.harness.validation import plain_results
from riot_bench.suites.streambench.cost import Cost, CostMonitor
from riot_bench.suites.streambench.programs import PROGRAMS, Row, collect_rows, final_results, find_implementations
from riot_ops.core.errors import RiotError
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import application

__all__ = [
    "IN_MEMORY_STORE",
    "IN_PROCESS",
    "Run",
    "check_implementations",
    "check_on_spark",
    "implementation_names",
    "program_flow",
    "run_frames",
    "run_in_process",
    "run_packed",
    "run_pyspark",
]

B = TypeVar("B", bound=Sized)

#: Implementations that run in this process; the others run on Spark.
IN_PROCESS = ("local", "numpy", "loop")
#: Programs that emit a record for each key of a micro-batch, like Spark's update mode.
UPDATE_PROGRAMS = ("wordcount", "statistics")
#: Spark's own aggregations are fastest with its in-memory state store; state in Python needs RocksDB.
STORE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
IN_MEMORY_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@dataclass(frozen=True)
class Run:
    """Durations of a run.

    Attributes
    ----------
    spent : tuple of float
        Seconds of each micro-batch after the first, or of each repetition in process.
    lines : int
        Lines of each micro-batch or repetition.
    latency_s : tuple of float
        Mean time from fetching a line to its output, of each; empty if all lines are processed at once.
    saturated : bool
        Whether the run was stopped at its time limit.
    span_s : float
        Seconds from the begin of the first counted micro-batch to the end of the last.
    cost : Cost or None
        CPU time and memory of the micro-batches or repetitions, or of most of them; None if the run was stopped or too
        few were monitored.

    Examples
    --------
    >>> run = Run((2.0, 1.0, 4.0), 100, (2.0, 1.0, 4.0))
    >>> run.rates, run.rate
    ((50.0, 100.0, 25.0), 50.0)
    """

    spent: tuple[float, ...]
    lines: int
    latency_s: tuple[float, ...] = ()
    saturated: bool = False
    span_s: float = math.nan
    cost: Cost | None = None

    @property
    def line_us(self) -> float:
        """CPU time per line (µs)."""
        return math.nan if self.cost is None else 1e6 * self.cost.seconds / (self.lines * self.cost.parts)

    @property
    def rates(self) -> tuple[float, ...]:
        """Lines per second of each micro-batch or repetition."""
        return tuple(self.lines / s for s in self.spent)

    @property
    def rate(self) -> float:
        """Median of :attr:`rates`.

        The time between micro-batches, such as the wait for a trigger, is contained in ``span_s`` only.
        """
        return median(self.rates)


def implementation_names(name: str) -> tuple[str, ...]:
    """Return the implementations of a program: in process, packed on Spark, and in plain PySpark.

    >>> implementation_names("grep")
    ('local', 'numpy', 'loop', 'packed', 'expressions', 'udf', 'pickled', 'arrow')
    """
    return (*IN_PROCESS, "packed", *find_implementations(name))


def program_flow(name: str) -> Dataflow:
    """Build the dataflow of a program, which emits updates if it has a result for each key."""
    flow: Dataflow = application(name).builder(**({"emit": "update"} if name in UPDATE_PROGRAMS else {}))
    return flow


# -- runs --------------------------------------------------------------------------------------------


def run_in_process(name: str, implementation: str, data: NumberedLines, repetitions: int) -> Run:
    """Run an implementation in this process over all lines, repeatedly."""
    flow, spent, latency = program_flow(name), list[float](), list[float]()

    def once() -> None:
        begun = time.perf_counter()
        if implementation == "local":
            blocks = flow.run(data.source(), sinks=DiscardSink()).summary.latency.blocks()
            rows = sum(n for _, _, n in blocks)
            latency.append(sum((least + most) / 2e6 * n for least, most, n in blocks) / max(rows, 1))
        else:
            batches = BatchTimer()
            _run_baseline(name, implementation, data, batches)
            latency.append(batches.mean)
        spent.append(time.perf_counter() - begun)

    once()  # compiles
    with CostMonitor() as watch:
        before = time.process_time()  # has a finer resolution than the times of other processes
        for _ in range(repetitions):
            once()
        seconds = time.process_time() - before
    cost = replace(watch.cost, seconds=seconds, parts=repetitions)
    return Run(tuple(spent[1:]), data.total, tuple(latency[1:]), cost=cost)


class BatchTimer:
    """Forwards batches and measures how long each is processed, that is until the next one is requested.

    Attributes
    ----------
    mean : float
        Mean seconds, weighted by the records of each batch.
    """

    def __init__(self) -> None:
        self._rows, self._weighted = 0, 0.0

    @property
    def mean(self) -> float:
        return self._weighted / max(self._rows, 1)

    def __call__(self, batches: Iterable[B]) -> Iterator[B]:
        for batch in batches:
            begun = time.perf_counter()
            yield batch
            self._weighted += len(batch) * (time.perf_counter() - begun)
            self._rows += len(batch)


def _run_baseline(name: str, implementation: str, data: NumberedLines, noted: Callable[[Any], Any] = iter) -> Any:
    if implementation == "numpy":
        tables = (pq.read_table(file, use_threads=False, memory_map=True) for file in data.files)
        return run_batched(name, noted(batch for table in tables for batch in table.to_batches(max_chunksize=65_536)))
    values = (pq.read_table(file, columns=["value"]).column(0).to_pylist() for file in data.files)
    one = application(name)
    return plain_results(one, {"lines": (line.encode() for part in noted(values) for line in part)}, {})


def run_packed(spark: Any, name: str, data: NumberedLines, limit_s: float, **options: Any) -> Run:
    """Run the library on Spark over micro-batches; the options are those of ``start``."""
    given = {"source": data.source(), "sinks": DiscardSink(), "max_records": data.batch, **options}
    with CostMonitor(data.total // given["max_records"]) as watch:
        query = program_flow(name).start(spark, **given)
        begun, unfinished = time.monotonic(), None
        query.wait(timedelta(seconds=limit_s), lambda query: watch(query.streaming))
        if query.active:
            query.stop()
            unfinished = time.monotonic() - begun - sum(durations(query.streaming))
    done = micro_batches(query.streaming)
    run = _to_run([seconds for _, seconds in done], unfinished, data.total, given["max_records"])
    counted = done[1 : len(run.spent) + 1] or done
    span = counted[-1][0] + counted[-1][1] - counted[0][0] if counted else math.nan
    return replace(run, span_s=span, cost=_cost(run, watch))


def run_pyspark(
    spark: Any,
    name: str,
    implementation: str,
    data: NumberedLines,
    limit_s: float,
    files: int = FILES_PER_BATCH,
    store: str | None = None,
) -> Run:
    """Run an implementation in plain PySpark over the same micro-batches, or over those of ``files`` files.

    Nothing is written. Without ``store``, an implementation that is entirely in the JVM has an in-memory state store.
    """
    given = find_implementations(name)[implementation]
    with temporary_folder() as base, _state_store(spark, store or ("" if given.python else IN_MEMORY_STORE)):
        frame = given.build(data.frame(spark, base, files=files))
        with CostMonitor(data.total // (files * data.lines_per_file)) as watch:
            done, unfinished = timed_query(frame, base / "checkpoint", limit_s=limit_s, mode=given.mode, watch=watch)
    run = _to_run(done, unfinished, data.total, files * data.lines_per_file)
    return replace(run, cost=_cost(run, watch))


def run_frames(spark: Any, name: str, data: NumberedLines, limit_s: float, files: int) -> Run:
    """Run the library between DataFrames: its records become rows of Spark's, as those of :func:`run_pyspark` are."""
    from pyspark.sql import functions as f

    with temporary_folder() as base:
        lines = data.frame(spark, base, files=files).select(
            f.lit(None).cast("timestamp").alias("event_time"), f.col("value").cast("binary").alias("payload")
        )
        frame = program_flow(name).frames(lines)[PROGRAMS[name].stream]
        with CostMonitor(data.total // (files * data.lines_per_file)) as watch:
            done, unfinished = timed_query(frame, base / "checkpoint", limit_s=limit_s, watch=watch)
    run = _to_run(done, unfinished, data.total, files * data.lines_per_file)
    return replace(run, cost=_cost(run, watch))


def _cost(run: Run, watch: CostMonitor) -> Cost | None:
    """Return the cost if at least half of the counted micro-batches were monitored completely."""
    known = not run.saturated and 2 * watch.cost.parts >= len(run.spent)
    return watch.cost if known else None


def _to_run(seconds: list[float], unfinished: float | None, total: int, batch: int) -> Run:
    spent = tuple(seconds[: total // batch])  # later micro-batches have no lines
    later = spent[1:] or spent or (unfinished or 0.0,)
    return Run(later, batch, later, unfinished is not None)


@contextmanager
def _state_store(spark: Any, name: str) -> Iterator[None]:
    before = spark.conf.get(STORE_PROVIDER)
    spark.conf.set(STORE_PROVIDER, name or before)
    try:
        yield
    finally:
        spark.conf.set(STORE_PROVIDER, before)


# -- results -----------------------------------------------------------------------------------------


def check_implementations(name: str, data: NumberedLines, spark: Any = None, *, streaming: bool = True) -> str:
    """Return the digest of a program's results; raise if an implementation differs.

    Parameters
    ----------
    name : str
    data : NumberedLines
    spark : SparkSession, optional
        Without it, only implementations in process are checked.
    streaming : bool, default True
        Whether plain PySpark reads the lines in micro-batches, as in a measurement, or as one batch.
    """
    found: dict[str, str] = {}
    for implementation, rows in _results(name, data, spark, streaming):
        found[implementation] = digest(rows())
    without = {implementation: found.pop(implementation) for implementation in ("loop", "local without numbers")}
    if len(set(found.values())) > 1 or len(set(without.values())) > 1:
        raise RiotError(f"the implementations of {name} have different results: {found | without}")
    return found["local"]


def check_on_spark(
    spark: Any,
    name: str,
    implementation: str,
    data: NumberedLines,
    wanted: str,
    *,
    store: str | None = None,
    **options: Any,
) -> None:
    """Raise if an implementation on Spark has another digest than ``wanted`` of :func:`check_implementations`.

    The options are those of ``start`` for the packed implementation; ``store`` is the state store of the others.
    """
    packs = implementation == "packed"
    rows = (
        _packed_results(spark, name, data, **options)
        if packs
        else _pyspark_results(spark, name, implementation, data, store)
    )
    if (found := digest(rows)) != wanted:
        raise RiotError(f"the {implementation} implementation of {name} has the results {found} instead of {wanted}")


def _results(
    name: str, data: NumberedLines, spark: Any, streaming: bool
) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    one = PROGRAMS[name]
    table = program_flow(name).run(data.source())[one.stream]
    yield "local", lambda: final_results(name, table)
    yield "local without numbers", lambda: _without_numbers(name, final_results(name, table))
    yield "loop", lambda: _without_numbers(name, _loop_results(name, data))
    yield "numpy", lambda: final_results(name, _to_records(_run_baseline(name, "numpy", data)))
    if spark is None:
        return
    yield "packed", lambda: _packed_results(spark, name, data)
    for implementation in find_implementations(name):
        yield implementation, partial(_pyspark_results, spark, name, implementation, data, streaming=streaming)


def _pyspark_results(
    spark: Any, name: str, implementation: str, data: NumberedLines, store: str | None = None, *, streaming: bool = True
) -> list[Row]:
    """Collect the results of plain PySpark with the same state store as :func:`run_pyspark`."""
    given = find_implementations(name)[implementation]
    with temporary_folder() as base, _state_store(spark, store or ("" if given.python else IN_MEMORY_STORE)):
        frame = given.build(data.frame(spark, base, streaming=streaming))
        return final_results(name, collect_rows(frame, given, base / "checkpoint"))


def _packed_results(spark: Any, name: str, data: NumberedLines, **options: Any) -> list[Row]:
    query = program_flow(name).start(spark, **{"source": data.source(), "max_records": data.batch, **options})
    query.wait()
    return final_results(name, query[PROGRAMS[name].stream])


def _loop_results(name: str, data: NumberedLines) -> list[Row]:
    """Collect the results of plain Python, which has no line numbers."""
    one = PROGRAMS[name]
    fields = application(name).results[one.stream]
    rows = _run_baseline(name, "loop", data)[one.stream]
    return final_results(name, [{"seq": 0, **dict(zip(fields, row, strict=True))} for row in rows])


def _without_numbers(name: str, rows: list[Row]) -> list[Row]:
    return [row[1:] for row in rows] if "seq" in PROGRAMS[name].fields else rows


def _to_records(found: Any) -> list[Mapping[str, Any]]:
    return [row for one in found for row in (one.to_pylist() if isinstance(one, pa.RecordBatch) else [one])]
