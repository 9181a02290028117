"""StreamBench's performance suite: each program in all its forms over data of several sizes."""

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
from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import folder, spark_session
from riot_bench.suites.streambench.data import NumberedLines, read_rate, write_numbered
from riot_bench.suites.streambench.forms import PROGRAMS, chosen, forms
from riot_bench.suites.streambench.runs import IN_PROCESS, Run, agreed, form_names, in_process, on_spark, packed, proved
from riot_ops.dataflows.applications import application

__all__ = ["REACH", "Sizes", "between", "performance"]

#: The packed form against Spark's own expressions.
REACH = {"wordcount": 1.0, "distinct": 1.0, "statistics": 1.0}
STATELESS, AGAINST_FUNCTIONS = 0.7, 10.0
#: Micro-batches that a run must have, and by how much a source must be faster.
ENOUGH, SPARE = 10, 2.0


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes
    ----------
    scales : tuple of int
    lines : int
        Of a micro-batch at scale 1; a run has ``batches`` of them behind the first, which does not count.
    large : int
        Lines of a micro-batch where forms are held against each other, and ``large_batches`` of them; at most
        ``written`` of the lines are different ones, in files that are read again and again.
    proved : int
        Micro-batches over which the digests of all forms are compared; on Spark they are ``streamed`` or one batch.
    repetitions : int
        In process.
    limit_s, large_limit_s : float
        After which a run on Spark is stopped, and one over large micro-batches.
    cluster : tuple of str
        Programs that run on executors that are processes of their own as well.
    without : tuple of str
        Forms that are left out at the scales.
    against : tuple of str
        Forms that the packed one is held against over large micro-batches; the first where it is ``expressions``
        against the others as well.
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
#: Executors of one core each, and what Spark gives them.
EXECUTORS = 2
CLUSTER = {
    "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
    "spark.executor.memory": "768m",
    "spark.executor.cores": "1",
}


def performance(
    quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None
) -> Iterator[Measure]:
    """Throughput and latency of each form at each scale, and how the packed one compares with Spark's.

    Parameters
    ----------
    scale : float, default 1
        Times the lines of each scale, and above 1 the limits of a run.
    """
    sizes = sizes or (QUICK if quick else FULL)
    longer = max(1.0, scale)
    sizes = replace(sizes, limit_s=sizes.limit_s * longer, large_limit_s=sizes.large_limit_s * longer)
    order = chosen(programs, tuple(PROGRAMS))
    random.Random(1).shuffle(order)  # noqa: S311
    made: dict[tuple[str, int], tuple[NumberedLines, float]] = {}
    found: dict[str, Measure] = {}
    wanted: dict[str, str] = {}
    with folder() as base:
        with spark_session(jvm="full") as spark:
            for stream in dict.fromkeys(map(_stream, order)):
                names = [name for name in order if _stream(name) == stream]
                for number, times in enumerate(sizes.scales):
                    made[stream, times] = data, serving = yield from _prepared(base, stream, times, scale, sizes)
                    for name in names:
                        if not number:
                            wanted[name] = agreed(name, data.first(sizes.proved), spark, streaming=sizes.streamed)
                        for form in (one for one in form_names(name) if one not in sizes.without):
                            for one in _of_form(spark, name, form, data, f"{times}x", serving, sizes):
                                yield one
                                found[one.measure] = one
                lines = sizes.large * scale
                large = write_numbered(stream, base / f"{stream}-large", 1, _even(min(lines, sizes.written)))
                for name in names:
                    yield from _compared(spark, name, large, int(lines) // large.each, sizes)
            for times in sizes.scales:
                yield from between({name: made[_stream(name), times][0] for name in order}, found, times)
        names = [name for name in order if name in sizes.cluster]
        if not names:
            return
        with spark_session(EXECUTORS, jvm="full", settings=CLUSTER) as spark:
            wait_for_executors(spark, EXECUTORS)
            for name in names:
                first = made[_stream(name), sizes.scales[0]][0]
                proved(spark, name, "packed", first.first(sizes.proved), wanted[name])
                packed(spark, name, first.first(1), sizes.limit_s)
                for times in sizes.scales:
                    data, serving = made[_stream(name), times]
                    yield from _of_form(spark, name, "packed", data, f"{times}x", serving, sizes, "-cluster")


def between(data: Mapping[str, NumberedLines], found: Mapping[str, Measure], times: int) -> Iterator[Measure]:
    """How packed programs stand to one another at a scale, which is what the papers tell of them."""

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


def _prepared(base: Path, stream: str, times: int, scale: float, sizes: Sizes) -> Any:
    """The lines of a scale, and as how many per second they can be had."""
    begun = time.perf_counter()
    batch = _even(sizes.lines * times * scale)
    data = write_numbered(stream, base / f"{stream}-{times}x", sizes.batches + 1, batch)
    written, read = data.total / (time.perf_counter() - begun), read_rate(data)
    at, how = f"streambench/source/{stream}/{times}x", f"{data.total:,} lines of {data.line_bytes:.0f} bytes"
    yield Measure(f"{at}/publish", written, "records/s", f"{how}, generated and written by one process")
    yield Measure(f"{at}/serve", read, "records/s", f"{how}, read and nothing done with them")
    return data, min(written, read)


def _even(lines: float) -> int:
    return max(4, int(lines) // 4 * 4)


def _of_form(
    spark: Any,
    name: str,
    form: str,
    data: NumberedLines,
    scale: str,
    serving: float,
    sizes: Sizes,
    where: str = "",
) -> Iterator[Measure]:
    """A form over the data of a scale; plain Python over the first micro-batch of it."""
    if form in IN_PROCESS:
        run = in_process(name, form, data.first(1) if form == "loop" else data, sizes.repetitions)
    else:
        run = _on_spark(spark, name, form, data, sizes)
    marks = _marks(run, form not in IN_PROCESS, serving)
    at, how = f"streambench/{name}/{form}{where}/{scale}", _how(spark, name, form, run, data)

    def several(values: tuple[float, ...]) -> dict[str, Any]:
        """Of runs in process, or of the micro-batches of one run."""
        return {"values" if form in IN_PROCESS else "sample": values}

    yield Measure(f"{at}/throughput", run.rate, "records/s", how + marks, **several(run.rates))
    if run.latency_s:
        spent = tuple(1e3 * s for s in run.latency_s)
        over, end = ("runs", "batch") if form in IN_PROCESS else ("micro-batches", "micro-batch")
        text = f"over {over} of the mean time from fetching a record to the end of its {end}, {how}{marks}"
        yield Measure(f"{at}/latency", median(spent), "ms", f"median {text}", **several(spent))
        for share in () if form in IN_PROCESS else (95, 99):  # micro-batches are equal in size
            highest = float(np.percentile(spent, share))
            yield Measure(f"{at}/latency-p{share}", highest, "ms", f"{share}th percentile {text}")
    if run.line_us > 0:  # what ends between two ticks of the system's clock is 0
        text = f"processor time of all processes, {run.cost}"
        yield Measure(f"{at}/processor", run.line_us, "µs/record", f"{text}; {how}{marks}")


def _on_spark(spark: Any, name: str, form: str, data: NumberedLines, sizes: Sizes) -> Run:
    if form == "packed":
        return packed(spark, name, data, sizes.limit_s)
    return on_spark(spark, name, form, data, sizes.limit_s)


def _how(spark: Any, name: str, form: str, run: Run, data: NumberedLines) -> str:
    volume = f"{run.rate * data.line_bytes / 1e6:.3g} MB/s"
    if form in IN_PROCESS:
        by = {"local": "in process", "numpy": "Arrow and NumPy over batches", "loop": "plain Python"}[form]
        return f"{by}, {run.lines:,} records, {volume}"
    by = "packed" if form == "packed" else forms(name)[form].by
    return f"{by}, {spark.sparkContext.master}, {len(run.spent)} micro-batches of {run.lines:,} records, {volume}"


def _marks(run: Run, batches: bool, serving: float) -> str:
    """What is to be said against a run."""
    found = {
        "saturated": run.saturated,
        "short": batches and len(run.spent) < ENOUGH,
        "source-bound": run.rate * SPARE > serving,
    }
    return "".join(f"; {mark}" for mark, holds in found.items() if holds)


def _compared(spark: Any, name: str, lines: NumberedLines, files: int, sizes: Sizes) -> Iterator[Measure]:
    """The packed form against Spark's own, over large micro-batches, which what each of them costs does not hide.

    And Spark's own expressions against its functions of Python: so far comes a form whose steps are as cheap as the
    JVM's, as both have the same files, micro-batches and sink.
    """
    batch = files * lines.each
    data = lines.lines(batch * (sizes.large_batches + 1))
    runs = {"packed": packed(spark, name, data, sizes.large_limit_s, max_records=batch)}
    reaches = {"expressions": REACH.get(name, STATELESS), "udf": AGAINST_FUNCTIONS, "pickled": AGAINST_FUNCTIONS}
    how = f"micro-batches of {batch:,} records from the same files"
    for form in sizes.against:
        runs[form] = on_spark(spark, name, form, data, sizes.large_limit_s, files)
        yield from _ratio(name, "packed", form, runs, f"{forms(name)[form].by}; {how}", reaches[form])
        if form != "expressions" and "expressions" in runs:
            yield from _ratio(name, "expressions", form, runs, f"what bounds packed-vs-{form}; {how}")


def _ratio(
    name: str, one: str, other: str, runs: Mapping[str, Run], how: str, reach: float | None = None
) -> Iterator[Measure]:
    """How many times as fast one form is as another, by time and by processor time.

    Where the other was stopped it is so many times at least. Where the one was, there is no figure: it is so many times
    at most, and of two that were stopped nothing is known.
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
        how += "; that was stopped"
    at = f"streambench/{name}/{one}-vs-{other}"
    yield Measure(at, value, "ratio", how, reach, sample=ratios, lower_bound=theirs.saturated)
    if ours.line_us > 0 and theirs.line_us > 0:
        how = f"the same in processor time, {ours.line_us:.3g} µs per record against {theirs.line_us:.3g}"
        yield Measure(f"{at}-processor", theirs.line_us / ours.line_us, "ratio", how)
