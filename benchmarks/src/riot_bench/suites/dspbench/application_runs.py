"""Runs of a whole DSPBench application: speedup by cores, and latency, CPU and memory at half of its peak rate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.input_lines import InputLines
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.timing import median, median_seconds
from riot_bench.harness.trial import SparkRunner
from riot_bench.suites.dspbench.paced_run import SAMPLE_S, paced_measures, paced_workload, run_measures
from riot_ops.runtime.parallel import available_cores

__all__ = ["configuration_measures", "local_measures", "spark_measures"]

#: Messages of a batch.
BATCH_SIZES = (1024, 8192, 65_536)


def local_measures(data: InputLines, repetitions: int, paced_s: float, either: bool) -> Iterator[Measure]:
    """Run in process on one core and on all cores, alternating, then for ``paced_s`` seconds at half of the peak rate.

    ``either`` adds a paced run on one core, at half of its own peak rate.
    """
    one = data.application
    flow, at = one.builder(), f"dspbench/{one.code}"
    alone, together = list[float](), list[float]()

    def run() -> None:
        flow.run(data.sources(), sinks=DiscardSink())

    run()  # compiles
    for _ in range(repetitions):
        with pinned_to_one_core():
            alone.append(data.total / median_seconds(run, 1, warm=0))
        together.append(data.total / median_seconds(run, 1, warm=0))
    cores, peak = available_cores(), median(together)
    how = f"{data.total:,} lines, nothing written"
    yield Measure(f"{at}/local-all-cores", peak, "lines/s", f"{how}, {cores} cores")
    gain = median(b / a for a, b in zip(alone, together, strict=True))
    yield Measure(f"{at}/local-all-cores-vs-one", gain, "ratio", f"{how}, {cores} cores against one core")
    yield from configuration_measures(data)
    yield from paced_measures(data, peak / 2, median(alone) / 2 if either else None, paced_s)


def configuration_measures(data: InputLines) -> Iterator[Measure]:
    """Measure each configuration once: one core or all cores, and three batch sizes; then yield the fastest.

    The paper also varies the parallelism of each operator, which in process is that of the whole dataflow.
    """
    flow, found = data.application.builder(), dict[str, float]()
    at = f"dspbench/{data.application.code}/configuration"
    for cores in dict.fromkeys((1, available_cores())):
        for size in BATCH_SIZES:

            def run(cores: int = cores, size: int = size) -> None:
                flow.run(data.sources(), sinks=DiscardSink(), cores=cores, batch_size=size)

            with pinned_to_one_core() if cores == 1 else nullcontext():
                name = f"{cores}-cores/{size}"
                found[name] = data.total / median_seconds(run, 1, warm=0)
            how = f"{data.total:,} lines, {cores} cores, batches of {size:,} messages, one run"
            yield Measure(f"{at}/{name}", found[name], "lines/s", how)
    best = max(found, key=found.__getitem__)
    how = f"{best}, the fastest of {len(found)} configurations, a single run each"
    yield Measure(f"dspbench/{data.application.code}/best-configuration", found[best], "lines/s", how)


def spark_measures(spark: Any, data: InputLines, batch: int, peak: float, quick: bool) -> Iterator[Measure]:
    """Run on Spark at half of a peak rate."""
    runner, workload = SparkRunner(quick, spark), paced_workload(data, batch)
    length = runner.trial_s
    begun = time.monotonic()
    report = runner.run(workload, length, {"rate": peak / 2 / len(workload.sources)}, every_s=SAMPLE_S)
    where = f"half of the peak, {spark.sparkContext.master}, {time.monotonic() - begun:.0f} s with start-up"
    settled = runner.warm_s * min(1.0, report.duration / length)  # shorter if the lines ended early
    yield from run_measures(f"dspbench/{data.application.code}/spark", report, settled, peak / 2, where, None)
