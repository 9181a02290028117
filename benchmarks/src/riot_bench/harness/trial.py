"""Trials: runs of a dataflow at a given pace, measured by a probe."""

from __future__ import annotations

import gc
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.outcome import Outcome
from riot_bench.harness.peak_rate import MIN_RATE, PeakRate, find_peak
from riot_bench.harness.session import spark_session
from riot_bench.harness.workload import Workload
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError, RiotError
from riot_ops.core.source import Offset, Source
from riot_ops.ingest.pace import PacedSource
from riot_ops.measure.metrics import Stability
from riot_ops.measure.probe import Probe
from riot_ops.measure.probe_report import Report
from riot_ops.runtime.local import DEFAULT_BUFFERING

__all__ = ["Pace", "Runner", "runner"]

#: A rate that no dataflow reaches.
UNLIMITED_RATE = 1e12
#: Micro-batches, and messages in each, that start the workers on Spark and compile the code.
WARM_BATCHES, WARM_MESSAGES = 2, 100
WARM_UP_MESSAGES = WARM_BATCHES * WARM_MESSAGES
#: Batches that may wait in process; messages from which their size in bytes is estimated.
MAX_WAITING_BATCHES, SAMPLED_MESSAGES = 4, 64
Pace = dict[str, Any]


class _TimedSource(PacedSource):
    """Paced source that ends after a time."""

    def __init__(self, source: Source, seconds: float, **pace: Any) -> None:
        super().__init__(source, **pace)
        self.seconds = seconds

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        return start if self._over() else super().latest(start, limit)

    def finished(self, offset: Offset) -> bool:
        return self._over() or super().finished(offset)

    def _over(self) -> bool:
        return self._wall is not None and self.clock() - self._wall >= self.seconds


class _WarmedSource(_TimedSource):
    """Timed source that first gives a few messages to start all processes; its clock begins after them."""

    warm_up = 0

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        if self.warm_up < WARM_BATCHES:
            self.warm_up += 1
            return self.source.latest(start, WARM_MESSAGES)
        return super().latest(start, limit)

    def finished(self, offset: Offset) -> bool:
        return self.source.finished(offset)  # after its time it gives nothing, but the query must not end


class Runner(ABC):
    """Runs dataflows and measures them.

    Attributes
    ----------
    trial_s, warm_s : float
        Length of a trial, and of its warm-up.
    run_s : float
        Default length of the final run, from which the figures are.
    interval_s : float
        Interval of throughput and jitter.
    search_s : float
        Seconds after which the peak search begins no further trial.
    limits : tuple of float
        Tolerance and slack of the stability test, see :func:`riot_ops.measure.metrics.stability`.
    every_s : float
        Seconds between samples of CPU and memory.
    batch_s : float
        Maximum seconds of work in a batch; a trial that does not keep up lasts for some batches more.
    min_batch, max_batch : int
        Maximum batch size in messages at first, when nothing is known of the dataflow, and after calibration.
    cores : int
        Available cores.
    where : str
        Description of the runner.
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
    min_batch: int
    max_batch: int
    cores: int
    where: str

    @abstractmethod
    def run(self, workload: Workload, seconds: float, pace: Pace, every_s: float | None = None) -> Report:
        """Run a dataflow for ``seconds``; ``every_s`` is the time between samples of CPU and memory."""

    def warm_up(self, workload: Workload) -> None:
        """Do one-time work such as compiling before anything is measured."""

    def calibrate(self, workload: Workload) -> tuple[Workload, float, float]:
        """Return the workload with a suitable batch size, its rate without a pace, and its sigma."""
        workload = replace(workload, max_batch=self.min_batch)
        while True:
            report = self.run(workload, self.trial_s, {"rate": UNLIMITED_RATE})
            # The read rate is meaningless if a burst is read and then waits: bound it by the messages over the whole
            # time.
            whole = report.inputs / (time.time() - report.begin) if report.inputs else 0.0
            rate = min(report.read_rate(self.warm_s) or whole, 2 * whole)
            most = min(self.max_batch, max(1, int(rate * self.batch_s)))
            if most <= 2 * workload.max_batch:
                return workload, rate, self._sigma(workload, report)
            workload = replace(workload, max_batch=min(most, 64 * workload.max_batch))

    def _sigma(self, workload: Workload, report: Report) -> float:
        """Return the expected records per message: as declared, else as an unpaced run delivers."""
        if math.isfinite(report.expected):
            return report.expected
        if workload.silent_streams(report):  # their windows may be longer than the run
            report = self.run(workload, 4 * self.trial_s, {"rate": UNLIMITED_RATE})
        return report.settled_selectivity

    def keeps_up(self, workload: Workload, rate: float) -> bool:
        """Run one trial and return whether the rate was sustained."""
        return self.stability(self.run(workload, self.trial_s, {"rate": rate}), self.trial_s).stable

    def stability(self, report: Report, seconds: float) -> Stability:
        """Test whether a run kept up."""
        return report.stability(self.warm_s, seconds, tolerance=self.limits[0], slack_s=self.limits[1])

    def outcome(
        self, name: str, group: str, workload: Workload, pace: Pace | None = None, seconds: float | None = None
    ) -> Outcome:
        """Measure a dataflow: its peak rate, and the other figures at that rate or at a given pace for ``seconds``."""
        self.warm_up(workload)
        workload, taken, sigma = self.calibrate(workload)
        peak = find_peak(lambda rate: self.keeps_up(workload, rate), max(0.8 * taken, MIN_RATE), limit_s=self.search_s)
        rate = max(peak.rate, MIN_RATE)
        length = self.run_s if pace is None or seconds is None else seconds
        report, kept_up = self._final(workload, pace or {"rate": rate}, length)
        for _ in range(3):
            if pace is not None or kept_up.stable:
                break
            # the longer run shows a backlog that the short trials did not
            backlog = np.nanmax([0.04, kept_up.queue_growth, kept_up.latency_growth])
            rate *= max(0.5, 1 - 1.2 * float(backlog))
            report, kept_up = self._final(workload, {"rate": rate}, length)
            peak = PeakRate(rate, (*peak.tried, (rate, kept_up.stable)), peak.converged)
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
            silent=workload.silent_streams(report),
        )

    def _final(self, workload: Workload, pace: Pace, seconds: float) -> tuple[Report, Stability]:
        gc.collect()  # memory of the trials, partly in reference cycles, would count for this run
        pa.default_memory_pool().release_unused()
        report = self.run(workload, seconds, pace, self.every_s)
        return report, self.stability(report, seconds)


class LocalRunner(Runner):
    """Runs dataflows in this process."""

    name = "local"

    def __init__(self, quick: bool) -> None:
        self.trial_s, self.warm_s, self.run_s = (0.3, 0.1, 0.9) if quick else (3.0, 1.0, 11.0)
        self.interval_s, self.search_s = (0.1, 1.0) if quick else (0.5, 45.0)
        self.limits = 0.02, 0.05
        self.batch_s, self.min_batch, self.max_batch = 0.1, 16, 65_536
        self.cores = len(os.sched_getaffinity(0))
        self.where = "in process, one core" if self.cores == 1 else f"in process, {self.cores} cores"
        self.every_s = 0.2 if quick else 1.0

    def warm_up(self, workload: Workload) -> None:
        self.run(replace(workload, max_batch=self.min_batch), 0.01, {"rate": UNLIMITED_RATE})

    def run(self, workload: Workload, seconds: float, pace: Pace, every_s: float | None = None) -> Report:
        probe = Probe(every=None if every_s is None else timedelta(seconds=every_s))
        sources = {n: _TimedSource(s, seconds, **pace) for n, s in workload.sources.items()}
        inputs = {**sources, **workload.side_inputs}
        workload.flow.run(
            inputs, sinks=DiscardSink(), probe=probe, batch_size=workload.max_batch, buffering=_small_buffers(workload)
        )
        return probe.report()


def _small_buffers(workload: Workload) -> Buffering:
    """Return buffers for a few batches.

    Larger buffers would be filled at once, however slow the steps are: neither the read rate nor the number of waiting
    messages would show that the steps are behind.
    """
    size = max(_message_bytes(source) for source in workload.sources.values())
    capacity = min(DEFAULT_BUFFERING.capacity, int(size * workload.max_batch) or DEFAULT_BUFFERING.capacity)
    return replace(
        DEFAULT_BUFFERING, capacity=capacity, queue=min(DEFAULT_BUFFERING.room, MAX_WAITING_BATCHES * capacity)
    )


def _message_bytes(source: Source) -> float:
    """Estimate the bytes of a message from the first ones; 0 if there are none yet."""
    begin = source.initial()
    some = [b for split in source.splits(begin, source.latest(begin, SAMPLED_MESSAGES), 1) for b in source.read(split)]
    rows: int = sum(b.num_rows for b in some)
    return sum(b.nbytes for b in some) / rows if rows else 0.0


class SparkRunner(Runner):
    """Runs dataflows on a local Spark."""

    name = "spark"

    def __init__(self, quick: bool, spark: Any) -> None:
        self.trial_s, self.warm_s, self.run_s = (8.0, 3.0, 9.0) if quick else (20.0, 8.0, 32.0)
        self.interval_s, self.search_s = 1.0, 20.0 if quick else 120.0
        # the queue rises and falls by a micro-batch
        self.limits = 0.05, 1.5
        self.batch_s, self.min_batch, self.max_batch = 8.0, 2000, 2_000_000
        self.cores = spark.sparkContext.defaultParallelism
        self.where = f"Spark {spark.version}, {spark.sparkContext.master}"
        self._spark = spark
        self.every_s = 0.5 if quick else 2.0

    def run(self, workload: Workload, seconds: float, pace: Pace, every_s: float | None = None) -> Report:
        probe = Probe(every=None if every_s is None else timedelta(seconds=every_s))
        sources: dict[str, Source] = {n: _WarmedSource(s, seconds, **pace) for n, s in workload.sources.items()}
        inputs = {**sources, **workload.side_inputs}
        query = workload.flow.start(
            self._spark, inputs, sinks=DiscardSink(), max_records=workload.max_batch, probe=probe
        )
        until = time.monotonic() + seconds + START_SECONDS
        try:
            while not (report := probe.report()).begin_at(WARM_UP_MESSAGES) and time.monotonic() < until:
                query.wait("200ms")
            query.wait(timedelta(seconds=max(0.1, report.begin + seconds - time.time())))
            idle = 0
            while idle < 3 and time.monotonic() < until:  # wait until all that was read has been delivered
                query.wait("200ms")
                idle = 0 if query.streaming.status["isDataAvailable"] else idle + 1
        finally:
            query.stop()
        report = probe.report()
        if not report.begin_at(WARM_UP_MESSAGES):
            raise RiotError(f"Spark did not begin to read {workload.flow.name!r} within {START_SECONDS:g} s")
        return report


START_SECONDS = 120.0


@contextmanager
def runner(name: str, quick: bool, cores: int | None = None) -> Iterator[Runner]:
    """Create a runner by name; ``cores=1`` pins the local one to one core."""
    if name not in ("local", "spark"):
        raise ConfigError(f"--runner must be local or spark, got {name!r}")
    with ExitStack() as stack:
        if name == "spark":
            yield SparkRunner(quick, stack.enter_context(spark_session()))
            return
        if cores == 1:
            stack.enter_context(pinned_to_one_core())
        yield LocalRunner(quick)
