"""What a probe costs the run that it measures."""

from __future__ import annotations

import time
from collections.abc import Iterator

from riot_bench.harness.data import Discard, block_stats
from riot_bench.harness.measure import Measure, one_core
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.measure.probe import Probe
from riot_ops.streams.riotbench.city import city

__all__ = ["probe_cost"]

RATE = 7000
#: Share of the time that a probe may cost.
MOST = 1.03


def probe_cost(quick: bool) -> Iterator[Measure]:
    """CPU time of STATS with a probe over that without, in turns: at full speed, and at a low rate."""
    flow = block_stats()
    # a sample of CPU and memory is due every 5 s: runs that are no shorter have their share of it
    messages, seconds, repetitions = (20_000, 0.5, 2) if quick else (2_000_000, 6, 5)
    flow.run(city(messages=20_000), sinks=Discard())  # compiles
    with one_core():
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
                f"CPU time of STATS over CITY with a probe over that without, least of {repetitions}; {how}, one core",
                MOST,
                at_most=True,
            )


def _cpu_seconds(flow: Dataflow, source: Source, probe: Probe | None) -> float:
    start = time.process_time()
    flow.run(source, sinks=Discard(), probe=probe)
    return time.process_time() - start
