"""Savings by sharing on Spark: CPU time of driver, JVM and workers, for separate queries and with shared steps.

CPU time is compared, so that other work on the machine matters little. If it keeps queries from completing all due
micro-batches, the missing ones count with the mean CPU time of the others. The cost of an action and of the time
between
two actions are reported separately, since a short trace has more actions per time than real users.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.measure import Measure
from riot_bench.harness.session import spark_session
from riot_bench.harness.timing import median
from riot_bench.suites.reuse.capacity import boundary_latency, run_for
from riot_bench.suites.reuse.executions import Execution, SeparateQueries, SharedQueries, SourceFactory, check_outputs
from riot_bench.suites.reuse.lifetimes import Lifetime, Lifetimes, outputs_equal
from riot_bench.suites.reuse.traces import Action, count_steps
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.pace import PacedSource
from riot_ops.measure.processes import ProcessTree
from riot_ops.reuse.signature import signatures

__all__ = ["measures", "running_counts"]

#: Messages per second of each source.
RATE = 10.0
#: Measured seconds between two actions (full and quick form).
INTERVAL_S = 9.0, 2.0
#: Warm-up seconds of all dataflows as queries; otherwise, the first execution would include the JVM's compilation.
WARM_UP_S = 40.0, 4.0
#: Seconds between two micro-batches of a query; with these, two cores carry the walks of all 21 dataflows.
TRIGGER_S = 3.0, 1.0
#: Assumed seconds between two actions in the paper.
PAPER_INTERVAL_S = 60.0
#: Seconds that a dataflow may take to start.
START_TIMEOUT_S = 20.0
#: Number of queries above which a group is compacted into one, in the defragmented variant.
MAX_QUERIES = 1


@dataclass
class Interval:
    """The time between two actions: seconds, CPU seconds, due and completed micro-batches, queries per group."""

    seconds: float
    cpu_s: float
    due: float
    batches: int
    fragmentation: float | None


@dataclass
class TraceRun:
    """A trace run by one execution.

    Attributes
    ----------
    action_cpu_s : list of float
        CPU seconds of each action until it had effect.
    action_spans : list of (float, float)
        Begin and end of each action's call.
    intervals : list of Interval
        The time after each action.
    lifetimes : Lifetimes
        Lifetimes of the dataflows.
    """

    action_cpu_s: list[float] = field(default_factory=list)
    action_spans: list[tuple[float, float]] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    lifetimes: Lifetimes = field(default_factory=Lifetimes)

    @property
    def batch_s(self) -> float:
        """Mean CPU seconds of a micro-batch."""
        running = [one for one in self.intervals if one.due]
        return sum(one.cpu_s for one in running) / max(sum(one.batches for one in running), 1)

    @property
    def cores(self) -> list[float]:
        """Cores needed after each action, extrapolated to all due micro-batches."""
        found = []
        for one in self.intervals:
            each = one.cpu_s / one.batches if one.batches else self.batch_s
            found.append(max(one.cpu_s, each * one.due) / one.seconds)
        return found

    def cpu_seconds(self, between_s: float) -> float:
        """Return the CPU seconds of the trace with ``between_s`` seconds between two actions."""
        return sum(self.action_cpu_s) + between_s * sum(self.cores)


def run_trace(
    execution: Execution, flows: Mapping[str, Dataflow], actions: Sequence[Action], between_s: float
) -> TraceRun:
    """Run a trace."""
    found, spent = TraceRun(), ProcessTree().cpu_seconds
    for action in actions:
        begin, before = time.monotonic(), spent()
        if action.op == "submit":
            found.lifetimes.append(lifetime := Lifetime(flows[action.name]))
            lifetime.submitted = execution.submit(lifetime.flow, lifetime.sink())
        else:
            execution.remove(action.name)
        found.action_spans.append((begin, time.monotonic()))
        run_for(execution, START_TIMEOUT_S, execution.is_started)
        begin, middle, done = time.monotonic(), spent(), execution.batch_count()
        run_for(execution, between_s)
        seconds = time.monotonic() - begin
        queries, groups = execution.query_count(), execution.group_count()
        found.action_cpu_s.append(middle - before)
        due, did = queries * seconds / execution.trigger_s, execution.batch_count() - done
        found.intervals.append(Interval(seconds, spent() - middle, due, did, queries / groups if groups else None))
    return found


def measures(
    name: str,
    flows: Mapping[str, Dataflow],
    traces: Mapping[str, Sequence[Action]],
    quick: bool,
    open_source: Callable[..., Source],
    at_once: int | None = None,
) -> Iterator[Measure]:
    """Measure both executions of some traces, one after the other, in one session.

    Parameters
    ----------
    name : str
        Prefix of the measures' names; the trace's name follows.
    flows : mapping of str to Dataflow
    traces : mapping of str to sequence of Action
        Traces of these dataflows by name.
    quick : bool
    open_source : function
        ``open_source(stream, messages=None)`` returns a source.
    at_once : int, optional
        Number of dataflows that run concurrently in the warm-up; by default all.
    """
    few = dict([*flows.items()][:at_once])

    def paced(stream: str) -> Source:
        return PacedSource(open_source(stream), rate=RATE)

    with temporary_folder() as folder, spark_session(2) as spark:
        yield check_outputs(f"{name}/outputs-equal", spark, folder, few, open_source)  # loads all code
        yield boundary_latency(f"{name}/boundary-latency-ms", spark, folder, quick, open_source)
        coming = list(dict.fromkeys(action.name for actions in traces.values() for action in actions))
        for at in range(0, len(coming), len(few)):
            with closing(SeparateQueries(spark, folder / f"warm-{at}", paced, TRIGGER_S[quick])) as execution:
                for name_of in coming[at : at + len(few)]:
                    execution.submit(flows[name_of], Lifetime(flows[name_of]).sink())
                run_for(execution, WARM_UP_S[quick])
        for trace, actions in traces.items():
            found = _trace_measures(f"{name}/{trace}", spark, folder / trace, flows, actions, quick, paced)
            lifetimes = yield from found
            yield outputs_equal(f"{name}/{trace}/outputs-equal", lifetimes, open_source, " on Spark")


def _trace_measures(
    name: str,
    spark: Any,
    folder: Path,
    flows: Mapping[str, Dataflow],
    actions: Sequence[Action],
    quick: bool,
    paced: SourceFactory,
) -> Generator[Measure, None, list[Lifetime]]:
    """Measure both executions of a trace; return the lifetimes of the shared dataflows."""
    between, trigger = INTERVAL_S[quick], TRIGGER_S[quick]
    lifetimes: list[Lifetime] = []
    steps = count_steps(actions, {flow.name: signatures(flow).values() for flow in flows.values()})
    with closing(SeparateQueries(spark, folder / "apart", paced, trigger)) as execution:
        apart = run_trace(execution, flows, actions, between)
    silent = "additional silence of a sink around an action, against its longest silence at other times"
    longest, what = (
        apart.lifetimes.longest_silence_ms(apart.action_spans),
        f"{silent}, separate queries",
    )
    yield Measure(f"{name}/disruption-ms/apart", longest, "ms", what)
    for suffix, description, most in (("", "", None), ("-defragmented", ", connected queries merged", MAX_QUERIES)):
        known = {str(query.id) for query in spark.streams.active}
        with closing(SharedQueries(spark, folder / f"together{suffix}", paced, trigger, max_queries=most)) as shared:
            together = run_trace(shared, flows, actions, between)
            stats = shared.manager.stats()
            rest = sum(str(query.id) not in known for query in spark.streams.active)
        yield from _comparison_measures(
            name, suffix, description, apart, together, max(running_counts(actions)), steps.total
        )
        longest, reach = together.lifetimes.longest_silence_ms(together.action_spans), 5000 if suffix else 0
        yield Measure(f"{name}/disruption-ms{suffix}", longest, "ms", silent, reach, at_most=True)
        moves = [1e3 * (end - begin) for begin, end in together.action_spans]
        yield Measure(f"{name}/action-ms{suffix}", median(moves), "ms", "an action until its call returns, p50")
        left = "queries that Spark still runs after all removals"
        yield Measure(f"{name}/after-drain{suffix}", rest, "queries", left, 0, at_most=True)
        if suffix:
            longest = max(stats["interrupted_s"], default=0.0)
            what = f"longest of {len(stats['interrupted_s'])} merges of queries, until the second micro-batch"
            yield Measure(f"{name}/defragment-ms", 1e3 * longest, "ms", what)
        parts = [one.fragmentation for one in together.intervals if one.fragmentation is not None]
        what = "queries per group of connected dataflows, mean over the trace"
        yield Measure(f"{name}/queries-per-group{suffix}", mean(parts), "queries", what)
        lifetimes += together.lifetimes
    return lifetimes


def _comparison_measures(
    name: str, suffix: str, description: str, apart: TraceRun, together: TraceRun, at_once: int, tasks: float
) -> Iterator[Measure]:
    """Compare the runs of a trace by both executions."""
    a, t = sum(apart.cores) / len(apart.cores), sum(together.cores) / len(together.cores)
    what = f"mean cores between actions: shared {t:.2f}, separate {a:.2f}, at most {at_once} dataflows{description}"
    reach = 0.51 if suffix else round(tasks, 3)
    yield Measure(f"{name}/cpu-reduction{suffix}", 1 - t / a, "share", what, reach, published=0.51)
    a, t = apart.cpu_seconds(PAPER_INTERVAL_S), together.cpu_seconds(PAPER_INTERVAL_S)
    what = (
        f"CPU seconds with {PAPER_INTERVAL_S:g} s between actions: shared {t:.0f}, separate {a:.0f}; of that "
        f"the actions {sum(together.action_cpu_s):.1f} and {sum(apart.action_cpu_s):.1f}"
    )
    yield Measure(f"{name}/cpu-reduction-60s{suffix}", 1 - t / a, "share", what)
    drain = [*zip(apart.cores, together.cores, strict=True)][len(apart.cores) // 2 :]
    more = max((t - a for a, t in drain), default=0.0)
    what = "maximum by which sharing needs more cores than separate queries while dataflows are removed"
    yield Measure(f"{name}/cross-over{suffix}", more, "cores", what, 0.05, at_most=True)
    for execution, one in (("apart", apart), (f"together{suffix}", together)):
        if not (suffix and execution == "apart"):
            done = sum(interval.batches for interval in one.intervals)
            due = sum(interval.due for interval in one.intervals)
            what = f"mean CPU time of {done:.0f} micro-batches; {due:.0f} were due"
            yield Measure(f"{name}/micro-batch-ms/{execution}", 1e3 * one.batch_s, "ms", what)
            for at, cores in enumerate(one.cores):
                yield Measure(f"{name}/cores/{execution}/{at + 1}", cores, "cores", "by the number of actions")


def running_counts(actions: Sequence[Action]) -> Iterator[int]:
    """Yield the number of dataflows after each action."""
    n = 0
    for action in actions:
        n += 1 if action.op == "submit" else -1
        yield n
