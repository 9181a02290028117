"""Threat detection on Spark at half of what it can do, when a part of what runs it is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from riot_bench.harness.cluster import Cluster, addresses, cluster_session, crashing, kill_executor, wait_for_executors
from riot_bench.harness.data import Discard
from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import durations, folder, spark_session
from riot_bench.harness.recovery import Analysed, commits_of, lost_and_doubled_of
from riot_bench.suites.threat.failure import FULL, QUICK, Sizes, figures, killed_job
from riot_bench.suites.threat.job import CORES, OPENED, Broker, stream
from riot_ops import dataflows
from riot_ops.core.errors import RiotError

__all__ = ["CRASHED_EXECUTOR", "LOST_NODE", "LOST_WORKER", "Failure", "crashed", "lost_driver", "lost_parts"]

#: Workers, of one core each.
NODES = CORES
#: A run may take so many seconds longer than messages come.
LATE_S = 300.0
#: So long it is waited until Spark knows of a failure.
NOTICE_S = 30.0


@dataclass(frozen=True)
class Failure:
    """What may fail on a cluster.

    Attributes
    ----------
    where : str
        In the names of its measures.
    how : str
        What happens, in words.
    strike, mend : functions of a cluster
        What kills a part of it, and what is done when that has been noticed.
    """

    where: str
    how: str
    strike: Callable[[Cluster], Any]
    mend: Callable[[Cluster], Any] = lambda _: None


def _last(cluster: Cluster) -> str:
    return list(cluster.pids)[-1]


LOST_WORKER = Failure("spark", "one is killed and another one started", lambda c: c.kill(_last(c)), lambda c: c.add())
CRASHED_EXECUTOR = Failure(
    "spark-executor", "the executor of one is killed, and Spark starts another", lambda c: c.crash(_last(c))
)
LOST_NODE = Failure("spark-node", "one is killed, and the other has all to do", lambda c: c.kill(_last(c)))


def lost_parts(quick: bool, sizes: Sizes | None = None, *failures: Failure) -> Iterator[Measure]:
    """Parts of Spark's own cluster are killed, one run each.

    Parameters
    ----------
    failures : Failure
        By default a lost worker, and in the full form a crashed executor and a node that stays away as well.
    """
    sizes = sizes or (QUICK if quick else FULL)
    chosen = failures or ((LOST_WORKER,) if quick else (LOST_WORKER, CRASHED_EXECUTOR, LOST_NODE))
    with Cluster(NODES) as cluster, cluster_session(cluster.url, NODES, copies=True) as spark:
        rate = _half_of_most(spark, sizes)
        for failure in chosen:
            wait_for_executors(spark, NODES)
            how = f"{NODES} workers of one core, {sizes.failed:g} s on {failure.how}"
            acts = partial(failure.strike, cluster), partial(failure.mend, cluster)
            yield from _run(spark, failure.where, how, rate, sizes, *acts)


def crashed(sizes: Sizes = FULL) -> Iterator[Measure]:
    """An executor of ``local-cluster`` is killed, and Spark starts another."""
    with cluster_session(crashing(NODES), NODES, copies=True) as spark:
        rate = _half_of_most(spark, sizes)
        how = f"{crashing(NODES)}, {sizes.failed:g} s on an executor is killed, and Spark starts another"
        yield from _run(spark, "spark-crash", how, rate, sizes, lambda: kill_executor(spark), lambda: None)


def lost_driver(sizes: Sizes = FULL) -> Iterator[Measure]:
    """The driver with all its processes is killed, and started again from the checkpoint."""
    with spark_session(CORES) as spark:
        rate = _half_of_most(spark, sizes)
    with folder() as base:
        yield from killed_job(base, "driver", rate, sizes)


def _half_of_most(spark: Any, sizes: Sizes) -> float:
    """Half of the messages per second that can be done, where messages are there beforehand."""
    flow, most = dataflows.threat(), sizes.spark_batch
    flow.start(spark, stream(most), sinks=Discard(), partitions=NODES).wait(LATE_S)
    query = flow.start(spark, stream(sizes.spark_peak), sinks=Discard(), max_records=most, partitions=NODES)
    query.wait(LATE_S)
    return most / median(durations(query.streaming)[1:4]) / 2


def _noticed(spark: Any, before: set[str], failed: float) -> float:
    """When Spark knew that an executor is gone, also where another one comes at once; NOTICE_S later at most."""
    while before <= addresses(spark) and time.time() < failed + NOTICE_S:
        time.sleep(0.02)
    return time.time()


def _run(
    spark: Any,
    where: str,
    how: str,
    rate: float,
    sizes: Sizes,
    strike: Callable[[], Any],
    mend: Callable[[], Any],
) -> Iterator[Measure]:
    messages, failed, noticed = int(rate * sizes.seconds), 0.0, 0.0

    def watch(_: Any) -> None:
        nonlocal failed, noticed
        if not failed and opened.exists() and time.time() >= opened.stat().st_mtime + sizes.failed:
            before, failed = addresses(spark), time.time()
            strike()
            noticed = _noticed(spark, before, failed)
            mend()

    with folder() as base:
        options: dict[str, Any] = {"out": base / "out", "checkpoint": base / "checkpoint", "partitions": NODES}
        opened = base / OPENED
        query = dataflows.threat().start(spark, Broker(stream(messages), opened, rate), **options)
        query.wait(sizes.seconds + LATE_S, watch)
        if query.active:
            query.stop()
            raise RiotError(f"threat detection on Spark was not done {LATE_S:g} s behind the last message")
        begun, found = opened.stat().st_mtime, base / "out" / "threats"
        run = Analysed.of(commits_of(found), begun)
        lost, doubled = lost_and_doubled_of([found], messages)
    told = f"{how}; {rate:,.0f} messages/s, half of the most{sizes.told}"
    yield from figures(where, run, (begun, failed, noticed), (lost, doubled, messages), sizes, told)
