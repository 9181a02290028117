"""StreamBench's recipient suite: throughput by the number of tasks that read the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.numbered_lines import write_numbered
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.streambench.programs import PROGRAMS, choose_programs
from riot_bench.suites.streambench.runs import Run, check_implementations, check_on_spark, run_packed
from riot_ops.dataflows.applications import application
from riot_ops.runtime.parallel import available_cores

__all__ = ["NODES", "Sizes", "recipients"]

#: Number of partitions; the source is read by one task, by half as many and by as many tasks.
NODES = 4
#: Gain over the previous step in the paper, with half of the nodes and with all.
GAINS = {"half": 1.8, "all": 2.15}


@dataclass(frozen=True)
class Sizes:
    """Lines of a micro-batch, micro-batches after the first, default programs and time limit."""

    lines: int
    batches: int
    programs: tuple[str, ...]
    limit_s: float


FULL = Sizes(100_000, 10, tuple(PROGRAMS), 600.0)
QUICK = Sizes(50_000, 3, ("identity", "wordcount", "statistics"), 30.0)


def recipients(
    quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None
) -> Iterator[Measure]:
    """Measure throughput and latency of packed programs by the tasks that read their source, and the gains.

    Parameters
    ----------
    quick : bool
    programs : sequence of str
        Programs; by default those of ``sizes``.
    scale : float, default 1
        Factor of the lines of a micro-batch and, above 1, of the time limit.
    sizes : Sizes, optional
        By default those of the form.
    """
    sizes = sizes or (QUICK if quick else FULL)
    sizes = replace(sizes, limit_s=sizes.limit_s * max(1.0, scale))
    batch = max(NODES, int(sizes.lines * scale) // NODES * NODES)
    cores = min(NODES, available_cores())
    crowded = f", on {cores} cores" if cores < NODES else ""
    with temporary_folder() as base, spark_session(NODES, jvm="full") as spark:
        made = {}
        for name in choose_programs(programs, sizes.programs):
            stream = application(name).inputs["lines"]
            if stream not in made:
                made[stream] = write_numbered(stream, base / stream, sizes.batches + 1, batch)
            data = made[stream]
            first = data.first_batches(1)
            wanted = check_implementations(name, first)
            for tasks in (1, NODES // 2, NODES):
                check_on_spark(spark, name, "packed", first, wanted, partitions=NODES, source=first.source(tasks))
            run_packed(spark, name, first, sizes.limit_s, partitions=NODES)  # the very first query is slow
            runs: dict[int, Run] = {}
            for tasks in (1, NODES // 2, NODES):
                runs[tasks] = run = run_packed(
                    spark, name, data, sizes.limit_s, partitions=NODES, source=data.source(tasks)
                )
                at = f"streambench/recipients/{name}/{tasks}of{NODES}"
                marks = "; saturated" if run.saturated else ""
                how = f"packed, {NODES} partitions{crowded}; micro-batches of {batch:,} records{marks}"
                yield Measure(f"{at}/throughput", run.rate, "records/s", how, sample=run.rates)
                spent = tuple(1e3 * s for s in run.latency_s)
                yield Measure(f"{at}/latency", median(spent), "ms", how, sample=spent)
            for label, less, more in (("half", 1, NODES // 2), ("all", NODES // 2, NODES)):
                gains = tuple(a / b for a, b in zip(runs[more].rates, runs[less].rates, strict=False))
                how = f"read by {more} tasks against {less}{crowded}, micro-batch by micro-batch"
                at = f"streambench/recipients/{name}/gain-{label}"
                yield Measure(at, median(gains), "ratio", how, published=GAINS[label], sample=gains)
