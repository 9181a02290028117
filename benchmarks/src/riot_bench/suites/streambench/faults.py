"""StreamBench's fault suite: cost and lost results when a worker, an executor or the driver fails."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from riot_bench.harness.cluster import (
    Cluster,
    cluster_session,
    completed_tasks,
    idle_executors,
    kill_executor,
    local_cluster_master,
    wait_for_executors,
)
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import durations
from riot_bench.harness.numbered_lines import NumberedLines, write_numbered
from riot_bench.harness.timing import median
from riot_bench.suites.streambench.driver_loss import TooSoonError, run_with_lost_driver
from riot_bench.suites.streambench.formulas import penalty
from riot_bench.suites.streambench.programs import PROGRAMS, choose_programs
from riot_bench.suites.streambench.result_check import ExpectedResults, read_results
from riot_bench.suites.streambench.runs import program_flow
from riot_ops import streams
from riot_ops.core.errors import RiotError
from riot_ops.core.source import Offset, Source, Split, WrappedSource
from riot_ops.dataflows.applications import application
from riot_ops.ingest.pace import PacedSource
from riot_ops.measure.probe import Probe

__all__ = ["Sizes", "busiest_executor", "faults"]

T = TypeVar("T")

#: Workers of one core each, and splits of the source: half as many.
NODES, SOURCE_SPLITS = 2, 1
#: Warm-up runs within which every executor must have completed a task.
WARM_RUNS = 10
#: Values of the paper for a lost worker on Spark: TPF, LPF and lost results.
TPF, LPF, LOST = 1.0, 1.0, 0.0


@dataclass(frozen=True)
class Sizes:
    """Amount of work: lines of a micro-batch, micro-batches after the first, repetitions, and programs.

    ``paced_s`` is the length in seconds of a run at a steady rate, from which LPF is.
    """

    lines: int
    batches: int
    repetitions: int
    programs: tuple[str, ...]
    crashing: tuple[str, ...]
    limit_s: float
    paced_s: float


FULL = Sizes(100_000, 20, 5, tuple(PROGRAMS), ("identity", "wordcount"), 600.0, 20.0)
QUICK = Sizes(20_000, 10, 3, ("identity",), (), 120.0, 8.0)
#: Share of a run at a steady rate that does not count, and the rate as a share of that of the remaining workers.
SETTLING_SHARE, RATE_SHARE = 0.25, 0.5


@dataclass(frozen=True)
class FaultRun:
    """A run: seconds of the micro-batches after the first, lines of each, and the folder of the results."""

    spent: tuple[float, ...]
    lines: int
    out: Path

    @property
    def rate(self) -> float:
        """Lines per second over the whole run."""
        return self.lines * len(self.spent) / sum(self.spent)


def faults(quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Measure lost and duplicate results of packed programs, and TPF and LPF if there are none.

    Parameters
    ----------
    quick : bool
    programs : sequence of str
        Programs; by default those of ``sizes``.
    scale : float, default 1
        Factor of the lines of a micro-batch.
    sizes : Sizes, optional
        By default those of the form.
    """
    sizes = sizes or (QUICK if quick else FULL)
    sizes = replace(sizes, limit_s=sizes.limit_s * max(1.0, scale))
    lines = max(4, int(sizes.lines * scale) // 4 * 4)
    with temporary_folder() as base:
        made: dict[str, NumberedLines] = {}

        def data(name: str) -> NumberedLines:
            stream = application(name).inputs["lines"]
            if stream not in made:
                made[stream] = write_numbered(stream, base / stream, sizes.batches + 1, lines)
            return made[stream]

        names = choose_programs(programs, sizes.programs)
        with Cluster(NODES) as cluster, cluster_session(cluster.url, NODES) as spark:
            for name in names:
                yield from _retry_longer(partial(_lost_worker, spark, cluster, name), data(name), base / "runs", sizes)
        crashed = [name for name in sizes.crashing if name in names]
        if crashed:
            with cluster_session(local_cluster_master(NODES), NODES) as spark:
                for name in crashed:
                    run = partial(_crashed_executor, spark, name)
                    yield from _retry_longer(run, data(name), base / "crashes", sizes)
        for name in crashed:
            yield from _retry_longer(partial(_lost_driver, name), data(name), base / "drivers", sizes)


def _retry_longer(
    runs: Callable[[NumberedLines, Path, Sizes], Iterator[Measure]], data: NumberedLines, base: Path, sizes: Sizes
) -> list[Measure]:
    """Return the measures of runs; if one was done before the failure, repeat all with twice the lines."""
    try:
        return list(runs(data, base, sizes))
    except TooSoonError:
        twice = replace(sizes, batches=2 * sizes.batches, limit_s=2 * sizes.limit_s)
        return list(runs(data.repeated_to(2 * data.total - data.batch), base / "twice", twice))


def _lost_worker(
    spark: Any, cluster: Cluster, name: str, data: NumberedLines, base: Path, sizes: Sizes
) -> Iterator[Measure]:
    """Run on N workers without and with a failure, then on the remaining N − 1; afterwards add a worker again.

    Then do the same at a steady rate, for the latency.
    """
    wanted = ExpectedResults(name, data)
    tpf, lpf, differences = list[float](), list[float](), list[tuple[int, int]]()
    shares, failures = list[float](), list[str]()

    def survive(run: Callable[[], T]) -> T | None:
        """Return the outcome of a run with a failure; None if its query ends with an error, which is noted."""
        try:
            return run()
        except TooSoonError:
            raise
        except RiotError as error:
            failures.append(str(error))
            return None

    def kill_busiest(before: Mapping[str, int]) -> None:
        victim, share = busiest_executor(before, completed_tasks(spark))
        shares.append(share)
        cluster.kill(cluster.worker_at(victim.rpartition(":")[0]))

    def add_worker() -> None:
        cluster.add()
        wait_for_executors(spark, NODES)

    for number in range(sizes.repetitions):
        at = base / name / str(number)
        _warm_up(spark, name, data, at, sizes)
        whole = _run(spark, name, data, at / "whole", sizes)
        strike = partial(kill_busiest, completed_tasks(spark))
        failing = survive(partial(_run, spark, name, data, at / "failing", sizes, strike))
        wait_for_executors(spark, NODES - 1)
        fewer = _run(spark, name, data, at / "fewer", sizes)
        add_worker()
        _warm_up(spark, name, data, at / "before-pace", sizes)
        done = [whole, fewer] if failing is None else [whole, failing, fewer]
        differences += [wanted.difference(read_results(name, run.out)) for run in done]
        if failing is not None:
            tpf.append(penalty(failing.rate, whole.rate, fewer.rate))
        rate = RATE_SHARE * fewer.rate
        whole_s = _mean_latency(spark, name, rate, sizes)
        strike = partial(kill_busiest, completed_tasks(spark))
        failing_s = survive(partial(_mean_latency, spark, name, rate, sizes, strike))
        wait_for_executors(spark, NODES - 1)
        fewer_s = _mean_latency(spark, name, rate, sizes)
        if failing_s is not None:
            lpf.append(penalty(failing_s, whole_s, fewer_s))
        add_worker()
    how = (
        f"packed, {NODES} workers of one core; half way the one with more tasks is killed, in this run "
        f"{100 * min(shares, default=math.nan):.0f} % of them or more; {SOURCE_SPLITS} split of the source"
    )
    key = f"streambench/faults/{name}"
    yield from _loss_measures(key, differences, LOST)
    against = f"of {2 * sizes.repetitions} runs in which a worker was killed, those whose query ended with an error"
    against += f": {failures[0]}" if failures else ""
    yield Measure(f"{key}/failed-queries", len(failures), "queries", against, 0, at_most=True)
    if _is_lossless(differences) and tpf and lpf:
        rates = f"{how}; {sizes.batches} micro-batches of {data.batch:,} records, Parquet files"
        yield Measure(f"{key}/tpf", median(tpf), "ratio", rates, 0.9, values=tuple(tpf), published=TPF)
        paced = f"{how}; {_describe_pace(sizes, 'the remaining worker')}"
        yield Measure(f"{key}/lpf", median(lpf), "ratio", paced, 1.3, at_most=True, values=tuple(lpf), published=LPF)


def busiest_executor(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, float]:
    """Return the address of the executor that completed most tasks in between, and its share of them.

    >>> busiest_executor({"a:1": 10, "b:1": 90}, {"a:1": 13, "b:1": 91})
    ('a:1', 0.75)

    Raises
    ------
    RiotError
        No executor has completed a task, so that the loss of one would show nothing.
    """
    done = {address: number - before.get(address, 0) for address, number in after.items()}
    total = sum(done.values())
    if total <= 0:
        raise RiotError("no executor has completed a task of this run: the loss of one would show nothing")
    victim = max(done, key=done.__getitem__)
    return victim, done[victim] / total


def _describe_pace(sizes: Sizes, of: str) -> str:
    return (
        f"mean over records from when each is due until its micro-batch is committed, {sizes.paced_s:g} s at "
        f"{100 * RATE_SHARE:.0f} % of the rate of {of}"
    )


def _mean_latency(spark: Any, name: str, rate: float, sizes: Sizes, strike: Callable[[], Any] | None = None) -> float:
    """Run a program at a steady rate in lines per second; return the mean latency of its results in seconds.

    ``strike`` is called in the middle of the part that counts.
    """
    lines = streams.generate(application(name).inputs["lines"], messages=math.ceil(rate * sizes.paced_s))
    probe, struck = Probe(), False
    since = SETTLING_SHARE * sizes.paced_s
    with temporary_folder() as base:
        source = PacedSource(NarrowSource(lines, SOURCE_SPLITS), rate=rate)
        query = program_flow(name).start(spark, source, out=base / "out", partitions=NODES, probe=probe)
        begun = 0.0

        def watch(_: Any) -> None:
            nonlocal begun, struck
            if not begun and query.summary.batches:
                begun = time.monotonic()
            if strike is not None and not struck and begun and time.monotonic() >= begun + (since + sizes.paced_s) / 2:
                strike()
                struck = True

        query.wait(timedelta(seconds=sizes.limit_s), watch)
        if query.active:
            query.stop()
            raise RiotError(f"{name} at {rate:,.0f} lines/s is saturated: it was not done in {sizes.limit_s:g} s")
        if strike is not None and not struck:
            raise TooSoonError(f"{name} at {rate:,.0f} lines/s was done before a worker was to be killed")
        latencies, weights = probe.report().latencies(since)
    return float(np.average(latencies, weights=weights))


class NarrowSource(WrappedSource):
    """A source with at most ``max_splits`` splits of a range."""

    def __init__(self, source: Source, max_splits: int) -> None:
        super().__init__(source)
        self.max_splits = max_splits

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return super().splits(start, end, min(n, self.max_splits))


def _crashed_executor(spark: Any, name: str, data: NumberedLines, base: Path, sizes: Sizes) -> Iterator[Measure]:
    """Kill an executor half way, which Spark replaces; compare with a run without failure only."""
    wanted = ExpectedResults(name, data)
    tpf, lpf, differences = list[float](), list[float](), list[tuple[int, int]]()
    for number in range(sizes.repetitions):
        at = base / name / str(number)
        _warm_up(spark, name, data, at, sizes)
        whole = _run(spark, name, data, at / "whole", sizes)
        failing = _run(spark, name, data, at / "failing", sizes, lambda: kill_executor(spark))
        wait_for_executors(spark, NODES)
        tpf.append(penalty(failing.rate, whole.rate, whole.rate))
        differences.append(wanted.difference(read_results(name, failing.out)))
        _warm_up(spark, name, data, at / "before-pace", sizes)
        rate = RATE_SHARE * whole.rate
        whole_s = _mean_latency(spark, name, rate, sizes)
        failing_s = _mean_latency(spark, name, rate, sizes, lambda: kill_executor(spark))
        wait_for_executors(spark, NODES)
        lpf.append(penalty(failing_s, whole_s, whole_s))
    how = f"packed, {local_cluster_master(NODES)}, an executor killed half way; against the run without failure"
    key = f"streambench/faults/{name}/crash"
    yield from _loss_measures(key, differences)
    if _is_lossless(differences):
        yield Measure(f"{key}/tpf", median(tpf), "ratio", how, values=tuple(tpf))
        paced = f"{how}; {_describe_pace(sizes, 'both')}"
        yield Measure(f"{key}/lpf", median(lpf), "ratio", paced, values=tuple(lpf))


def _lost_driver(name: str, data: NumberedLines, base: Path, sizes: Sizes) -> Iterator[Measure]:
    """Kill the driver half way and restart it from its checkpoint."""
    wanted, at = ExpectedResults(name, data), f"streambench/faults/{name}/driver"
    runs = [run_with_lost_driver(name, data, base / name / str(n), sizes.limit_s) for n in range(sizes.repetitions)]
    yield from _loss_measures(at, [wanted.difference(read_results(name, one.out)) for one in runs])
    back = tuple(one.back_s for one in runs)
    how = "packed, local[2]: all processes killed half way and restarted; from the kill until there are new results"
    yield Measure(f"{at}/recovery", median(back), "s", how, 15, at_most=True, values=back)


def _is_lossless(differences: list[tuple[int, int]]) -> bool:
    """Return whether no result is lost or duplicated; otherwise the cost of a failure is not measured."""
    return not any(map(any, differences))


def _loss_measures(at: str, differences: list[tuple[int, int]], published: float | None = None) -> Iterator[Measure]:
    """Yield the lost and duplicate results of the worst of several runs."""
    lost, doubled = (max(one[place] for one in differences) for place in (0, 1))
    how = "results compared with those in process, the worst run"
    yield Measure(f"{at}/lost", lost, "results", how, 0, at_most=True, published=published)
    yield Measure(f"{at}/doubled", doubled, "results", how, 0, at_most=True)


def _warm_up(spark: Any, name: str, data: NumberedLines, at: Path, sizes: Sizes) -> None:
    """Run a program until each executor has completed tasks, since the first tasks of a new executor take seconds.

    The source has a split for each executor, since the tasks of a single split may all run on warm executors.
    """
    for number in range(WARM_RUNS):
        _run(spark, name, data.first_batches(2), at / f"warm-{number}", sizes, parts=NODES)
        if not (left := idle_executors(spark)):
            return
    raise RiotError(f"{name} on a cluster: the executors {', '.join(left)} completed no task in {WARM_RUNS} runs")


def _run(
    spark: Any,
    name: str,
    data: NumberedLines,
    at: Path,
    sizes: Sizes,
    strike: Callable[[], Any] | None = None,
    parts: int = SOURCE_SPLITS,
) -> FaultRun:
    """Run a program over the lines and call ``strike`` when half of the micro-batches are done."""
    query = program_flow(name).start(
        spark, data.source(parts), out=at / "out", max_records=data.batch, partitions=NODES
    )
    half, struck = 1 + (data.total // data.batch - 1) // 2, False

    def watch(_: Any) -> None:
        nonlocal struck
        if strike is not None and not struck and query.active and query.summary.batches >= half:
            strike()
            struck = True

    query.wait(timedelta(seconds=sizes.limit_s), watch)
    if query.active:
        query.stop()
        raise RiotError(f"{name} on a cluster is saturated: it was not done in {sizes.limit_s:g} s")
    if strike is not None and not struck:
        raise TooSoonError(f"{name} was done before a worker was to be killed: use more records, such as --scale 10")
    spent = durations(query.streaming)[: data.total // data.batch]
    return FaultRun(tuple(spent[1:]), data.batch, at / "out")
