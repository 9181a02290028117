"""What sharing saves on Spark: processor time of driver, JVM and workers, each dataflow as a query, and together.

Processor time is what is compared, so that other work on the machine matters little; where it keeps queries from doing
all micro-batches that are due, the others count as much as those. What an action takes, and what runs between two
actions, are told apart: a trace has many actions because it is short, not because users are restless.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from riot_bench.harness.measure import Measure, median
from riot_bench.harness.micro_batches import folder, spark_session
from riot_bench.suites.reuse.carried import boundary, let_run
from riot_bench.suites.reuse.sides import Apart, Opened, Side, Together, equal
from riot_bench.suites.reuse.stays import Stay, Stays, alike
from riot_bench.suites.reuse.traces import Action, replay
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.measure.processes import ProcessTree
from riot_ops.reuse.identity import signatures
from riot_ops.ingest.pace import Paced

__all__ = ["alive", "measures"]

#: Messages per second of each source.
RATE = 10.0
#: Seconds between two actions for which it counts, in the full and in the quick form.
BETWEEN = 9.0, 2.0
#: Seconds for which all dataflows run as queries before: the side that comes first would pay for the JVM's compiling.
WARM = 40.0, 4.0
#: Seconds from one micro-batch of a query to the next: with so many, two cores carry the walks of all 21 dataflows.
TRIGGER = 3.0, 1.0
#: The paper's seconds between two actions, about.
PAPER_S = 60.0
#: How long a dataflow may take to come up.
UP_SECONDS = 20.0
#: In the defragmented form more queries than these become one for each group.
MOST_QUERIES = 1


@dataclass
class Stretch:
    """Between two actions: seconds, CPU seconds, micro-batches that were due and done, queries per group."""

    seconds: float
    spent: float
    due: float
    batches: int
    fragmentation: float | None


@dataclass
class Course:
    """A trace on one side: by action the CPU seconds until it had effect, and what ran from there to the next."""

    acting: list[float] = field(default_factory=list)
    during: list[tuple[float, float]] = field(default_factory=list)
    between: list[Stretch] = field(default_factory=list)
    stays: Stays = field(default_factory=Stays)

    @property
    def batch_s(self) -> float:
        """CPU seconds of a micro-batch, mean."""
        running = [one for one in self.between if one.due]
        return sum(one.spent for one in running) / max(sum(one.batches for one in running), 1)

    @property
    def cores(self) -> list[float]:
        """What it takes after each action to keep up, with all micro-batches that are due."""
        found = []
        for one in self.between:
            each = one.spent / one.batches if one.batches else self.batch_s
            found.append(max(one.spent, each * one.due) / one.seconds)
        return found

    def took(self, between_s: float) -> float:
        """CPU seconds with so many seconds between two actions."""
        return sum(self.acting) + between_s * sum(self.cores)


def course(side: Side, flows: Mapping[str, Dataflow], actions: Sequence[Action], between_s: float) -> Course:
    """Go through a trace."""
    found, spent = Course(), ProcessTree().spent
    for action in actions:
        begin, before = time.monotonic(), spent()
        if action.op == "submit":
            found.stays.append(stay := Stay(flows[action.name]))
            stay.begun = side.submit(stay.flow, stay.sink())
        else:
            side.remove(action.name)
        found.during.append((begin, time.monotonic()))
        let_run(side, UP_SECONDS, side.up)
        begin, middle, done = time.monotonic(), spent(), side.batches()
        let_run(side, between_s)
        seconds = time.monotonic() - begin
        queries, groups = side.queries(), side.groups()
        found.acting.append(middle - before)
        due, did = queries * seconds / side.trigger_s, side.batches() - done
        found.between.append(Stretch(seconds, spent() - middle, due, did, queries / groups if groups else None))
    return found


def measures(
    name: str,
    flows: Mapping[str, Dataflow],
    traces: Mapping[str, Sequence[Action]],
    quick: bool,
    opened: Callable[..., Source],
    at_once: int | None = None,
) -> Iterator[Measure]:
    """Both sides of some traces, one after the other, in one session.

    Parameters
    ----------
    name : str
        What the measures' names begin with; that of the trace follows.
    flows : mapping of str to Dataflow
    traces : mapping of str to sequence of Action
        By name, of these dataflows.
    quick : bool
    opened : function
        ``opened(stream, messages=None)`` is a source.
    at_once : int, optional
        How many of the dataflows run at once before that, to load and compile all code; by default all.
    """
    few = dict([*flows.items()][:at_once])

    def paced(stream: str) -> Source:
        return Paced(opened(stream), rate=RATE)

    with folder() as place, spark_session(2) as spark:
        yield equal(f"{name}/outputs-equal", spark, place, few, opened)  # which loads all code
        yield boundary(f"{name}/boundary-latency-ms", spark, place, quick, opened)
        coming = list(dict.fromkeys(action.name for actions in traces.values() for action in actions))
        for at in range(0, len(coming), len(few)):
            with closing(Apart(spark, place / f"warm-{at}", paced, TRIGGER[quick])) as side:
                for name_of in coming[at : at + len(few)]:
                    side.submit(flows[name_of], Stay(flows[name_of]).sink())
                let_run(side, WARM[quick])
        for trace, actions in traces.items():
            found = _both(f"{name}/{trace}", spark, place / trace, flows, actions, quick, paced)
            stays = yield from found
            yield alike(f"{name}/{trace}/outputs-equal", stays, opened, " on Spark")


def _both(
    name: str,
    spark: Any,
    place: Path,
    flows: Mapping[str, Dataflow],
    actions: Sequence[Action],
    quick: bool,
    paced: Opened,
) -> Generator[Measure, None, list[Stay]]:
    """Both sides of a trace; returns what the sinks got together."""
    between, trigger = BETWEEN[quick], TRIGGER[quick]
    stays: list[Stay] = []
    steps = replay(actions, {flow.name: signatures(flow).values() for flow in flows.values()})
    with closing(Apart(spark, place / "apart", paced, trigger)) as side:
        apart = course(side, flows, actions, between)
    silent = "by how much longer than usual a sink is silent around an action"
    longest, what = apart.stays.longest(apart.during), f"{silent}, where each dataflow is a query of its own"
    yield Measure(f"{name}/disruption-ms/apart", longest, "ms", what)
    for form, words, most in (("", "", None), ("-defragmented", ", queries that hang together made one", MOST_QUERIES)):
        with closing(Together(spark, place / f"together{form}", paced, trigger, max_queries=most)) as shared:
            together = course(shared, flows, actions, between)
            stats = shared.manager.stats()
        yield from _compared(name, form, words, apart, together, max(alive(actions)), steps.total)
        longest, reach = together.stays.longest(together.during), 5000 if form else 0
        yield Measure(f"{name}/disruption-ms{form}", longest, "ms", silent, reach, at_most=True)
        moves = [1e3 * (end - begin) for begin, end in together.during]
        yield Measure(f"{name}/action-ms{form}", median(moves), "ms", "an action, until it has effect, p50")
        left = "queries left when all are gone"
        yield Measure(f"{name}/after-drain{form}", stats["queries"], "queries", left, 0, at_most=True)
        if form:
            longest = max(stats["interrupted_s"], default=0.0)
            what = f"longest of {len(stats['interrupted_s'])} times that queries became one, to its second micro-batch"
            yield Measure(f"{name}/defragment-ms", 1e3 * longest, "ms", what)
        parts = [one.fragmentation for one in together.between if one.fragmentation is not None]
        what = "queries of dataflows that hang together, mean over the trace"
        yield Measure(f"{name}/queries-per-group{form}", mean(parts), "queries", what)
        stays += together.stays
    return stays


def _compared(
    name: str, form: str, words: str, apart: Course, together: Course, at_once: int, tasks: float
) -> Iterator[Measure]:
    """What two courses tell."""
    a, t = sum(apart.cores) / len(apart.cores), sum(together.cores) / len(together.cores)
    what = (
        f"cores that it takes between actions, mean: together {t:.2f}, each by itself {a:.2f}, {at_once} at once{words}"
    )
    reach = 0.51 if form else round(tasks, 3)
    yield Measure(f"{name}/cpu-reduction{form}", 1 - t / a, "share", what, reach, published=0.51)
    a, t = apart.took(PAPER_S), together.took(PAPER_S)
    what = (
        f"CPU seconds with {PAPER_S:g} s from action to action: together {t:.0f}, each by itself {a:.0f}; of that "
        f"the actions {sum(together.acting):.1f} and {sum(apart.acting):.1f}"
    )
    yield Measure(f"{name}/cpu-reduction-60s{form}", 1 - t / a, "share", what)
    drain = [*zip(apart.cores, together.cores, strict=True)][len(apart.cores) // 2 :]
    more = max((t - a for a, t in drain), default=0.0)
    what = "most by which sharing takes more than not sharing while dataflows go"
    yield Measure(f"{name}/cross-over{form}", more, "cores", what, 0.05, at_most=True)
    for side, one in (("apart", apart), (f"together{form}", together)):
        if not (form and side == "apart"):
            done = sum(stretch.batches for stretch in one.between)
            due = sum(stretch.due for stretch in one.between)
            what = f"CPU time of a micro-batch, mean of {done:.0f}; {due:.0f} were due"
            yield Measure(f"{name}/micro-batch-ms/{side}", 1e3 * one.batch_s, "ms", what)
            for at, cores in enumerate(one.cores):
                yield Measure(f"{name}/cores/{side}/{at + 1}", cores, "cores", "after so many actions")


def alive(actions: Sequence[Action]) -> Iterator[int]:
    """How many dataflows there are after each action."""
    n = 0
    for action in actions:
        n += 1 if action.op == "submit" else -1
        yield n
