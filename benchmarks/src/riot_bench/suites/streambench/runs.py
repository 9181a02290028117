"""Runs of a form of a program over numbered lines: how long each micro-batch took, and what came out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from riot_bench.baselines.python.streambench_arrow import batched
from riot_bench.harness.data import Discard
from riot_bench.harness.measure import median
from riot_bench.harness.micro_batches import durations, folder, micro_batches, timed_query
from riot_bench.harness.validation import plain_results
from riot_bench.suites.streambench.cost import Cost, Watch
from riot_bench.suites.streambench.data import PARTS, NumberedLines
from riot_bench.suites.streambench.forms import PROGRAMS, Row, collected, digest, forms, settled
from riot_ops.core.errors import RiotError
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import application

__all__ = [
    "IN_MEMORY",
    "IN_PROCESS",
    "Run",
    "agreed",
    "flow_of",
    "form_names",
    "in_process",
    "on_spark",
    "packed",
    "proved",
]

B = TypeVar("B", bound=Sized)

#: Forms that run in this process; the others are Spark's.
IN_PROCESS = ("local", "numpy", "loop")
#: Programs that put out a record for each key of a micro-batch, as Spark's update mode does.
UPDATES = ("wordcount", "statistics")
#: State of Spark's own aggregations is fastest in its store in memory; state in Python needs the other one.
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@dataclass(frozen=True)
class Run:
    """What a run took.

    Attributes
    ----------
    spent : tuple of float
        Seconds, of each micro-batch behind the first or of each repetition in process.
    lines : int
        Lines of each of these.
    latency_s : tuple of float
        Mean time from when the lines were fetched until what came of them was put out, of each of these; none where
        all lines are taken at once.
    saturated : bool
        Whether it was stopped, because it took too long.
    span_s : float
        From the beginning of the first of these micro-batches to the end of the last.
    cost : Cost or None
        Of these micro-batches or repetitions, or of most of them; None: of a run that was stopped, or of which too few
        were seen to tell.

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
        """Processor time per line (µs)."""
        return math.nan if self.cost is None else 1e6 * self.cost.seconds / (self.lines * self.cost.parts)

    @property
    def rates(self) -> tuple[float, ...]:
        """Lines per second, of each."""
        return tuple(self.lines / s for s in self.spent)

    @property
    def rate(self) -> float:
        """Lines per second, the median of :attr:`rates`, and not all lines by the whole time.

        What passes between two micro-batches, as while a trigger is waited for, is in ``span_s`` alone.
        """
        return median(self.rates)


def form_names(name: str) -> tuple[str, ...]:
    """The forms of a program: those in process, packed on Spark, and those of plain PySpark.

    >>> form_names("grep")
    ('local', 'numpy', 'loop', 'packed', 'expressions', 'udf', 'pickled', 'arrow')
    """
    return (*IN_PROCESS, "packed", *forms(name))


def flow_of(name: str) -> Dataflow:
    """The dataflow of a program, in Spark's update mode where it keeps a result for each key."""
    flow: Dataflow = application(name).builder(**({"emit": "update"} if name in UPDATES else {}))
    return flow


# -- runs --------------------------------------------------------------------------------------------


def in_process(name: str, form: str, data: NumberedLines, repetitions: int) -> Run:
    """A form in this process, over all lines again and again."""
    flow, spent, latency = flow_of(name), list[float](), list[float]()

    def once() -> None:
        begun = time.perf_counter()
        if form == "local":
            blocks = flow.run(data.source(), sinks=Discard()).summary.latency.blocks()
            rows = sum(n for _, _, n in blocks)
            latency.append(sum((least + most) / 2e6 * n for least, most, n in blocks) / max(rows, 1))
        else:
            batches = Batches()
            _opponent(name, form, data, batches)
            latency.append(batches.mean)
        spent.append(time.perf_counter() - begun)

    once()  # which compiles
    with Watch() as watch:
        before = time.process_time()  # which is finer than what is known of other processes
        for _ in range(repetitions):
            once()
        seconds = time.process_time() - before
    cost = replace(watch.cost, seconds=seconds, parts=repetitions)
    return Run(tuple(spent[1:]), data.total, tuple(latency[1:]), cost=cost)


class Batches:
    """Hands batches on, and notes for how long each was worked at: until the next one is asked for.

    Attributes
    ----------
    mean : float
        Seconds, by the records of each batch.
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


def _opponent(name: str, form: str, data: NumberedLines, noted: Callable[[Any], Any] = iter) -> Any:
    if form == "numpy":
        tables = (pq.read_table(file, use_threads=False, memory_map=True) for file in data.files)
        return batched(name, noted(batch for table in tables for batch in table.to_batches(max_chunksize=65_536)))
    values = (pq.read_table(file, columns=["value"]).column(0).to_pylist() for file in data.files)
    one = application(name)
    return plain_results(one, {"lines": (line.encode() for part in noted(values) for line in part)}, {})


def packed(spark: Any, name: str, data: NumberedLines, limit_s: float, **options: Any) -> Run:
    """The library on Spark, over micro-batches; the options are those of ``start``."""
    given = {"source": data.source(), "sinks": Discard(), "max_records": data.batch, **options}
    with Watch(data.total // given["max_records"]) as watch:
        query = flow_of(name).start(spark, **given)
        begun, unfinished = time.monotonic(), None
        query.wait(limit_s, lambda query: watch(query.streaming))
        if query.active:
            query.stop()
            unfinished = time.monotonic() - begun - sum(durations(query.streaming))
    done = micro_batches(query.streaming)
    run = _of_batches([seconds for _, seconds in done], unfinished, data.total, given["max_records"])
    counted = done[1 : len(run.spent) + 1] or done
    span = counted[-1][0] + counted[-1][1] - counted[0][0] if counted else math.nan
    return replace(run, span_s=span, cost=_cost(run, watch))


def on_spark(
    spark: Any,
    name: str,
    form: str,
    data: NumberedLines,
    limit_s: float,
    files: int = PARTS,
    store: str | None = None,
) -> Run:
    """A form in plain PySpark, over the same micro-batches, or those of so many files; nothing is written.

    Its state is in a store in memory where all of it is in the JVM, if no other class is given.
    """
    given = forms(name)[form]
    with folder() as base, _provider(spark, store or ("" if given.python else IN_MEMORY)):
        frame = given.build(data.frame(spark, base, files=files))
        with Watch(data.total // (files * data.each)) as watch:
            done, unfinished = timed_query(frame, base / "checkpoint", limit_s=limit_s, mode=given.mode, watch=watch)
    run = _of_batches(done, unfinished, data.total, files * data.each)
    return replace(run, cost=_cost(run, watch))


def _cost(run: Run, watch: Watch) -> Cost | None:
    """What its micro-batches took, where half of those that count were watched from end to end."""
    known = not run.saturated and 2 * watch.cost.parts >= len(run.spent)
    return watch.cost if known else None


def _of_batches(seconds: list[float], unfinished: float | None, total: int, batch: int) -> Run:
    spent = tuple(seconds[: total // batch])  # what comes behind them has no lines
    later = spent[1:] or spent or (unfinished or 0.0,)
    return Run(later, batch, later, unfinished is not None)


@contextmanager
def _provider(spark: Any, name: str) -> Iterator[None]:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, name or before)
    try:
        yield
    finally:
        spark.conf.set(PROVIDER, before)


# -- what comes out ----------------------------------------------------------------------------------


def agreed(name: str, data: NumberedLines, spark: Any = None, *, streaming: bool = True) -> str:
    """The digest of the results of all forms of a program; raises where one differs.

    Parameters
    ----------
    spark : SparkSession, optional
        Without it, those in process.
    streaming : bool, default True
        Whether the forms of plain PySpark read the lines in micro-batches, as in a measurement, or as one batch.
    """
    found: dict[str, str] = {}
    for form, rows in _results(name, data, spark, streaming):
        found[form] = digest(rows())
    without = {form: found.pop(form) for form in ("loop", "local without numbers")}
    if len(set(found.values())) > 1 or len(set(without.values())) > 1:
        raise RiotError(f"the forms of {name} do not come to the same: {found | without}")
    return found["local"]


def proved(
    spark: Any, name: str, form: str, data: NumberedLines, wanted: str, *, store: str | None = None, **options: Any
) -> None:
    """Raise where a form on Spark comes to something else than what :func:`agreed` told of the same lines.

    The options are those of ``start`` for the packed form, ``store`` is that of state for the others.
    """
    packs = form == "packed"
    rows = _packed(spark, name, data, **options) if packs else _on_spark(spark, name, form, data, store)
    if (found := digest(rows)) != wanted:
        raise RiotError(f"the {form} form of {name} comes to {found} in place of {wanted}: no figure of it is told")


def _results(
    name: str, data: NumberedLines, spark: Any, streaming: bool
) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    one = PROGRAMS[name]
    table = flow_of(name).run(data.source())[one.stream]
    yield "local", lambda: settled(name, table)
    yield "local without numbers", lambda: _unnumbered(name, settled(name, table))
    yield "loop", lambda: _unnumbered(name, _plain(name, data))
    yield "numpy", lambda: settled(name, _rows(_opponent(name, "numpy", data)))
    if spark is None:
        return
    yield "packed", lambda: _packed(spark, name, data)
    for form in forms(name):
        yield form, partial(_on_spark, spark, name, form, data, streaming=streaming)


def _on_spark(
    spark: Any, name: str, form: str, data: NumberedLines, store: str | None = None, *, streaming: bool = True
) -> list[Row]:
    """With the same store of state as :func:`on_spark`."""
    given = forms(name)[form]
    with folder() as base, _provider(spark, store or ("" if given.python else IN_MEMORY)):
        frame = given.build(data.frame(spark, base, streaming=streaming))
        return settled(name, collected(frame, given, base / "checkpoint"))


def _packed(spark: Any, name: str, data: NumberedLines, **options: Any) -> list[Row]:
    query = flow_of(name).start(spark, **{"source": data.source(), "max_records": data.batch, **options})
    query.wait()
    return settled(name, query[PROGRAMS[name].stream])


def _plain(name: str, data: NumberedLines) -> list[Row]:
    """What plain Python finds, which knows no numbers of lines."""
    one = PROGRAMS[name]
    fields = application(name).results[one.stream]
    rows = _opponent(name, "loop", data)[one.stream]
    return settled(name, [{"seq": 0, **dict(zip(fields, row, strict=True))} for row in rows])


def _unnumbered(name: str, rows: list[Row]) -> list[Row]:
    return [row[1:] for row in rows] if "seq" in PROGRAMS[name].fields else rows


def _rows(found: Any) -> list[Mapping[str, Any]]:
    return [row for one in found for row in (one.to_pylist() if isinstance(one, pa.RecordBatch) else [one])]
