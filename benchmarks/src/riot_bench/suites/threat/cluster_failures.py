"""Threat detection on Spark at half of its peak rate while a part of the cluster is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from riot_bench.harness.cluster import (
    Cluster,
    cluster_session,
    executor_addresses,
    kill_executor,
    local_cluster_master,
    wait_for_executors,
)
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import durations
from riot_bench.harness.recovery import CommitHistory, count_lost_and_duplicated, read_commits
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.threat.job import CORES, OPENED, Broker, open_stream
from riot_bench.suites.threat.job_failures import FULL, QUICK, Sizes, failure_measures, run_killed_job
from riot_ops import dataflows
from riot_ops.core.errors import RiotError

__all__ = [
    "CRASHED_EXECUTOR",
    "LOST_NODE",
    "LOST_WORKER",
    "Failure",
    "cluster_failures",
    "driver_loss",
    "executor_crash",
]

#: Workers of one core each.
NODES = CORES
#: Seconds that a run may take after the last message.
TIMEOUT_S = 300.0
#: Maximum seconds until Spark detects a failure.
DETECTION_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Failure:
    """A failure of a cluster.

    Attributes
    ----------
    where : str
        Part of the measures' names.
    how : str
        Description.
    strike, mend : functions of a cluster
        Kill a part of the cluster, and repair it after the failure was detected.
    """

    where: str
    how: str
    strike: Callable[[Cluster], Any]
    mend: Callable[[Cluster], Any] = lambda _: None


def _last_worker(cluster: Cluster) -> str:
    return list(cluster.pids)[-1]


LOST_WORKER = Failure(
    "spark", "one is killed and another started", lambda c: c.kill(_last_worker(c)), lambda c: c.add()
)
CRASHED_EXECUTOR = Failure(
    "spark-executor", "the executor of one is killed and replaced by Spark", lambda c: c.crash(_last_worker(c))
)
LOST_NODE = Failure("spark-node", "one is killed and not replaced", lambda c: c.kill(_last_worker(c)))


def cluster_failures(quick: bool, sizes: Sizes | None = None, *failures: Failure) -> Iterator[Measure]:
    """Kill parts of a standalone cluster, one run each.

    Parameters
    ----------
    quick : bool
    sizes : Sizes, optional
        By default those of the form.
    failures : Failure
        By default a lost worker, and in the full form also a crashed executor and a lost node.
    """
    sizes = sizes or (QUICK if quick else FULL)
    chosen = failures or ((LOST_WORKER,) if quick else (LOST_WORKER, CRASHED_EXECUTOR, LOST_NODE))
    with Cluster(NODES) as cluster, cluster_session(cluster.url, NODES, copies=True) as spark:
        rate = _half_of_peak_rate(spark, sizes)
        for failure in chosen:
            wait_for_executors(spark, NODES)
            how = f"{NODES} workers of one core, after {sizes.failed:g} s {failure.how}"
            acts = partial(failure.strike, cluster), partial(failure.mend, cluster)
            yield from _run(spark, failure.where, how, rate, sizes, *acts)


def executor_crash(sizes: Sizes = FULL) -> Iterator[Measure]:
    """Kill an executor of ``local-cluster``, which Spark replaces."""
    with cluster_session(local_cluster_master(NODES), NODES, copies=True) as spark:
        rate = _half_of_peak_rate(spark, sizes)
        how = f"{local_cluster_master(NODES)}, after {sizes.failed:g} s an executor is killed and replaced by Spark"
        yield from _run(spark, "spark-crash", how, rate, sizes, lambda: kill_executor(spark), lambda: None)


def driver_loss(sizes: Sizes = FULL) -> Iterator[Measure]:
    """Kill the driver with all its processes and restart it from the checkpoint."""
    with spark_session(CORES) as spark:
        rate = _half_of_peak_rate(spark, sizes)
    with temporary_folder() as base:
        yield from run_killed_job(base, "driver", rate, sizes)


def _half_of_peak_rate(spark: Any, sizes: Sizes) -> float:
    """Return half of the messages per second that existing messages are processed with."""
    flow, most = dataflows.threat(), sizes.spark_batch
    flow.start(spark, open_stream(most), sinks=DiscardSink(), partitions=NODES).wait(timedelta(seconds=TIMEOUT_S))
    query = flow.start(spark, open_stream(sizes.spark_peak), sinks=DiscardSink(), max_records=most, partitions=NODES)
    query.wait(timedelta(seconds=TIMEOUT_S))
    return most / median(durations(query.streaming)[1:4]) / 2


def _wait_for_detection(spark: Any, before: set[str], failed: float) -> float:
    """Wait until Spark has removed a killed executor, at most DETECTION_TIMEOUT_S, and return the time."""
    while before <= executor_addresses(spark) and time.time() < failed + DETECTION_TIMEOUT_S:
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
            before, failed = executor_addresses(spark), time.time()
            strike()
            noticed = _wait_for_detection(spark, before, failed)
            mend()

    with temporary_folder() as base:
        options: dict[str, Any] = {"out": base / "out", "checkpoint": base / "checkpoint", "partitions": NODES}
        opened = base / OPENED
        query = dataflows.threat().start(spark, Broker(open_stream(messages), opened, rate), **options)
        query.wait(timedelta(seconds=sizes.seconds + TIMEOUT_S), watch)
        if query.active:
            query.stop()
            raise RiotError(f"threat detection on Spark was not done {TIMEOUT_S:g} s after the last message")
        begun, found = opened.stat().st_mtime, base / "out" / "threats"
        run = CommitHistory.of(read_commits(found), begun)
        lost, doubled = count_lost_and_duplicated([found], messages)
    note = f"{how}; {rate:,.0f} messages/s, half of the peak rate{sizes.batch_note}"
    yield from failure_measures(where, run, (begun, failed, noticed), (lost, doubled, messages), sizes, note)
