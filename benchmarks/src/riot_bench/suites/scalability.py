"""Scalability as two functions under an objective: demand (cores for a load) and capacity (load of cores)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from riot_bench.harness.application_workloads import application_workload
from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.machine import pinned_to_cores
from riot_bench.harness.measure import Measure
from riot_bench.harness.peak_rate import MIN_RATE, PeakRate, find_peak, start_rates
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.harness.trial import UNLIMITED_RATE, LocalRunner, Runner, SparkRunner
from riot_bench.harness.workload import Workload
from riot_ops.core.errors import ConfigError
from riot_ops.measure.probe_report import Report

__all__ = ["EXPERIMENTS", "LOADS", "Objective", "find_demand", "measures"]

#: Loads in messages per second whose demand is measured, up to the first that exceeds the capacity of all cores.
LOADS = tuple(step * 10**power for power in range(3, 8) for step in (1, 2, 5))
STREAM = "city"


@dataclass(frozen=True)
class Objective:
    """Service level objective of a run.

    Parameters
    ----------
    lag_s : float, > 0
        Maximum 95th percentile of the time from when a message is due until a result of it is delivered. In addition,
        neither the latency nor the queue of due messages may grow.

    Examples
    --------
    >>> Objective(0.5).description
    'p95 of the lag at most 0.5 s, and no growing backlog'
    """

    lag_s: float

    def __post_init__(self) -> None:
        if not self.lag_s > 0:
            raise ConfigError(f"lag_s must be > 0, got {self.lag_s}")

    @property
    def description(self) -> str:
        """The objective as text."""
        return f"p95 of the lag at most {self.lag_s:g} s, and no growing backlog"

    def holds(self, run: Runner, report: Report, seconds: float) -> bool:
        """Return whether a run met the objective."""
        (lag,) = report.latency(0.95, since_s=run.warm_s, until_s=seconds)
        return bool(lag <= self.lag_s) and run.stability(report, seconds).stable


def find_demand(
    carries: Callable[[int, float], bool], resources: Sequence[int], load: float, attempts: int = 2
) -> int | None:
    """Return the smallest of the resources, in ascending order, that carry a load; None if none does.

    Parameters
    ----------
    carries : function of resources and load
        Runs one trial.
    resources : sequence of int
    load : float
    attempts : int, default 2
        Failed trials after which resources do not carry a load: another process may have disturbed a single one.

    Examples
    --------
    >>> [find_demand(lambda cores, load: load <= 1000 * cores, (1, 2, 4), load) for load in (500, 1500, 2500, 9999)]
    [1, 2, 4, None]
    """
    return next((n for n in resources if any(carries(n, load) for _ in range(attempts))), None)


def measures(quick: bool = False, *, name: Sequence[str] = ("stats",), runner: str = "local") -> Iterator[Measure]:
    """Run the suite.

    Parameters
    ----------
    quick : bool, default False
    name : sequence of str, default ("stats",)
        Applications of RIoTBench, over CITY.
    runner : "local" or "spark", default "local"
        In process pinned to some of the cores, or Spark with as many.
    """
    if runner not in ("local", "spark"):
        raise ConfigError(f"--runner must be local or spark, got {runner!r}")
    require_extra("this benchmark", "bench", "psutil")
    cores = len(os.sched_getaffinity(0))
    resources = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < cores] + [cores]
    objective = Objective(0.25 if runner == "local" else 10.0)
    with temporary_folder() as base:
        for one in name:
            workload = application_workload(one, STREAM, base / one)
            yield from _measure_workload(f"scalability/{one}/{runner}", workload, resources, objective, runner, quick)


def _measure_workload(
    at: str, workload: Workload, resources: Sequence[int], objective: Objective, runner: str, quick: bool
) -> Iterator[Measure]:
    bench = _Trials(workload, objective, runner, quick)
    most = 0.0
    for n in resources:
        with bench.on(n):
            found = bench.capacities(3)
        rates = tuple(peak.rate for peak in found)
        most = max(most, *rates)
        mark = next((peak.caveat for peak in found if not peak.converged), "")
        how = f"highest load with {objective.description}; {bench.where}{mark}"
        name, value = f"{at}/capacity/{n}", median(rates)
        yield Measure(name, value, "messages/s", how, values=rates, lower_bound=bool(mark))
    for load in LOADS:
        least = find_demand(bench.carries, resources, load) if load <= 2 * most else None
        if least is None:
            break
        yield Measure(f"{at}/demand/{load}", least, "cores", f"minimum cores with {objective.description}")


class _Trials:
    """Trials of a workload on a number of cores; calibrations are cached."""

    def __init__(self, workload: Workload, objective: Objective, runner: str, quick: bool) -> None:
        self.workload, self.objective, self.runner, self.quick = workload, objective, runner, quick
        self.where = ""
        self._run: Runner | None = None
        self._sized: dict[int, tuple[Workload, float]] = {}
        self._cores = 0

    @contextmanager
    def on(self, n: int) -> Iterator[None]:
        """Run trials on ``n`` cores within the block."""
        with ExitStack() as stack:
            if self.runner == "local":
                stack.enter_context(pinned_to_cores(n))
                self._run = LocalRunner(self.quick)
            else:
                self._run = SparkRunner(self.quick, stack.enter_context(spark_session(n)))
            self.where, self._cores = self._run.where, n
            self._run.warm_up(self.workload)
            if n not in self._sized:
                self._sized[n] = self._run.calibrate(self.workload)[:2]
            yield

    @property
    def seconds(self) -> float:
        """Length of a trial; a lag needs time to show."""
        assert self._run is not None
        return max(self._run.trial_s, 3 * self.objective.lag_s if self.runner == "local" else 0.0)

    def trial(self, rate: float) -> bool:
        """Return whether the objective holds at a rate."""
        assert self._run is not None
        workload, _ = self._sized[self._cores]
        report = self._run.run(workload, self.seconds, {"rate": min(rate, UNLIMITED_RATE)})
        return self.objective.holds(self._run, report, self.seconds)

    def capacities(self, repetitions: int) -> list[PeakRate]:
        """Search the highest rate ``repetitions`` times; on Spark once."""
        start = max(MIN_RATE, 0.8 * self._sized[self._cores][1])
        limit, precision = (15.0, 1.15) if self.quick else (120.0, 1.05)
        guesses = start_rates(start, precision, repetitions if self.runner == "local" else 1)
        return [find_peak(self.trial, guess, precision=precision, limit_s=limit) for guess in guesses]

    def carries(self, n: int, load: float) -> bool:
        """Return whether ``n`` cores carry a load."""
        with self.on(n):
            return self.trial(load)


def _figures(runner: str) -> tuple[Figure, ...]:
    at = rf"scalability/(?P<series>\w+)/{runner}"
    return (
        Figure("capacity", "Load capacity by cores", rf"{at}/capacity/(?P<x>\d+)", "cores", "messages/s", "line"),
        Figure("demand", "Cores that a load demands", rf"{at}/demand/(?P<x>\d+)", "messages/s", "cores", "line", "x"),
    )


def _local(quick: bool) -> Iterator[Measure]:
    return measures(quick, name=("stats",) if quick else ("stats", "pred"))


ABOUT = (
    "Scalability is measured as the resources that a load demands, and as the load that resources carry, while an "
    "objective holds: 95 % of the messages within the stated lag, and neither lag nor backlog grows."
)
EXPERIMENTS = (Experiment("scalability/local", "Scalability in process", _local, ABOUT, _figures("local"), (48, 440)),)
