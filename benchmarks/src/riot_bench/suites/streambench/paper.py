"""Values of the papers on StreamBench with Spark, on clusters of six, for the measures that correspond."""

from __future__ import annotations

import re

__all__ = ["PAPER_VALUES", "paper_value"]

#: Values by pattern of the measure's name; with Spark 0.9 and micro-batches of a second unless noted.
PAPER_VALUES: dict[str, float] = {
    # maximum MB/s of a single recipient
    r"streambench/between/fastest/\d+x": 100.0,
    # a lower bound; 4 with Spark 1.4 and without a receiver
    r"streambench/between/identity-vs-wordcount/\d+x": 2.5,
    r"streambench/between/statistics-vs-identity/\d+x": 5.0,
    # order of magnitude in ms; statistics took five times as long, see above
    r"streambench/(?!statistics/)\w+/(?:packed|expressions|udf|pickled|arrow|state)(?:-cluster)?/\d+x/latency": 1000.0,
    # total records with which it was saturated
    r"streambench/saturation/statistics/\w+/volume": 50e6,
    # %
    r"streambench/durability/[\d.e+]+/availability": 100.0,
}


def paper_value(measure: str) -> float | None:
    """Return the papers' value for a measure, or None.

    >>> paper_value("streambench/durability/10000/availability"), paper_value("streambench/grep/local/1x/latency")
    (100.0, None)
    """
    return next((value for pattern, value in PAPER_VALUES.items() if re.fullmatch(pattern, measure)), None)
