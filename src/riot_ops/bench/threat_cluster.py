"""Threat detection on a cluster of Spark at half of what it can do, when a worker is killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from riot_ops import dataflows
from riot_ops.bench.cluster import Cluster, cluster_session, executors
from riot_ops.bench.data import Discard
from riot_ops.bench.measure import Measure, median
from riot_ops.bench.recovery import Analysed, commits_of, lost_and_doubled_of
from riot_ops.bench.sparks import durations, folder
from riot_ops.bench.threat_failure import FULL, QUICK, Sizes, figures
from riot_ops.bench.threat_job import Broker, stream
from riot_ops.core.errors import RiotError

__all__ = ["lost_worker"]

#: Workers, of one core each.
NODES = 2


def lost_worker(quick: bool, sizes: Sizes | None = None) -> Iterator[Measure]:
    """A worker of Spark's own cluster is killed, and another one started at once."""
    sizes = sizes or (QUICK if quick else FULL)
    flow = dataflows.threat()
    with Cluster(NODES) as cluster, cluster_session(cluster.url, NODES) as spark, folder() as base:
        query = flow.start(spark, stream(sizes.spark_peak // 4), sinks=Discard(), partitions=NODES)
        query.wait(300.0)
        most = sizes.spark_peak // 4
        query = flow.start(spark, stream(sizes.spark_peak), sinks=Discard(), max_records=most, partitions=NODES)
        query.wait(300.0)
        rate = most / median(durations(query.streaming)[1:4]) / 2
        messages = int(rate * sizes.seconds)
        begun = time.time()
        options: dict[str, Any] = {"out": base / "out", "checkpoint": base / "checkpoint", "partitions": NODES}
        query = flow.start(spark, Broker(stream(messages), begun, rate), **options)
        failed = noticed = 0.0

        def watch(_: Any) -> None:
            nonlocal failed, noticed
            if not failed and time.time() >= begun + sizes.failed:
                failed = time.time()
                cluster.kill(list(cluster.pids)[-1])
                while executors(spark) == NODES and time.time() < failed + 30:
                    time.sleep(0.02)
                noticed = time.time()
                cluster.add()

        query.wait(sizes.seconds + 300.0, watch)
        if query.active:
            query.stop()
            raise RiotError(f"threat detection on Spark was not done {300:g} s behind the last message")
        found = base / "out" / "threats"
        run = Analysed.of(commits_of(found), begun)
        lost, doubled = lost_and_doubled_of([found], messages)
        how = (
            f"{NODES} workers of one core, of which one is killed {sizes.failed:g} s on and another one started, at "
            f"{rate:,.0f} messages/s, half of the most"
        )
        yield from figures("spark", run, (begun, failed, noticed), (lost, doubled, messages), sizes, how)
