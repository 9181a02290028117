"""Neptune's experiments: message relay, compression, back-pressure, senders and jobs."""

from __future__ import annotations

from collections.abc import Iterator

from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.measure import Measure
from riot_bench.suites.neptune.backpressure import backpressure
from riot_bench.suites.neptune.backpressure_spark import backpressure_on_spark
from riot_bench.suites.neptune.compression import compression
from riot_bench.suites.neptune.relay import local_relay, process_relay
from riot_bench.suites.neptune.relay_spark import spark_relay
from riot_bench.suites.neptune.scaling import scaling

__all__ = ["EXPERIMENTS", "measures"]


def _relay(name: str, title: str) -> tuple[Figure, ...]:
    at, sizes = rf"neptune/relay/(?P<series>{name})/(?P<x>\d+K?B)", "message size"
    return (
        Figure(f"relay-{name}-throughput", f"{title}: throughput", at, sizes, "messages/s", "line", "xy"),
        Figure(f"relay-{name}-latency", f"{title}: latency, 99 %", f"{at}/latency/p99", sizes, "ms", "line", "xy"),
        Figure(f"relay-{name}-bandwidth", f"{title}: bandwidth", f"{at}/bandwidth", sizes, "Gbit/s", "line", "x"),
    )


def _buffers(name: str, title: str, at: str) -> tuple[Figure, ...]:
    at = rf"neptune/relay/{name}/{at}(?P<x>\d+[KM]B)"
    return (
        Figure(
            f"buffers-{name}-throughput", f"{title}: throughput by buffer", at, "buffer", "messages/s", "line", "xy"
        ),
        Figure(
            f"buffers-{name}-latency", f"{title}: latency by buffer", f"{at}/latency/p99", "buffer", "ms", "line", "xy"
        ),
    )


BY_SIZE = r"(?P<series>\d+K?B)/"
_ABOUT = (
    "Source, relay and sink; messages of one size with a number and a send time; a fifth of the time is warm-up. The "
    "paper's relay uses a 1 Gbit/s network between two nodes and reaches two million messages of 50 B per second, and "
    "0.94 Gbit/s from 100 B on. Compare shapes: throughput reaches a plateau as buffers grow, latency grows with them."
)

EXPERIMENTS = (
    Experiment(
        "neptune/relay/local",
        "Message relay in process",
        local_relay,
        _ABOUT + " Here the stages are threads of one process, and batches are passed on without a copy.",
        (*_relay("local", "Relay in process"), *_buffers("local", "Relay in process", BY_SIZE)),
        (15.0, 840.0),
    ),
    Experiment(
        "neptune/relay/processes",
        "Message relay over processes",
        process_relay,
        _ABOUT + " Here the relay is another process, and batches cross two sockets, whose capacity is first measured "
        "with plain bytes.",
        (*_relay("processes", "Relay over processes"), *_buffers("processes", "Relay over processes", BY_SIZE)),
        (18.0, 830.0),
    ),
    Experiment(
        "neptune/relay/spark",
        "Message relay on Spark",
        spark_relay,
        _ABOUT + " Here the relay is a worker after a shuffle, which counts the messages. Blocks, in which messages "
        "cross between workers and the JVM, and micro-batches correspond to buffers: both sizes are swept.",
        (*_relay("spark", "Relay on Spark"), *_buffers("spark", "Relay on Spark", r"50B/(?P<series>[a-z-]+)-")),
        (51.0, 190.0),
    ),
    Experiment(
        "neptune/compression",
        "Compression by a measured ratio",
        compression,
        "The relay over processes with compression off, selective with coefficients of 0.2 and 0.5, and total, on "
        "equipment readings, on random bytes of the same lengths, and on readings whose first 30 % are random, which "
        "compress to a ratio between the two coefficients. The paper found no significant effect on readings, and off "
        "significantly best on random bytes; the test is Tukey–Kramer's over the four settings.",
        (
            Figure(
                "compression",
                "Throughput by compression",
                r"neptune/compression/(?P<series>\w+)/(?P<x>[\w.-]+)/throughput",
                "setting",
                "messages/s",
            ),
            Figure(
                "compression-bytes",
                "Bytes on the link by compression",
                r"neptune/compression/(?P<series>\w+)/(?P<x>[\w.-]+)/bytes",
                "setting",
                "bytes/message",
            ),
        ),
        (16.0, 160.0),
    ),
    Experiment(
        "neptune/backpressure",
        "Back-pressure staircase",
        backpressure,
        "The last of three stages sleeps 1, 2, 3, 2, 1 and 0 ms per message. The source must follow with a rate of "
        "1/(sleep + service), and no message may be lost; the paper shows this inverse proportionality.",
        (
            Figure(
                "backpressure",
                "Source rate by the last stage's sleep",
                r"neptune/backpressure/step-(?P<x>\d+)/.*",
                "step: sleeps of 1, 2, 3, 2 and 1 ms",
                "messages/s",
            ),
        ),
        (19.0, 185.0),
    ),
    Experiment(
        "neptune/backpressure/spark",
        "Back-pressure staircase on Spark",
        backpressure_on_spark,
        "The same after a shuffle, with sleeps by message number. Spark requests a micro-batch from the source "
        "when the "
        "previous one is done: no messages wait in between, and the service time includes the cost of a micro-batch. "
        "Then the same with a record limit that follows a target duration: micro-batches must stay within 20 % of it "
        "at every step, and their size must fall.",
        (
            Figure(
                "backpressure-spark",
                "Source rate by the last stage's sleep, on Spark",
                r"neptune/backpressure/spark/step-(?P<x>\d+)/[\d.]+ms",
                "step: sleeps of 1, 2, 3, 2 and 1 ms",
                "messages/s",
            ),
            Figure(
                "backpressure-spark-adaptive",
                "Messages of a micro-batch with a target duration, on Spark",
                r"neptune/backpressure/spark/adaptive/step-(?P<x>\d+)/batch-messages",
                "step: sleeps of 1, 2, 3, 2 and 1 ms",
                "messages",
            ),
        ),
        (55.0, 300.0),
    ),
    Experiment(
        "neptune/scaling",
        "Many senders, many jobs",
        scaling,
        "k processes send 50 B messages to one receiver; k relays, and k jobs that monitor manufacturing equipment, "
        "run concurrently on one machine. The paper found growth until the cores are busy, then a decline; 4.7 million "
        "messages per second from many senders to one receiver; on 50 nodes, 100 million for 50 relays and 15 million "
        "for 50 equipment monitoring jobs.",
        (
            Figure(
                "senders", "Many senders, one receiver", r"neptune/senders/(?P<x>\d+)", "senders", "messages/s", "line"
            ),
            Figure(
                "jobs",
                "Many concurrent jobs",
                r"neptune/jobs/(?P<series>relay|equipment)/(?P<x>\d+)",
                "jobs",
                "messages/s",
                "line",
                "y",
            ),
            Figure(
                "fairness",
                "Fairness between jobs",
                r"neptune/jobs/(?P<series>relay|equipment)/(?P<x>\d+)/fairness",
                "jobs",
                "Jain's index",
                "line",
            ),
        ),
        (26.0, 520.0),
    ),
)


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite."""
    for one in EXPERIMENTS:
        yield from one.measures(quick)
