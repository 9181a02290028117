"""The seven programs of StreamBench."""

from riot_ops.dataflows.streambench.distinct import distinct
from riot_ops.dataflows.streambench.grep import grep
from riot_ops.dataflows.streambench.identity import identity
from riot_ops.dataflows.streambench.projection import projection
from riot_ops.dataflows.streambench.sample import sample
from riot_ops.dataflows.streambench.statistics import statistics
from riot_ops.dataflows.streambench.threat import threat
from riot_ops.dataflows.streambench.wordcount import wordcount

__all__ = [
    "distinct",
    "grep",
    "identity",
    "projection",
    "sample",
    "statistics",
    "threat",
    "wordcount",
]
