"""Time from source to sink of STATS over CITY at 7,000 messages per second."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from riot_ops import dataflows
from riot_ops.bench.data import Discard
from riot_ops.bench.measure import Measure
from riot_ops.bench.sparks import spark_session
from riot_ops.metrics import Latency
from riot_ops.streams.city import city

__all__ = ["measures"]

RATE = 7000
#: Micro-batches in which start-up and its backlog are over.
WARM_BATCHES = 4
TRIGGERS = ("0 seconds", "500 milliseconds", "1 second", "2 seconds")


def measures(quick: bool = False) -> Iterator[Measure]:
    """The suite."""
    span, limit, triggers = (10, 30, TRIGGERS[1:2]) if quick else (30, 60, TRIGGERS)
    how = f"STATS over CITY at {RATE:,} messages/s, 1,000 sensors"
    dataflows.stats().run(city(messages=20_000), sinks=Discard())  # compiles
    summary = dataflows.stats().run(city(messages=RATE * span, rate=RATE), sinks=Discard()).summary
    p50, p99 = summary.latency.quantiles(0.5, 0.99)
    yield Measure("latency/local/p50", 1e3 * p50, "ms", how, 5, at_most=True)
    yield Measure("latency/local/p99", 1e3 * p99, "ms", how, 50, at_most=True)
    yield Measure("latency/local/rate", summary.throughput, "messages/s", how)
    found: list[tuple[float, float, str]] = []
    with spark_session() as spark:
        for trigger in triggers:
            p50, p99 = _on_spark(spark, trigger, span, limit)
            name = trigger.replace(" ", "-")
            yield Measure(f"latency/spark/{name}/p50", 1e3 * p50, "ms", f"{how}, local[2], trigger {trigger}")
            yield Measure(f"latency/spark/{name}/p99", 1e3 * p99, "ms", f"{how}, local[2], trigger {trigger}")
            found.append((p99, p50, trigger))
    p99, p50, trigger = min(found, key=lambda f: math.inf if math.isnan(f[0]) else f[0])
    yield Measure("latency/spark/best/p50", 1e3 * p50, "ms", f"best trigger by p99: {trigger}")
    yield Measure("latency/spark/best/p99", 1e3 * p99, "ms", f"best trigger by p99: {trigger}")


def _on_spark(spark: Any, trigger: str, span: int, limit: int) -> list[float]:
    """Quantiles of what arrives after the start-up and its backlog; NaN where no micro-batch ended."""
    query = dataflows.stats().start(spark, city(rate=RATE), sinks=Discard(), trigger=trigger)
    begun = time.monotonic()
    while query.summary.batches < WARM_BATCHES and time.monotonic() - begun < limit:
        query.wait(1)
    before = len(query.summary.latency.blocks())
    query.wait(span)
    query.stop()
    steady = Latency()
    steady.extend(query.summary.latency.blocks()[before:])
    return steady.quantiles(0.5, 0.99)
