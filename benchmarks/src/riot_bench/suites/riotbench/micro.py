"""Each task alone between a source and a sink: its peak rate, and its figures at that rate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from riot_bench.harness import trial
from riot_bench.harness.experiment import Experiment
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.workload import Workload
from riot_bench.suites.riotbench import tables
from riot_bench.suites.riotbench.figures import suite_figures
from riot_bench.suites.riotbench.page import ResultFiles
from riot_bench.suites.riotbench.paper import CATALOGUE, MICRO, paper_figures
from riot_bench.suites.riotbench.task_memory import task_memory
from riot_ops.dataflows.riotbench.micro import SOURCE, micro, micro_case, micro_code, micro_source
from riot_ops.task import find_task, registered_tasks
from riot_ops.tasks import PRESETS

__all__ = ["EXPERIMENTS", "measures", "table", "task_latency"]

#: Task that the quick form runs on Spark.
QUICK_ON_SPARK = ("KAL",)
#: Batch size in messages for the time of a task alone: initially, and at most.
MIN_BATCH, MAX_BATCH = 16, 1024


def measures(
    quick: bool = False, *, task: Sequence[str] = (), runner: str = "local", out: Path | None = None
) -> Iterator[Measure]:
    """Run the suite.

    Parameters
    ----------
    quick : bool, default False
    task : sequence of str, default all registered tasks
        Codes of tasks.
    runner : "local" or "spark", default "local"
    out : Path, default ``out/bench/micro``
        Folder for the page, its plots and the figures as JSON.
    """
    require_extra("this benchmark", "bench", "psutil")
    require_extra("drawing the results", "plot", "matplotlib")
    codes = [micro_code(code) for code in task] or [kind.code for kind in registered_tasks()] + [*PRESETS]
    with (
        ResultFiles("micro", runner, quick, out) as results,
        trial.runner(runner, quick, cores=1) as run,
    ):
        results.where = run.where
        for code in codes:
            workload = Workload(micro(code), {SOURCE: micro_source(code)})
            outcome = run.outcome(code, find_task(code).category, workload)
            outcome = replace(outcome, task_us=task_latency(code, run.trial_s / 4))
            theirs = paper_figures("micro", code)
            notes = tables.measure_notes(outcome, theirs, run.where)
            if runner == "local":
                outcome = replace(outcome, memory_mib=task_memory(code, outcome.rate, quick))
                notes["memory"] = f"median, of a process that runs nothing else; {run.where}"
            results.add(outcome)
            yield from outcome.measures("micro", notes, theirs.numbers)


def task_latency(code: str, seconds: float) -> float:
    """Return the time of a task alone per output record (µs), in batches that take only a moment.

    Output at the end of the stream does not count; NaN if there is no other output.

    >>> 0 < task_latency("NOP", 0.01) < 1000
    True
    """
    case = micro_case(code)
    source = micro_source(code)
    session = case.task.session()
    spent, records, offset = 0.0, 0, source.initial()
    rounds, size = 0, MIN_BATCH
    while rounds < 2 or spent < seconds:
        end = source.latest(offset, size)
        (split,) = source.splits(offset, end, 1)
        took = 0.0
        for batch in source.read(split):
            begun = time.perf_counter()
            out = session.push_batch(batch)
            took += time.perf_counter() - begun
            records += out.num_rows if rounds else 0
        spent += took if rounds else 0.0  # the first one compiles
        offset, rounds = end, rounds + 1
        size = min(MAX_BATCH, 8 * size) if took < seconds / 16 else size
    return 1e6 * spent / records if records else math.nan


def table(found: Iterable[Measure]) -> Any:
    """Build the table of tasks with the paper's values, for the terminal."""
    return tables.comparison_table("micro", "task", found)


def _report(quick: bool) -> Iterator[Measure]:
    return measures(quick, task=tuple(MICRO) if quick else CATALOGUE)


def _on_spark(quick: bool) -> Iterator[Measure]:
    """Measure the paper's tasks on Spark; in the quick form one of them."""
    for one in measures(quick, task=QUICK_ON_SPARK if quick else tuple(MICRO), runner="spark"):
        yield replace(one, measure=one.measure.replace("micro/", "micro/spark/", 1))


EXPERIMENTS = (
    Experiment(
        "micro",
        "Each task alone",
        _report,
        "Each task between a source and a sink, in process on one core: the highest rate at which neither latency "
        "nor queue grows, and the task's figures at that rate. The paper has 310 messages/s for parsing XML, 68,000 "
        "for the Bloom filter, the Kalman filter and the distinct count, and at least 3,000 for the others except "
        "those that call Azure.",
        suite_figures("micro", r"\w+", "task"),
        (100, 2300),
    ),
    Experiment(
        "micro/spark",
        "Each task of the paper alone, on Spark",
        _on_spark,
        "The same on Spark with two cores: each task in a streaming query of its own. A record is delivered when its "
        "micro-batch is committed, and memory is of the JVM and all workers.",
        suite_figures("micro", r"spark/\w+", "task"),
        (50, 3600),
    ),
)
