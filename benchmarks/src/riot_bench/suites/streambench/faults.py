"""StreamBench's suite of faults: what it costs when a worker, an executor or the driver is lost, and which results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from riot_bench.harness.cluster import Cluster, cluster_session, cold, crashing, kill_executor, wait_for_executors
from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import durations, folder
from riot_bench.suites.streambench.data import NumberedLines, write_numbered
from riot_bench.suites.streambench.driver import TooSoonError, lost_driver
from riot_bench.suites.streambench.forms import PROGRAMS, chosen
from riot_bench.suites.streambench.formulas import penalty
from riot_bench.suites.streambench.results import Expected, written
from riot_bench.suites.streambench.runs import flow_of
from riot_ops.core.errors import RiotError
from riot_ops.dataflows.applications import application

__all__ = ["Sizes", "faults"]

#: Workers, of one core each, and in how many parts the source is read: half as many.
NODES, RECEPTION = 2, 1
#: Executors must have done a task within so many runs.
WARM_RUNS = 10
#: What the paper found on Spark where a worker is lost, and how many results were.
TPF, LPF, LOST = 1.0, 1.0, 0.0


@dataclass(frozen=True)
class Sizes:
    """How much is measured: lines of a micro-batch, micro-batches behind the first, repetitions; programs of each."""

    lines: int
    batches: int
    repetitions: int
    programs: tuple[str, ...]
    crashing: tuple[str, ...]
    limit_s: float


FULL = Sizes(100_000, 20, 5, tuple(PROGRAMS), ("identity", "wordcount"), 600.0)
QUICK = Sizes(20_000, 10, 3, ("identity",), (), 120.0)


@dataclass(frozen=True)
class Outcome:
    """A run: seconds of the micro-batches behind the first, lines of each, and the folder of the results."""

    spent: tuple[float, ...]
    lines: int
    out: Path

    @property
    def rate(self) -> float:
        """Lines per second, over all of it."""
        return self.lines * len(self.spent) / sum(self.spent)

    @property
    def latency_ms(self) -> float:
        """Mean time from fetching a record to the end of its micro-batch."""
        return 1000 * sum(self.spent) / len(self.spent)


def faults(quick: bool, programs: Sequence[str], scale: float = 1.0, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Results lost and doubled of packed programs; TPF and LPF where there are none.

    Parameters
    ----------
    scale : float, default 1
        Times the lines of a micro-batch.
    """
    sizes = sizes or (QUICK if quick else FULL)
    sizes = replace(sizes, limit_s=sizes.limit_s * max(1.0, scale))
    lines = max(4, int(sizes.lines * scale) // 4 * 4)
    with folder() as base:
        made: dict[str, NumberedLines] = {}

        def data(name: str) -> NumberedLines:
            stream = application(name).inputs["lines"]
            if stream not in made:
                made[stream] = write_numbered(stream, base / stream, sizes.batches + 1, lines)
            return made[stream]

        names = chosen(programs, sizes.programs)
        with Cluster(NODES) as cluster, cluster_session(cluster.url, NODES) as spark:
            for name in names:
                yield from _once_more(partial(_lost_worker, spark, cluster, name), data(name), base / "runs", sizes)
        crashed = [name for name in sizes.crashing if name in names]
        if crashed:
            with cluster_session(crashing(NODES), NODES) as spark:
                for name in crashed:
                    run = partial(_crashed_executor, spark, name)
                    yield from _once_more(run, data(name), base / "crashes", sizes)
        for name in crashed:
            yield from _once_more(partial(_lost_driver, name), data(name), base / "drivers", sizes)


def _once_more(
    runs: Callable[[NumberedLines, Path, Sizes], Iterator[Measure]], data: NumberedLines, base: Path, sizes: Sizes
) -> list[Measure]:
    """What runs find; where one of them was done before anything of it was lost, all again over twice the lines."""
    try:
        return list(runs(data, base, sizes))
    except TooSoonError:
        twice = replace(sizes, batches=2 * sizes.batches, limit_s=2 * sizes.limit_s)
        return list(runs(data.lines(2 * data.total - data.batch), base / "twice", twice))


def _lost_worker(
    spark: Any, cluster: Cluster, name: str, data: NumberedLines, base: Path, sizes: Sizes
) -> Iterator[Measure]:
    """Without failure on N, with one, and without failure on the N − 1 that are left; then there are N again."""
    wanted = Expected(name, data)
    tpf, lpf, differences = list[float](), list[float](), list[tuple[int, int]]()
    for number in range(sizes.repetitions):
        at = base / name / str(number)
        _warm(spark, name, data, at, sizes)
        whole = _run(spark, name, data, at / "whole", sizes)
        victim = list(cluster.pids)[-1]
        failing = _run(spark, name, data, at / "failing", sizes, lambda: cluster.kill(victim))  # noqa: B023
        wait_for_executors(spark, NODES - 1)
        fewer = _run(spark, name, data, at / "fewer", sizes)
        cluster.add()
        wait_for_executors(spark, NODES)
        tpf.append(penalty(failing.rate, whole.rate, fewer.rate))
        lpf.append(penalty(failing.latency_ms, whole.latency_ms, fewer.latency_ms))
        differences += [wanted.difference(written(name, run.out)) for run in (whole, failing, fewer)]
    how = (
        f"packed, {NODES} workers of one core, of which one is killed half way, {RECEPTION} part of the source; "
        f"{sizes.batches} micro-batches of {data.batch:,} records, Parquet files"
    )
    key = f"streambench/faults/{name}"
    yield from _held(key, differences, LOST)
    if _same(differences):
        yield Measure(f"{key}/tpf", median(tpf), "ratio", how, 0.9, values=tuple(tpf), published=TPF)
        yield Measure(f"{key}/lpf", median(lpf), "ratio", how, 1.3, at_most=True, values=tuple(lpf), published=LPF)


def _crashed_executor(spark: Any, name: str, data: NumberedLines, base: Path, sizes: Sizes) -> Iterator[Measure]:
    """An executor crashes half way, and Spark starts another one: there is only the run without failure beside it."""
    wanted = Expected(name, data)
    tpf, lpf, differences = list[float](), list[float](), list[tuple[int, int]]()
    for number in range(sizes.repetitions):
        at = base / name / str(number)
        _warm(spark, name, data, at, sizes)
        whole = _run(spark, name, data, at / "whole", sizes)
        failing = _run(spark, name, data, at / "failing", sizes, lambda: kill_executor(spark))
        wait_for_executors(spark, NODES)
        tpf.append(penalty(failing.rate, whole.rate, whole.rate))
        lpf.append(penalty(failing.latency_ms, whole.latency_ms, whole.latency_ms))
        differences.append(wanted.difference(written(name, failing.out)))
    how = f"packed, {crashing(NODES)}, an executor crashes half way; against the run without failure"
    key = f"streambench/faults/{name}/crash"
    yield from _held(key, differences)
    if _same(differences):
        yield Measure(f"{key}/tpf", median(tpf), "ratio", how, values=tuple(tpf))
        yield Measure(f"{key}/lpf", median(lpf), "ratio", how, values=tuple(lpf))


def _lost_driver(name: str, data: NumberedLines, base: Path, sizes: Sizes) -> Iterator[Measure]:
    """The driver is killed half way, and started again from its checkpoint."""
    wanted, at = Expected(name, data), f"streambench/faults/{name}/driver"
    runs = [lost_driver(name, data, base / name / str(n), sizes.limit_s) for n in range(sizes.repetitions)]
    yield from _held(at, [wanted.difference(written(name, one.out)) for one in runs])
    back = tuple(one.back_s for one in runs)
    how = "packed, local[2]: all processes are killed half way, and started again; from then on until there are results"
    yield Measure(f"{at}/recovery", median(back), "s", how, 15, at_most=True, values=back)


def _same(differences: list[tuple[int, int]]) -> bool:
    """Whether no result is lost or doubled: else what a failure costs is not told."""
    return not any(map(any, differences))


def _held(at: str, differences: list[tuple[int, int]], published: float | None = None) -> Iterator[Measure]:
    """Results lost and doubled in the worst of several runs."""
    lost, doubled = (max(one[place] for one in differences) for place in (0, 1))
    how = "results held against those in process, the worst run"
    yield Measure(f"{at}/lost", lost, "results", how, 0, at_most=True, published=published)
    yield Measure(f"{at}/doubled", doubled, "results", how, 0, at_most=True)


def _warm(spark: Any, name: str, data: NumberedLines, at: Path, sizes: Sizes) -> None:
    """Run a program until each executor has done tasks of it: the first of a new one take seconds.

    The source has a part for each, since all that reads a single one may go to those that are warm.
    """
    for number in range(WARM_RUNS):
        _run(spark, name, data.first(2), at / f"warm-{number}", sizes, parts=NODES)
        if not (left := cold(spark)):
            return
    raise RiotError(f"{name} on a cluster: the executors {', '.join(left)} have done no task in {WARM_RUNS} runs")


def _run(
    spark: Any,
    name: str,
    data: NumberedLines,
    at: Path,
    sizes: Sizes,
    strike: Callable[[], Any] | None = None,
    parts: int = RECEPTION,
) -> Outcome:
    """Run a program over the lines, strike when half of the micro-batches are done, and tell where its results are."""
    query = flow_of(name).start(spark, data.source(parts), out=at / "out", max_records=data.batch, partitions=NODES)
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
        raise TooSoonError(f"{name} was done before a worker was to be lost: give more records, such as --scale 10")
    spent = durations(query.streaming)[: data.total // data.batch]
    return Outcome(tuple(spent[1:]), data.batch, at / "out")
