"""Savings by sharing in process: running steps and CPU time.

The outputs are compared with those of separate runs.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa

from riot_bench.harness.measure import Measure
from riot_bench.suites.reuse.executions import compare_outputs
from riot_bench.suites.reuse.lifetimes import Lifetime, outputs_equal
from riot_bench.suites.reuse.traces import Action, Savings, count_steps, random_walk_trace, sequential_trace
from riot_bench.suites.reuse.workloads import riot_source
from riot_ops import tasks as t
from riot_ops.core.sink import CallbackSink, MemorySink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.reuse import LocalBackend, NullBackend, ReuseManager, signatures
from riot_ops.reuse.reports import Submitted

__all__ = [
    "WALK_ACTIONS",
    "check_lifetimes",
    "check_outputs",
    "cpu_measures",
    "make_trace",
    "open_source",
    "step_measures",
]

#: Actions of a random walk.
WALK_ACTIONS = 100
#: Savings of running tasks and of CPU time in the paper, which gives ranges and states that RIoT saves more.
PAPER_TASK_SAVINGS = {"riot": 0.46, "opmw": 0.38}
PAPER_CPU_SAVINGS = {"riot": 0.51, "opmw": 0.36}
#: Maximum number of points of a line in a figure.
MAX_POINTS = 40
#: Messages of each source between two actions; for riot, 10 per second for 5 seconds.
MESSAGES_PER_ACTION = {"riot": 50, "opmw": 1}


def _line_points(name: str, values: Sequence[float], unit: str, against: str, actions: int = 1) -> Iterator[Measure]:
    """Yield some of the values, each of ``actions`` actions, as points of a line."""
    every = -(-len(values) // MAX_POINTS)
    for at in range(0, len(values), every):
        yield Measure(f"{name}/{at * actions + 1}", values[at], unit, against)


def make_trace(name: str, flows: dict[str, Dataflow], walk: int = WALK_ACTIONS) -> list[Action]:
    """Create a trace; a random walk has ``walk`` actions between the first submissions and the last removals."""
    if name == "seq":
        return sequential_trace(list(flows))
    return random_walk_trace(list(flows), walk, seed=int(name[2:]))


def step_measures(name: str, load: str, walk: str, flows: dict[str, Dataflow]) -> Iterator[Measure]:
    """Measure running steps, fragments and the manager's CPU time, which are the same for every back end."""
    actions = make_trace(walk, flows)
    saved: Savings = count_steps(actions, {flow.name: signatures(flow).values() for flow in flows.values()})
    manager = ReuseManager(NullBackend())
    took, parts, idle, running = [], [], [], []
    for action in actions:
        begin = time.process_time()
        _apply(manager, action, flows, None)
        took.append(1e3 * (time.process_time() - begin))
        stats = manager.stats()
        steps = stats["steps"]
        running.append(steps)
        if steps:
            parts.append(stats["fragments"] / stats["groups"])
            idle.append(stats["idle"] / (steps + stats["idle"]))
    what = f"saved steps, of {max(saved.alone)} separate ones"
    paper = PAPER_TASK_SAVINGS[load] if walk == "seq" else None
    what += "; the workload was made to have it"
    yield Measure(f"{name}/tasks-peak-reduction", saved.peak, "share", what, published=paper)
    avoidable = avoidable_steps(actions, flows)
    avoided = sum(a - b for a, b in zip(saved.alone, running, strict=True))
    what = f"steps that the manager avoids of the {avoidable} that repeat a running one, over the trace"
    yield Measure(f"{name}/tasks-shared", avoided / avoidable if avoidable else 1.0, "share", what, 1)
    yield Measure(f"{name}/tasks-sum-reduction", saved.total, "share", "the same, summed over the trace")
    p95 = sorted(took)[int(0.95 * len(took))]
    yield Measure(f"{name}/manager-p95-ms", p95, "ms", "CPU time of the manager per action", 5, at_most=True)
    what = "fragments per group of connected dataflows without compaction, mean over the trace"
    yield Measure(f"{name}/fragmentation", mean(parts), "fragments", what)
    what = "idle steps as a share of all steps in fragments, mean over the trace"
    yield Measure(f"{name}/idle-share", mean(idle), "share", what)
    yield from _line_points(f"{name}/tasks/apart", saved.alone, "steps", "separate dataflows, by the number of actions")
    yield from _line_points(
        f"{name}/tasks/together", saved.shared, "steps", "each distinct step once, by the number of actions"
    )
    for k, n in saved.uses.items():
        share = n / sum(saved.shared)
        yield Measure(f"{name}/used-by/{k}", share, "share", f"of all steps over the trace, used by {k} dataflows")


def avoidable_steps(actions: Sequence[Action], flows: Mapping[str, Dataflow]) -> int:
    """Count the steps over a trace that do what another running step does, without the manager's signatures.

    A step does the same if its task is equal, and its inputs do the same.
    """
    steps = {name: _described_steps(flow) for name, flow in flows.items()}
    running: Counter[str] = Counter()
    found = 0
    for action in actions:
        (running.update if action.op == "submit" else running.subtract)(steps[action.name])
        running = +running
        found += running.total() - len(running)
    return found


def _described_steps(flow: Dataflow) -> list[str]:
    nodes = {node.id: node for node in flow.topological_order()}

    @functools.cache
    def describe(name: str) -> str:
        task, inputs = nodes[name].task, flow.inputs(name)
        own: object = (flow.name, name) if nodes[name].kind == "sink" else name
        if isinstance(task, t.MapFunction | t.KeyedFunction):
            own = (type(task).__name__, task.label, task.revision)
        elif task is not None:
            own = repr(task)
        above = [(describe(edge.source), repr(edge.distribution)) for edge in inputs]
        return hashlib.sha256(repr((own, above)).encode()).hexdigest()

    return [describe(name) for name in nodes]


def _apply(
    manager: ReuseManager,
    action: Action,
    flows: dict[str, Dataflow],
    sink: CallbackSink | None,
    held: list[weakref.ref[Any]] | None = None,
) -> Submitted | None:
    """Submit or remove a dataflow; add references to the sources and the sink that it is given to ``held``."""
    if action.op == "remove":
        manager.remove(action.name)
        return None
    flow = flows[action.name]
    if sink is None:
        return manager.submit(flow)
    opened = {node.id: open_source(node.id) for node in flow.nodes_of_kind("source")}
    if held is not None:
        held += [weakref.ref(one) for one in (sink, *opened.values())]
    return manager.submit(flow, opened, sink)


def open_source(name: str, messages: int | None = None) -> Source:
    """Open the stream that a source node of a workload names, with ``messages`` messages or unbounded."""
    if not name.startswith("opmw"):
        return riot_source(name, messages)
    return MemorySource(_numbers(100_000 if messages is None else messages))


@functools.cache
def _numbers(rows: int) -> pa.Table:
    return pa.table({"value": np.arange(rows, dtype=np.float64), "pi": np.zeros(rows)})


def _discarding_sink() -> CallbackSink:
    return CallbackSink(lambda stream, batch: None)


def cpu_measures(
    name: str, load: str, actions: Sequence[Action], flows: dict[str, Dataflow], every: int = 1
) -> Iterator[Measure]:
    """Measure CPU time over a trace in process.

    Shared and separate dataflows alternate after every ``every`` actions.
    """
    each = MESSAGES_PER_ACTION[load]
    together = ReuseManager(LocalBackend(each, epoch="10000d"))
    apart: dict[str, ReuseManager] = {}
    shared: list[float] = []
    alone: list[float] = []
    took_ms: list[float] = []
    held: list[weakref.ref[Any]] = []
    for number, action in enumerate(actions):
        begin, wall = time.process_time(), time.perf_counter()
        _apply(together, action, flows, _discarding_sink(), held)
        took_ms.append(1e3 * (time.perf_counter() - wall))
        if not number % every:
            _turn(together)
        middle = time.process_time()
        if action.op == "submit":
            apart[action.name] = ReuseManager(LocalBackend(each, epoch="10000d"))
            _apply(apart[action.name], action, flows, _discarding_sink())
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
        f"CPU seconds shared ({sum(shared):.1f}) and separate ({sum(alone):.1f}), {each} messages of each source "
        + ("per action" if every == 1 else f"per {every} actions"),
        published=PAPER_CPU_SAVINGS[load],
    )
    for side, took in (("apart", alone), ("together", shared)):
        spent = [1e3 * one for one in took]
        yield from _line_points(f"{name}/cpu/{side}", spent, "ms", f"for {each} messages of each source", every)
    yield Measure(
        f"{name}/disruption-ms", max(took_ms), "ms", "longest time for which an action blocks other dataflows"
    )
    gc.collect()
    left = sum(ref() is not None for ref in held)
    what = f"of {len(held)} sources and sinks given to the manager, those that it still holds after all removals"
    yield Measure(f"{name}/after-drain", left, "objects", what, 0, at_most=True)


def _turn(manager: ReuseManager) -> None:
    assert isinstance(manager.backend, LocalBackend)
    manager.backend.turn()


def check_outputs(name: str, flows: dict[str, Dataflow], messages: int) -> Measure:
    """Check that each dataflow has the same output shared and alone."""
    manager = ReuseManager(LocalBackend(max(1, messages // 3)))
    sinks = {}
    for flow in flows.values():
        sinks[flow.name] = MemorySink()
        sources = {node.id: open_source(node.id, messages) for node in flow.nodes_of_kind("source")}
        manager.submit(flow, sources, sinks[flow.name])
    assert isinstance(manager.backend, LocalBackend)
    manager.backend.run()
    return compare_outputs(name, flows, sinks, lambda stream: open_source(stream, messages))


def check_lifetimes(name: str, actions: Sequence[Action], flows: dict[str, Dataflow], each: int) -> Measure:
    """Check that each dataflow has the same output over a trace as alone, if only fresh state is shared."""
    manager = ReuseManager(LocalBackend(each, epoch="10000d"), policy="stateless")
    lifetimes = []
    there: dict[str, Lifetime] = {}
    for action in actions:
        if action.op == "submit":
            lifetimes.append(Lifetime(flows[action.name], messages=0))
            there[action.name] = lifetimes[-1]
            lifetimes[-1].submitted = _apply(manager, action, flows, lifetimes[-1].sink())
        else:
            _apply(manager, action, flows, None)
            del there[action.name]
        _turn(manager)
        for lifetime in there.values():
            lifetime.messages = (lifetime.messages or 0) + each
    return outputs_equal(name, lifetimes, open_source)
