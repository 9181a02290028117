"""The back-pressure staircase on Spark: a stage sleeps for each message, and micro-batches begin later."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.micro_batches import micro_batches
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.neptune.backpressure import SETTLING_SHARE, SIZE, STEPS, Rates, rate_measures
from riot_bench.suites.neptune.messages import MessageSource, ReceivingSink, RelayResult
from riot_bench.suites.neptune.relay import median_of_runs
from riot_ops import tasks as t
from riot_ops.core.errors import RiotError
from riot_ops.dataflow import Dataflow
from riot_ops.tasks.functions.batch_function import map_batches

__all__ = [
    "SettledStep",
    "SleepingStage",
    "StaircaseRun",
    "backpressure_on_spark",
    "batch_seconds",
    "messages_per_step",
    "run_adaptive_staircase",
    "run_staircase",
    "settled_steps",
    "step_rates",
]

#: Sleeps in ms, step by step; the first step, in which workers start, does not count.
LEVELS = (0.0, *STEPS)
#: Relative distance from the target within which the record limit does not change.
HYSTERESIS = 0.2
#: Maximum size of a micro-batch at a sleep of 3 ms as a share of that at 1 ms. Ideally it is a third; it may be more,
#: as
#: a micro-batch may take 20 % longer and up to half of the target may be fixed cost.
MAX_SHARE = 0.5


@dataclass(frozen=True)
class SleepingStage:
    """A stage whose sleep depends on the message number; ``ends`` has the end of each of :data:`LEVELS`."""

    ends: tuple[int, ...]

    def serve(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Process messages one by one; after too long a sleep, the next ones are shorter."""
        due = time.monotonic()
        for number in batch.column("seq").to_pylist():
            due += LEVELS[min(bisect_right(self.ends, number), len(LEVELS) - 1)] / 1e3
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
        return batch


class SettledStep(NamedTuple):
    """Median messages and seconds of the micro-batches of a step, once the limit has settled."""

    messages: float
    seconds: float


class StaircaseRun(NamedTuple):
    """A run: rates and seconds of a micro-batch by step, and the received messages."""

    rates: Rates
    seconds: list[float]
    found: RelayResult


def run_staircase(session: Any, batch: int, batches: int) -> StaircaseRun:
    """Run ``batches`` micro-batches of ``batch`` messages at each step."""
    query, found = _run(session, [batch * batches] * len(LEVELS), max_records=batch)
    spans = micro_batches(query.streaming)
    return StaircaseRun(step_rates(spans, batch, batches), batch_seconds(spans, batches), found)


def run_adaptive_staircase(
    session: Any, most: int, target_s: float, step_s: float
) -> tuple[list[SettledStep], RelayResult]:
    """Run with a record limit that follows a target duration; each step takes about ``hold_s`` seconds."""
    messages = messages_per_step(most, target_s, step_s)
    query, found = _run(
        session, messages, max_records=most, target=timedelta(seconds=target_s), min_records=max(1, most // 20)
    )
    taken = [(one["messages"], one["durations_ms"]["triggerExecution"] / 1e3) for one in query.micro_batches]
    return settled_steps(taken, messages), found


def _run(session: Any, counts: Sequence[int], **options: Any) -> tuple[Any, RelayResult]:
    """Run a query with the given counts at each step; return it and the received messages."""
    ends = tuple(accumulate(counts))
    messages = MessageSource(SIZE, total=ends[-1])
    flow = Dataflow("stairs")
    relay = flow.source("messages", schema=messages.schema).to(t.RunningCount(), id="relay")
    flow.sink("received", relay.to(map_batches(SleepingStage(ends).serve), id="sleeping"))
    with temporary_folder() as notes:
        sink = ReceivingSink(notes)
        query = flow.start(session, messages, sinks=sink, **options)
        query.wait()
        return query, sink.result(ends[-1])


def messages_per_step(most: int, target_s: float, step_s: float) -> list[int]:
    """Return the messages of each step: as many as fit into the time by their sleep, or by the maximum batch size.

    >>> messages_per_step(1000, 1.0, 6.0)
    [6000, 6000, 3000, 2000, 3000, 6000, 6000]
    """
    return [round(step_s * (1e3 / sleep if sleep else most / target_s)) for sleep in LEVELS]


def settled_steps(taken: Sequence[tuple[int, float]], messages: Sequence[int]) -> list[SettledStep]:
    """Summarize for each step with a sleep the micro-batches after the share of it in which the limit settles.

    ``taken`` has the messages and seconds of each micro-batch; a micro-batch that spans two steps does not count.
    """
    ends = list(accumulate(messages))
    found = []
    for level in range(1, len(LEVELS) - 1):
        first, last = ends[level] - (1 - SETTLING_SHARE) * messages[level], ends[level]
        within = [
            one
            for one, end in zip(taken, accumulate(n for n, _ in taken), strict=True)
            if one[0] and first <= end - one[0] and end <= last
        ]
        if not within:
            raise RiotError(f"no micro-batch is within step {level}: the step is too short for the target")
        found.append(SettledStep(median(n for n, _ in within), median(seconds for _, seconds in within)))
    return found


def step_rates(spans: Sequence[tuple[float, float]], batch: int, batches: int) -> Rates:
    """Return for each step with a sleep: the sleep, messages read per second, and ``1 / (sleep + service)``.

    ``spans`` has begin and duration of each micro-batch; the service time is that of a message in the step without
    sleep.
    """
    wanted = batches * len(LEVELS)
    if len(spans) < wanted:
        raise RiotError(f"{wanted} micro-batches were expected, but Spark reports {len(spans)}")
    begun = [when for when, _ in spans[:wanted]] + [sum(spans[wanted - 1])]
    steps = [end - start for start, end in pairwise(begun[::batches])]
    *asleep, idle = (step / (batch * batches) for step in steps[1:])
    return [(sleep, 1 / spent, 1 / (sleep / 1e3 + idle)) for sleep, spent in zip(STEPS, asleep, strict=False)]


def batch_seconds(spans: Sequence[tuple[float, float]], batches: int) -> list[float]:
    """Return the median seconds of a micro-batch for each step with a sleep."""
    spent = [seconds for _, seconds in spans]
    return [median(spent[k * batches : (k + 1) * batches]) for k in range(1, len(LEVELS) - 1)]


def backpressure_on_spark(quick: bool) -> Iterator[Measure]:
    """Measure loss, order and the source's rate against the last stage's; then with an adaptive record limit."""
    require_extra("this experiment", "spark", "pyspark", "pandas")
    batch, batches, repetitions = (300, 2, 1) if quick else (500, 5, 3)
    most, target_s, step_s = (500, 0.5, 2.0) if quick else (2000, 1.0, 10.0)
    with spark_session() as session:
        run_staircase(session, 2, 2)  # in a new session, each micro-batch is faster than the previous one
        runs = [run_staircase(session, batch, batches) for _ in range(repetitions)]
        adaptive = [run_adaptive_staircase(session, most, target_s, step_s) for _ in range(repetitions)]
    at = "neptune/backpressure/spark"
    how = f"{batches} micro-batches of {batch} at each of {len(LEVELS)} steps"
    note = f"lost, duplicated or out of order, in all runs; {how}"
    yield Measure(f"{at}/lost", sum(run.found.faults for run in runs), "messages", note, 0, at_most=True)
    yield from rate_measures(at, [run.rates for run in runs])
    for level, sleep in enumerate(STEPS[:-1]):
        note = f"a micro-batch of {batch} messages at a sleep of {sleep:g} ms per message"
        yield median_of_runs(f"{at}/step-{level + 1}/batch-seconds", [run.seconds[level] for run in runs], "s", note)
    yield from _adaptive_measures(f"{at}/adaptive", adaptive, target_s)


def _adaptive_measures(
    at: str, runs: Sequence[tuple[list[SettledStep], RelayResult]], target_s: float
) -> Iterator[Measure]:
    """Yield the measures of how micro-batches met the target duration, and of their sizes."""
    note = f"lost, duplicated or out of order, in all runs with a target of {target_s:g} s for a micro-batch"
    yield Measure(f"{at}/lost", sum(found.faults for _, found in runs), "messages", note, 0, at_most=True)
    for level, sleep in enumerate(STEPS[:-1]):
        note = f"a micro-batch at a sleep of {sleep:g} ms, after the limit has settled; target {target_s:g} s"
        steps = [steps[level] for steps, _ in runs]
        yield median_of_runs(f"{at}/step-{level + 1}/batch-seconds", [one.seconds for one in steps], "s", note)
        yield median_of_runs(f"{at}/step-{level + 1}/batch-messages", [one.messages for one in steps], "messages", note)
    errors = [max(abs(one.seconds / target_s - 1) for one in steps) for steps, _ in runs]
    note = "worst step of each run: duration of its micro-batches against the target, with a tolerance of 20 %"
    yield median_of_runs(f"{at}/duration-error", errors, "share", note, HYSTERESIS, at_most=True)
    falls = [steps[STEPS.index(3.0)].messages / steps[STEPS.index(1.0)].messages for steps, _ in runs]
    note = "messages of a micro-batch at 3 ms against 1 ms: a third, or more with fixed costs or a longer duration"
    yield median_of_runs(f"{at}/fall", falls, "share", note, MAX_SHARE, at_most=True)
