"""What sharing saves: the same dataflows come and go, each by itself and together."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from riot_ops.bench import reuse_carried, reuse_many, reuse_spark, reuse_submit
from riot_ops.bench.experiment import Experiment, Figure
from riot_ops.bench.measure import Measure, one_core
from riot_ops.bench.reuse_sides import compared
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.sink import CallbackSink, MemorySink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.intake.memory_source import MemorySource
from riot_ops.reuse import LocalBackend, NullBackend, ReuseManager, signatures
from riot_ops.reuse.traces import Action, Saved, random_walk, replay, sequence
from riot_ops.reuse.workloads import TERMS, opmw_like, pi_series, riot21, riot_source

__all__ = ["EXPERIMENTS", "measures"]

TRACES = ("seq", "rw1", "rw2")
WORKLOADS = ("riot", "opmw")
BACKENDS = ("null", "local", "spark")

#: What the trace with all dataflows should save at its peak: with riot exactly, with opmw 38 % less 3.
PEAK = {"riot": 0.4531, "opmw": 0.35}
#: What the paper found: fewer running tasks, less CPU time. It gives ranges, and that RIoT gains more.
TASKS = {"riot": 0.46, "opmw": 0.38}
CPU = {"riot": 0.51, "opmw": 0.36}
#: Dataflows on Spark: as many as two cores carry where each is a query of its own.
AT_ONCE = 4
#: Actions of a walk, in the full and in the quick form; on Spark one takes about nine seconds, three times.
WALK, WALK_ON_SPARK = (100, 10), (30, 10)
#: Dataflows over one stream, in process and on Spark, in the full and in the quick form of the report.
MANY = {"local": (3000, 300), "spark": (300, None)}
#: In the quick form records move behind every so many actions of a trace.
TURNS = {"riot": 1, "opmw": 3}
#: Points of a line of its figures.
POINTS = 40
#: Messages that come of each source between two actions: with riot 10 per second for 5 seconds.
EACH = {"riot": 50, "opmw": 1}
#: Messages of each source whose results are compared; a task of opmw works for a millisecond on each.
EQUAL = {"riot": 1000, "opmw": 10}


def measures(
    quick: bool = False,
    trace: Sequence[str] = TRACES,
    workload: Sequence[str] = WORKLOADS[:1],
    backend: str = "local",
    many: int | None = None,
    carried: bool = False,
    steps: bool = False,
    at_once: int = AT_ONCE,
) -> Iterator[Measure]:
    """The suite.

    Parameters
    ----------
    trace : sequence of str, default all
        ``seq``: all come, then all go; ``rw1``, ``rw2``: walks.
    workload : sequence of str, default ("riot",)
        ``riot``: 21 dataflows of RIoTBench's tasks; ``opmw``: 35 synthetic ones, a millisecond per record and task.
    backend : "local", "null" or "spark", default "local"
        ``null`` counts steps alone. ``spark`` runs the first ``at_once`` dataflows of a workload as queries, each by
        itself and together; walks have fewer actions there, so that a trace takes less than half an hour.
    many : int, optional
        In place of the others: so many dataflows over one stream, in process or on Spark.
    carried : bool, default False
        In place of the others, on Spark: how many dataflows at 100 messages per second two cores carry, each as a query
        and together.
    steps : bool, default False
        Whether to tell how it goes through each trace as well: what the paper's figures show.
    at_once : int, default 4
        Of "spark": as many as two cores carry where each is a query of its own. The first seven of "riot" are over one
        stream, and share as much as all do.
    """
    if many is not None:
        if backend not in ("local", "spark"):
            raise ConfigError(f"many dataflows are measured with the back end 'local' or 'spark', got {backend!r}")
        yield from reuse_many.many(many, quick, backend)
        return
    if carried and backend != "spark":
        raise ConfigError(f"what two cores carry is measured with the back end 'spark', got {backend!r}")
    if at_once < 1:
        raise ConfigError(f"at_once must be >= 1, got {at_once}")
    for given, known in ((trace, TRACES), (workload, WORKLOADS), ((backend,), BACKENDS)):
        for one in given:
            if one not in known:
                raise ConfigError(f"{one!r} is none of {', '.join(known)}{did_you_mean(one, known)}")
    if backend != "spark" and "riot" in workload:  # once, of the experiments that there are
        yield reuse_submit.submitting()
    for load in workload:
        made = riot21() if load == "riot" else opmw_like(work=_tenth if quick else pi_series)
        flows = {flow.name: flow for flow in made}
        if carried:
            some = dict(list(flows.items())[: reuse_carried.AT_ONCE if quick else None])
            yield from reuse_carried.carried(f"reuse/{load}/carried", some, quick, _source)
            continue
        if backend == "local":  # which also loads all code
            yield _equal(f"reuse/{load}/outputs-equal", flows, EQUAL[load] // 10 if quick else EQUAL[load])
        for walk in trace:
            found = _counted(f"reuse/{load}/{walk}", load, walk, flows)
            yield from (one for one in found if steps or not _is_step(one))
            if backend == "null":
                yield reuse_submit.drained(f"reuse/{load}/{walk}/after-drain", _trace(walk, flows), flows)
            if backend == "local":
                with one_core():
                    actions = _trace(walk, flows, WALK[quick])
                    found = _run(f"reuse/{load}/{walk}", load, actions, flows, TURNS[load] if quick else 1)
                    yield from (one for one in found if steps or not _is_step(one))
        if backend == "spark":
            found = _spark(f"reuse/{load}", flows, trace, quick, at_once)
            yield from (one for one in found if steps or not _is_step(one))


def _spark(
    name: str, flows: dict[str, Dataflow], trace: Sequence[str], quick: bool, at_once: int = AT_ONCE
) -> Iterator[Measure]:
    """Some of the dataflows as queries, each by itself and together."""
    few = dict(list(flows.items())[:at_once])
    traces = {walk: _trace(walk, few, WALK_ON_SPARK[quick]) for walk in trace}
    return reuse_spark.measures(name, few, traces, quick, _source)


def _tenth(row: dict[str, Any]) -> dict[str, Any]:
    """A tenth of the work of a task: three walks with all of it take five minutes."""
    return pi_series(row, TERMS // 10)


def _is_step(one: Measure) -> bool:
    """Whether it is a point of a figure."""
    return re.search(r"/(tasks|cpu|cores|used-by)/", one.measure) is not None


def _line(name: str, values: Sequence[float], unit: str, against: str, actions: int = 1) -> Iterator[Measure]:
    """Some of the values, which are of so many actions each, as points of a line."""
    every = -(-len(values) // POINTS)
    for at in range(0, len(values), every):
        yield Measure(f"{name}/{at * actions + 1}", values[at], unit, against)


def _trace(name: str, flows: dict[str, Dataflow], walk: int = WALK[0]) -> list[Action]:
    if name == "seq":
        return sequence(list(flows))
    return random_walk(list(flows), walk, seed=int(name[2:]))


def _counted(name: str, load: str, walk: str, flows: dict[str, Dataflow]) -> Iterator[Measure]:
    """Steps that run, and how long the books take; that is the same with every back end."""
    actions = _trace(walk, flows)
    saved: Saved = replay(actions, {flow.name: signatures(flow).values() for flow in flows.values()})
    manager = ReuseManager(NullBackend())
    took = []
    for action, steps in zip(actions, saved.shared, strict=True):
        begin = time.process_time()
        _act(manager, action, flows, None)
        took.append(1e3 * (time.process_time() - begin))
        if manager.stats()["steps"] != steps:
            raise AssertionError(f"{manager.stats()['steps']} steps run, {steps} are distinct")
    what = f"steps that run, of {max(saved.alone)} apart"
    reach = round(PEAK[load], 3) if walk == "seq" else None
    paper = TASKS[load] if walk == "seq" else None
    yield Measure(f"{name}/tasks-peak-reduction", saved.peak, "share", what, reach, published=paper)
    yield Measure(f"{name}/tasks-sum-reduction", saved.total, "share", "the same, summed over the trace")
    p95 = sorted(took)[int(0.95 * len(took))]
    yield Measure(f"{name}/manager-p95-ms", p95, "ms", "CPU time of the books per action", 5, at_most=True)
    yield from _line(f"{name}/tasks/apart", saved.alone, "steps", "each dataflow by itself, after so many actions")
    yield from _line(f"{name}/tasks/together", saved.shared, "steps", "each distinct step once, after so many actions")
    for k, n in saved.uses.items():
        share = n / sum(saved.shared)
        yield Measure(f"{name}/used-by/{k}", share, "share", f"of all steps through the trace, used by {k} dataflows")


def _act(manager: ReuseManager, action: Action, flows: dict[str, Dataflow], sink: CallbackSink | None) -> None:
    if action.op == "remove":
        manager.remove(action.name)
        return
    flow = flows[action.name]
    if sink is None:
        manager.submit(flow)
    else:
        manager.submit(flow, {node.id: _source(node.id) for node in flow.kind("source")}, sink)


def _source(name: str, messages: int | None = None) -> Source:
    if not name.startswith("opmw"):
        return riot_source(name, messages)
    return MemorySource(_numbers(100_000 if messages is None else messages))


@functools.cache
def _numbers(rows: int) -> pa.Table:
    return pa.table({"value": np.arange(rows, dtype=np.float64), "pi": np.zeros(rows)})


def _nothing() -> CallbackSink:
    return CallbackSink(lambda stream, batch: None)


def _run(
    name: str, load: str, actions: Sequence[Action], flows: dict[str, Dataflow], every: int = 1
) -> Iterator[Measure]:
    """CPU time through a trace in process, both sides by turns behind every so many actions."""
    each = EACH[load]
    together = ReuseManager(LocalBackend(each, epoch_s=1e9))
    apart: dict[str, ReuseManager] = {}
    shared: list[float] = []
    alone: list[float] = []
    held: list[float] = []
    for number, action in enumerate(actions):
        begin, wall = time.process_time(), time.perf_counter()
        _act(together, action, flows, _nothing())
        held.append(1e3 * (time.perf_counter() - wall))
        if not number % every:
            _turn(together)
        middle = time.process_time()
        if action.op == "submit":
            apart[action.name] = ReuseManager(LocalBackend(each, epoch_s=1e9))
            _act(apart[action.name], action, flows, _nothing())
        else:
            apart.pop(action.name).close()
        for one in apart.values() if not number % every else ():
            _turn(one)
        if not number % every:
            shared.append(0.0)
            alone.append(0.0)
        shared[-1] += middle - begin
        alone[-1] += time.process_time() - middle
    yield Measure(
        f"{name}/cpu-reduction",
        1 - sum(shared) / sum(alone),
        "share",
        f"CPU seconds together ({sum(shared):.1f}) and each by itself ({sum(alone):.1f}), {each} messages of a source "
        + ("per action" if every == 1 else f"per {every} actions"),
        published=CPU[load],
    )
    for side, took in (("apart", alone), ("together", shared)):
        spent = [1e3 * one for one in took]
        yield from _line(f"{name}/cpu/{side}", spent, "ms", f"for {each} messages of each source", every)
    yield Measure(f"{name}/disruption-ms", max(held), "ms", "longest time for which an action holds others up")
    left = len(together.backend.running()) + together.stats()["readings"]
    yield Measure(f"{name}/after-drain", left, "steps", "steps and sources left when all are gone", 0, at_most=True)


def _turn(manager: ReuseManager) -> None:
    assert isinstance(manager.backend, LocalBackend)
    manager.backend.turn()


def _equal(name: str, flows: dict[str, Dataflow], messages: int) -> Measure:
    """Whether each gets together what it gets by itself."""
    manager = ReuseManager(LocalBackend(max(1, messages // 3)))
    sinks = {}
    for flow in flows.values():
        sinks[flow.name] = MemorySink()
        sources = {node.id: _source(node.id, messages) for node in flow.kind("source")}
        manager.submit(flow, sources, sinks[flow.name])
    assert isinstance(manager.backend, LocalBackend)
    manager.backend.run()
    return compared(name, flows, sinks, lambda stream: _source(stream, messages))


# -- the paper's figures ---------------------------------------------------------------------------

NAMES = {"riot": "21 dataflows of RIoTBench's tasks", "opmw": "35 synthetic dataflows"}
WALKS = {"seq": "all come, then all go", "rw1": "first walk", "rw2": "second walk"}


OPMW = (
    " Here a step passes on what each step before it gives, so that records double where two meet: one of the 35 has "
    "62 % of all the work, most of it in steps of its own, and CPU time falls by what is left to share. In the quick "
    "form a task does a tenth of its work, and records move behind every third action."
)


def _figures(load: str) -> tuple[Figure, ...]:
    lines = (
        ("tasks", "Running tasks", "tasks"),
        ("cpu", "CPU time", "CPU time between two actions (ms)"),
    )
    return (
        *(
            Figure(
                f"{walk}-{what}",
                f"{title}, {NAMES[load]}: {WALKS[walk]}",
                rf"reuse/{load}/{walk}/{what}/(?P<series>apart|together)/(?P<x>\d+)",
                "actions",
                unit,
                "line",
            )
            for what, title, unit in lines
            for walk in TRACES
        ),
        Figure(
            "used-by",
            f"How many dataflows use a running task, {NAMES[load]}",
            rf"reuse/{load}/(?P<series>seq|rw1|rw2)/used-by/(?P<x>\d+)",
            "dataflows",
            "share of the running tasks",
        ),
    )


def _experiment(load: str, quick: bool) -> Iterator[Measure]:
    return measures(quick, workload=(load,), steps=True)


def _spark_experiment(quick: bool) -> Iterator[Measure]:
    """The traces of RIoTBench's tasks on Spark, and what two cores carry; the quick form is less of the first trace."""
    flows = {flow.name: flow for flow in riot21()}
    if quick:
        yield from _spark("reuse/spark", flows, TRACES[:1], quick, reuse_carried.AT_ONCE)
        return
    yield from _spark("reuse/spark", flows, TRACES, quick)
    yield from reuse_carried.carried("reuse/spark/carried", flows, quick, _source)


def _many_experiment(quick: bool) -> Iterator[Measure]:
    """Many dataflows over one stream, in process and on Spark."""
    for backend, counts in MANY.items():
        n = counts[quick]
        if n:
            for one in reuse_many.many(n, quick, backend):
                yield replace(one, measure=one.measure.replace("many/", f"many/{backend}/"))


EXPERIMENTS = (
    *(
        Experiment(
            f"reuse/{load}",
            f"Dataflows that share their steps: {NAMES[load]}",
            functools.partial(_experiment, load),
            "Dataflows come and go, on one side each by itself, on the other with each distinct step run once. The "
            "paper, with Storm on nodes of eight cores, has 38 to 46 % fewer running tasks and 36 to 51 % less CPU "
            "time, the lower ends with the synthetic dataflows; there sharing costs more than it saves when most are "
            "gone." + (OPMW if load == "opmw" else ""),
            _figures(load),
            seconds,
        )
        for load, seconds in (("riot", (15.0, 240.0)), ("opmw", (25.0, 600.0)))
    ),
    Experiment(
        "reuse/spark",
        "Dataflows that share their steps, on Spark",
        _spark_experiment,
        "Dataflows come and go, on one side each as a query, on the other managed: as they come, and with queries "
        f"that hang together made one. {AT_ONCE} at once, as many as two cores carry where each is a query. CPU time "
        "is that of driver, JVM and workers. Then what two cores carry at 100 messages per second each. The paper's "
        "dataflows take 36 to 51 % less CPU time together.",
        tuple(
            Figure(
                f"{walk}-cores",
                f"Cores used on Spark, {AT_ONCE} of {NAMES['riot']}: {WALKS[walk]}",
                rf"reuse/spark/{walk}/cores/(?P<series>[\w-]+)/(?P<x>\d+)",
                "actions",
                "cores",
                "line",
            )
            for walk in TRACES
        ),
        (95.0, 2700.0),
    ),
    Experiment(
        "reuse/many",
        "Many dataflows over one stream",
        _many_experiment,
        "Dataflows over one subscription of 500 messages per second, each a filter of its own and an average by "
        "sensor: how late their results are, and what memory each takes.",
        (),
        (16.0, 300.0),
    ),
)
