"""What a report says and draws of the experiments of DSPBench."""

from __future__ import annotations

from riot_bench.harness.experiment import Figure

__all__ = ["FEW", "IN_PROCESS", "ON_SPARK"]

#: Applications that run on Spark in the quick form: those of which the paper has throughput and latency.
FEW = ("wc", "tm")

_AT = r"dspbench/(?P<x>\w+)/"
_OF = r"dspbench/(?P<x>\w+/operator/[^/]+)/"
_LATENCY = "at half of the peak rate"

IN_PROCESS = (
    "All applications in process beside plain Python: lines per second on one core and on all, latency, CPU and "
    "memory at half of the peak, and what each operator costs, as the paper characterises them.",
    (
        Figure(
            "rate", "Throughput, one core", _AT + "(?P<series>local|plain-python)", "application", "lines/s", log="y"
        ),
        Figure("cores", "All cores against one", _AT + "local-all-cores-vs-one", "application", "ratio"),
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
        Figure("time", "Time of operators", _OF + "time-p50", "operator", "ns/record", log="y"),
        Figure("selectivity", "Selectivity of operators", _OF + "selectivity", "operator", "records/record", log="y"),
    ),
    (125.0, 1200.0),
)
ON_SPARK = (
    "Applications on Spark beside the same in plain PySpark, in the same micro-batches. The paper has Storm above "
    "Spark Streaming for word count, log processing and traffic monitoring, at a latency that is lower but less "
    "steady. The quick form runs the first and the last of these.",
    (
        Figure(
            "rate",
            "Throughput, two cores",
            _AT + "(?P<series>spark|spark-idiomatic)",
            "application",
            "lines/s",
            log="y",
        ),
        Figure(
            "latency", f"Latency {_LATENCY}", _AT + "spark-latency-(?P<series>p50|p95)", "application", "ms", log="y"
        ),
        Figure("cpu", f"CPU {_LATENCY}", _AT + "spark-cpu", "application", "cores"),
        Figure("cores", "Two cores against one", _AT + "spark-vs-one-core", "application", "ratio"),
    ),
    (102.0, 4000.0),
)
