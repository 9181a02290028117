"""Edges: each source and sink against a bare client of the same system, with the same durability."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence

from riot_bench.harness.measure import Measure
from riot_bench.harness.timing import median
from riot_bench.suites.edges.brokers import kafka_sink, kafka_source, mqtt_sink, mqtt_source
from riot_bench.suites.edges.on_spark import ON_SPARK
from riot_bench.suites.edges.pair import Edge, Pair, PairTimeoutError, time_limit
from riot_bench.suites.edges.pipeline import kafka_stats_delta
from riot_bench.suites.edges.servers import http_sink, influx_sink
from riot_bench.suites.edges.tables import (
    delta_sink,
    delta_source,
    iceberg_sink,
    parquet_sink,
    postgres_sink,
    replay_source,
)
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError, RiotError, did_you_mean

__all__ = ["EDGES", "PIPELINES", "measures"]

#: Target ratios against a bare client, and of a pipeline against plain Python.
REACH, PIPELINE_REACH = 0.8, 10.0
#: Time limit of a pair, in seconds.
LIMIT_S, QUICK_LIMIT_S = 600.0, 60.0

#: Sources and sinks by name; a further one adds its line here.
EDGES: dict[str, Edge] = {
    "kafka-source": kafka_source,
    "kafka-sink": kafka_sink,
    "delta-source": delta_source,
    "delta-sink": delta_sink,
    "iceberg-sink": iceberg_sink,
    "parquet-sink": parquet_sink,
    "postgres-sink": postgres_sink,
    "http-sink": http_sink,
    "influx-sink": influx_sink,
    "mqtt-source": mqtt_source,
    "mqtt-sink": mqtt_sink,
    "replay-source": replay_source,
}
#: Pipelines from a source to a sink.
PIPELINES: dict[str, Edge] = {"kafka-stats-delta": kafka_stats_delta}


def measures(quick: bool = False, name: Sequence[str] = (), seconds: float | None = None) -> Iterator[Measure]:
    """Run all pairs, or those named; ``seconds`` is the duration of the run that has one."""
    pairs = {**EDGES, **PIPELINES}
    known = [*pairs, *ON_SPARK]
    for one in name:
        if one not in known:
            raise ConfigError(f"unknown pair {one!r}; known are {', '.join(known)}{did_you_mean(one, known)}")
    for one in name or known:
        yield from ON_SPARK[one](quick, seconds) if one in ON_SPARK else _measured(one, pairs[one], quick)


def _measured(name: str, edge: Edge, quick: bool) -> Iterator[Measure]:
    """Compare the results of a warm-up, and then time both sides in turns."""
    other, reach = ("plain-python", PIPELINE_REACH) if name in PIPELINES else ("bare-client", REACH)
    ours, theirs = list[float](), list[float]()
    pair: Pair | None = None
    why = ""
    try:
        with time_limit(QUICK_LIMIT_S if quick else LIMIT_S), edge(quick) as pair:
            (_, found), (_, wanted) = pair.ours(), pair.theirs()  # connects, compiles
            if not pair.equal(found, wanted):
                raise RiotError(f"{name}: both sides do not give the same {pair.messages} messages")
            for _ in range(1 if quick else 5):
                os.sync()  # neither side writes what the other has left
                ours.append(pair.ours()[0])
                os.sync()
                theirs.append(pair.theirs()[0])
    except (PairTimeoutError, ConnectorError, MissingExtraError) as error:
        why = f"not measured: {error}"
    if why or pair is None:
        yield Measure(f"edges/{name}/vs-{other}", math.nan, "ratio", why, reach)
        return
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    n = pair.messages
    yield Measure(f"edges/{name}", n / median(ours), pair.unit, f"{n:,} of them, on the same machine")
    yield Measure(f"edges/{name}/{other}", n / median(theirs), pair.unit, pair.against)
    yield Measure(f"edges/{name}/vs-{other}", median(ratios), "ratio", pair.against, reach, sample=tuple(ratios))
