"""StreamBench's performance suite: each program in all implementations over data of several sizes."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from riot_bench.harness.cluster import wait_for_executors
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.numbered_lines import NumberedLines, measure_read_rate, write_numbered
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.streambench.programs import PROGRAMS, choose_programs, find_implementations
from riot_bench.suites.streambench.runs import (
    IN_PROCESS,
    Run,
    check_implementations,
    check_on_spark,
    implementation_names,
    run_frames,
    run_in_process,
    run_packed,
    run_pyspark,
)
from riot_ops.dataflows.applications import application

__all__ = ["TARGETS", "Sizes", "performance", "program_ratios"]

#: Targets of the packed implementation against Spark's expressions.
TARGETS = {"wordcount": 1.0, "distinct": 1.0, "statistics": 1.0}
STATELESS_TARGET, UDF_TARGET = 0.7, 10.0
#: Programs whose main cost is the conversion of records to rows: they also run between DataFrames.
FRAMED = ("identity", "grep")
#: Minimum number of micro-batches of a run, and minimum ratio of the source's rate to the run's.
MIN_BATCHES, MIN_SOURCE_RATIO = 10, 2.0


@dataclass(frozen=True)
class Sizes:
    """Amount of work.

    Attributes
    ----------
    scales : tuple of int
        Factors of the number of lines.
    lines, batches : int
        Lines of a micro-batch at scale 1, and micro-batches of a run after the first, which does not count.
    large, large_batches : int
        Lines and number of the micro-batches over which implementations are compared.
    written : int
        Maximum number of different lines; their files are read repeatedly.
    proved : int
        Micro-batches over which the digests of all implementations are compared.
    streamed : bool
        Whether plain PySpark reads these as micro-batches or as one batch.
    repetitions : int
        Repetitions in process.
    limit_s, large_limit_s : float
        Time limits of a run on Spark, and of one over large micro-batches.
    cluster : tuple of str
        Programs that also run on executors in separate processes.
    without : tuple of str
        Implementations that are left out at the scales.
    against : tuple of str
        Implementations that the packed one is compared with over large micro-batches; ``expressions`` is also compared
        with the others.
    """

    scales: tuple[int, ...]
    lines: int
    batches: int
    large: int
    large_batches: int
    written: int
    proved: int
    streamed: bool
    repetitions: int
    limit_s: float
    large_limit_s: float
    cluster: tuple[str, ...]
    without: tuple[str, ...]
    against: tuple[str, ...] = ("expressions", "udf", "pickled")


FULL = Sizes(
    scales=(1, 2, 4, 10),
    lines=10_000,
    batches=10,
    large=4_000_000,
    large_batches=3,
    written=1_000_000,
    proved=10,
    streamed=True,
    repetitions=5,
    limit_s=600.0,
    large_limit_s=600.0,
    cluster=tuple(PROGRAMS),
    without=(),
)
QUICK = Sizes(
    (1,), 10_000, 3, 400_000, 3, 100_000, 1, False, 3, 15.0, 45.0, (), ("pickled",), against=("expressions", "udf")
)
#: Number of executors of one core each, and their settings.
EXECUTORS = 2
CLUSTER = {
    "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
    "spark.executor.memory": "768m",
    "spark.executor.cores": "1",
}


def performance(
    quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None
) -> Iterator[Measure]:
    """Measure throughput and latency of each implementation at each scale, and compare the packed one with Spark's.

    Parameters
    ----------
    quick : bool
    programs : sequence of str
        Programs; by default all.
    scale : float, default 1
        Factor of the lines of each scale and, above 1, of the time limits.
    sizes : Sizes, optional
        By default those of the form.
    """
    sizes = sizes or (QUICK if quick else FULL)
    longer = max(1.0, scale)
    sizes = replace(sizes, limit_s=sizes.limit_s * longer, large_limit_s=sizes.large_limit_s * longer)
    order = choose_programs(programs, tuple(PROGRAMS))
    random.Random(1).shuffle(order)  # noqa: S311
    made: dict[tuple[str, int], tuple[NumberedLines, float]] = {}
    found: dict[str, Measure] = {}
    wanted: dict[str, str] = {}
    with temporary_folder() as base:
        with spark_session(jvm="full") as spark:
            for stream in dict.fromkeys(map(_stream, order)):
                names = [name for name in order if _stream(name) == stream]
                for number, times in enumerate(sizes.scales):
                    made[stream, times] = data, serving = yield from _prepare_lines(base, stream, times, scale, sizes)
                    for name in names:
                        if not number:
                            wanted[name] = check_implementations(
                                name, data.first_batches(sizes.proved), spark, streaming=sizes.streamed
                            )
                        for implementation in (one for one in implementation_names(name) if one not in sizes.without):
                            for one in _implementation_measures(
                                spark, name, implementation, data, f"{times}x", serving, sizes
                            ):
                                yield one
                                found[one.measure] = one
                lines = sizes.large * scale
                large = write_numbered(stream, base / f"{stream}-large", 1, _round_lines(min(lines, sizes.written)))
                for name in names:
                    yield from _large_batch_measures(spark, name, large, int(lines) // large.lines_per_file, sizes)
            for times in sizes.scales:
                yield from program_ratios({name: made[_stream(name), times][0] for name in order}, found, times)
        names = [name for name in order if name in sizes.cluster]
        if not names:
            return
        with spark_session(EXECUTORS, jvm="full", settings=CLUSTER) as spark:
            wait_for_executors(spark, EXECUTORS)
            for name in names:
                first = made[_stream(name), sizes.scales[0]][0]
                check_on_spark(spark, name, "packed", first.first_batches(sizes.proved), wanted[name])
                run_packed(spark, name, first.first_batches(1), sizes.limit_s)
                for times in sizes.scales:
                    data, serving = made[_stream(name), times]
                    yield from _implementation_measures(
                        spark, name, "packed", data, f"{times}x", serving, sizes, "-cluster"
                    )


def program_ratios(data: Mapping[str, NumberedLines], found: Mapping[str, Measure], times: int) -> Iterator[Measure]:
    """Yield the ratios between packed programs at a scale, which the papers report."""

    def packed_of(name: str, what: str) -> Measure | None:
        return found.get(f"streambench/{name}/packed/{times}x/{what}")

    at = "streambench/between"
    rates = {name: one.value * data[name].line_bytes / 1e6 for name in data if (one := packed_of(name, "throughput"))}
    if rates:
        fastest = max(rates, key=rates.__getitem__)
        yield Measure(f"{at}/fastest/{times}x", rates[fastest], "MB/s", f"packed {fastest}, the fastest program")
    for name, other, what in (("identity", "wordcount", "throughput"), ("statistics", "identity", "latency")):
        one, two = packed_of(name, what), packed_of(other, what)
        if one and two:
            ratios = tuple(a / b for a, b in zip(one.sample, two.sample, strict=False))
            how = f"{what} of packed programs, micro-batch by micro-batch"
            yield Measure(f"{at}/{name}-vs-{other}/{times}x", median(ratios), "ratio", how, sample=ratios)


def _stream(name: str) -> str:
    return application(name).inputs["lines"]


def _prepare_lines(base: Path, stream: str, times: int, scale: float, sizes: Sizes) -> Any:
    """Write the lines of a scale; yield the rates of writing and reading, and return lines and the lower rate."""
    begun = time.perf_counter()
    batch = _round_lines(sizes.lines * times * scale)
    data = write_numbered(stream, base / f"{stream}-{times}x", sizes.batches + 1, batch)
    written, read = data.total / (time.perf_counter() - begun), measure_read_rate(data)
    at, how = f"streambench/source/{stream}/{times}x", f"{data.total:,} lines of {data.line_bytes:.0f} bytes"
    yield Measure(f"{at}/publish", written, "records/s", f"{how}, generated and written by one process")
    yield Measure(f"{at}/serve", read, "records/s", f"{how}, read without processing")
    return data, min(written, read)


def _round_lines(lines: float) -> int:
    return max(4, int(lines) // 4 * 4)


def _implementation_measures(
    spark: Any,
    name: str,
    implementation: str,
    data: NumberedLines,
    scale: str,
    serving: float,
    sizes: Sizes,
    where: str = "",
) -> Iterator[Measure]:
    """Measure an implementation over the data of a scale; plain Python over its first micro-batch."""
    if implementation in IN_PROCESS:
        run = run_in_process(
            name, implementation, data.first_batches(1) if implementation == "loop" else data, sizes.repetitions
        )
    else:
        run = _on_spark(spark, name, implementation, data, sizes)
    marks = _caveats(run, implementation not in IN_PROCESS, serving)
    at, how = (
        f"streambench/{name}/{implementation}{where}/{scale}",
        _describe_run(spark, name, implementation, run, data),
    )

    def several(values: tuple[float, ...]) -> dict[str, Any]:
        """Return the values as runs (in process) or as the sample of one run (micro-batches)."""
        return {"values" if implementation in IN_PROCESS else "sample": values}

    yield Measure(f"{at}/throughput", run.rate, "records/s", how + marks, **several(run.rates))
    if run.latency_s:
        spent = tuple(1e3 * s for s in run.latency_s)
        over, end = ("runs", "batch") if implementation in IN_PROCESS else ("micro-batches", "micro-batch")
        text = f"over {over} of the mean time from fetching a record to the end of its {end}, {how}{marks}"
        yield Measure(f"{at}/latency", median(spent), "ms", f"median {text}", **several(spent))
        for share in () if implementation in IN_PROCESS else (95, 99):  # micro-batches are equal in size
            highest = float(np.percentile(spent, share))
            yield Measure(f"{at}/latency-p{share}", highest, "ms", f"{share}th percentile {text}")
    if run.line_us > 0:  # a run within one tick of the system clock has 0
        text = f"CPU time of all processes, {run.cost}"
        yield Measure(f"{at}/processor", run.line_us, "µs/record", f"{text}; {how}{marks}")


def _on_spark(spark: Any, name: str, implementation: str, data: NumberedLines, sizes: Sizes) -> Run:
    if implementation == "packed":
        return run_packed(spark, name, data, sizes.limit_s)
    return run_pyspark(spark, name, implementation, data, sizes.limit_s)


def _describe_run(spark: Any, name: str, implementation: str, run: Run, data: NumberedLines) -> str:
    volume = f"{run.rate * data.line_bytes / 1e6:.3g} MB/s"
    if implementation in IN_PROCESS:
        by = {"local": "in process", "numpy": "Arrow and NumPy over batches", "loop": "plain Python"}[implementation]
        return f"{by}, {run.lines:,} records, {volume}"
    by = "packed" if implementation == "packed" else find_implementations(name)[implementation].description
    return f"{by}, {spark.sparkContext.master}, {len(run.spent)} micro-batches of {run.lines:,} records, {volume}"


def _caveats(run: Run, batches: bool, serving: float) -> str:
    """Format the caveats of a run."""
    found = {
        "saturated": run.saturated,
        "short": batches and len(run.spent) < MIN_BATCHES,
        "source-bound": run.rate * MIN_SOURCE_RATIO > serving,
    }
    return "".join(f"; {mark}" for mark, holds in found.items() if holds)


def _large_batch_measures(spark: Any, name: str, lines: NumberedLines, files: int, sizes: Sizes) -> Iterator[Measure]:
    """Compare the packed implementation with Spark's over large micro-batches, in which fixed costs matter little.

    Also compare Spark's expressions with its Python functions: this bounds the gain of any implementation with steps as
    cheap as the JVM's, as both read the same files and have the same micro-batches and sink.
    """
    batch = files * lines.lines_per_file
    data = lines.repeated_to(batch * (sizes.large_batches + 1))
    runs = {"packed": run_packed(spark, name, data, sizes.large_limit_s, max_records=batch)}
    reaches = {"expressions": TARGETS.get(name, STATELESS_TARGET), "udf": UDF_TARGET, "pickled": UDF_TARGET}
    how = f"micro-batches of {batch:,} records from the same files"
    ends = (
        "" if name not in FRAMED else "; packed records are discarded as Arrow in Python, the others enter Spark's rows"
    )
    for implementation in sizes.against:
        runs[implementation] = run_pyspark(spark, name, implementation, data, sizes.large_limit_s, files)
        yield from _ratio_measures(
            name,
            "packed",
            implementation,
            runs,
            f"{find_implementations(name)[implementation].description}; {how}{ends}",
            reaches[implementation],
        )
        if implementation != "expressions" and "expressions" in runs:
            yield from _ratio_measures(
                name, "expressions", implementation, runs, f"bound of packed-vs-{implementation}; {how}"
            )
    if name in FRAMED and "expressions" in runs:
        runs["frames"] = run_frames(spark, name, data, sizes.large_limit_s, files)
        context = f"both read and write Spark's rows; {how}"
        yield from _ratio_measures(name, "frames", "expressions", runs, context, reaches["expressions"])


def _ratio_measures(
    name: str, one: str, other: str, runs: Mapping[str, Run], how: str, reach: float | None = None
) -> Iterator[Measure]:
    """Yield the speedup of one implementation against another, by wall time and by CPU time.

    If the other was stopped, the ratio is a lower bound. If the one was stopped, there is no value: the ratio would
    be an
    upper bound, or unknown if both were stopped.
    """
    ours, theirs = runs[one], runs[other]
    ratios = tuple(a / b for a, b in zip(ours.rates, theirs.rates, strict=False))
    value = median(ratios)
    if ours.saturated:
        known = "nothing is known" if theirs.saturated else f"at most {value:.3g}"
        how, value, ratios = (
            f"{how}; {'both were' if theirs.saturated else f'{one} was'} stopped: {known}",
            math.nan,
            (),
        )
    elif theirs.saturated:
        how += f"; {other} was stopped"
    at = f"streambench/{name}/{one}-vs-{other}"
    yield Measure(at, value, "ratio", how, reach, sample=ratios, lower_bound=theirs.saturated)
    if ours.line_us > 0 and theirs.line_us > 0:
        how = f"the same in CPU time, {ours.line_us:.3g} µs per record against {theirs.line_us:.3g}"
        yield Measure(f"{at}-processor", theirs.line_us / ours.line_us, "ratio", how)
