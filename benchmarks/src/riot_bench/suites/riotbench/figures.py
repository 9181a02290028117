"""Figures of RIoTBench's suites in the report."""

from __future__ import annotations

from riot_bench.harness.experiment import Figure

__all__ = ["suite_figures"]


def suite_figures(suite: str, name: str, what: str) -> tuple[Figure, ...]:
    """Return figures of peak rate, latency, jitter, CPU and memory for names that match a pattern.

    >>> [one.key for one in suite_figures("micro", "[A-Z]+", "task")]
    ['peak', 'latency', 'jitter', 'cpu', 'memory']
    """
    at = rf"{suite}/(?P<x>{name})"
    return (
        Figure("peak", "Peak throughput", f"{at}/peak", what, "messages/s", log="y"),
        Figure("latency", "Latency, source to sink", f"{at}/latency-(?P<series>p50|p99)", what, "ms", log="y"),
        Figure("jitter", "Jitter: median of the intervals", f"{at}/jitter", what, "share of the expected output"),
        Figure("cpu", "CPU of all processes", f"{at}/cpu", what, "% of all cores"),
        Figure("memory", "Memory of all processes", f"{at}/memory", what, "MiB"),
    )
