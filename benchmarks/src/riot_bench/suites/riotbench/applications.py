"""Each application over each stream: its peak rate, and its figures at the stream's own pace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from riot_bench.harness import trial
from riot_bench.harness.application_workloads import application_workload
from riot_bench.harness.experiment import Experiment
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.probe_cost import probe_cost
from riot_bench.harness.requirements import require_extra
from riot_bench.suites.riotbench import tables
from riot_bench.suites.riotbench.figures import suite_figures
from riot_bench.suites.riotbench.page import ResultFiles
from riot_bench.suites.riotbench.paper import paper_figures
from riot_ops import dataflows
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.streams.catalog import catalog_entry

__all__ = ["EXPERIMENTS", "measures", "table"]

STREAMS = ("city", "taxi")
#: Seconds on Spark (full and quick form).
ON_SPARK_S = (120.0, 9.0)
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
    """Run the suite.

    Parameters
    ----------
    quick : bool, default False
    name : sequence of str, default all
        Names of applications.
    stream : sequence of str, default ("city", "taxi")
        Names of streams; the paper has city and taxi.
    runner : "local" or "spark", default "local"
    out : Path, default ``out/bench/app``
        Folder for the page, its plots and the figures as JSON.
    duration : float, seconds, default 604.8
        Length of the run at the stream's pace, which is a thousandfold: by default the whole week, with ``quick`` about
        a second. A shorter run covers the begin of the week, which is at night.
    """
    if duration is not None and not 0 < duration < math.inf:
        raise ConfigError(f"--duration must be a finite number of seconds > 0, got {duration!r}")
    require_extra("this benchmark", "bench", "psutil")
    require_extra("drawing the results", "plot", "matplotlib")
    known = dataflows.RIOTBENCH
    for one in name:
        if one not in known:
            raise ConfigError(f"unknown application {one!r}; known are {', '.join(known)}{did_you_mean(one, known)}")
    streams = [catalog_entry(one) for one in stream or STREAMS]
    with (
        temporary_folder() as base,
        ResultFiles("app", runner, quick, out) as results,
        trial.runner(runner, quick) as run,
    ):
        results.where = run.where
        for one in name or known:
            for entry in streams:
                workload = application_workload(one, entry.name, base / f"{one}-{entry.name}")
                pace = {"curve": entry.curve(entry.speed)} if entry.name in workload.sources else None
                length = duration or (run.run_s if quick else WEEK_S)
                outcome = run.outcome(f"{one}/{entry.name}", one, workload, pace, length)
                results.add(outcome)
                theirs = paper_figures("app", outcome.name)
                found = outcome.measures("app", tables.measure_notes(outcome, theirs, run.where), theirs.numbers)
                yield from (one for one in found if not one.measure.endswith("/task-latency"))  # for single tasks only
    yield from probe_cost(quick)


def table(found: Iterable[Measure]) -> Any:
    """Build the table of applications with the paper's values, for the terminal."""
    return tables.comparison_table("app", "application", found)


def _on_spark(quick: bool) -> Iterator[Measure]:
    """Measure the applications on Spark, each over CITY; in the quick form STATS alone."""
    given = measures(
        quick, name=("stats",) if quick else (), stream=("city",), runner="spark", duration=ON_SPARK_S[quick]
    )
    for one in given:
        if "/probe-cost/" not in one.measure:  # of runs in process
            yield replace(one, measure=one.measure.replace("app/", "app/spark/", 1))


EXPERIMENTS = (
    Experiment(
        "app",
        "Applications over their streams",
        measures,
        "ETL, STATS, PRED and TRAIN in process, each over CITY and TAXI at a thousand times the stream's own pace: a "
        "week in ten minutes (in the quick form its first second). The paper has a median latency of 20 ms for "
        "STATS and of 500 to 700 ms for PRED, and a jitter near 0, on five to seven virtual machines.",
        suite_figures("app", r"(?!spark/)\w+/\w+", "application and stream"),
        (50, 4300),
    ),
    Experiment(
        "app/spark",
        "Applications over their streams, on Spark",
        _on_spark,
        "The same on Spark with two cores, over the first two minutes of CITY's week at a thousand times its pace (in "
        "the quick form nine seconds, and STATS alone). A record is delivered when its micro-batch is committed.",
        suite_figures("app", r"spark/\w+/\w+", "application and stream"),
        (50, 2400),
    ),
)
