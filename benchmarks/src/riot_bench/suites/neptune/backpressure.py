"""The staircase: a third stage that sleeps longer and shorter, and the source that has to follow."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from riot_bench.harness.measure import Measure, median
from riot_bench.suites.neptune.messages import Messages, Received
from riot_bench.suites.neptune.published import EXPONENT
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.source import Split
from riot_ops.dataflow import Dataflow
from riot_ops.tasks.functions.batch_function import map_batches

__all__ = ["Rates", "Stairs", "backpressure", "exponent", "followed", "staircase"]

SIZE = 50
#: How long the last stage sleeps per message, step after step, in ms.
STEPS = (1.0, 2.0, 3.0, 2.0, 1.0, 0.0)
#: A few messages a batch and a queue of a few batches, so that a step of the stairs is long beside what waits.
STAIRS = Buffering(capacity=8 * SIZE, queue=32 * SIZE, flush_ms=1)
#: Share of a step that belongs to the change of the rate.
SETTLING = 0.3
#: How many times the rate at the last sleep the source gives at least once it is over.
QUICKER = 1.5
REPETITIONS = 3
#: Of each step: its sleep, the source's rate, and the rate that the last stage could take.
Rates = list[tuple[float, float, float]]


@dataclass
class Stairs:
    """What the last stage does and did: steps of equal length, and notes of services and readings.

    ``served`` has when each message's turn came and how long it slept, ``sent`` when how many were read.
    """

    hold_s: float
    began: float = field(default_factory=time.monotonic)
    served: list[tuple[float, float]] = field(default_factory=list)
    sent: list[tuple[float, int]] = field(default_factory=list)

    def serve(self, messages: int) -> None:
        """Take messages one by one."""
        for _ in range(messages):
            begun = time.monotonic()
            level = min(int((begun - self.began) / self.hold_s), len(STEPS) - 1)
            if STEPS[level]:
                time.sleep(STEPS[level] / 1e3)
            self.served.append((begun, time.monotonic() - begun))

    def serve_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same for a batch, which goes on as it is."""
        self.serve(batch.num_rows)
        return batch

    def rates(self) -> Rates:
        """For each step with a sleep: its length, messages read per second, and ``1 / (sleep + service)``.

        The sleep is what it really took, the service what a message takes besides: the time for one where none sleeps.
        """
        served = np.array(self.served)
        start, end = self.span(len(STEPS) - 1)
        idle = served[(served[:, 0] >= start) & (served[:, 0] < end)]
        service = (end - start) / max(len(idle), 1)
        found = []
        for level, sleep in enumerate(STEPS[:-1]):
            start, end = self.span(level)
            asleep = float(served[(served[:, 0] >= start) & (served[:, 0] < end), 1].mean())
            found.append((sleep, self.rate_within(start, end), 1 / (asleep + service)))
        return found

    def span(self, level: int) -> tuple[float, float]:
        """When a step has settled, and when it ends."""
        return self.began + (level + SETTLING) * self.hold_s, self.began + (level + 1) * self.hold_s

    def rate_within(self, start: float, end: float) -> float:
        """Messages per second that the source gave within a time."""
        return sum(rows for when, rows in self.sent if start <= when < end) / (end - start)

    def recovered_s(self) -> float:
        """How long after the last sleep the source first gave, for a tenth of a step, half of what it then came to.

        It has to be half as much again as at the last sleep, too: else a source that stays as it was would be back at
        once. Infinite where it never is.
        """
        last, tenth = len(STEPS) - 1, self.hold_s / 10
        least = max(self.rate_within(*self.span(last)) / 2, QUICKER * self.rate_within(*self.span(last - 1)))
        begun = self.began + last * self.hold_s
        for k in range(10):
            rate = self.rate_within(begun + k * tenth, begun + (k + 1) * tenth)
            if rate > 0 and rate >= least:
                return (k + 1) * tenth
        return math.inf


class _Noted(Messages):
    """Notes when it gave how many messages."""

    stairs: Stairs

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for batch in super().read(split):
            self.stairs.sent.append((time.monotonic(), batch.num_rows))
            yield batch


def staircase(hold_s: float) -> tuple[Stairs, Received, int]:
    """One run over all steps: notes, what came, and the most bytes that waited."""
    source = _Noted(SIZE, seconds=hold_s * len(STEPS))
    source.stairs = stairs = Stairs(hold_s)
    flow = Dataflow("stairs")
    first = flow.source("messages", schema=source.schema).to(t.NoOp(), id="relay")
    flow.sink("received", first.to(map_batches(stairs.serve_batch), id="sleeping"))
    sink = Received()
    result = flow.run(source, sinks=sink, buffering=STAIRS, cores=1)
    return stairs, sink, result.summary.buffered


def exponent(rates: Rates) -> float:
    """The power of the time per message that the source's rate goes with: the slope of their logarithms.

    NaN where a rate is 0, or all steps take the same.

    >>> round(exponent([(1.0, 500.0, 500.0), (2.0, 333.3, 333.3), (3.0, 250.0, 250.0)]), 3)
    -1.0
    """
    _, found, wanted = np.array(rates).T
    if not found.all() or np.ptp(wanted) == 0:
        return math.nan
    return float(np.polyfit(-np.log(wanted), np.log(found), 1)[0])


def backpressure(quick: bool) -> Iterator[Measure]:
    """Loss, order, rate against what the last stage could take, memory, recovery; of several runs."""
    hold_s = 1.0 if quick else 10.0
    runs = [staircase(hold_s) for _ in range(REPETITIONS)]
    how = f"steps of {', '.join(f'{s:g}' for s in STEPS)} ms per message, {hold_s:g} s each"
    lost = sum(sink.relayed(sum(n for _, n in stairs.sent)).faults for stairs, sink, _ in runs)
    at = "neptune/backpressure"
    yield Measure(f"{at}/lost", lost, "messages", f"lost, doubled or out of order, in all runs; {how}", 0, at_most=True)
    yield from followed(at, [stairs.rates() for stairs, _, _ in runs])
    bound = STAIRS.room + STAIRS.capacity
    yield _of(f"{at}/memory", [waited for _, _, waited in runs], "bytes", f"most that waited; {how}", bound)
    told = "until the source is back at half of its rate, once the last stage sleeps no more"
    yield _of(f"{at}/recovered", [stairs.recovered_s() for stairs, _, _ in runs], "s", told, 2 * hold_s)


def followed(at: str, rates: Sequence[Rates]) -> Iterator[Measure]:
    """How the source followed the last stage, of several runs."""
    for level, sleep in enumerate(STEPS[:-1]):
        wanted = median(one[level][2] for one in rates)
        told = f"source at a sleep of {sleep:g} ms; the last stage could take {wanted:,.0f}"
        yield _of(f"{at}/step-{level + 1}/{sleep:g}ms", [one[level][1] for one in rates], "messages/s", told)
    errors = [max(abs(rate / wanted - 1) for _, rate, wanted in one) for one in rates]
    told = "worst step of each run: source against 1/(sleep + service)"
    yield _of(f"{at}/rate-error", errors, "share", told, 0.2)
    told = "the source's rate goes with this power of sleep + service; thesis: inversely proportional"
    yield replace(_of(f"{at}/exponent", [exponent(one) for one in rates], "power", told), published=EXPONENT)


def _of(name: str, values: Sequence[float], unit: str, how: str, reach: float | None = None) -> Measure:
    return Measure(name, median(values), unit, how, reach, at_most=True, values=tuple(values))
