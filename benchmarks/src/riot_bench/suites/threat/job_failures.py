"""Threat detection at half of its peak rate while its process is killed: lost messages and recovery time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from riot_bench.harness.child_process import kill_group, module_process, wait_for_exit
from riot_bench.harness.discard import DiscardSink
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.recovery import CommitHistory, count_lost_and_duplicated, read_commits
from riot_bench.suites.threat.job import EPOCH_S, OPENED, open_stream
from riot_ops import dataflows
from riot_ops.core.errors import RiotError

__all__ = ["FULL", "QUICK", "Sizes", "at_most_once", "failure_measures", "job_failure", "run_killed_job"]

#: Loss with a failed worker in the paper, in %, on Spark, Flink and Storm.
PAPER_LOSS = {"spark": 0.0, "flink": 12.8, "storm": 22.2}
#: Seconds before the failure over which the earlier rate is computed.
BEFORE_S = 5.0
#: Seconds within which the first message must be read.
START_S = 120.0


@dataclass(frozen=True)
class Sizes:
    """Amount of work.

    Attributes
    ----------
    seconds : float
        Duration of the stream.
    failed : float
        Second of the failure.
    step : float
        Step of the rate series in seconds.
    peak, spark_peak : int
        Messages to measure the peak rate in process and on Spark; on Spark in four micro-batches, which must be large,
        as otherwise their fixed cost would determine the rate.
    """

    seconds: float
    failed: float
    step: float
    peak: int
    spark_peak: int

    @property
    def spark_batch(self) -> int:
        """Messages of a micro-batch in the peak measurement."""
        return self.spark_peak // 4

    @property
    def batch_note(self) -> str:
        """Note on the micro-batches of the peak measurement."""
        return f" in micro-batches of {self.spark_batch:,} messages"


FULL = Sizes(120.0, 50.0, 1.0, 4_000_000, 400_000)
QUICK = Sizes(32.0, 8.0, 1.0, 500_000, 400_000)


def job_failure(quick: bool, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Kill and restart a run with a checkpoint in process."""
    sizes = sizes or (QUICK if quick else FULL)
    rate = _peak_rate(sizes) / 2
    with temporary_folder() as base:
        yield from run_killed_job(base, "replayed", rate, sizes)


def at_most_once(quick: bool, sizes: Sizes | None = None) -> Iterator[Measure]:
    """Kill and restart a run in process whose source acknowledges messages before they are processed."""
    sizes = sizes or (QUICK if quick else FULL)
    sizes = replace(sizes, seconds=min(sizes.seconds, 2 * sizes.failed))
    rate = _peak_rate(sizes) / 2
    with temporary_folder() as base:
        yield from run_killed_job(base, "at-most-once", rate, sizes)


def _peak_rate(sizes: Sizes) -> float:
    """Measure the messages per second in process with all cores."""
    flow = dataflows.threat()
    flow.run(open_stream(10_000), sinks=DiscardSink())
    begun = time.perf_counter()
    flow.run(open_stream(sizes.peak), sinks=DiscardSink())
    return sizes.peak / (time.perf_counter() - begun)


def run_killed_job(base: Path, mode: str, rate: float, sizes: Sizes) -> Iterator[Measure]:
    """Run a job of a mode in a child process, kill it, restart it, and measure loss and recovery."""
    opened, messages = base / OPENED, int(rate * sizes.seconds)
    words = ("riot_bench.suites.threat.job", str(base), mode, repr(rate), str(messages))
    with module_process(*words) as process:
        until = time.monotonic() + START_S
        while not opened.exists() or time.time() < opened.stat().st_mtime + sizes.failed:
            if process.poll() is not None:
                raise RiotError(
                    f"threat detection ended with exit code {process.returncode} before it was to be killed"
                )
            if time.monotonic() > until and not opened.exists():
                raise RiotError(f"threat detection did not begin within {START_S:g} s")
            time.sleep(0.02)
        failed = time.time()
        kill_group(process)
        noticed = time.time()
    with module_process(*words) as process:
        wait_for_exit(process, "threat detection, restarted,", sizes.seconds + START_S)
    begun = opened.stat().st_mtime
    found = sorted(path / "threats" for path in base.iterdir() if path.name.startswith("out"))
    run = CommitHistory.of([one for path in found for one in read_commits(path)], begun)
    lost, doubled = count_lost_and_duplicated(found, messages)
    where, what = ("spark-driver", "Spark's driver") if mode == "driver" else ("local", "in process")
    how = f"{what}, killed after {sizes.failed:g} s and restarted, at {rate:,.0f} messages/s, half of the peak rate"
    if mode == "driver":
        how += sizes.batch_note
    if mode == "at-most-once":
        yield from _at_most_once_measures((lost, doubled, messages), rate, how)
        return
    yield from failure_measures(where, run, (begun, failed, noticed), (lost, doubled, messages), sizes, how)


#: Seconds whose messages may be lost: an epoch, and messages being read and written.
MAX_LOST_S = 2 * EPOCH_S


def _at_most_once_measures(amounts: tuple[int, int, int], rate: float, how: str) -> Iterator[Measure]:
    """Yield the loss with acknowledgement at delivery; the paper does not state the duration of its share."""
    lost, doubled, messages = amounts
    how += f"; messages are acknowledged when they are read, results are written every {EPOCH_S:g} s"
    yield Measure("threat/at-most-once/lost", lost, "messages", how)
    what = f"lost messages divided by the rate; at most those read since the last results were written; {how}"
    yield Measure("threat/at-most-once/lost-seconds", lost / rate, "s", what, MAX_LOST_S, at_most=True)
    share = f"share of the messages of {messages / rate:g} s; {how}"
    yield Measure("threat/at-most-once/loss", 100 * lost / messages, "%", share)
    yield Measure("threat/at-most-once/doubled", doubled, "messages", how, 0, at_most=True)


def failure_measures(
    where: str,
    run: CommitHistory,
    times: tuple[float, float, float],
    amounts: tuple[int, int, int],
    sizes: Sizes,
    how: str,
) -> Iterator[Measure]:
    """Yield the measures of a run from the times of begin, failure and detection and the counts of messages."""
    begun, failed, noticed = times
    lost, doubled, messages = amounts
    before, at = run.rate_before(failed, BEFORE_S), f"threat/failure/{where}"
    loss = 100 * lost / messages
    yield Measure(f"{at}/lost", lost, "messages", how, 0, at_most=True)
    yield Measure(f"{at}/loss", loss, "%", how, published=PAPER_LOSS["spark"] if where == "spark" else None)
    yield Measure(f"{at}/doubled", doubled, "messages", how, 0, at_most=True)
    yield Measure(f"{at}/detection", noticed - failed, "s", "from the failure until it is detected")
    yield Measure(
        f"{at}/dip", run.dip(failed, before), "share", "lowest rate of a second as a share of the earlier rate"
    )
    back = "from the failure until each of three seconds has 95 % of the earlier rate"
    yield Measure(f"{at}/recovery", run.recovery_s(failed, before), "s", back, 15, at_most=True)
    for at_s, rate in run.series(begun, run.times[-1], sizes.step):
        yield Measure(f"{at}/analysed/{at_s:g}", rate, "messages/s", "by second")
