"""The outcome of a run at a given pace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from riot_bench.harness.measure import Measure
from riot_bench.harness.peak_rate import PeakRate
from riot_ops.measure.metrics import Stability, quantiles
from riot_ops.measure.probe_report import Floats, Report, Series

__all__ = ["BOX_QUANTILES", "Outcome"]

#: Quantiles of a box plot: whiskers, box, median.
BOX_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Outcome:
    """Figures of a measured dataflow.

    Attributes
    ----------
    name, group : str
        What was measured, such as ``KAL``, and the group that it is shown in, such as ``Statistical``.
    peak : PeakRate
        Highest sustainable rate.
    stability : Stability
        Whether the dataflow kept up in the final run, from which the other figures are.
    since, until : float
        Part of the final run that counts, in seconds.
    interval_s : float
        Interval of throughput and jitter.
    cores : int
        Available cores.
    sigma : float
        Expected records per message, the base of the jitter: as the tasks declare, else as an unpaced run delivered
        for its later messages.
    silent : tuple of str
        Streams without any record.
    rate, selectivity : float
        Messages per second of the counted part, and records per message of the run.
    latency_ms : list of float
        Latency at :data:`BOX_QUANTILES` and at 99 %.
    jitter : ndarray
        Jitter of each interval; empty if the expected output is unknown.
    cpu_percent, memory_mib : ndarray
        CPU, in percent of the available cores, and memory of each sample.
    run : Series
        The whole final run by intervals.
    task_us : float
        Time of the task alone per output record (µs); NaN if not measured.
    """

    name: str
    group: str
    peak: PeakRate
    stability: Stability
    since: float
    until: float
    interval_s: float
    cores: int
    sigma: float
    silent: tuple[str, ...]
    rate: float
    selectivity: float
    latency_ms: list[float]
    jitter: Floats
    cpu_percent: Floats
    memory_mib: Floats
    run: Series
    task_us: float = math.nan

    @classmethod
    def of(
        cls,
        name: str,
        group: str,
        peak: PeakRate,
        report: Report,
        stability: Stability,
        *,
        since: float,
        until: float,
        interval_s: float,
        cores: int,
        sigma: float = math.nan,
        silent: tuple[str, ...] = (),
    ) -> Self:
        """Summarize a report; its samples are dropped, as they would count as memory of the next run."""
        known = math.isfinite(sigma)
        swings = report.jitter(interval_s, since, until, selectivity=sigma) if known else np.empty(0)
        usage = report.usage
        assert usage is not None
        part = usage.between(report.begin + since, report.begin + until)
        usage = part if part.times.size else usage
        return cls(
            name,
            group,
            peak,
            stability,
            since,
            until,
            interval_s,
            cores,
            sigma,
            silent,
            rate=report.input_rate(since, until),
            selectivity=report.selectivity,
            latency_ms=[1e3 * v for v in report.latency(*BOX_QUANTILES, 0.99, since_s=since, until_s=until)],
            jitter=swings,
            cpu_percent=100 * usage.cpu / cores,
            memory_mib=usage.memory / 2**20,
            run=report.series(interval_s, 0.0, until),
        )

    def figures(self) -> dict[str, tuple[float, str]]:
        """Return the figures by name, with their units."""
        box = dict(zip(("p5", "p25", "p50", "p75", "p95", "p99"), self.latency_ms, strict=True))
        return {
            "peak": (self.peak.rate, "messages/s"),
            "rate": (self.rate, "messages/s"),
            "selectivity": (self.selectivity, "records/message"),
            "sigma": (self.sigma, "records/message"),
            "silent": (len(self.silent), "streams"),
            "task-latency": (self.task_us, "µs/record"),
            **{f"latency-{k}": (box[k], "ms") for k in ("p25", "p50", "p75", "p99")},
            "jitter": (_median(self.jitter), "ratio"),
            "jitter-spread": (_spread(self.jitter), "ratio"),
            "cpu": (_median(self.cpu_percent), "% of cores"),
            "memory": (_median(self.memory_mib), "MiB"),
        }

    def measures(
        self, prefix: str, notes: Mapping[str, str], published: Mapping[str, float] | None = None
    ) -> Iterator[Measure]:
        """Yield a measure for each figure, with a note on how it was measured and the paper's value if known."""
        theirs = published or {}
        for name, (value, unit) in self.figures().items():
            note = notes.get(name, "")
            yield Measure(f"{prefix}/{self.name}/{name}", value, unit, note, published=theirs.get(name))

    def as_dict(self) -> dict[str, Any]:
        """Return all figures and series as JSON-compatible data."""

        def plain(values: Any) -> list[float | None]:
            return [float(f"{v:.6g}") if math.isfinite(v) else None for v in np.asarray(values).tolist()]

        return {
            "name": self.name,
            "group": self.group,
            "figures": {k: plain([v])[0] for k, (v, _) in self.figures().items()},
            "stable": self.stability.stable,
            "silent": list(self.silent),
            "closed": self.peak.converged,
            "tried": [[round(rate, 1), good] for rate, good in self.peak.tried],
            "latency_ms": dict(zip(map(str, (*BOX_QUANTILES, 0.99)), plain(self.latency_ms), strict=True)),
            "jitter": plain(self.jitter),
            "cpu_percent": plain(self.cpu_percent),
            "memory_mib": plain(self.memory_mib),
            "interval_s": self.interval_s,
            "cores": self.cores,
            "counted_from_s": self.since,
            "times_s": plain(self.run.times),
            "input_rate": plain(self.run.input_rate),
            "output_rate": plain(self.run.output_rate),
            "queue": plain(self.run.queue),
        }


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else math.nan


def _spread(values: Floats) -> float:
    """Return the interquartile range."""
    known = values[np.isfinite(values)]
    low, high = quantiles(known, np.ones(known.size), (0.25, 0.75))
    return high - low
