"""Each task alone between a source and a sink: its peak rate, and what it does there."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from riot_bench.harness import trial
from riot_bench.harness.data import needs
from riot_bench.harness.experiment import Experiment
from riot_bench.harness.measure import Measure
from riot_bench.harness.trial import Feed
from riot_bench.suites.riotbench import tables as paper_table
from riot_bench.suites.riotbench.figures import figures
from riot_bench.suites.riotbench.page import Results
from riot_bench.suites.riotbench.published import CATALOGUE, MICRO, published
from riot_ops.dataflows.riotbench.micro import SOURCE, micro, micro_case, micro_source
from riot_ops.task import find_task, tasks

__all__ = ["EXPERIMENTS", "measures", "table", "task_latency"]

#: Messages that a task alone gets at once: at first, and at most.
LEAST, BATCH = 16, 1024


def measures(
    quick: bool = False, *, task: Sequence[str] = (), runner: str = "local", out: Path | None = None
) -> Iterator[Measure]:
    """The suite.

    Parameters
    ----------
    task : sequence of str
        Codes of the tasks; by default all that are registered.
    runner : "local" or "spark", default "local"
    out : Path, default ``out/bench/micro``
        Folder for the page, its pictures and the figures as JSON.
    """
    needs("this benchmark", "bench", "psutil")
    needs("drawing the results", "plot", "matplotlib")
    kinds = [find_task(code) for code in task] or tasks()
    with (
        Results("micro", runner, quick, out) as results,
        trial.runner(runner, quick, cores=1) as run,
    ):
        results.where = run.where
        for kind in kinds:
            feed = Feed(micro(kind.code), {SOURCE: micro_source(kind.code)})
            outcome = run.outcome(kind.code, kind.category, feed)
            outcome = replace(outcome, task_us=task_latency(kind.code, run.trial_s / 4))
            results.add(outcome)
            theirs = published("micro", kind.code)
            yield from outcome.measures("micro", paper_table.notes(outcome, theirs, run.where), theirs.numbers)


def task_latency(code: str, seconds: float) -> float:
    """Time of a task alone, in batches that it has done in a moment, per record that it puts out (µs).

    What comes at the end of a stream alone does not count: NaN where there is nothing else.

    >>> 0 < task_latency("NOP", 0.01) < 1000
    True
    """
    case = micro_case(code)
    source = micro_source(code)
    session = case.task.session()
    spent, records, offset = 0.0, 0, source.initial()
    rounds, size = 0, LEAST
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
        size = min(BATCH, 8 * size) if took < seconds / 16 else size
    return 1e6 * spent / records if records else math.nan


def table(found: Iterable[Measure]) -> Any:
    """The tasks beside the paper's figures, for the terminal."""
    return paper_table.table("micro", "task", found)


def _report(quick: bool) -> Iterator[Measure]:
    return measures(quick, task=tuple(MICRO) if quick else CATALOGUE)


EXPERIMENTS = (
    Experiment(
        "micro",
        "Each task alone",
        _report,
        "Each task between a source and a sink, in process on one core: the highest rate at which neither latency "
        "nor queue grows, and what the task does at that rate. The paper has 310 messages/s for parsing XML, 68,000 "
        "for the Bloom filter, the Kalman filter and the distinct count, 3,000 or more for the others but those "
        "that call Azure.",
        figures("micro", r"\w+", "task"),
        (60, 2100),
    ),
)
