"""Each application over each stream: its peak rate, and what it does at the stream's own pace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from riot_bench.harness import trial
from riot_bench.harness.data import needs
from riot_bench.harness.experiment import Experiment
from riot_bench.harness.feeds import feed
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import folder
from riot_bench.harness.probe_cost import probe_cost
from riot_bench.suites.riotbench import tables as paper_table
from riot_bench.suites.riotbench.figures import figures
from riot_bench.suites.riotbench.page import Results
from riot_bench.suites.riotbench.published import published
from riot_ops import dataflows
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.streams.catalog import catalog_entry

__all__ = ["EXPERIMENTS", "measures", "table"]

STREAMS = ("city", "taxi")
#: The seven days of a stream, at a thousand times their pace.
WEEK_S = 604.8


def measures(
    quick: bool = False,
    *,
    name: Sequence[str] = (),
    stream: Sequence[str] = (),
    runner: str = "local",
    out: Path | None = None,
    duration: float | None = None,
) -> Iterator[Measure]:
    """The suite.

    Parameters
    ----------
    name : sequence of str
        Names of applications; by default all.
    stream : sequence of str
        Names of streams; by default city and taxi, which the paper has.
    runner : "local" or "spark", default "local"
    out : Path, default ``out/bench/app``
        Folder for the page, its pictures and the figures as JSON.
    duration : float, seconds, default 604.8
        How long each application runs at its stream's pace: by default the whole week, a thousandfold.
        (With ``quick`` a moment.) A shorter run begins with the week, which is at night.
    """
    if duration is not None and not 0 < duration < math.inf:
        raise ConfigError(f"--duration must be a finite number of seconds > 0, got {duration!r}")
    needs("this benchmark", "bench", "psutil")
    needs("drawing the results", "plot", "matplotlib")
    known = dataflows.RIOTBENCH
    for one in name:
        if one not in known:
            raise ConfigError(f"unknown application {one!r}; known are {', '.join(known)}{did_you_mean(one, known)}")
    streams = [catalog_entry(one) for one in stream or STREAMS]
    with (
        folder() as base,
        Results("app", runner, quick, out) as results,
        trial.runner(runner, quick) as run,
    ):
        results.where = run.where
        for one in name or known:
            for entry in streams:
                given = feed(one, entry.name, base / f"{one}-{entry.name}")
                pace = {"curve": entry.curve(entry.speedup)} if entry.name in given.sources else None
                length = duration or (run.run_s if quick else WEEK_S)
                outcome = run.outcome(f"{one}/{entry.name}", one, given, pace, length)
                results.add(outcome)
                theirs = published("app", outcome.name)
                found = outcome.measures("app", paper_table.notes(outcome, theirs, run.where), theirs.numbers)
                yield from (one for one in found if not one.measure.endswith("/task-latency"))  # of tasks alone
    yield from probe_cost(quick)


def table(found: Iterable[Measure]) -> Any:
    """The applications beside the paper's figures, for the terminal."""
    return paper_table.table("app", "application", found)


EXPERIMENTS = (
    Experiment(
        "app",
        "Applications over their streams",
        measures,
        "ETL, STATS, PRED and TRAIN in process, each over CITY and TAXI at the stream's own pace, a thousandfold: a "
        "week in ten minutes (in the quick form its first second). The paper has a median latency of 20 ms for "
        "STATS, of 500 to 700 ms for PRED, and a jitter about 0, on five to seven virtual machines.",
        figures("app", r"\w+/\w+", "application and stream"),
        (50, 4300),
    ),
)
