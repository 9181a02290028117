"""Latency from source to sink over CITY at 7,000 messages per second: STATS, ETL and PRED on both runners."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from riot_bench.harness.application_workloads import application_workload
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.session import spark_session
from riot_bench.harness.workload import Workload, tumbling_stats
from riot_ops.measure.metrics import Latency, Summary
from riot_ops.streams.riotbench.city import city

__all__ = ["measures"]

RATE = 7000
#: Micro-batches after which start-up and its backlog are over.
WARM_BATCHES = 4
TRIGGERS = ("0 seconds", "500 milliseconds", "1 second", "2 seconds")
DESCRIPTION = f"{{}} over CITY at {RATE:,} messages/s, 1,000 sensors"


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite."""
    span, limit, triggers = (10, 30, TRIGGERS[1:2]) if quick else (30, 60, TRIGGERS)
    with temporary_folder() as base:
        yield from _in_process(base, span)
        with spark_session() as spark:
            yield from _on_spark(spark, base, span, limit, triggers)


def _workload(name: str, base: Path) -> Workload:
    if name == "stats":
        return Workload(tumbling_stats(), {"city": city()})
    return application_workload(name, "city", base / name)


def _in_process(base: Path, span: int) -> Iterator[Measure]:
    for name, reach in (("stats", (5, 50)), ("etl", (None, None)), ("pred", (None, None))):
        workload = _workload(name, base)
        _run(workload, messages=20_000)  # compiles
        summary = _run(workload, messages=RATE * span, rate=RATE)
        at, how = "latency/local" if name == "stats" else f"latency/{name}/local", DESCRIPTION.format(name.upper())
        for share, value, most in zip(("p50", "p99"), summary.latency.quantiles(0.5, 0.99), reach, strict=True):
            yield Measure(f"{at}/{share}", 1e3 * value, "ms", how, most, at_most=True)
        yield Measure(f"{at}/rate", summary.throughput, "messages/s", how)


def _run(workload: Workload, **options: Any) -> Summary:
    return workload.flow.run({"city": city(**options), **workload.side_inputs}, sinks=DiscardSink()).summary


def _on_spark(spark: Any, base: Path, span: int, limit: int, triggers: tuple[str, ...]) -> Iterator[Measure]:
    for name in ("stats", "etl", "pred"):
        workload, found = _workload(name, base), list[tuple[float, float, str]]()
        at, how = "latency/spark" if name == "stats" else f"latency/{name}/spark", DESCRIPTION.format(name.upper())
        for trigger in triggers if name == "stats" else (triggers[len(triggers) // 2],):
            p50, p99 = _steady_quantiles(spark, workload, trigger, span, limit)
            for share, value in (("p50", p50), ("p99", p99)):
                label = f"{at}/{trigger.replace(' ', '-')}/{share}"
                yield Measure(label, 1e3 * value, "ms", f"{how}, local[2], trigger {trigger}")
            found.append((p99, p50, trigger))
        p99, p50, trigger = min(found, key=lambda f: math.inf if math.isnan(f[0]) else f[0])
        for share, value in (("p50", p50), ("p99", p99)):
            yield Measure(f"{at}/best/{share}", 1e3 * value, "ms", f"best trigger by p99: {trigger}")


def _steady_quantiles(spark: Any, workload: Workload, trigger: str, span: int, limit: int) -> list[float]:
    """Return latency quantiles after start-up and its backlog; NaN if no micro-batch ended."""
    query = workload.flow.start(
        spark, {"city": city(rate=RATE), **workload.side_inputs}, sinks=DiscardSink(), trigger=trigger
    )
    begun = time.monotonic()
    while query.summary.batches < WARM_BATCHES and time.monotonic() - begun < limit:
        query.wait("1s")
    before = len(query.summary.latency.blocks())
    query.wait(timedelta(seconds=span))
    query.stop()
    steady = Latency()
    steady.extend(query.summary.latency.blocks()[before:])
    return steady.quantiles(0.5, 0.99)
