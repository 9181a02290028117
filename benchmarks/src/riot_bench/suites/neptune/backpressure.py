"""The back-pressure staircase: a last stage sleeps longer and shorter, and the source must follow its rate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from riot_bench.harness.measure import Measure
from riot_bench.harness.timing import median
from riot_bench.suites.neptune.messages import MessageSource, ReceivingSink
from riot_bench.suites.neptune.thesis import EXPONENT
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.source import Split
from riot_ops.dataflow import Dataflow
from riot_ops.tasks.functions.batch_function import map_batches

__all__ = ["Rates", "Staircase", "backpressure", "rate_exponent", "rate_measures", "run_staircase"]

SIZE = 50
#: Sleep of the last stage per message in ms, step by step.
STEPS = (1.0, 2.0, 3.0, 2.0, 1.0, 0.0)
#: Small batches and a short queue, so that a step is long compared with the waiting messages.
STAGE_BUFFERING = Buffering(capacity=8 * SIZE, queue=32 * SIZE, flush_after="1ms")
#: Share of a step in which the rate settles.
SETTLING_SHARE = 0.3
#: Minimum ratio of the source's rate after the last sleep to that before, for the source to count as recovered.
MIN_SPEEDUP = 1.5
REPETITIONS = 3
#: For each step its sleep, the source's rate, and the rate that the last stage could process.
Rates = list[tuple[float, float, float]]


@dataclass
class Staircase:
    """The last stage, with records of its work.

    Attributes
    ----------
    step_s : float
        Length of each step in seconds.
    began : float
        Begin of the first step.
    served : list of (float, float)
        For each message, when its processing began and how long it slept.
    sent : list of (float, int)
        For each read, its time and number of messages.
    """

    step_s: float
    began: float = field(default_factory=time.monotonic)
    served: list[tuple[float, float]] = field(default_factory=list)
    sent: list[tuple[float, int]] = field(default_factory=list)

    def serve(self, messages: int) -> None:
        """Process messages one by one."""
        for _ in range(messages):
            begun = time.monotonic()
            level = min(int((begun - self.began) / self.step_s), len(STEPS) - 1)
            if STEPS[level]:
                time.sleep(STEPS[level] / 1e3)
            self.served.append((begun, time.monotonic() - begun))

    def serve_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Process the messages of a batch and return it unchanged."""
        self.serve(batch.num_rows)
        return batch

    def step_rates(self) -> Rates:
        """Return for each step with a sleep: the sleep, messages read per second, and ``1 / (sleep + service)``.

        The rate is computed from the measured sleep; the service time is the time per message in the step without
        sleep.
        """
        served = np.array(self.served)
        start, end = self.settled_span(len(STEPS) - 1)
        idle = served[(served[:, 0] >= start) & (served[:, 0] < end)]
        service = (end - start) / max(len(idle), 1)
        found = []
        for level, sleep in enumerate(STEPS[:-1]):
            start, end = self.settled_span(level)
            asleep = float(served[(served[:, 0] >= start) & (served[:, 0] < end), 1].mean())
            found.append((sleep, self.rate_within(start, end), 1 / (asleep + service)))
        return found

    def settled_span(self, level: int) -> tuple[float, float]:
        """Return when a step has settled and when it ends."""
        return self.began + (level + SETTLING_SHARE) * self.step_s, self.began + (level + 1) * self.step_s

    def rate_within(self, start: float, end: float) -> float:
        """Return the messages per second that the source gave between two times."""
        return sum(rows for when, rows in self.sent if start <= when < end) / (end - start)

    def recovery_s(self) -> float:
        """Return the seconds after the last sleep until the source holds half of its final rate for a tenth of a step.

        The rate must also exceed that of the last sleep by half; otherwise a source that never changes would count as
        recovered immediately. Infinite if the source never recovers.
        """
        last, tenth = len(STEPS) - 1, self.step_s / 10
        least = max(
            self.rate_within(*self.settled_span(last)) / 2, MIN_SPEEDUP * self.rate_within(*self.settled_span(last - 1))
        )
        begun = self.began + last * self.step_s
        for k in range(10):
            rate = self.rate_within(begun + k * tenth, begun + (k + 1) * tenth)
            if rate > 0 and rate >= least:
                return (k + 1) * tenth
        return math.inf


class _TimedMessages(MessageSource):
    """Messages that record when they are read."""

    staircase: Staircase

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for batch in super().read(split):
            self.staircase.sent.append((time.monotonic(), batch.num_rows))
            yield batch


def run_staircase(step_s: float) -> tuple[Staircase, ReceivingSink, int]:
    """Run all steps; return the staircase, the sink, and the maximum of buffered bytes."""
    source = _TimedMessages(SIZE, seconds=step_s * len(STEPS))
    source.staircase = staircase = Staircase(step_s)
    flow = Dataflow("stairs")
    first = flow.source("messages", schema=source.schema).to(t.NoOp(), id="relay")
    flow.sink("received", first.to(map_batches(staircase.serve_batch), id="sleeping"))
    sink = ReceivingSink()
    result = flow.run(source, sinks=sink, buffering=STAGE_BUFFERING, cores=1)
    return staircase, sink, result.summary.buffered


def rate_exponent(rates: Rates) -> float:
    """Return the exponent of the time per message in the source's rate, the slope of their logarithms.

    NaN if a rate is 0 or all steps take the same time.

    >>> round(rate_exponent([(1.0, 500.0, 500.0), (2.0, 333.3, 333.3), (3.0, 250.0, 250.0)]), 3)
    -1.0
    """
    _, found, wanted = np.array(rates).T
    if not found.all() or np.ptp(wanted) == 0:
        return math.nan
    return float(np.polyfit(-np.log(wanted), np.log(found), 1)[0])


def backpressure(quick: bool) -> Iterator[Measure]:
    """Measure loss, order, the source's rate against the last stage's, memory and recovery, over several runs."""
    step_s = 1.0 if quick else 10.0
    runs = [run_staircase(step_s) for _ in range(REPETITIONS)]
    how = f"steps of {', '.join(f'{s:g}' for s in STEPS)} ms per message, {step_s:g} s each"
    lost = sum(sink.result(sum(n for _, n in staircase.sent)).faults for staircase, sink, _ in runs)
    at = "neptune/backpressure"
    yield Measure(
        f"{at}/lost", lost, "messages", f"lost, duplicated or out of order, in all runs; {how}", 0, at_most=True
    )
    yield from rate_measures(at, [staircase.step_rates() for staircase, _, _ in runs])
    bound = STAGE_BUFFERING.room + STAGE_BUFFERING.capacity
    yield _median_measure(f"{at}/memory", [waited for _, _, waited in runs], "bytes", f"maximum buffered; {how}", bound)
    note = "until the source is back at half of its rate after the last sleep"
    yield _median_measure(
        f"{at}/recovered", [staircase.recovery_s() for staircase, _, _ in runs], "s", note, 2 * step_s
    )


def rate_measures(at: str, rates: Sequence[Rates]) -> Iterator[Measure]:
    """Yield the measures of how the source followed the last stage, over several runs."""
    for level, sleep in enumerate(STEPS[:-1]):
        wanted = median(one[level][2] for one in rates)
        note = f"source at a sleep of {sleep:g} ms; the last stage could process {wanted:,.0f}"
        yield _median_measure(
            f"{at}/step-{level + 1}/{sleep:g}ms", [one[level][1] for one in rates], "messages/s", note
        )
    errors = [max(abs(rate / wanted - 1) for _, rate, wanted in one) for one in rates]
    note = "worst step of each run: source against 1/(sleep + service)"
    yield _median_measure(f"{at}/rate-error", errors, "share", note, 0.2)
    note = "the source's rate is proportional to this power of sleep + service; thesis: inversely proportional"
    yield replace(
        _median_measure(f"{at}/exponent", [rate_exponent(one) for one in rates], "power", note), published=EXPONENT
    )


def _median_measure(name: str, values: Sequence[float], unit: str, how: str, reach: float | None = None) -> Measure:
    return Measure(name, median(values), unit, how, reach, at_most=True, values=tuple(values))
