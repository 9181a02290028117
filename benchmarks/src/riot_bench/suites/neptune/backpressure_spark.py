"""The staircase on Spark: a stage that sleeps for each message, and a source that is asked for the next ones later."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from riot_bench.harness.data import needs
from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import folder, micro_batches, spark_session
from riot_bench.suites.neptune.backpressure import SETTLING, SIZE, STEPS, Rates, followed
from riot_bench.suites.neptune.messages import Messages, Received, Relayed
from riot_bench.suites.neptune.relay import of_runs
from riot_ops import tasks as t
from riot_ops.core.errors import RiotError
from riot_ops.dataflow import Dataflow
from riot_ops.tasks.functions.batch_function import map_batches

__all__ = [
    "Climbed",
    "Settled",
    "Sleeping",
    "adaptive_staircase",
    "backpressure_on_spark",
    "batch_seconds",
    "held",
    "rates",
    "settled",
    "staircase",
]

#: Sleeps in ms, step after step; the first step, in which workers start, does not count.
LEVELS = (0.0, *STEPS)
#: How far a micro-batch may be from the target before the limit moves, so that it may stay there.
HYSTERESIS = 0.2
#: What a micro-batch at a sleep of 3 ms has at most of one at 1 ms: a third, where it takes 20 % longer and up to half
#: of the target goes by whatever a micro-batch has.
FALL = 0.5


@dataclass(frozen=True)
class Sleeping:
    """A stage that sleeps by the numbers of its messages; ``ends`` tells up to which at each of :data:`LEVELS`."""

    ends: tuple[int, ...]

    def serve(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take messages one by one; where one slept too long, the next ones sleep less."""
        due = time.monotonic()
        for number in batch.column("seq").to_pylist():
            due += LEVELS[min(bisect_right(self.ends, number), len(LEVELS) - 1)] / 1e3
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
        return batch


class Settled(NamedTuple):
    """Of the micro-batches of a step whose limit has settled: the median of their messages, and of their seconds."""

    messages: float
    seconds: float


class Climbed(NamedTuple):
    """What came of one run: the rates and the seconds of a micro-batch, step by step, and the messages."""

    rates: Rates
    seconds: list[float]
    found: Relayed


def staircase(session: Any, batch: int, batches: int) -> Climbed:
    """One run, of so many micro-batches at each step."""
    query, found = _run(session, [batch * batches] * len(LEVELS), max_records=batch)
    spans = micro_batches(query.streaming)
    return Climbed(rates(spans, batch, batches), batch_seconds(spans, batches), found)


def adaptive_staircase(session: Any, most: int, target_s: float, hold_s: float) -> tuple[list[Settled], Relayed]:
    """One run with a limit that follows a target; each step takes about so long."""
    messages = held(most, target_s, hold_s)
    query, found = _run(session, messages, max_records=most, target_s=target_s, min_records=max(1, most // 20))
    taken = [(one["messages"], one["durations_ms"]["triggerExecution"] / 1e3) for one in query.micro_batches]
    return settled(taken, messages), found


def _run(session: Any, held: Sequence[int], **options: Any) -> tuple[Any, Relayed]:
    """The query, of so many messages at each step, and what came."""
    ends = tuple(accumulate(held))
    messages = Messages(SIZE, total=ends[-1])
    flow = Dataflow("stairs")
    relay = flow.source("messages", schema=messages.schema).to(t.RunningCount(), id="relay")
    flow.sink("received", relay.to(map_batches(Sleeping(ends).serve), id="sleeping"))
    with folder() as notes:
        sink = Received(notes)
        query = flow.start(session, messages, sinks=sink, **options)
        query.wait()
        return query, sink.relayed(ends[-1])


def held(most: int, target_s: float, hold_s: float) -> list[int]:
    """Messages at each step: as many as can sleep in the time, and where none sleeps as many as are asked for in it.

    >>> held(1000, 1.0, 6.0)
    [6000, 6000, 3000, 2000, 3000, 6000, 6000]
    """
    return [round(hold_s * (1e3 / sleep if sleep else most / target_s)) for sleep in LEVELS]


def settled(taken: Sequence[tuple[int, float]], held: Sequence[int]) -> list[Settled]:
    """For each step with a sleep, its micro-batches behind a first share of it, in which the limit moves.

    Of micro-batches, what each had and took; what lies in two steps does not count.
    """
    ends = list(accumulate(held))
    found = []
    for level in range(1, len(LEVELS) - 1):
        first, last = ends[level] - (1 - SETTLING) * held[level], ends[level]
        within = [
            one
            for one, end in zip(taken, accumulate(n for n, _ in taken), strict=True)
            if one[0] and first <= end - one[0] and end <= last
        ]
        if not within:
            raise RiotError(f"no micro-batch lies within step {level}: it is too short for the target")
        found.append(Settled(median(n for n, _ in within), median(seconds for _, seconds in within)))
    return found


def rates(spans: Sequence[tuple[float, float]], batch: int, batches: int) -> Rates:
    """For each step with a sleep: its length, messages read per second, and ``1 / (sleep + service)``.

    Of micro-batches, when each began and what it took; the service is the time for a message where none sleeps.
    """
    wanted = batches * len(LEVELS)
    if len(spans) < wanted:
        raise RiotError(f"{wanted} micro-batches were due, and Spark tells of {len(spans)}")
    begun = [when for when, _ in spans[:wanted]] + [sum(spans[wanted - 1])]
    steps = [end - start for start, end in pairwise(begun[::batches])]
    *asleep, idle = (step / (batch * batches) for step in steps[1:])
    return [(sleep, 1 / spent, 1 / (sleep / 1e3 + idle)) for sleep, spent in zip(STEPS, asleep, strict=False)]


def batch_seconds(spans: Sequence[tuple[float, float]], batches: int) -> list[float]:
    """For each step with a sleep, what a micro-batch took."""
    spent = [seconds for _, seconds in spans]
    return [median(spent[k * batches : (k + 1) * batches]) for k in range(1, len(LEVELS) - 1)]


def backpressure_on_spark(quick: bool) -> Iterator[Measure]:
    """Loss, order, and the source's rate against what the last stage could take; then with a limit that adapts."""
    needs("this experiment", "spark", "pyspark", "pandas")
    batch, batches, repetitions = (300, 2, 1) if quick else (500, 5, 3)
    most, target_s, hold_s = (500, 0.5, 2.0) if quick else (2000, 1.0, 10.0)
    with spark_session() as session:
        staircase(session, 2, 2)  # a new session does each micro-batch faster than the one before
        runs = [staircase(session, batch, batches) for _ in range(repetitions)]
        adaptive = [adaptive_staircase(session, most, target_s, hold_s) for _ in range(repetitions)]
    at = "neptune/backpressure/spark"
    how = f"{batches} micro-batches of {batch} at each of {len(LEVELS)} steps"
    told = f"lost, doubled or out of order, in all runs; {how}"
    yield Measure(f"{at}/lost", sum(run.found.faults for run in runs), "messages", told, 0, at_most=True)
    yield from followed(at, [run.rates for run in runs])
    for level, sleep in enumerate(STEPS[:-1]):
        told = f"a micro-batch of {batch}, whatever the sleep, here {sleep:g} ms per message"
        yield of_runs(f"{at}/step-{level + 1}/batch-seconds", [run.seconds[level] for run in runs], "s", told)
    yield from _adapted(f"{at}/adaptive", adaptive, target_s)


def _adapted(at: str, runs: Sequence[tuple[list[Settled], Relayed]], target_s: float) -> Iterator[Measure]:
    """How micro-batches kept to a target, and what they had for that."""
    told = f"lost, doubled or out of order, in all runs with a target of {target_s:g} s for a micro-batch"
    yield Measure(f"{at}/lost", sum(found.faults for _, found in runs), "messages", told, 0, at_most=True)
    for level, sleep in enumerate(STEPS[:-1]):
        told = f"a micro-batch at a sleep of {sleep:g} ms, once the limit has settled; target {target_s:g} s"
        steps = [steps[level] for steps, _ in runs]
        yield of_runs(f"{at}/step-{level + 1}/batch-seconds", [one.seconds for one in steps], "s", told)
        yield of_runs(f"{at}/step-{level + 1}/batch-messages", [one.messages for one in steps], "messages", told)
    errors = [max(abs(one.seconds / target_s - 1) for one in steps) for steps, _ in runs]
    told = "worst step of each run: its micro-batches against the target, from which the limit may let them be 20 % off"
    yield of_runs(f"{at}/duration-error", errors, "share", told, HYSTERESIS, at_most=True)
    falls = [steps[STEPS.index(3.0)].messages / steps[STEPS.index(1.0)].messages for steps, _ in runs]
    told = "messages of a micro-batch at 3 ms against 1 ms: a third, or more where it takes longer or has costs besides"
    yield of_runs(f"{at}/fall", falls, "share", told, FALL, at_most=True)
