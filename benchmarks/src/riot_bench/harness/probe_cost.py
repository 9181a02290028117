"""The overhead of a probe on the run that it measures."""

from __future__ import annotations

import time
from collections.abc import Iterator

from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.workload import tumbling_stats
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.measure.probe import Probe
from riot_ops.streams.riotbench.city import city

__all__ = ["probe_cost"]

RATE = 7000
#: Maximum ratio of CPU time with and without a probe.
MAX_RATIO = 1.03


def probe_cost(quick: bool) -> Iterator[Measure]:
    """Compare CPU time of STATS with and without a probe, alternating, at full speed and at a low rate."""
    flow = tumbling_stats()
    # a probe samples CPU and memory every 5 s: a shorter run might contain no sample
    messages, seconds, repetitions = (20_000, 0.5, 2) if quick else (2_000_000, 6, 5)
    flow.run(city(messages=20_000), sinks=DiscardSink())  # compiles
    with pinned_to_one_core():
        for name, number, rate, how in (
            ("full-speed", messages, None, f"{messages:,} messages as fast as possible"),
            ("7000-per-second", int(RATE * seconds), RATE, f"{RATE:,} messages/s in batches of a few"),
        ):
            without, measured = [], []
            for _ in range(repetitions):
                without.append(_cpu_seconds(flow, city(messages=number, rate=rate), None))
                measured.append(_cpu_seconds(flow, city(messages=number, rate=rate), Probe()))
            yield Measure(
                f"app/probe-cost/{name}",
                min(measured) / min(without),
                "ratio",
                f"CPU time of STATS over CITY with and without a probe, minimum of {repetitions}; {how}, one core",
                MAX_RATIO,
                at_most=True,
            )


def _cpu_seconds(flow: Dataflow, source: Source, probe: Probe | None) -> float:
    start = time.process_time()
    flow.run(source, sinks=DiscardSink(), probe=probe)
    return time.process_time() - start
