"""Descriptions and figures of DSPBench's experiments in the report."""

from __future__ import annotations

from riot_bench.harness.experiment import Figure

__all__ = ["IN_PROCESS", "ON_SPARK", "QUICK_APPLICATIONS"]

#: Applications that run on Spark in the quick form; the paper has throughput and latency of these.
QUICK_APPLICATIONS = ("wc", "tm")

_AT = r"dspbench/(?P<x>\w+)/"
_OF = r"dspbench/(?P<x>\w+/operator/[^/]+)/"
_LATENCY = "at half of the peak rate"

IN_PROCESS = (
    "All applications in process against plain Python: lines per second on one core and on all cores, latency, CPU and "
    "memory at half of the peak rate, bytes at the sockets, and the cost of each operator, as in the paper.",
    (
        Figure(
            "rate", "Throughput, one core", _AT + "(?P<series>local|plain-python)", "application", "lines/s", log="y"
        ),
        Figure("cores", "All cores against one core", _AT + "local-all-cores-vs-one", "application", "ratio"),
        Figure(
            "latency",
            f"Latency {_LATENCY}",
            _AT + "local-latency-(?P<series>p(?:50|95)(?:-one-core)?)",
            "application",
            "ms",
            log="y",
        ),
        Figure("cpu", f"CPU {_LATENCY}", _AT + "local-cpu", "application", "cores"),
        Figure("memory", f"Memory {_LATENCY}", _AT + "local-memory", "application", "MiB"),
        Figure(
            "network",
            "Bytes at the sockets of an application over MQTT",
            _AT + "mqtt-network/(?P<series>in|out)",
            "application",
            "bytes/line",
            log="y",
        ),
        Figure("time", "Time of operators", _OF + "time-p50", "operator", "ns/record", log="y"),
        Figure("selectivity", "Selectivity of operators", _OF + "selectivity", "operator", "records/record", log="y"),
    ),
    (145.0, 1750.0),
)
ON_SPARK = (
    "Applications on Spark against the same in plain PySpark, with the same micro-batches, of three sizes. "
    "In the paper, Storm has a "
    "higher throughput than Spark Streaming for word count, log processing and traffic monitoring, and a latency that "
    "is lower but varies more. The full form also counts the bytes that cross the network, and "
    "tries each number of cores and partitions and each size of micro-batches for these three, a single run each. The "
    "quick form runs word count and traffic monitoring.",
    (
        Figure(
            "rate",
            "Throughput, two cores",
            _AT + "(?P<series>spark-(?:same|idiomatic)/.+)",
            "application",
            "lines/s",
            log="y",
        ),
        Figure(
            "ratio",
            "Throughput beside plain PySpark, by lines of a micro-batch",
            _AT + "spark-vs-idiomatic/(?P<series>.+)",
            "application",
            "ratio",
            log="y",
        ),
        Figure(
            "latency", f"Latency {_LATENCY}", _AT + "spark-latency-(?P<series>p50|p95)", "application", "ms", log="y"
        ),
        Figure("cpu", f"CPU {_LATENCY}", _AT + "spark-cpu", "application", "cores"),
        Figure("cores", "Two cores against one core", _AT + "spark-vs-one-core", "application", "ratio"),
        Figure(
            "network",
            "Bytes that shuffles write",
            _AT + "(?P<series>spark-(?:idiomatic-)?network)/shuffle-written",
            "application",
            "bytes/line",
            log="y",
        ),
        Figure(
            "configurations",
            "Throughput by cores, partitions and lines of a micro-batch",
            r"dspbench/(?P<series>\w+)/spark-configuration/(?P<x>.+)",
            "configuration",
            "lines/s",
            log="y",
        ),
    ),
    (97.0, 16500.0),
)
