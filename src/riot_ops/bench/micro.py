"""Each task alone between a source and a sink: its peak rate, and what it does there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from riot_ops.bench import paper_table, trial
from riot_ops.bench.data import needs
from riot_ops.bench.measure import Measure
from riot_ops.bench.paper import published
from riot_ops.bench.report import Results
from riot_ops.bench.trial import Feed
from riot_ops.dataflows.riotbench.micro import SOURCE, micro, micro_source
from riot_ops.task import find_task, tasks

__all__ = ["measures", "table"]


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
            results.add(outcome)
            yield from outcome.measures("micro", paper_table.notes(outcome, published("micro", kind.code), run.where))


def table(found: Iterable[Measure]) -> Any:
    """The tasks beside the paper's figures, for the terminal."""
    return paper_table.table("micro", "task", found)
