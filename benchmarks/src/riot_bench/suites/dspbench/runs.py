"""An application of DSPBench as a whole: what more cores bring, and latency, CPU and memory at half of its peak."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from riot_bench.harness.data import Discard
from riot_bench.harness.measure import Measure, median, one_core, seconds
from riot_bench.harness.trial import OnSpark
from riot_bench.suites.dspbench.lines import Lines
from riot_bench.suites.dspbench.paced import LOOK_S, feed, figures, paced
from riot_ops.runtime.parallel import available

__all__ = ["local_runs", "spark_runs"]


def local_runs(data: Lines, repetitions: int, paced_s: float, either: bool) -> Iterator[Measure]:
    """In process, on one core and on all, in turns; then at half of the peak of all for some seconds, or of either."""
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
    cores, peak = available(), median(together)
    how = f"{data.total:,} lines, nothing written"
    yield Measure(f"{at}/local-all-cores", peak, "lines/s", f"{how}, {cores} cores")
    gain = median(b / a for a, b in zip(alone, together, strict=True))
    yield Measure(f"{at}/local-all-cores-vs-one", gain, "ratio", f"{how}, {cores} cores against one")
    yield from paced(data, peak / 2, median(alone) / 2 if either else None, paced_s)


def spark_runs(spark: Any, data: Lines, batch: int, peak: float, quick: bool) -> Iterator[Measure]:
    """On Spark at half of a peak rate."""
    runner, given = OnSpark(quick, spark), feed(data, batch)
    length = runner.trial_s
    begun = time.monotonic()
    report = runner.run(given, length, {"rate": peak / 2 / len(given.sources)}, every_s=LOOK_S)
    where = f"half of the peak, {spark.sparkContext.master}, {time.monotonic() - begun:.0f} s with its start"
    settled = runner.warm_s * min(1.0, report.duration / length)  # less where the lines were over before
    yield from figures(f"dspbench/{data.application.code}/spark", report, settled, peak / 2, where, None)
