"""Number of dataflows that two cores carry on Spark, separate and shared, and the latency of a query boundary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.reuse.executions import TRIGGER_S, Execution, SeparateQueries, SharedQueries
from riot_ops import tasks as t
from riot_ops.core.sink import CallbackSink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.pace import PacedSource
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.measure.processes import ProcessTree

__all__ = ["boundary_latency", "capacity_measures", "run_for"]

CORES = 2
#: Messages per second of each dataflow's source.
RATE = 100.0
#: Separate queries that run concurrently; their CPU times are added up.
CONCURRENT = 3
#: Measured seconds (full and quick form), seconds that a query may take to start, and seconds between polls.
MEASURED_S, START_TIMEOUT_S, POLL_S = (10.0, 3.0), 30.0, 0.1
#: Minimum mean number of measured micro-batches per query; on a busy machine they take longer.
MIN_BATCHES = 5
#: Messages to measure the latency of a boundary (full and quick form), their rate, and the time limit in seconds.
MESSAGES, MESSAGE_RATE, MESSAGE_TIMEOUT_S = (400, 100), 20.0, 60.0


def run_for(execution: Execution, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
    """Poll an execution for ``seconds``, or until ``over`` returns true."""
    end = time.monotonic() + seconds
    while not over() and time.monotonic() < end:
        time.sleep(min(POLL_S, max(0.0, end - time.monotonic())))
        execution.poll()


def capacity_measures(
    name: str, flows: Mapping[str, Dataflow], quick: bool, open_source: Callable[..., Source]
) -> Iterator[Measure]:
    """Measure CPU time per dataflow at 100 messages per second, and the number of dataflows that two cores carry.

    Parameters
    ----------
    name : str
        Prefix of the measures' names.
    flows : mapping of str to Dataflow
        The users' dataflows. Shared, all of them run, and connected queries are merged into one. Separate, some run
        at a
        time, as an overload of the two cores would only measure the backlog.
    quick : bool
    open_source : function
        ``open_source(stream, messages=None)`` returns a source.
    """

    def paced(stream: str) -> Source:
        return PacedSource(open_source(stream), rate=RATE)

    counted = MEASURED_S[quick]
    some = list(flows.values())
    with temporary_folder() as folder, spark_session(CORES) as spark:
        with closing(SharedQueries(spark, folder / "warm", paced)) as execution:  # loads all code
            _cores_used(execution, some[:1], 1.0)
        idle = _idle_cores(1.0)
        apart = 0.0
        for first in range(0, len(some), CONCURRENT):
            with closing(SeparateQueries(spark, folder / f"apart-{first}", paced)) as one:
                apart += _cores_used(one, some[first : first + CONCURRENT], counted) - idle
        with closing(SharedQueries(spark, folder / "together", paced)) as execution:
            together = _cores_used(execution, some, counted, execution.manager.defragment) - idle
            queries = len(execution.backend.micro_batches())
    room, n = CORES - idle, len(some)
    what = f"at {RATE:g} messages/s each, a micro-batch every {TRIGGER_S:g} s"
    each = f"{apart / n:.3f} cores per dataflow, mean of {n}, {CONCURRENT} at a time"
    yield Measure(f"{name}/apart", room * n / apart, "dataflows", f"{what}: {each}")
    each = f"{together:.3f} cores for {n} in {queries} queries"
    yield Measure(f"{name}/together", room * n / together, "dataflows", f"{what}: {each}")
    yield Measure(
        f"{name}/ratio", apart / together, "ratio", "dataflows that two cores carry, shared against separate", 3
    )


def _cores_used(
    execution: Execution, flows: Sequence[Dataflow], seconds: float, then: Callable[[], object] = lambda: None
) -> float:
    """Return the cores that dataflows use after their start, extrapolated to all micro-batches that are due."""
    for flow in flows:
        execution.submit(flow, CallbackSink(lambda stream, batch: None))
    then()
    run_for(execution, START_TIMEOUT_S, execution.is_started)
    spent = ProcessTree().cpu_seconds
    begin, before, done = time.monotonic(), spent(), execution.batch_count()
    run_for(execution, seconds)
    run_for(execution, START_TIMEOUT_S, lambda: execution.batch_count() - done >= MIN_BATCHES * execution.query_count())
    took, seconds = spent() - before, time.monotonic() - begin
    due = execution.query_count() * seconds / TRIGGER_S
    return took / seconds * max(1.0, due / max(execution.batch_count() - done, 1))


def _idle_cores(seconds: float) -> float:
    """Return the cores that a session without queries uses."""
    spent = ProcessTree().cpu_seconds
    begin, before = time.monotonic(), spent()
    time.sleep(seconds)
    return (spent() - before) / (time.monotonic() - begin)


class _Arrivals:
    """Arrival times of the first record of each message at a sink."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}

    def sink(self) -> CallbackSink:
        """Create a sink that records arrival times."""
        return CallbackSink(self._take)

    def _take(self, stream: str, batch: pa.RecordBatch) -> None:
        now = time.monotonic()
        for seq in int_column(batch.column("seq")).tolist():
            self.at.setdefault(seq, now)


def boundary_latency(name: str, spark: Any, folder: Path, quick: bool, open_source: Callable[..., Source]) -> Measure:
    """Measure by how much one more query, which reads from a topic, delays the same records."""
    late: dict[str, _Arrivals] = {}

    def paced(stream: str) -> Source:
        return PacedSource(open_source(stream), rate=MESSAGE_RATE)

    with closing(SharedQueries(spark, folder / "boundary", paced, join=False)) as execution:
        for flow in (_kalman_flow("before", False), _kalman_flow("after", True)):
            late[flow.name] = _Arrivals()
            execution.submit(flow, late[flow.name].sink())
        run_for(execution, START_TIMEOUT_S, execution.is_started)
        since = max(late["after"].at, default=-1)  # earlier messages may have waited for the query to start

        def both() -> list[int]:
            return [seq for seq in late["before"].at.keys() & late["after"].at.keys() if seq > since]

        run_for(execution, MESSAGE_TIMEOUT_S, lambda: len(both()) >= MESSAGES[quick])
        queries = len(execution.backend.micro_batches())
    added = [1e3 * (late["after"].at[seq] - late["before"].at[seq]) for seq in both()]
    what = f"p50 of {len(added)} messages, {queries} queries, a micro-batch every {TRIGGER_S:g} s"
    reach = 1e3 * (TRIGGER_S + 0.3)
    return Measure(name, median(added) if added else float("inf"), "ms", what, reach, at_most=True)


def _kalman_flow(name: str, further: bool) -> Dataflow:
    """Create a dataflow with a stateful filter, and a further step if asked."""
    flow = Dataflow(name)
    stream = flow.source("city").to(t.ParseSenML(schema="city"), id="parse")
    stream = stream.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="kalman")
    return flow.sink("out", stream.to(t.RangeFilter(bounds="city"), id="kept") if further else stream)
