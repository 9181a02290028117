"""An application of DSPBench as a whole: what more cores bring, and latency, CPU and memory at half of its peak."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from riot_ops.bench.data import Discard
from riot_ops.bench.dspbench_lines import PARTS, Lines, write_lines
from riot_ops.bench.measure import Measure, median, one_core, seconds
from riot_ops.bench.sparks import folder
from riot_ops.bench.trial import Feed, OnSpark
from riot_ops.measure.probe import Probe
from riot_ops.measure.probe_report import Report
from riot_ops.runtime.parallel import available
from riot_ops.streams.pace import Paced

__all__ = ["local_runs", "spark_runs"]

#: Part of a paced run in which it settles, which does not count; nor does what comes before it without a pace.
SETTLING = 0.25
#: Seconds between two looks at processor and memory, of which each takes some milliseconds.
LOOK_S = 0.5


def local_runs(data: Lines, repetitions: int, paced_s: float) -> Iterator[Measure]:
    """In process, on one core and on all, in turns; then at half of either peak for some seconds."""
    one = data.application
    flow, at = one.builder(), f"dspbench/{one.code}"
    alone, together = list[float](), list[float]()

    def run() -> None:
        flow.run(data.sources(), sinks=Discard())

    run()  # compiles
    for _ in range(repetitions):
        with one_core():
            alone.append(data.total / seconds(run, 1, warm=0))
        together.append(data.total / seconds(run, 1, warm=0))
    cores, peak, peak_of_one = available(), median(together), median(alone)
    how = f"{data.total:,} lines, nothing written"
    yield Measure(f"{at}/local-all-cores", peak, "lines/s", f"{how}, {cores} cores")
    gain = median(b / a for a, b in zip(alone, together, strict=True))
    yield Measure(f"{at}/local-all-cores-vs-one", gain, "ratio", f"{how}, {cores} cores against one")
    report, settled = _paced(data, peak / 2, paced_s)
    yield from _figures(f"{at}/local", report, settled, peak / 2, f"{cores} cores", 50)
    report, settled = _paced(data, peak_of_one / 2, paced_s, alone=True)
    how = f"at {peak_of_one / 2:,.0f} lines/s, half of the peak of one core, on one core"
    for part, reach in ((0.5, None), (0.95, 50)):
        (latency,) = report.latency(part, since_s=settled, until_s=report.duration)
        name = f"{at}/local-latency-p{100 * part:.0f}-one-core"
        yield Measure(name, 1e3 * latency, "ms", how, reach, at_most=reach is not None)


def _paced(data: Lines, lines_per_s: float, paced_s: float, *, alone: bool = False) -> tuple[Report, float]:
    """A run at a rate for some seconds, on one core or all; and the second from which on it counts."""
    one, sources = data.application, len(_feed(data).sources)
    rate, batch = lines_per_s / sources, data.each * PARTS
    probe = Probe(every_s=LOOK_S)
    with folder() as base:  # more lines instead of the same again, whose times would go back
        feed = _feed(write_lines(one, base, batch * math.ceil(rate * paced_s / batch), batch))
        paced = {name: Paced(source, rate=rate) for name, source in feed.sources.items()}
        with one_core() if alone else nullcontext():
            feed.flow.run({**paced, **feed.side}, sinks=Discard(), probe=probe)
    report = probe.report()
    return report, report.duration - (1 - SETTLING) * min(paced_s, report.duration)


def spark_runs(spark: Any, data: Lines, batch: int, peak: float, quick: bool) -> Iterator[Measure]:
    """On Spark at half of a peak rate."""
    runner, feed = OnSpark(quick, spark), _feed(data, batch)
    length = runner.trial_s
    begun = time.monotonic()
    report = runner.run(feed, length, {"rate": peak / 2 / len(feed.sources)}, every_s=LOOK_S)
    where = f"{spark.sparkContext.master}, {time.monotonic() - begun:.0f} s with its start"
    settled = runner.warm_s * min(1.0, report.duration / length)  # less where the lines were over before
    yield from _figures(f"dspbench/{data.application.code}/spark", report, settled, peak / 2, where, None)


def _feed(data: Lines, most: int = 65_536) -> Feed:
    """What is paced; of sources that come one after the other the last, the others at once."""
    flow, sources = data.application.builder(), data.sources()
    side = list(sources)[:-1] if flow.merging == "sequence" else []
    return Feed(flow, {n: s for n, s in sources.items() if n not in side}, {n: sources[n] for n in side}, most)


def _figures(
    at: str, report: Report, since: float, rate: float, where: str, reach_ms: float | None
) -> Iterator[Measure]:
    how = f"at {rate:,.0f} lines/s, half of the peak, {where}"
    p50, p95 = (1e3 * v for v in report.latency(0.5, 0.95, since_s=since, until_s=report.duration))
    span = max(report.duration - since, 1e-9)
    delivered = report.series(span, since, report.duration).output_rate
    yield Measure(f"{at}-latency-p50", p50, "ms", how)
    yield Measure(f"{at}-latency-p95", p95, "ms", how, reach_ms, at_most=True)
    yield Measure(f"{at}-sink", float(delivered[0]) if delivered.size else 0.0, "records/s", f"delivered, {how}")
    yield Measure(f"{at}-cpu", report.cpu(since), "cores", f"all processes, {how}")
    yield Measure(f"{at}-memory", report.memory(since) / 2**20, "MiB", f"all processes, {how}")
