"""StreamBench's suite of recipients: in how many parts the source is read, for as many partitions behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import folder, spark_session
from riot_bench.suites.streambench.data import write_numbered
from riot_bench.suites.streambench.forms import PROGRAMS, chosen
from riot_bench.suites.streambench.runs import Run, agreed, packed, proved
from riot_ops.dataflows.applications import application
from riot_ops.runtime.parallel import available

__all__ = ["NODES", "Sizes", "recipients"]

#: Partitions; the source is read by one task, by half as many and by as many.
NODES = 4
#: How many times the throughput of the step before the paper found with half of the nodes, and with all.
GAINS = {"half": 1.8, "all": 2.15}


@dataclass(frozen=True)
class Sizes:
    """Lines of a micro-batch, how many there are behind the first, and the programs where none are named."""

    lines: int
    batches: int
    programs: tuple[str, ...]
    limit_s: float


FULL = Sizes(100_000, 10, tuple(PROGRAMS), 600.0)
QUICK = Sizes(50_000, 3, ("identity", "wordcount", "statistics"), 30.0)


def recipients(
    quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None
) -> Iterator[Measure]:
    """Throughput and latency of packed programs by the tasks that read their source, and the gains.

    Parameters
    ----------
    scale : float, default 1
        Times the lines of a micro-batch, and above 1 the limit of a run.
    """
    sizes = sizes or (QUICK if quick else FULL)
    sizes = replace(sizes, limit_s=sizes.limit_s * max(1.0, scale))
    batch = max(NODES, int(sizes.lines * scale) // NODES * NODES)
    cores = min(NODES, available())
    crowded = f", on {cores} cores" if cores < NODES else ""
    with folder() as base, spark_session(NODES, jvm="full") as spark:
        made = {}
        for name in chosen(programs, sizes.programs):
            stream = application(name).inputs["lines"]
            if stream not in made:
                made[stream] = write_numbered(stream, base / stream, sizes.batches + 1, batch)
            data = made[stream]
            first = data.first(1)
            wanted = agreed(name, first)
            for tasks in (1, NODES // 2, NODES):
                proved(spark, name, "packed", first, wanted, partitions=NODES, source=first.source(tasks))
            packed(spark, name, first, sizes.limit_s, partitions=NODES)  # the first query of all is slow
            runs: dict[int, Run] = {}
            for tasks in (1, NODES // 2, NODES):
                runs[tasks] = run = packed(
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
