"""The applications of DSPBench against plain Python and plain PySpark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.experiment import Experiment
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.input_lines import InputLines, write_input_lines
from riot_bench.harness.machine import load_average, pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median, median_seconds
from riot_bench.harness.validation import plain_results
from riot_bench.suites.dspbench.application_runs import local_measures, spark_measures
from riot_bench.suites.dspbench.experiments import IN_PROCESS, ON_SPARK, QUICK_APPLICATIONS
from riot_bench.suites.dspbench.operator_costs import operator_measures
from riot_bench.suites.dspbench.page import FOLDER, table, write_page
from riot_bench.suites.dspbench.spark_comparison import comparison_measures, one_core_measures
from riot_ops.core.errors import ConfigError, RiotError, did_you_mean
from riot_ops.dataflows.applications import APPLICATIONS, Application, application

__all__ = ["EXPERIMENTS", "TARGETS", "measures", "table"]

#: Target throughput of one core in lines per second; for word count in words per second.
TARGETS = {"wc": 10e6, "fd": 3e6, "sd": 8e6, "lp": 1e6, "vs": 0.5e6, "tm": 1e6}


@dataclass(frozen=True)
class Sizes:
    """Amount of work.

    Attributes
    ----------
    batch, batches : int
        Lines of each source in a micro-batch, and number of micro-batches.
    repetitions : int
    paced_s : float
        Seconds at half of the peak rate.
    alone : bool
        Whether to run at half of the peak rate of one core, too.
    limit_s : float
        Time limit of a query in plain PySpark.
    """

    batch: int
    batches: int
    repetitions: int
    paced_s: float
    alone: bool
    limit_s: float

    @property
    def lines(self) -> int:
        """Lines of each source."""
        return self.batch * self.batches


FULL, QUICK = Sizes(200_000, 4, 3, 6.0, True, 100.0), Sizes(50_000, 4, 1, 1.0, False, 30.0)
#: On Spark, micro-batches are large enough that their fixed cost does not dominate.
FULL_SPARK = replace(FULL, batch=4_000_000, batches=3, limit_s=400.0)
#: Suites whose applications are measured.
SUITES = ("dspbench", "neptune")


def measures(
    quick: bool = False, *, app: Sequence[str] = (), runner: str = "all", out: Path | None = None
) -> Iterator[Measure]:
    """Run the suite.

    Parameters
    ----------
    quick : bool, default False
    app : sequence of str, default all of :data:`SUITES`
        Names or codes of applications.
    runner : "all", "local" or "spark", default "all"
    out : Path, default ``out/bench/dspbench``
        Folder for the page, its plots and the measures as JSON.
    """
    if runner not in ("all", "local", "spark"):
        raise ConfigError(f"--runner must be all, local or spark, got {runner!r}")
    require_extra("this benchmark", "bench", "orjson", "psutil")
    require_extra("drawing the results", "plot", "matplotlib")
    chosen = [_find_application(label) for label in app] or [
        one for one in APPLICATIONS.values() if one.suite in SUITES
    ]
    found, before = list[Measure](), load_average()
    try:
        for measure in _all_measures(chosen, runner, quick):
            found.append(measure)
            yield measure
    finally:
        if found:
            print(f"page: {write_page(out or FOLDER, found, before, quick)}", file=sys.stderr)


def _all_measures(chosen: Sequence[Application], runner: str, quick: bool) -> Iterator[Measure]:
    """Measure in process first, before a JVM runs; then on Spark, with one core last."""
    if runner != "spark":
        sizes = QUICK if quick else FULL
        for data, _ in _inputs(chosen, sizes):
            yield from local_comparison(data, sizes)
            yield from local_measures(data, sizes.repetitions, sizes.paced_s, sizes.alone)
            with pinned_to_one_core():
                yield from operator_measures(data.take(sizes.batch))
    if runner != "local":
        sizes = QUICK if quick else FULL_SPARK
        rates = {}
        with spark_session(jvm="full") as spark:
            for data, base in _inputs(chosen, sizes):
                for measure in comparison_measures(spark, data, base, sizes.batch, sizes.limit_s):
                    rates[measure.measure] = measure.value
                    yield measure
                peak = rates[f"dspbench/{data.application.code}/spark"]
                yield from spark_measures(spark, data, sizes.batch, peak, quick)
        with spark_session(1, jvm="full") as spark:
            for data, _ in _inputs(chosen, sizes):
                name = f"dspbench/{data.application.code}/spark"
                yield from one_core_measures(spark, data, sizes.batch, rates[name])


def _inputs(chosen: Sequence[Application], sizes: Sizes) -> Iterator[tuple[InputLines, Path]]:
    for one in chosen:
        with temporary_folder() as base:
            yield write_input_lines(one, base / "lines", sizes.lines, sizes.batch), base


def _find_application(label: str) -> Application:
    one = application(label)
    if one.suite not in SUITES:
        codes = [a.code for a in APPLICATIONS.values() if a.suite in SUITES]
        raise ConfigError(f"--app must be one of {', '.join(codes)}, got {label!r}{did_you_mean(label, codes)}")
    return one


def local_comparison(data: InputLines, sizes: Sizes) -> Iterator[Measure]:
    """Compare with plain Python on one core over the same lines; the implementations alternate."""
    one = data.application
    flow = one.builder()
    counted, wanted = dict[str, int](), dict[str, int]()

    def ours() -> None:
        counted.update(flow.run(data.sources(), sinks=DiscardSink(), cores=1).summary.rows)

    def theirs() -> None:
        wanted.update({stream: len(rows) for stream, rows in plain_results(one, data.plain_lines(), {}).items()})

    fast, slow = list[float](), list[float]()
    with pinned_to_one_core():
        for turn in range(sizes.repetitions):
            fast.append(data.total / median_seconds(ours, 1, warm=turn == 0))
            slow.append(data.total / median_seconds(theirs, 1, warm=0))
            if any(counted.get(stream, 0) != wanted[stream] for stream in one.results):
                raise RiotError(
                    f"the implementations of {one.name} differ in the number of results: {counted} and {wanted}"
                )
    how = f"{data.total:,} lines, one core, from files, nothing written"
    at, rate, reach = f"dspbench/{one.code}", median(fast), TARGETS.get(one.code)
    yield Measure(f"{at}/local", rate, "lines/s", how, None if one.code == "wc" else reach)
    put_out = sum(counted.get(stream, 0) for stream in one.results)
    what = "words/s" if one.code == "wc" else "records/s"
    at_sink = rate * put_out / data.total
    yield Measure(f"{at}/local-results", at_sink, what, "emitted at that rate", reach if one.code == "wc" else None)
    yield Measure(f"{at}/plain-python", median(slow), "lines/s", how + "; lists of tuples")
    gain = median(a / b for a, b in zip(fast, slow, strict=True))
    yield Measure(f"{at}/vs-plain-python", gain, "ratio", "the same in plain Python, one core each", 10)


def _local(quick: bool) -> Iterator[Measure]:
    return measures(quick, runner="local")


def _spark(quick: bool) -> Iterator[Measure]:
    return measures(quick, app=QUICK_APPLICATIONS if quick else (), runner="spark")


EXPERIMENTS = (
    Experiment("dspbench/local", "Applications in process", _local, *IN_PROCESS),
    Experiment("dspbench/spark", "Applications on Spark", _spark, *ON_SPARK),
)
