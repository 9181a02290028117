"""Threat detection at half of what it can do, when what runs it is killed: what is lost, and how soon it is back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from riot_bench.harness.data import Discard
from riot_bench.harness.jobs import finish, job, kill
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import folder
from riot_bench.harness.recovery import Analysed, commits_of, lost_and_doubled_of
from riot_bench.suites.threat.job import EPOCH_S, OPENED, stream
from riot_ops import dataflows
from riot_ops.core.errors import RiotError

__all__ = ["FULL", "QUICK", "Sizes", "figures", "forgotten", "killed", "killed_job"]

#: What the paper lost with a worker, in %: on Spark, Flink and Storm.
LOST = {"spark": 0.0, "flink": 12.8, "storm": 22.2}
#: The rate before is that of the commits in so many seconds before the failure.
BEFORE_S = 5.0
#: Messages must begin to come within so many seconds.
START_S = 120.0


@dataclass(frozen=True)
class Sizes:
    """How long messages come, when the failure is, the step of the series (s), and messages that tell the most.

    On Spark these are in four micro-batches, which are large, as the most would else be what a micro-batch takes.
    """

    seconds: float
    failed: float
    step: float
    peak: int
    spark_peak: int

    @property
    def spark_batch(self) -> int:
        """Messages of a micro-batch that tells the most."""
        return self.spark_peak // 4

    @property
    def told(self) -> str:
        """In what the most on Spark was found."""
        return f" in micro-batches of {self.spark_batch:,} messages"


FULL = Sizes(120.0, 50.0, 1.0, 4_000_000, 400_000)
QUICK = Sizes(32.0, 8.0, 1.0, 500_000, 400_000)


def killed(quick: bool, sizes: Sizes | None = None) -> Iterator[Measure]:
    """In process, a run with a checkpoint that is killed and started again."""
    sizes = sizes or (QUICK if quick else FULL)
    rate = _peak(sizes) / 2
    with folder() as base:
        yield from killed_job(base, "replayed", rate, sizes)


def forgotten(quick: bool, sizes: Sizes | None = None) -> Iterator[Measure]:
    """In process, with a source that takes messages for done before they are; what is lost shows soon."""
    sizes = sizes or (QUICK if quick else FULL)
    sizes = replace(sizes, seconds=min(sizes.seconds, 2 * sizes.failed))
    rate = _peak(sizes) / 2
    with folder() as base:
        yield from killed_job(base, "forgotten", rate, sizes)


def _peak(sizes: Sizes) -> float:
    """Messages per second in process, with all cores."""
    flow = dataflows.threat()
    flow.run(stream(10_000), sinks=Discard())
    begun = time.perf_counter()
    flow.run(stream(sizes.peak), sinks=Discard())
    return sizes.peak / (time.perf_counter() - begun)


def killed_job(base: Path, mode: str, rate: float, sizes: Sizes) -> Iterator[Measure]:
    """A job of a mode in a process of its own, which is killed and started again."""
    opened, messages = base / OPENED, int(rate * sizes.seconds)
    words = ("riot_bench.suites.threat.job", str(base), mode, repr(rate), str(messages))
    with job(*words) as process:
        until = time.monotonic() + START_S
        while not opened.exists() or time.time() < opened.stat().st_mtime + sizes.failed:
            if process.poll() is not None:
                raise RiotError(f"threat detection ended with {process.returncode} before it was to be killed")
            if time.monotonic() > until and not opened.exists():
                raise RiotError(f"threat detection did not begin within {START_S:g} s")
            time.sleep(0.02)
        failed = time.time()
        kill(process)
        noticed = time.time()
    with job(*words) as process:
        finish(process, "threat detection, started again,", sizes.seconds + START_S)
    begun = opened.stat().st_mtime
    found = sorted(path / "threats" for path in base.iterdir() if path.name.startswith("out"))
    run = Analysed.of([one for path in found for one in commits_of(path)], begun)
    lost, doubled = lost_and_doubled_of(found, messages)
    where, what = ("spark-driver", "Spark's driver") if mode == "driver" else ("local", "in process")
    how = f"{what}, killed {sizes.failed:g} s on and started again, at {rate:,.0f} messages/s, half of the most"
    if mode == "driver":
        how += sizes.told
    if mode == "forgotten":
        yield from _forgotten((lost, doubled, messages), rate, how)
        return
    yield from figures(where, run, (begun, failed, noticed), (lost, doubled, messages), sizes, how)


def _forgotten(amounts: tuple[int, int, int], rate: float, how: str) -> Iterator[Measure]:
    """What is lost where messages are done when they are handed out; the paper's share is over no length we know."""
    lost, doubled, messages = amounts
    how += f"; messages are done when they are handed out, results are written each {EPOCH_S:g} s"
    yield Measure("threat/at-most-once/lost", lost, "messages", how, 1)
    yield Measure("threat/at-most-once/lost-seconds", lost / rate, "s", f"lost, by what comes in a second; {how}")
    share = f"of the messages of {messages / rate:g} s; {how}"
    yield Measure("threat/at-most-once/loss", 100 * lost / messages, "%", share)
    yield Measure("threat/at-most-once/doubled", doubled, "messages", how, 0, at_most=True)


def figures(
    where: str,
    run: Analysed,
    times: tuple[float, float, float],
    amounts: tuple[int, int, int],
    sizes: Sizes,
    how: str,
) -> Iterator[Measure]:
    """What a run shows: when it began, failed and was seen to have failed; messages lost, doubled and sent."""
    begun, failed, noticed = times
    lost, doubled, messages = amounts
    before, at = run.before(failed, BEFORE_S), f"threat/failure/{where}"
    loss = 100 * lost / messages
    yield Measure(f"{at}/lost", lost, "messages", how, 0, at_most=True)
    yield Measure(f"{at}/loss", loss, "%", how, published=LOST["spark"] if where == "spark" else None)
    yield Measure(f"{at}/doubled", doubled, "messages", how, 0, at_most=True)
    yield Measure(f"{at}/detection", noticed - failed, "s", "from the failure until it is noticed")
    yield Measure(f"{at}/dip", run.dip(failed, before), "share", "lowest rate of a second by that before")
    back = "from the failure until each second of three has 95 % of the rate before"
    yield Measure(f"{at}/recovery", run.recovery(failed, before), "s", back, 15, at_most=True)
    for at_s, rate in run.series(begun, run.times[-1], sizes.step):
        yield Measure(f"{at}/analysed/{at_s:g}", rate, "messages/s", "from so many seconds on")
