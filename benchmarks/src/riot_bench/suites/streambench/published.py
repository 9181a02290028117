"""What the papers on StreamBench found with Spark, on clusters of six; by measures that have a like here."""

from __future__ import annotations

import re

__all__ = ["PUBLISHED", "published"]

#: By patterns of the whole name. With Spark 0.9 and micro-batches of a second, if nothing else is said.
PUBLISHED: dict[str, float] = {
    # MB/s at most, of a single recipient
    r"streambench/between/fastest/\d+x": 100.0,
    # more than that; with Spark 1.4, read without a receiver, 4
    r"streambench/between/identity-vs-wordcount/\d+x": 2.5,
    r"streambench/between/statistics-vs-identity/\d+x": 5.0,
    # ms, the order of magnitude; statistics took the multiple above of it
    r"streambench/(?!statistics/)\w+/(?:packed|expressions|udf|pickled|arrow|state)(?:-cluster)?/\d+x/latency": 1000.0,
    # records in all, by which it was saturated
    r"streambench/saturation/statistics/\w+/volume": 50e6,
    # %
    r"streambench/durability/[\d.e+]+/availability": 100.0,
}


def published(measure: str) -> float | None:
    """What the papers found, of a measure by its name; None where they say nothing.

    >>> published("streambench/durability/10000/availability"), published("streambench/grep/local/1x/latency")
    (100.0, None)
    """
    return next((value for pattern, value in PUBLISHED.items() if re.fullmatch(pattern, measure)), None)
