"""What the RIoTBench paper reports, for comparison.

The figures are those of its text. They come from other machines (virtual ones of 2016, with Apache
Storm), so that only their order of magnitude, and the order among them, says something.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["APPS", "CATALOGUE", "MACHINE", "METHOD", "MICRO", "Published", "published"]

MACHINE = "Storm 1.0.0 on OpenJDK 1.7, Azure: a task alone on one 2.2 GHz core with 3.5 GiB, source and sink elsewhere"
METHOD = "A. Shukla, Y. Simmhan, Benchmarking Distributed Stream Processing Platforms for IoT Applications, TPCTC 2016"


@dataclass(frozen=True)
class Published:
    """Figures as text, in messages/s, ms and percent; empty where the paper's text has none."""

    peak: str = ""
    latency: str = ""
    jitter: str = "near 0"
    cpu: str = ""
    #: Peak in messages per second as a number to draw, and whether it is a lower bound.
    rate: float | None = None
    at_least: bool = False
    #: Medians of latency, in ms, and of CPU, in percent, as numbers.
    p50: float | None = None
    cpu_percent: float | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """By figure, what the paper gives as one number and not as a bound."""
        found = {
            "peak": None if self.at_least else self.rate,
            "latency-p50": self.p50,
            "cpu": self.cpu_percent,
        }
        return {name: value for name, value in found.items() if value is not None}


#: Tasks of the paper; all of them together have third quartiles of latency up to 2,600 ms.
_WIDE = "wide, p75 up to 2,600"
_NARROW = "p75 below 2,600"
_BUSY = "≥ 70"
_OTHER = Published("≥ 3,000", _NARROW, cpu=_BUSY, rate=3000, at_least=True)
_REMOTE = Published("< 310", _WIDE, cpu="low")
MICRO: dict[str, Published] = {
    "XML": Published("310", _NARROW, cpu=_BUSY, rate=310),
    "BLF": Published("68,000", _NARROW, cpu=_BUSY, rate=68_000),
    "KAL": Published("68,000", _WIDE, cpu=_BUSY, rate=68_000),
    "DAC": Published("68,000", _WIDE, cpu=_BUSY, rate=68_000),
    "DTC": Published("≥ 3,000", _WIDE, cpu=_BUSY, rate=3000, at_least=True),
    "MLR": Published("≥ 3,000", _WIDE, cpu=_BUSY, rate=3000, at_least=True),
    **dict.fromkeys(("AVG", "SOM", "SLR", "MQP"), _OTHER),
    **dict.fromkeys(("ABD", "ABU", "ATQ"), _REMOTE),
}
#: All tasks of RIoTBench, those of its later version too.
CATALOGUE = (
    *("XML", "SML", "C2S", "ANN", "QLB", "BLF", "MBL", "BLT", "RGF", "AVG", "ACC", "DAC", "KAL", "SOM", "INP"),
    *("DTC", "DTT", "MLR", "MLT", "SLR", "ERR", "JON", "ABD", "ABU", "ATQ", "ATR", "ATI", "MQP", "LZP", "RZP"),
    *("PLT", "PI", "NOP"),
)

APPS: dict[str, Published] = {
    "stats/city": Published(latency="p50 20, narrow", cpu="35 (7 machines)", p50=20, cpu_percent=35),
    "stats/taxi": Published(latency="p50 20, narrow", cpu="5 (5 machines)", p50=20, cpu_percent=5),
    "pred/city": Published(latency="p50 500–700, wide", cpu="above STATS"),
    "pred/taxi": Published(latency="p50 500–700, wide", cpu="above STATS"),
}


def published(suite: str, name: str) -> Published:
    """The paper's figures for a task or an application on a stream; empty ones where it has none.

    >>> published("micro", "XML").peak
    '310'
    """
    return (MICRO if suite == "micro" else APPS).get(name, Published(jitter=""))
