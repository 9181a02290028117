"""The applications of DSPBench against plain Python and plain PySpark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from riot_bench.baselines.python.rows import discarding_rows
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.experiment import Experiment
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.input_lines import InputLines, write_input_lines
from riot_bench.harness.machine import load_average, pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median, median_seconds
from riot_bench.harness.validation import compare_columns, plain_results
from riot_bench.suites.dspbench.application_runs import local_measures, spark_measures
from riot_bench.suites.dspbench.experiments import IN_PROCESS, ON_SPARK, QUICK_APPLICATIONS
from riot_bench.suites.dspbench.operator_costs import operator_measures
from riot_bench.suites.dspbench.page import FOLDER, table, write_page
from riot_bench.suites.dspbench.spark_comparison import (
    SparkSizes,
    comparison_measures,
    find_baseline,
    one_core_measures,
)
from riot_bench.suites.dspbench.spark_configurations import FULL_SEARCH, QUICK_SEARCH, search_measures
from riot_bench.suites.dspbench.spark_network import spark_network_measures
from riot_bench.suites.dspbench.winding_network import winding_network, winding_spark_measures
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError, RiotError, did_you_mean
from riot_ops.dataflows.applications import APPLICATIONS, Application, application
from riot_ops.testing.services import Mosquitto

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
    checked : int
        Lines of each source over which all results are compared.
    paced_s : float
        Seconds at half of the peak rate.
    alone : bool
        Whether to run at half of the peak rate of one core, too.
    messages : int
        Lines of each source that are messages of a broker, whose bytes are counted.
    """

    batch: int
    batches: int
    repetitions: int
    checked: int
    paced_s: float
    alone: bool
    messages: int

    @property
    def lines(self) -> int:
        """Lines of each source."""
        return self.batch * self.batches


FULL, QUICK = Sizes(200_000, 4, 3, 800_000, 6.0, True, 10_000), Sizes(50_000, 4, 1, 50_000, 1.0, False, 1000)
#: From micro-batches whose fixed cost dominates to those whose lines do; the last counts elsewhere.
FULL_SPARK = SparkSizes({250_000: 4, 1_000_000: 3, 4_000_000: 3}, 3, 250_000, 400.0)
QUICK_SPARK = SparkSizes({50_000: 4}, 1, 50_000, 30.0)
#: Suites whose applications are measured.
SUITES = ("dspbench", "neptune")


def measures(
    quick: bool = False,
    *,
    app: Sequence[str] = (),
    runner: str = "all",
    out: Path | None = None,
    extended: bool = True,
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
    extended : bool, default True
        Whether to count the bytes that cross the network on Spark and to search configurations, too.
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
        for measure in _all_measures(chosen, runner, quick, extended):
            found.append(measure)
            yield measure
    finally:
        if found:
            print(f"page: {write_page(out or FOLDER, found, before, quick)}", file=sys.stderr)


def _all_measures(chosen: Sequence[Application], runner: str, quick: bool, extended: bool) -> Iterator[Measure]:
    """Measure in process first, before a JVM runs; then on Spark, in the usual session before all others."""
    if runner != "spark":
        sizes = QUICK if quick else FULL
        for data in _inputs(chosen, sizes.lines, sizes.batch):
            yield from local_comparison(data, sizes)
            if data.application.code == "tm":
                yield from winding_local_measures(sizes)
            yield from local_measures(data, sizes.repetitions, sizes.paced_s, sizes.alone)
            with pinned_to_one_core():
                yield from operator_measures(data.take(sizes.batch))
        yield from _mqtt_measures(chosen, sizes.messages)
    if runner != "local":
        of_spark = QUICK_SPARK if quick else FULL_SPARK
        largest, batches = list(of_spark.batches.items())[-1]
        rates = {}
        with spark_session(jvm="full") as spark:
            for data in _inputs(chosen, largest * batches, largest):
                for measure in comparison_measures(spark, data, of_spark):
                    rates[measure.measure] = measure.value
                    yield measure
                if data.application.code == "tm":
                    yield from winding_spark_measures(spark, data, of_spark)
                yield from spark_measures(spark, data, largest, rates[f"dspbench/{data.application.code}/spark"], quick)
        with spark_session(1, jvm="full") as spark:
            for data in _inputs(chosen, largest * batches, largest):
                yield from one_core_measures(spark, data, largest, rates[f"dspbench/{data.application.code}/spark"])
        if extended:
            yield from _network_measures(chosen, of_spark)
            yield from search_measures(chosen, QUICK_SEARCH if quick else FULL_SEARCH)


def _mqtt_measures(chosen: Sequence[Application], messages: int) -> Iterator[Measure]:
    """Count the bytes at the sockets of each application, if there is a broker."""
    try:
        require_extra("the network in process", "mqtt", "paho.mqtt.client")
        broker = Mosquitto().start()
    except (MissingExtraError, ConnectorError) as error:
        print(f"the network in process is not measured: {error}", file=sys.stderr)
        return
    from riot_bench.suites.dspbench.mqtt_network import mqtt_network_measures

    try:
        for data in _inputs(chosen, messages, messages):
            yield from mqtt_network_measures(broker.url, data)
    finally:
        broker.close()


def _network_measures(chosen: Sequence[Application], sizes: SparkSizes) -> Iterator[Measure]:
    """Count the bytes of shuffles and of Python workers, with shuffles compressed as Spark does by default."""
    with spark_session(jvm="full", settings={"spark.shuffle.compress": "true"}) as spark:
        for one in chosen:
            found = find_baseline(one.name)
            if found is None:
                continue
            given, build = found
            with temporary_folder() as base:
                lines, batch = 2 * sizes.checked, sizes.checked
                data = write_input_lines(one, base / "lines", lines, batch, **given.stream_options)
                yield from spark_network_measures(spark, data, given, build, sizes.limit_s)


def _inputs(chosen: Sequence[Application], lines: int, batch: int) -> Iterator[InputLines]:
    for one in chosen:
        with temporary_folder() as base:
            yield write_input_lines(one, base / "lines", lines, batch)


def _find_application(label: str) -> Application:
    one = application(label)
    if one.suite not in SUITES:
        codes = [a.code for a in APPLICATIONS.values() if a.suite in SUITES]
        raise ConfigError(f"--app must be one of {', '.join(codes)}, got {label!r}{did_you_mean(label, codes)}")
    return one


def winding_local_measures(sizes: Sizes) -> Iterator[Measure]:
    """Compare traffic monitoring in process on winding roads."""
    with winding_network() as network, temporary_folder() as base:
        lines = write_input_lines(application("tm"), base / "lines", sizes.lines, sizes.batch, **network.stream_options)
        yield from network.renamed(local_comparison(lines, sizes, network.parameters))


def local_comparison(
    data: InputLines, sizes: Sizes, parameters: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Measure]:
    """Compare with plain Python on one core over the same lines, with the same parameters.

    All results are compared first. Then both sides run once as their warm-up, and alternate; meanwhile each passes its
    results to a sink that discards them: Arrow batches here, tuples there.
    """
    one = data.application
    flow = one.builder(**parameters)
    put_out = _compare_results(data.take(sizes.checked), parameters)
    counted = dict[str, int]()

    def ours() -> None:
        counted.update(flow.run(data.sources(), sinks=DiscardSink(), cores=1).summary.rows)

    def theirs() -> None:
        with discarding_rows():
            plain_results(one, data.plain_lines(), parameters)

    fast, slow = list[float](), list[float]()
    with pinned_to_one_core():
        for turn in range(sizes.repetitions):
            fast.append(data.total / median_seconds(ours, 1, warm=turn == 0))
            slow.append(data.total / median_seconds(theirs, 1, warm=turn == 0))
    how = f"{data.total:,} lines, one core, from files, results discarded"
    at, rate, reach = f"dspbench/{one.code}", median(fast), TARGETS.get(one.code)
    yield Measure(f"{at}/local", rate, "lines/s", how, None if one.code == "wc" else reach)
    what = "words/s" if one.code == "wc" else "records/s"
    at_sink = rate * sum(counted.get(stream, 0) for stream in one.results) / data.total
    yield Measure(f"{at}/local-results", at_sink, what, "emitted at that rate", reach if one.code == "wc" else None)
    yield Measure(f"{at}/plain-python", median(slow), "lines/s", how + "; tuples")
    ratios = [a / b for a, b in zip(fast, slow, strict=True)]
    against = (
        f"the same in plain Python, one core each, results discarded; all {put_out:,} of {sizes.checked:,} lines agree"
    )
    yield Measure(f"{at}/vs-plain-python", median(ratios), "ratio", against, 10, sample=tuple(ratios))


def _compare_results(data: InputLines, parameters: Mapping[str, Any]) -> int:
    """Compare all results with those of plain Python; return their number.

    Raises
    ------
    RiotError
        They differ.
    """
    one = data.application
    result = one.builder(**parameters).run(data.sources(), cores=1)
    wanted = plain_results(one, data.plain_lines(), parameters)
    for stream, fields in one.results.items():
        difference = compare_columns(stream, wanted[stream], result[stream].select(list(fields)))
        if not difference.equal:
            raise RiotError(f"the implementations of {one.name} differ: {difference}")
    return sum(map(len, wanted.values()))


def _local(quick: bool) -> Iterator[Measure]:
    return measures(quick, runner="local")


def _spark(quick: bool) -> Iterator[Measure]:
    return measures(quick, app=QUICK_APPLICATIONS if quick else (), runner="spark", extended=not quick)


EXPERIMENTS = (
    Experiment("dspbench/local", "Applications in process", _local, *IN_PROCESS),
    Experiment("dspbench/spark", "Applications on Spark", _spark, *ON_SPARK),
)
