"""Savings by sharing near the peak rate of separate dataflows, in process, with the cost of actions apart.

At a low rate, most of the CPU time of a dataflow is the fixed cost of its batches, which sharing saves almost whole.
Near the peak, batches are large, and what sharing saves is the work on records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.peak_rate import PeakRate, find_peak
from riot_bench.harness.timing import median
from riot_bench.suites.reuse.sides import Side
from riot_bench.suites.reuse.traces import Action
from riot_ops.core.sink import CallbackSink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.pace import PacedSource

__all__ = ["SteadyRun", "Turns", "make_side", "peak_measures", "run_near_peak", "sustains"]

#: Offered rate as a share of the peak of separate dataflows.
LOAD = 0.9
#: Maximum number of messages of a source per turn, and by how much dataflows may lag at a sustained rate.
BATCH, MAX_LAG_S = 5000, 0.5
#: Messages of each source in the batch that gives the first guess of a search, and the share of its rate.
BURST, FIRST = 500, 0.6
#: Seconds of a trial and precision of the search (full and quick form), and maximum seconds of a search.
TRIAL_S, PRECISION, SEARCH_S = (10.0, 0.75), (1.05, 1.25), (120.0, 1.2)
#: Failed trials after which a rate counts as not sustained (full and quick form).
ATTEMPTS = 2, 1
#: Dataflows that are removed and submitted again, and seconds between two actions (full and quick form).
ACTED, BETWEEN_S = (21, 2), (2.0, 0.25)
#: Minimum share of the offered messages that a run near the peak processes.
KEPT_UP = 0.9
#: Seconds between two turns. Without them, a side with spare time would spend it on smaller batches.
TURN_S = 0.25


def peak_measures(
    name: str, flows: Mapping[str, Dataflow], quick: bool, open_source: Callable[[str], Source]
) -> Iterator[Measure]:
    """Search the peak rate of all dataflows, separate and shared, on one core, and run both near that of the separate.

    Parameters
    ----------
    name : str
        Prefix of the measures' names.
    flows : mapping of str to Dataflow
    quick : bool
    open_source : function
        ``open_source(stream)`` returns an unbounded source without a pace.
    """
    peaks, runs = dict[bool, PeakRate](), dict[bool, SteadyRun]()
    with pinned_to_one_core():
        for shared in (False, True):
            start = FIRST * _burst_rate(shared, flows, open_source)
            peaks[shared] = find_peak(
                lambda rate, shared=shared: sustains(  # type: ignore[misc]
                    make_side(shared, flows, open_source, rate), flows, rate, TRIAL_S[quick]
                ),
                start,
                precision=PRECISION[quick],
                attempts=ATTEMPTS[quick],
                limit_s=SEARCH_S[quick],
            )
        rate = LOAD * (peaks[False].rate or FIRST * _burst_rate(False, flows, open_source))
        for shared in (False, True):
            side = make_side(shared, flows, open_source, rate)
            runs[shared] = run_near_peak(side, flows, list(flows)[: ACTED[quick]], rate, BETWEEN_S[quick])
    for shared, side_name in ((False, "apart"), (True, "together")):
        what = f"of each stream, {len(flows)} dataflows on one core that lag at most {MAX_LAG_S:g} s"
        peak = peaks[shared]
        yield Measure(f"{name}/peak-rate/{side_name}", peak.rate, "messages/s", what + peak.caveat)
    if peaks[True].rate and peaks[False].rate:
        what = "peak rate, shared against separate"
        yield Measure(f"{name}/peak-ratio", peaks[True].rate / peaks[False].rate, "ratio", what)
    where, reach = f"at {rate:.0f} messages/s of each stream", None if quick else KEPT_UP  # the quick search is rough
    yield from _run_measures(name, runs[False], runs[True], where, reach)


def _run_measures(
    name: str, apart: SteadyRun, together: SteadyRun, where: str, reach: float | None
) -> Iterator[Measure]:
    a, t = apart.message_us, together.message_us
    what = f"CPU time of a message between actions {where}, without the actions: shared {t:.0f} µs, separate {a:.0f} µs"
    yield Measure(f"{name}/steady-cpu-reduction", 1 - t / a, "share", what, published=0.51)
    for side, run in (("apart", apart), ("together", together)):
        for op, took in (("submit", run.submit_ms), ("remove", run.remove_ms)):
            what = f"CPU time of an action {where}, p50 of {len(took)}"
            yield Measure(f"{name}/{op}-cpu-ms/{side}", median(took), "ms", what)
        what = f"longest time for which an action blocks other dataflows, {where}"
        yield Measure(f"{name}/blocked-ms/{side}", max(run.blocked_ms), "ms", what)
        what = f"messages processed between actions, as a share of those offered, {where}"
        yield Measure(f"{name}/kept-up/{side}", run.kept_up, "share", what, reach)


def make_side(
    shared: bool,
    flows: Mapping[str, Dataflow],
    open_source: Callable[[str], Source],
    rate: float,
    batch: int = BATCH,
) -> Side:
    """Create a side whose sources have ``rate`` messages per second each, and whose sinks discard."""
    return Side(
        shared,
        flows,
        lambda stream: PacedSource(open_source(stream), rate=rate),
        lambda name: CallbackSink(lambda stream, batch: None),
        batch,
    )


def _burst_rate(shared: bool, flows: Mapping[str, Dataflow], open_source: Callable[[str], Source]) -> float:
    """Return the rate at which a batch of each source is processed, after one that loads all code."""
    side = make_side(shared, flows, open_source, 1e9, BURST)
    for name in flows:
        side.apply(Action(0, "submit", name))
    side.turn()
    begin = time.perf_counter()
    side.turn()
    seconds = time.perf_counter() - begin
    side.close()
    return BURST / seconds


def sustains(side: Side, flows: Mapping[str, Dataflow], rate: float, seconds: float) -> bool:
    """Run all dataflows for some seconds; return whether they have processed what was due except of the last moment."""
    for name in flows:
        side.apply(Action(0, "submit", name))
    turns, begin = Turns(side), time.monotonic()
    turns.run(seconds)
    now = time.monotonic()
    lags = [now - begin - read / sources / rate for read, sources in side.progress().values()]
    side.close()
    return max(lags) <= MAX_LAG_S


class Turns:
    """Turns of a side at equal intervals; the next begins at once after one that took longer."""

    def __init__(self, side: Side) -> None:
        self._side = side
        side.turn()  # starts the clocks of the sources
        self._due = time.monotonic() + TURN_S

    def run(self, seconds: float) -> None:
        """Run as many turns as are due in some seconds, or fewer if they take longer: a backlog would grow."""
        limit = time.monotonic() + seconds + MAX_LAG_S
        for _ in range(round(seconds / TURN_S)):
            if time.monotonic() > limit:
                return
            time.sleep(max(0.0, self._due - time.monotonic()))
            self._side.turn()
            self._due = max(self._due + TURN_S, time.monotonic())


@dataclass
class SteadyRun:
    """A run of all dataflows in which some are removed and submitted again.

    Attributes
    ----------
    cpu_s : list of float
        CPU time of each interval between two actions.
    submit_ms, remove_ms : list of float
        CPU time of each action.
    blocked_ms : list of float
        Wall time of each action.
    processed, offered : list of float
        Messages of each interval, mean of the sources.
    """

    cpu_s: list[float] = field(default_factory=list)
    submit_ms: list[float] = field(default_factory=list)
    remove_ms: list[float] = field(default_factory=list)
    blocked_ms: list[float] = field(default_factory=list)
    processed: list[float] = field(default_factory=list)
    offered: list[float] = field(default_factory=list)

    @property
    def message_us(self) -> float:
        """CPU time in µs between actions for each message of a stream, in all dataflows."""
        return 1e6 * sum(self.cpu_s) / sum(self.processed)

    @property
    def kept_up(self) -> float:
        """Processed messages as a share of the offered ones."""
        return sum(self.processed) / sum(self.offered)


def run_near_peak(
    side: Side, flows: Mapping[str, Dataflow], acted: Sequence[str], rate: float, between_s: float
) -> SteadyRun:
    """Run all dataflows; remove some, one at a time, and submit each again."""
    run = SteadyRun()
    for name in flows:
        side.apply(Action(0, "submit", name))
    turns = Turns(side)
    _steady(side, turns, rate, between_s, SteadyRun())  # loads all code
    for name in acted:
        for op, took in (("remove", run.remove_ms), ("submit", run.submit_ms)):
            wall, begin = time.perf_counter(), time.process_time()
            side.apply(Action(0, op, name))  # type: ignore[arg-type]
            took.append(1e3 * (time.process_time() - begin))
            run.blocked_ms.append(1e3 * (time.perf_counter() - wall))
            _steady(side, turns, rate, between_s, run)
    side.close()
    return run


def _steady(side: Side, turns: Turns, rate: float, seconds: float, run: SteadyRun) -> None:
    """Let all dataflows run until the next action."""
    begin, spent, before = time.monotonic(), time.process_time(), side.progress()
    turns.run(seconds)
    wall = time.monotonic() - begin
    run.cpu_s.append(time.process_time() - spent)
    after = side.progress()
    sources = sum(n for _, n in after.values())
    run.processed.append(sum(after[name][0] - read for name, (read, _) in before.items()) / sources)
    run.offered.append(rate * wall)
