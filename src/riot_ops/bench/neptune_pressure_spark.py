"""The staircase on Spark: a stage that sleeps for each message, and a source that is asked for the next ones later."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from riot_ops import tasks as t
from riot_ops.bench.data import needs
from riot_ops.bench.measure import Measure, median
from riot_ops.bench.neptune_messages import Messages, Received, Relayed
from riot_ops.bench.neptune_pressure import SIZE, STEPS, Rates, followed
from riot_ops.bench.neptune_relay import of_runs
from riot_ops.bench.sparks import folder, micro_batches, spark_session
from riot_ops.core.errors import RiotError
from riot_ops.dataflow import Dataflow
from riot_ops.tasks.functions.batch_function import map_batches

__all__ = ["Climbed", "Sleeping", "backpressure_on_spark", "batch_seconds", "rates", "staircase"]

#: Sleeps in ms, step after step; the first step, in which workers start, does not count.
LEVELS = (0.0, *STEPS)


@dataclass(frozen=True)
class Sleeping:
    """A stage that sleeps by the numbers of its messages: ``hold`` of them at each of :data:`LEVELS`."""

    hold: int

    def serve(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take messages one by one; where one slept too long, the next ones sleep less."""
        due = time.monotonic()
        for number in batch.column("seq").to_pylist():
            due += LEVELS[min(number // self.hold, len(LEVELS) - 1)] / 1e3
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
        return batch


class Climbed(NamedTuple):
    """What came of one run: the rates and the seconds of a micro-batch, step by step, and the messages."""

    rates: Rates
    seconds: list[float]
    found: Relayed


def staircase(session: Any, batch: int, batches: int) -> Climbed:
    """One run, of so many micro-batches at each step."""
    messages = Messages(SIZE, total=batch * batches * len(LEVELS))
    flow = Dataflow("stairs")
    relay = flow.source("messages", schema=messages.schema).to(t.RunningCount(), id="relay")
    flow.sink("received", relay.to(map_batches(Sleeping(batch * batches).serve), id="sleeping"))
    with folder() as notes:
        sink = Received(notes)
        query = flow.start(session, messages, sinks=sink, max_records=batch)
        query.wait()
        found = sink.relayed(batch * batches * len(LEVELS))
    spans = micro_batches(query.streaming)
    return Climbed(rates(spans, batch, batches), batch_seconds(spans, batches), found)


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
    """Loss, order, and the source's rate against what the last stage could take."""
    needs("this experiment", "spark", "pyspark", "pandas")
    batch, batches, repetitions = (300, 2, 1) if quick else (500, 5, 3)
    with spark_session() as session:
        staircase(session, 2, 2)  # a new session does each micro-batch faster than the one before
        runs = [staircase(session, batch, batches) for _ in range(repetitions)]
    at = "neptune/backpressure/spark"
    how = f"{batches} micro-batches of {batch} at each of {len(LEVELS)} steps"
    told = f"lost, doubled or out of order, in all runs; {how}"
    yield Measure(f"{at}/lost", sum(run.found.faults for run in runs), "messages", told, 0, at_most=True)
    yield from followed(at, [run.rates for run in runs])
    for level, sleep in enumerate(STEPS[:-1]):
        told = f"a micro-batch of {batch}, whatever the sleep, here {sleep:g} ms per message"
        yield of_runs(f"{at}/step-{level + 1}/batch-seconds", [run.seconds[level] for run in runs], "s", told)
