"""Runs of a dataflow at a given pace, measured by a probe."""

from __future__ import annotations

import gc
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from riot_bench.harness.data import Discard
from riot_bench.harness.measure import one_core
from riot_bench.harness.micro_batches import spark_session
from riot_bench.harness.outcome import Outcome
from riot_bench.harness.peak_rate import LEAST, Peak, highest
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.core.source import Offset, Source
from riot_ops.dataflow import Dataflow
from riot_ops.measure.metrics import Stability
from riot_ops.measure.probe import Probe
from riot_ops.measure.probe_report import Report
from riot_ops.runtime.local import GATHERED
from riot_ops.ingest.pace import Paced

__all__ = ["Feed", "Pace", "Runner", "runner"]

#: A rate that nothing reaches.
ENDLESS = 1e12
#: Micro-batches, and messages in each, that start up what runs on Spark: workers, compiled code.
WARM_BATCHES, WARM_MESSAGES = 2, 100
FIRST = WARM_BATCHES * WARM_MESSAGES
#: Batches that may wait in process; messages by which their bytes are told.
WAITING, SAMPLED = 4, 64
Pace = dict[str, Any]


@dataclass(frozen=True)
class Feed:
    """A dataflow and what goes into it.

    Attributes
    ----------
    sources : mapping of name to source
        Endless, and not paced.
    side : mapping of name to source
        What the sources that are not paced give, such as updates of a model.
    most : int
        Most messages of a batch.
    """

    flow: Dataflow
    sources: Mapping[str, Source]
    side: Mapping[str, Source] = field(default_factory=dict)
    most: int = 65_536

    def silent(self, report: Report) -> tuple[str, ...]:
        """Streams for the sinks that no record came in."""
        delivered = {e.source for sink in self.flow.kind("sink") for e in self.flow.inputs(sink.id)}
        return tuple(n for n in self.flow.nodes if n in delivered and not report.rows.get(n))


class _Until(Paced):
    """Paced, and over after a time, however much is left."""

    def __init__(self, source: Source, seconds: float, **pace: Any) -> None:
        super().__init__(source, **pace)
        self.seconds = seconds

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        return start if self._over() else super().latest(start, limit)

    def finished(self, offset: Offset) -> bool:
        return self._over() or super().finished(offset)

    def _over(self) -> bool:
        return self._wall is not None and self.clock() - self._wall >= self.seconds


class _Warmed(_Until):
    """The same, after a few messages that start up all processes; its clock begins behind them."""

    warm_up = 0

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        if self.warm_up < WARM_BATCHES:
            self.warm_up += 1
            return self.source.latest(start, WARM_MESSAGES)
        return super().latest(start, limit)

    def finished(self, offset: Offset) -> bool:
        return self.source.finished(offset)  # it gives no more, but ends nothing either


class Runner(ABC):
    """How dataflows are run to be measured.

    Attributes
    ----------
    trial_s, warm_s : float
        Length of a trial, and of its beginning that does not count.
    run_s : float
        Length of the run that the figures are of, unless another is wanted.
    interval_s : float
        For throughput and jitter.
    search_s : float
        After this time the search for a peak tries no further rate.
    limits : tuple of float
        Tolerance and slack of the test of stability, see :func:`riot_ops.measure.metrics.stability`.
    every_s : float
        Time between samples of CPU and memory.
    batch_s : float
        Work in a batch, at most; a trial that does not keep up goes on for some batches.
    least, most : int
        Messages in a batch, at most: at first, when nothing is known of the dataflow, and in the end.
    """

    name: str
    trial_s: float
    warm_s: float
    run_s: float
    interval_s: float
    search_s: float
    limits: tuple[float, float]
    every_s: float
    batch_s: float
    least: int
    most: int
    cores: int
    where: str

    @abstractmethod
    def run(self, feed: Feed, seconds: float, pace: Pace, every_s: float | None = None) -> Report:
        """Run a dataflow for a time; ``every_s``: time between samples of CPU and memory."""

    def warm(self, feed: Feed) -> None:
        """Do what happens once, such as compiling, before anything is measured."""

    def sized(self, feed: Feed) -> tuple[Feed, float, float]:
        """The dataflow with batches of a fitting size, the rate at which it takes all it can get, and its sigma."""
        feed = replace(feed, most=self.least)
        while True:
            report = self.run(feed, self.trial_s, {"rate": ENDLESS})
            # A burst that is read and then waits tells no rate: all that was read, by the time until it was done, does.
            whole = report.inputs / (time.time() - report.begin) if report.inputs else 0.0
            rate = min(report.read_rate(self.warm_s) or whole, 2 * whole)
            most = min(self.most, max(1, int(rate * self.batch_s)))
            if most <= 2 * feed.most:
                return feed, rate, self._sigma(feed, report)
            feed = replace(feed, most=min(most, 64 * feed.most))

    def _sigma(self, feed: Feed, report: Report) -> float:
        """Records that a message should lead to: as declared, else by a run that has no pace to keep."""
        if math.isfinite(report.expected):
            return report.expected
        if feed.silent(report):  # their windows may be longer than the run was
            report = self.run(feed, 4 * self.trial_s, {"rate": ENDLESS})
        return report.settled_selectivity

    def keeps_up(self, feed: Feed, rate: float) -> bool:
        """One trial."""
        return self.stability(self.run(feed, self.trial_s, {"rate": rate}), self.trial_s).stable

    def stability(self, report: Report, seconds: float) -> Stability:
        """Whether a run kept up."""
        return report.stability(self.warm_s, seconds, tolerance=self.limits[0], slack_s=self.limits[1])

    def outcome(
        self, name: str, group: str, feed: Feed, pace: Pace | None = None, seconds: float | None = None
    ) -> Outcome:
        """Measure a dataflow: its peak, and the rest at that rate, or at a given pace for so many seconds."""
        self.warm(feed)
        feed, taken, sigma = self.sized(feed)
        peak = highest(lambda rate: self.keeps_up(feed, rate), max(0.8 * taken, LEAST), limit_s=self.search_s)
        rate = max(peak.rate, LEAST)
        length = self.run_s if pace is None or seconds is None else seconds
        report, kept_up = self._final(feed, pace or {"rate": rate}, length)
        for _ in range(3):
            if pace is not None or kept_up.stable:
                break
            # the longer run shows what the trials did not: so much was left behind
            behind = np.nanmax([0.04, kept_up.queue_growth, kept_up.latency_growth])
            rate *= max(0.5, 1 - 1.2 * float(behind))
            report, kept_up = self._final(feed, {"rate": rate}, length)
            peak = Peak(rate, (*peak.tried, (rate, kept_up.stable)), peak.closed)
        return Outcome.of(
            name,
            group,
            peak,
            report,
            kept_up,
            since=self.warm_s,
            until=length,
            interval_s=self.interval_s,
            cores=self.cores,
            sigma=sigma,
            silent=feed.silent(report),
        )

    def _final(self, feed: Feed, pace: Pace, seconds: float) -> tuple[Report, Stability]:
        gc.collect()  # what the trials took, part of it in reference cycles, would count as memory of this run
        pa.default_memory_pool().release_unused()
        report = self.run(feed, seconds, pace, self.every_s)
        return report, self.stability(report, seconds)


class Local(Runner):
    """In this process."""

    name = "local"

    def __init__(self, quick: bool) -> None:
        self.trial_s, self.warm_s, self.run_s = (0.3, 0.1, 0.9) if quick else (3.0, 1.0, 11.0)
        self.interval_s, self.search_s = (0.1, 1.0) if quick else (0.5, 45.0)
        self.limits = 0.02, 0.05
        self.batch_s, self.least, self.most = 0.1, 16, 65_536
        self.cores = len(os.sched_getaffinity(0))
        self.where = "in process, one core" if self.cores == 1 else f"in process, {self.cores} cores"
        self.every_s = 0.2 if quick else 1.0

    def warm(self, feed: Feed) -> None:
        self.run(replace(feed, most=self.least), 0.01, {"rate": ENDLESS})

    def run(self, feed: Feed, seconds: float, pace: Pace, every_s: float | None = None) -> Report:
        probe = Probe(every_s=every_s)
        sources = {n: _Until(s, seconds, **pace) for n, s in feed.sources.items()}
        inputs = {**sources, **feed.side}
        feed.flow.run(inputs, sinks=Discard(), probe=probe, batch_size=feed.most, buffering=_few_batches(feed))
        return probe.report()


def _few_batches(feed: Feed) -> Buffering:
    """Room for a few batches.

    More would be read at once, however long it takes to process it: neither the rate at which messages are read nor
    those that wait for it would tell that the steps are behind.
    """
    size = max(_message_bytes(source) for source in feed.sources.values())
    capacity = min(GATHERED.capacity, int(size * feed.most) or GATHERED.capacity)
    return replace(GATHERED, capacity=capacity, queue=min(GATHERED.room, WAITING * capacity))


def _message_bytes(source: Source) -> float:
    """Bytes of a message, by the first ones; 0 where none are there yet."""
    begin = source.initial()
    some = [b for split in source.splits(begin, source.latest(begin, SAMPLED), 1) for b in source.read(split)]
    rows: int = sum(b.num_rows for b in some)
    return sum(b.nbytes for b in some) / rows if rows else 0.0


class OnSpark(Runner):
    """On a local Spark."""

    name = "spark"

    def __init__(self, quick: bool, spark: Any) -> None:
        self.trial_s, self.warm_s, self.run_s = (8.0, 3.0, 9.0) if quick else (20.0, 8.0, 32.0)
        self.interval_s, self.search_s = 1.0, 20.0 if quick else 120.0
        # micro-batches: the queue goes up and down by one of them
        self.limits = 0.05, 1.5
        self.batch_s, self.least, self.most = 8.0, 2000, 2_000_000
        self.cores = spark.sparkContext.defaultParallelism
        self.where = f"Spark {spark.version}, {spark.sparkContext.master}"
        self._spark = spark
        self.every_s = 0.5 if quick else 2.0

    def run(self, feed: Feed, seconds: float, pace: Pace, every_s: float | None = None) -> Report:
        probe = Probe(every_s=every_s)
        sources: dict[str, Source] = {n: _Warmed(s, seconds, **pace) for n, s in feed.sources.items()}
        inputs = {**sources, **feed.side}
        query = feed.flow.start(self._spark, inputs, sinks=Discard(), max_records=feed.most, probe=probe)
        until = time.monotonic() + seconds + START_SECONDS
        try:
            while not (report := probe.report()).begin_at(FIRST) and time.monotonic() < until:
                query.wait(0.2)
            query.wait(max(0.1, report.begin + seconds - time.time()))
            idle = 0
            while idle < 3 and time.monotonic() < until:  # what was read is to be delivered
                query.wait(0.2)
                idle = 0 if query.streaming.status["isDataAvailable"] else idle + 1
        finally:
            query.stop()
        report = probe.report()
        if not report.begin_at(FIRST):
            raise RiotError(f"Spark did not begin to read {feed.flow.name!r} within {START_SECONDS:g} s")
        return report


START_SECONDS = 120.0


@contextmanager
def runner(name: str, quick: bool, cores: int | None = None) -> Iterator[Runner]:
    """A runner by name; ``cores=1`` keeps the one in process on one core."""
    if name not in ("local", "spark"):
        raise ConfigError(f"--runner must be local or spark, got {name!r}")
    with ExitStack() as stack:
        if name == "spark":
            yield OnSpark(quick, stack.enter_context(spark_session()))
            return
        if cores == 1:
            stack.enter_context(one_core())
        yield Local(quick)
