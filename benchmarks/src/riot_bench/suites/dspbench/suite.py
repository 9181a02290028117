"""The applications of DSPBench: how fast they are, beside plain Python and beside plain PySpark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from riot_bench.harness.data import Discard, needs
from riot_bench.harness.experiment import Experiment
from riot_bench.harness.measure import Measure, load, median, one_core, seconds
from riot_bench.harness.micro_batches import folder, spark_session
from riot_bench.harness.validation import plain_results
from riot_bench.suites.dspbench.experiments import FEW, IN_PROCESS, ON_SPARK
from riot_bench.suites.dspbench.lines import Lines, write_lines
from riot_bench.suites.dspbench.page import FOLDER, table, write
from riot_bench.suites.dspbench.runs import local_runs, spark_runs
from riot_bench.suites.dspbench.spark import on_one_core, on_spark
from riot_bench.suites.dspbench.steps import operator_measures
from riot_ops.core.errors import ConfigError, RiotError, did_you_mean
from riot_ops.dataflows.applications import APPLICATIONS, Application, application

__all__ = ["EXPERIMENTS", "REACH", "measures", "table"]

#: What a second of one core should bring, in lines; for word count in words.
REACH = {"wc": 10e6, "fd": 3e6, "sd": 8e6, "lp": 1e6, "vs": 0.5e6, "tm": 1e6}


@dataclass(frozen=True)
class Sizes:
    """How much is measured: lines of each source in a micro-batch, of which there are some; times that each is done.

    ``paced_s``: seconds at half of the peak; ``alone``: whether at that of one core as well.
    """

    batch: int
    batches: int
    repetitions: int
    paced_s: float
    alone: bool
    limit_s: float

    @property
    def lines(self) -> int:
        return self.batch * self.batches


FULL, QUICK = Sizes(200_000, 4, 3, 6.0, True, 100.0), Sizes(50_000, 4, 1, 1.0, False, 30.0)
#: On Spark: micro-batches so large that what each costs, however little is in it, is no longer most of it.
FULL_SPARK = replace(FULL, batch=4_000_000, batches=3, limit_s=400.0)
#: The suites whose applications it measures.
SUITES = ("dspbench", "neptune")


def measures(
    quick: bool = False, *, app: Sequence[str] = (), runner: str = "all", out: Path | None = None
) -> Iterator[Measure]:
    """The suite.

    Parameters
    ----------
    app : sequence of str
        Names or codes of applications; by default all of DSPBench, and those that are measured with them.
    runner : "all", "local" or "spark", default "all"
    out : Path, default ``out/bench/dspbench``
        Folder for the page, its pictures and the figures as JSON.
    """
    if runner not in ("all", "local", "spark"):
        raise ConfigError(f"--runner must be all, local or spark, got {runner!r}")
    needs("this benchmark", "bench", "orjson", "psutil")
    needs("drawing the results", "plot", "matplotlib")
    chosen = [_known(label) for label in app] or [one for one in APPLICATIONS.values() if one.suite in SUITES]
    found, before = list[Measure](), load()
    try:
        for measure in _parts(chosen, runner, quick):
            found.append(measure)
            yield measure
    finally:
        if found:
            print(f"page: {write(out or FOLDER, found, before, quick)}", file=sys.stderr)


def _parts(chosen: Sequence[Application], runner: str, quick: bool) -> Iterator[Measure]:
    """In process first, where no JVM is there yet; then on Spark, with one core last."""
    if runner != "spark":
        sizes = QUICK if quick else FULL
        for data, _ in _data(chosen, sizes):
            yield from in_process(data, sizes)
            yield from local_runs(data, sizes.repetitions, sizes.paced_s, sizes.alone)
            with one_core():
                yield from operator_measures(data.first(sizes.batch))
    if runner != "local":
        sizes = QUICK if quick else FULL_SPARK
        rates = {}
        with spark_session(jvm="full") as spark:
            for data, base in _data(chosen, sizes):
                for measure in on_spark(spark, data, base, sizes.batch, sizes.limit_s):
                    rates[measure.measure] = measure.value
                    yield measure
                peak = rates[f"dspbench/{data.application.code}/spark"]
                yield from spark_runs(spark, data, sizes.batch, peak, quick)
        with spark_session(1, jvm="full") as spark:
            for data, _ in _data(chosen, sizes):
                name = f"dspbench/{data.application.code}/spark"
                yield from on_one_core(spark, data, sizes.batch, rates[name])


def _data(chosen: Sequence[Application], sizes: Sizes) -> Iterator[tuple[Lines, Path]]:
    for one in chosen:
        with folder() as base:
            yield write_lines(one, base / "lines", sizes.lines, sizes.batch), base


def _known(label: str) -> Application:
    one = application(label)
    if one.suite not in SUITES:
        codes = [a.code for a in APPLICATIONS.values() if a.suite in SUITES]
        raise ConfigError(f"--app must be one of {', '.join(codes)}, got {label!r}{did_you_mean(label, codes)}")
    return one


def in_process(data: Lines, sizes: Sizes) -> Iterator[Measure]:
    """On one core beside plain Python, over the same lines; the sides take turns."""
    one = data.application
    flow = one.builder()
    counted, wanted = dict[str, int](), dict[str, int]()

    def ours() -> None:
        counted.update(flow.run(data.sources(), sinks=Discard(), cores=1).summary.rows)

    def theirs() -> None:
        wanted.update({stream: len(rows) for stream, rows in plain_results(one, data.plain(), {}).items()})

    fast, slow = list[float](), list[float]()
    with one_core():
        for turn in range(sizes.repetitions):
            fast.append(data.total / seconds(ours, 1, warm=turn == 0))
            slow.append(data.total / seconds(theirs, 1, warm=0))
            if any(counted.get(stream, 0) != wanted[stream] for stream in one.results):
                raise RiotError(
                    f"the sides do not agree on the number of results of {one.name}: {counted} and {wanted}"
                )
    how = f"{data.total:,} lines, one core, from files, nothing written"
    at, rate, reach = f"dspbench/{one.code}", median(fast), REACH.get(one.code)
    yield Measure(f"{at}/local", rate, "lines/s", how, None if one.code == "wc" else reach)
    put_out = sum(counted.get(stream, 0) for stream in one.results)
    what = "words/s" if one.code == "wc" else "records/s"
    at_sink = rate * put_out / data.total
    yield Measure(f"{at}/local-results", at_sink, what, "put out meanwhile", reach if one.code == "wc" else None)
    yield Measure(f"{at}/plain-python", median(slow), "lines/s", how + "; lists of tuples")
    gain = median(a / b for a, b in zip(fast, slow, strict=True))
    yield Measure(f"{at}/vs-plain-python", gain, "ratio", "the same in plain Python, one core each", 10)


def _local(quick: bool) -> Iterator[Measure]:
    return measures(quick, runner="local")


def _spark(quick: bool) -> Iterator[Measure]:
    return measures(quick, app=FEW if quick else (), runner="spark")


EXPERIMENTS = (
    Experiment("dspbench/local", "Applications in process", _local, *IN_PROCESS),
    Experiment("dspbench/spark", "Applications on Spark", _spark, *ON_SPARK),
)
