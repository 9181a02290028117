"""What a run at a given pace came to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.bench.measure import Measure
from riot_ops.bench.peak import Peak
from riot_ops.measure.metrics import Stability, quantiles
from riot_ops.measure.probe_report import Report

__all__ = ["BOX", "Outcome"]

#: Shares of the records at the parts of a box plot: whiskers, box, median.
BOX = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Outcome:
    """A dataflow measured.

    Attributes
    ----------
    name, group : str
        What was measured, such as ``KAL``, and what it is shown with, such as ``Statistical``.
    peak : Peak
        Highest sustainable rate.
    report : Report
        Of the run that the other figures are of.
    since, until : float
        The part of that run, in seconds, that counts.
    stability : Stability
        Whether it kept up in that run.
    interval_s : float
        For throughput and jitter.
    cores : int
        Cores that there were.
    sigma : float
        Records that each message should lead to, which the jitter is measured against: what the tasks
        declare, else what a run that had no pace to keep delivered of its later messages.
    silent : tuple of str
        Streams that no record came in.
    task_us : float
        Time of the task alone per record that it puts out (µs); NaN where that is not known.
    """

    name: str
    group: str
    peak: Peak
    report: Report
    since: float
    until: float
    stability: Stability
    interval_s: float
    cores: int
    sigma: float = math.nan
    silent: tuple[str, ...] = ()
    task_us: float = math.nan

    @property
    def latency_ms(self) -> list[float]:
        """Latency at the shares of :data:`BOX`, and at 99 %."""
        return [1e3 * v for v in self.report.latency(*BOX, 0.99, since_s=self.since, until_s=self.until)]

    @property
    def jitter(self) -> npt.NDArray[np.float64]:
        """Jitter of each interval; none where it is not known what should come out."""
        if not math.isfinite(self.sigma):
            return np.empty(0)
        return self.report.jitter(self.interval_s, self.since, self.until, selectivity=self.sigma)

    @property
    def cpu_percent(self) -> npt.NDArray[np.float64]:
        """CPU of each sample, in percent of the cores that there were."""
        return 100 * self._usage("cpu") / self.cores

    @property
    def memory_mib(self) -> npt.NDArray[np.float64]:
        """Memory of each sample."""
        return self._usage("memory") / 2**20

    def _usage(self, what: str) -> npt.NDArray[np.float64]:
        usage = self.report.usage
        assert usage is not None
        part = usage.between(self.report.begin + self.since, self.report.begin + self.until)
        return np.asarray(getattr(part if part.times.size else usage, what))

    def figures(self) -> dict[str, tuple[float, str]]:
        """The figures by name, with their units."""
        box = dict(zip(("p5", "p25", "p50", "p75", "p95", "p99"), self.latency_ms, strict=True))
        swings = self.jitter
        return {
            "peak": (self.peak.rate, "messages/s"),
            "rate": (self.report.input_rate(self.since, self.until), "messages/s"),
            "selectivity": (self.report.selectivity, "records/message"),
            "sigma": (self.sigma, "records/message"),
            "silent": (len(self.silent), "streams"),
            "task-latency": (self.task_us, "µs/record"),
            **{f"latency-{k}": (box[k], "ms") for k in ("p25", "p50", "p75", "p99")},
            "jitter": (_median(swings), "ratio"),
            "jitter-spread": (_spread(swings), "ratio"),
            "cpu": (_median(self.cpu_percent), "% of cores"),
            "memory": (_median(self.memory_mib), "MiB"),
        }

    def measures(
        self, prefix: str, notes: Mapping[str, str], published: Mapping[str, float] | None = None
    ) -> Iterator[Measure]:
        """A measure per figure, with how each came about and what the paper found, where that is known."""
        theirs = published or {}
        for name, (value, unit) in self.figures().items():
            note = notes.get(name, "")
            yield Measure(f"{prefix}/{self.name}/{name}", value, unit, note, published=theirs.get(name))

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON-able data, the series included."""

        def plain(values: Any) -> list[float | None]:
            return [float(f"{v:.6g}") if math.isfinite(v) else None for v in np.asarray(values).tolist()]

        run = self.report.series(self.interval_s, 0.0, self.until)
        return {
            "name": self.name,
            "group": self.group,
            "figures": {k: plain([v])[0] for k, (v, _) in self.figures().items()},
            "stable": self.stability.stable,
            "silent": list(self.silent),
            "closed": self.peak.closed,
            "tried": [[round(rate, 1), good] for rate, good in self.peak.tried],
            "latency_ms": dict(zip(map(str, (*BOX, 0.99)), plain(self.latency_ms), strict=True)),
            "jitter": plain(self.jitter),
            "cpu_percent": plain(self.cpu_percent),
            "memory_mib": plain(self.memory_mib),
            "interval_s": self.interval_s,
            "cores": self.cores,
            "counted_from_s": self.since,
            "times_s": plain(run.times),
            "input_rate": plain(run.input_rate),
            "output_rate": plain(run.output_rate),
            "queue": plain(run.queue),
        }


def _median(values: npt.NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else math.nan


def _spread(values: npt.NDArray[np.float64]) -> float:
    """Distance of the quartiles."""
    known = values[np.isfinite(values)]
    low, high = quantiles(known, np.ones(known.size), (0.25, 0.75))
    return high - low
