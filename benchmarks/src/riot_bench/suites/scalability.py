"""Scalability as two functions: the cores that a load demands, and the load that cores carry, under an objective."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from riot_bench.harness.data import needs
from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.feeds import feed
from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import folder, spark_session
from riot_bench.harness.peak_rate import LEAST, Peak, highest, starts
from riot_bench.harness.trial import ENDLESS, Feed, Local, OnSpark, Runner
from riot_ops.core.errors import ConfigError
from riot_ops.measure.probe_report import Report

__all__ = ["EXPERIMENTS", "LOADS", "Objective", "demand", "measures", "some_cores"]

#: Loads of which the demand is told, in messages per second: up to the first that all cores do not carry.
LOADS = tuple(step * 10**power for power in range(3, 8) for step in (1, 2, 5))
STREAM = "city"


@dataclass(frozen=True)
class Objective:
    """What a run must keep.

    Parameters
    ----------
    lag_s : float, > 0
        Most that 95 % of the messages may take from when they are due to when a result of theirs is delivered.
        Besides, neither latency nor the queue of messages that are due may grow.

    Examples
    --------
    >>> Objective(0.5).words
    'p95 of the lag at most 0.5 s, and no growing backlog'
    """

    lag_s: float

    def __post_init__(self) -> None:
        if not self.lag_s > 0:
            raise ConfigError(f"lag_s must be > 0, got {self.lag_s}")

    @property
    def words(self) -> str:
        """The objective in words."""
        return f"p95 of the lag at most {self.lag_s:g} s, and no growing backlog"

    def holds(self, run: Runner, report: Report, seconds: float) -> bool:
        """Whether a run has kept it."""
        (lag,) = report.latency(0.95, since_s=run.warm_s, until_s=seconds)
        return bool(lag <= self.lag_s) and run.stability(report, seconds).stable


def demand(
    carries: Callable[[int, float], bool], resources: Sequence[int], load: float, attempts: int = 2
) -> int | None:
    """The least of the resources, in growing order, that carry a load; None where none does.

    Parameters
    ----------
    carries : function of resources and load
        One trial.
    attempts : int, default 2
        Resources do not carry a load after so many trials: something else may have taken the machine.

    Examples
    --------
    >>> [demand(lambda cores, load: load <= 1000 * cores, (1, 2, 4), load) for load in (500, 1500, 2500, 9999)]
    [1, 2, 4, None]
    """
    return next((n for n in resources if any(carries(n, load) for _ in range(attempts))), None)


@contextmanager
def some_cores(n: int) -> Iterator[None]:
    """Keep this thread, and the threads that it starts, on so many cores."""
    before = os.sched_getaffinity(0)
    if not 1 <= n <= len(before):
        raise ConfigError(f"n must be 1 to {len(before)}, got {n}")
    os.sched_setaffinity(0, set(sorted(before)[-n:]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measures(quick: bool = False, *, name: Sequence[str] = ("stats",), runner: str = "local") -> Iterator[Measure]:
    """The suite.

    Parameters
    ----------
    name : sequence of str, default ("stats",)
        Applications of RIoTBench, over CITY.
    runner : "local" or "spark", default "local"
        In process on some of the cores, or Spark with so many.
    """
    if runner not in ("local", "spark"):
        raise ConfigError(f"--runner must be local or spark, got {runner!r}")
    needs("this benchmark", "bench", "psutil")
    cores = len(os.sched_getaffinity(0))
    resources = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < cores] + [cores]
    objective = Objective(0.25 if runner == "local" else 10.0)
    with folder() as base:
        for one in name:
            given = feed(one, STREAM, base / one)
            yield from _of(f"scalability/{one}/{runner}", given, resources, objective, runner, quick)


def _of(
    at: str, given: Feed, resources: Sequence[int], objective: Objective, runner: str, quick: bool
) -> Iterator[Measure]:
    bench = _Bench(given, objective, runner, quick)
    most = 0.0
    for n in resources:
        with bench.on(n):
            found = bench.capacities(3)
        rates = tuple(peak.rate for peak in found)
        most = max(most, *rates)
        mark = next((peak.mark for peak in found if not peak.closed), "")
        how = f"highest load with {objective.words}; {bench.where}{mark}"
        name, value = f"{at}/capacity/{n}", median(rates)
        yield Measure(name, value, "messages/s", how, values=rates, lower_bound=bool(mark))
    for load in LOADS:
        least = demand(bench.carries, resources, load) if load <= 2 * most else None
        if least is None:
            break
        yield Measure(f"{at}/demand/{load}", least, "cores", f"least cores that carry it with {objective.words}")


class _Bench:
    """Trials of a dataflow on some cores; what has started on them is kept until others are asked for."""

    def __init__(self, given: Feed, objective: Objective, runner: str, quick: bool) -> None:
        self.given, self.objective, self.runner, self.quick = given, objective, runner, quick
        self.where = ""
        self._run: Runner | None = None
        self._sized: dict[int, tuple[Feed, float]] = {}
        self._cores = 0

    @contextmanager
    def on(self, n: int) -> Iterator[None]:
        """Have so many cores."""
        with ExitStack() as stack:
            if self.runner == "local":
                stack.enter_context(some_cores(n))
                self._run = Local(self.quick)
            else:
                self._run = OnSpark(self.quick, stack.enter_context(spark_session(n)))
            self.where, self._cores = self._run.where, n
            self._run.warm(self.given)
            if n not in self._sized:
                self._sized[n] = self._run.sized(self.given)[:2]
            yield

    @property
    def seconds(self) -> float:
        """Length of a trial: the lag needs time to show."""
        assert self._run is not None
        return max(self._run.trial_s, 3 * self.objective.lag_s if self.runner == "local" else 0.0)

    def trial(self, rate: float) -> bool:
        """Whether a rate is carried."""
        assert self._run is not None
        given, _ = self._sized[self._cores]
        report = self._run.run(given, self.seconds, {"rate": min(rate, ENDLESS)})
        return self.objective.holds(self._run, report, self.seconds)

    def capacities(self, repetitions: int) -> list[Peak]:
        """The highest rate that is carried, so many times; on Spark once."""
        start = max(LEAST, 0.8 * self._sized[self._cores][1])
        limit, precision = (15.0, 1.15) if self.quick else (120.0, 1.05)
        guesses = starts(start, precision, repetitions if self.runner == "local" else 1)
        return [highest(self.trial, guess, precision=precision, limit_s=limit) for guess in guesses]

    def carries(self, n: int, load: float) -> bool:
        """Whether so many cores carry a load."""
        with self.on(n):
            return self.trial(load)


def _figures(runner: str) -> tuple[Figure, ...]:
    at = rf"scalability/(?P<series>\w+)/{runner}"
    return (
        Figure("capacity", "The load that cores carry", rf"{at}/capacity/(?P<x>\d+)", "cores", "messages/s", "line"),
        Figure(
            "demand", "The cores that a load demands", rf"{at}/demand/(?P<x>\d+)", "messages/s", "cores", "line", "x"
        ),
    )


def _local(quick: bool) -> Iterator[Measure]:
    return measures(quick, name=("stats",) if quick else ("stats", "pred"))


ABOUT = (
    "The scalability of a dataflow is what resources each load demands, and what load each amount of resources "
    "carries, so that an objective is kept: 95 % of the messages within the stated lag, and neither lag nor backlog "
    "growing."
)
EXPERIMENTS = (Experiment("scalability/local", "Scalability in process", _local, ABOUT, _figures("local"), (48, 440)),)
