"""StreamBench's fault suite: cost and lost results when a worker, an executor or the driver fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from riot_bench.harness.cluster import (
    Cluster,
    cluster_session,
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
from riot_ops.core.errors import RiotError
from riot_ops.dataflows.applications import application

__all__ = ["Sizes", "faults"]

#: Workers of one core each, and splits of the source: half as many.
NODES, SOURCE_SPLITS = 2, 1
#: Warm-up runs within which every executor must have completed a task.
WARM_RUNS = 10
#: Values of the paper for a lost worker on Spark: TPF, LPF and lost results.
TPF, LPF, LOST = 1.0, 1.0, 0.0


@dataclass(frozen=True)
class Sizes:
    """Amount of work: lines of a micro-batch, micro-batches after the first, repetitions, and programs."""

    lines: int
    batches: int
    repetitions: int
    programs: tuple[str, ...]
    crashing: tuple[str, ...]
    limit_s: float


FULL = Sizes(100_000, 20, 5, tuple(PROGRAMS), ("identity", "wordcount"), 600.0)
QUICK = Sizes(20_000, 10, 3, ("identity",), (), 120.0)


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

    @property
    def latency_ms(self) -> float:
        """Mean time from fetching a record to the end of its micro-batch in ms."""
        return 1000 * sum(self.spent) / len(self.spent)


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
    """Run on N workers without and with a failure, then on the remaining N − 1; afterwards add a worker again."""
    wanted = ExpectedResults(name, data)
    tpf, lpf, differences = list[float](), list[float](), list[tuple[int, int]]()
    for number in range(sizes.repetitions):
        at = base / name / str(number)
        _warm_up(spark, name, data, at, sizes)
        whole = _run(spark, name, data, at / "whole", sizes)
        victim = list(cluster.pids)[-1]
        failing = _run(spark, name, data, at / "failing", sizes, lambda: cluster.kill(victim))  # noqa: B023
        wait_for_executors(spark, NODES - 1)
        fewer = _run(spark, name, data, at / "fewer", sizes)
        cluster.add()
        wait_for_executors(spark, NODES)
        tpf.append(penalty(failing.rate, whole.rate, fewer.rate))
        lpf.append(penalty(failing.latency_ms, whole.latency_ms, fewer.latency_ms))
        differences += [wanted.difference(read_results(name, run.out)) for run in (whole, failing, fewer)]
    how = (
        f"packed, {NODES} workers of one core, one of them killed half way, {SOURCE_SPLITS} split of the source; "
        f"{sizes.batches} micro-batches of {data.batch:,} records, Parquet files"
    )
    key = f"streambench/faults/{name}"
    yield from _loss_measures(key, differences, LOST)
    if _is_lossless(differences):
        yield Measure(f"{key}/tpf", median(tpf), "ratio", how, 0.9, values=tuple(tpf), published=TPF)
        yield Measure(f"{key}/lpf", median(lpf), "ratio", how, 1.3, at_most=True, values=tuple(lpf), published=LPF)


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
        lpf.append(penalty(failing.latency_ms, whole.latency_ms, whole.latency_ms))
        differences.append(wanted.difference(read_results(name, failing.out)))
    how = f"packed, {local_cluster_master(NODES)}, an executor killed half way; against the run without failure"
    key = f"streambench/faults/{name}/crash"
    yield from _loss_measures(key, differences)
    if _is_lossless(differences):
        yield Measure(f"{key}/tpf", median(tpf), "ratio", how, values=tuple(tpf))
        yield Measure(f"{key}/lpf", median(lpf), "ratio", how, values=tuple(lpf))


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

    query.wait(sizes.limit_s, watch)
    if query.active:
        query.stop()
        raise RiotError(f"{name} on a cluster is saturated: it was not done in {sizes.limit_s:g} s")
    if strike is not None and not struck:
        raise TooSoonError(f"{name} was done before a worker was to be killed: use more records, such as --scale 10")
    spent = durations(query.streaming)[: data.total // data.batch]
    return FaultRun(tuple(spent[1:]), data.batch, at / "out")
