"""Values of the RIoTBench paper, for comparison.

They are from its text and were measured on other machines (virtual machines of 2016 with Apache Storm). Only their
order of magnitude and the order among them are comparable.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["APPS", "CATALOGUE", "MACHINE", "METHOD", "MICRO", "PaperFigures", "paper_figures"]

MACHINE = "Storm 1.0.0 on OpenJDK 1.7, Azure: a task alone on one 2.2 GHz core with 3.5 GiB, source and sink elsewhere"
METHOD = "A. Shukla, Y. Simmhan, Benchmarking Distributed Stream Processing Platforms for IoT Applications, TPCTC 2016"


@dataclass(frozen=True)
class PaperFigures:
    """Figures as text, in messages/s, ms and percent; empty if the paper has none."""

    peak: str = ""
    latency: str = ""
    jitter: str = "near 0"
    cpu: str = ""
    #: Peak in messages per second as a number to draw, and whether it is a lower bound.
    rate: float | None = None
    at_least: bool = False
    #: Medians of latency (ms) and CPU (percent) as numbers.
    p50: float | None = None
    cpu_percent: float | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """Values that the paper gives as one number, not as a bound, by figure."""
        found = {
            "peak": None if self.at_least else self.rate,
            "latency-p50": self.p50,
            "cpu": self.cpu_percent,
        }
        return {name: value for name, value in found.items() if value is not None}


# third quartiles of the latency of all tasks are up to 2,600 ms
_WIDE = "wide, p75 up to 2,600"
_NARROW = "p75 below 2,600"
_BUSY = "≥ 70"
_OTHER = PaperFigures("≥ 3,000", _NARROW, cpu=_BUSY, rate=3000, at_least=True)
_REMOTE = PaperFigures("< 310", _WIDE, cpu="low")
#: Tasks of the paper.
MICRO: dict[str, PaperFigures] = {
    "XML": PaperFigures("310", _NARROW, cpu=_BUSY, rate=310),
    "BLF": PaperFigures("68,000", _NARROW, cpu=_BUSY, rate=68_000),
    "KAL": PaperFigures("68,000", _WIDE, cpu=_BUSY, rate=68_000),
    "DAC": PaperFigures("68,000", _WIDE, cpu=_BUSY, rate=68_000),
    "DTC": PaperFigures("≥ 3,000", _WIDE, cpu=_BUSY, rate=3000, at_least=True),
    "MLR": PaperFigures("≥ 3,000", _WIDE, cpu=_BUSY, rate=3000, at_least=True),
    **dict.fromkeys(("AVG", "SOM", "SLR", "MQP"), _OTHER),
    **dict.fromkeys(("ABD", "ABU", "ATQ"), _REMOTE),
}
#: All tasks of RIoTBench, including those of its later version.
CATALOGUE = (
    *("XML", "SML", "C2S", "ANN", "QLB", "BLF", "MBL", "BLT", "RGF", "AVG", "ACC", "DAC", "KAL", "SOM", "INP"),
    *("DTC", "DTT", "MLR", "MLT", "SLR", "ERR", "JON", "ABD", "ABU", "ATQ", "ATR", "ATI", "MQP", "LZP", "RZP"),
    *("PLT", "PI", "NOP"),
)

APPS: dict[str, PaperFigures] = {
    "stats/city": PaperFigures(latency="p50 20, narrow", cpu="35 (7 machines)", p50=20, cpu_percent=35),
    "stats/taxi": PaperFigures(latency="p50 20, narrow", cpu="5 (5 machines)", p50=20, cpu_percent=5),
    "pred/city": PaperFigures(latency="p50 500–700, wide", cpu="above STATS"),
    "pred/taxi": PaperFigures(latency="p50 500–700, wide", cpu="above STATS"),
}


def paper_figures(suite: str, name: str) -> PaperFigures:
    """Return the paper's figures for a task, or for an application on a stream; empty if it has none.

    >>> paper_figures("micro", "XML").peak
    '310'
    """
    return (MICRO if suite == "micro" else APPS).get(name, PaperFigures(jitter=""))
