"""How many dataflows two cores carry on Spark, each as a query and together; and how late a boundary makes records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import folder, spark_session
from riot_bench.suites.reuse.sides import TRIGGER_S, Apart, Side, Together
from riot_ops import tasks as t
from riot_ops.core.sink import CallbackSink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.measure.processes import ProcessTree
from riot_ops.ingest.pace import Paced

__all__ = ["boundary", "carried", "let_run"]

CORES = 2
#: Messages per second of each dataflow's source.
RATE = 100.0
#: Queries that run at once on the side where each dataflow is one: their processor time adds up.
AT_ONCE = 3
#: Seconds for which it counts, in the full and in the quick form; and how long a query may take to come up.
COUNTED, UP_SECONDS, LOOK_SECONDS = (10.0, 3.0), 30.0, 0.1
#: So many micro-batches of a query are waited for besides, in the mean: on a busy machine they take longer.
LEAST_BATCHES = 5
#: Messages that are waited for to tell what a boundary adds, in the full and in the quick form; their rate; and seconds
#: for which they are waited for at most.
MESSAGES, MESSAGE_RATE, MOST_SECONDS = (400, 100), 20.0, 60.0


def let_run(side: Side, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
    """Let it run for so long, or until it is over, and hand over what comes."""
    end = time.monotonic() + seconds
    while not over() and time.monotonic() < end:
        time.sleep(min(LOOK_SECONDS, max(0.0, end - time.monotonic())))
        side.poll()


def carried(name: str, flows: Mapping[str, Dataflow], quick: bool, opened: Callable[..., Source]) -> Iterator[Measure]:
    """Processor time per dataflow at 100 messages per second each, and what two cores carry of that.

    Parameters
    ----------
    name : str
        What the measures' names begin with.
    flows : mapping of str to Dataflow
        The users' dataflows. Together they all run, and queries that hang together are one; each by itself some at a
        time, as more than two cores carry would only show that they are behind.
    quick : bool
    opened : function
        ``opened(stream, messages=None)`` is a source.
    """

    def paced(stream: str) -> Source:
        return Paced(opened(stream), rate=RATE)

    counted = COUNTED[quick]
    some = list(flows.values())
    with folder() as place, spark_session(CORES) as spark:
        with closing(Together(spark, place / "warm", paced)) as side:  # which loads all code
            _cores(side, some[:1], 1.0)
        idle = _idle(1.0)
        apart = 0.0
        for first in range(0, len(some), AT_ONCE):
            with closing(Apart(spark, place / f"apart-{first}", paced)) as one:
                apart += _cores(one, some[first : first + AT_ONCE], counted) - idle
        with closing(Together(spark, place / "together", paced)) as side:
            together = _cores(side, some, counted, side.manager.defragment) - idle
            queries = len(side.backend.micro_batches())
    room, n = CORES - idle, len(some)
    what = f"at {RATE:g} messages/s each, a micro-batch every {TRIGGER_S:g} s"
    each = f"{apart / n:.3f} cores per dataflow, mean of {n}, {AT_ONCE} at a time"
    yield Measure(f"{name}/apart", room * n / apart, "dataflows", f"{what}: {each}")
    each = f"{together:.3f} cores for {n} in {queries} queries"
    yield Measure(f"{name}/together", room * n / together, "dataflows", f"{what}: {each}")
    yield Measure(f"{name}/ratio", apart / together, "ratio", "dataflows that two cores carry, together to apart", 3)


def _cores(side: Side, flows: Sequence[Dataflow], seconds: float, then: Callable[[], object] = lambda: None) -> float:
    """Cores that it takes to run some dataflows, once they are up, with all micro-batches that are due."""
    for flow in flows:
        side.submit(flow, CallbackSink(lambda stream, batch: None))
    then()
    let_run(side, UP_SECONDS, side.up)
    spent = ProcessTree().spent
    begin, before, done = time.monotonic(), spent(), side.batches()
    let_run(side, seconds)
    let_run(side, UP_SECONDS, lambda: side.batches() - done >= LEAST_BATCHES * side.queries())
    took, seconds = spent() - before, time.monotonic() - begin
    due = side.queries() * seconds / TRIGGER_S
    return took / seconds * max(1.0, due / max(side.batches() - done, 1))


def _idle(seconds: float) -> float:
    """Cores that a session without queries uses."""
    spent = ProcessTree().spent
    begin, before = time.monotonic(), spent()
    time.sleep(seconds)
    return (spent() - before) / (time.monotonic() - begin)


class _Arrivals:
    """When a sink got the first record of each message."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}

    def sink(self) -> CallbackSink:
        """A sink that notes it."""
        return CallbackSink(self._take)

    def _take(self, stream: str, batch: pa.RecordBatch) -> None:
        now = time.monotonic()
        for seq in int_column(batch.column("seq")).tolist():
            self.at.setdefault(seq, now)


def boundary(name: str, spark: Any, place: Path, quick: bool, opened: Callable[..., Source]) -> Measure:
    """How much later the same records come to a sink behind one more query, which reads them from a topic."""
    late: dict[str, _Arrivals] = {}

    def paced(stream: str) -> Source:
        return Paced(opened(stream), rate=MESSAGE_RATE)

    with closing(Together(spark, place / "boundary", paced, join=False)) as side:
        for flow in (_smoothed("before", False), _smoothed("behind", True)):
            late[flow.name] = _Arrivals()
            side.submit(flow, late[flow.name].sink())
        let_run(side, UP_SECONDS, side.up)
        since = max(late["behind"].at, default=-1)  # what came up to there may have waited for the query to come up

        def both() -> list[int]:
            return [seq for seq in late["before"].at.keys() & late["behind"].at.keys() if seq > since]

        let_run(side, MOST_SECONDS, lambda: len(both()) >= MESSAGES[quick])
        queries = len(side.backend.micro_batches())
    added = [1e3 * (late["behind"].at[seq] - late["before"].at[seq]) for seq in both()]
    what = f"p50 of {len(added)} messages, {queries} queries, a micro-batch every {TRIGGER_S:g} s"
    reach = 1e3 * (TRIGGER_S + 0.3)
    return Measure(name, median(added) if added else float("inf"), "ms", what, reach, at_most=True)


def _smoothed(name: str, further: bool) -> Dataflow:
    """A filter with state, and perhaps one step behind it."""
    flow = Dataflow(name)
    stream = flow.source("city").to(t.ParseSenML(schema="city"), id="parse")
    stream = stream.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="kalman")
    return flow.sink("out", stream.to(t.RangeFilter(bounds="city"), id="kept") if further else stream)
