"""What sharing saves in process: steps that run, CPU time, and whether each dataflow gets what it gets by itself."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from statistics import mean

import numpy as np
import pyarrow as pa

from riot_bench.harness.measure import Measure
from riot_bench.suites.reuse.sides import compared
from riot_bench.suites.reuse.stays import Stay, alike
from riot_bench.suites.reuse.traces import Action, Saved, random_walk, replay, sequence
from riot_bench.suites.reuse.workloads import riot_source
from riot_ops.core.sink import CallbackSink, MemorySink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.reuse import LocalBackend, NullBackend, ReuseManager, signatures
from riot_ops.reuse.reports import Submitted

__all__ = ["WALK", "counted", "equal", "run", "source", "stayed", "trace_of"]

#: Actions of a walk.
WALK = 100
#: What the trace with all dataflows should save at its peak: with riot exactly, with opmw 38 % less 3.
PEAK = {"riot": 0.4531, "opmw": 0.35}
#: What the paper found: fewer running tasks, less CPU time. It gives ranges, and that RIoT gains more.
TASKS = {"riot": 0.46, "opmw": 0.38}
CPU = {"riot": 0.51, "opmw": 0.36}
#: Points of a line of its figures.
POINTS = 40
#: Messages that come of each source between two actions: with riot 10 per second for 5 seconds.
EACH = {"riot": 50, "opmw": 1}


def _line(name: str, values: Sequence[float], unit: str, against: str, actions: int = 1) -> Iterator[Measure]:
    """Some of the values, which are of so many actions each, as points of a line."""
    every = -(-len(values) // POINTS)
    for at in range(0, len(values), every):
        yield Measure(f"{name}/{at * actions + 1}", values[at], unit, against)


def trace_of(name: str, flows: dict[str, Dataflow], walk: int = WALK) -> list[Action]:
    """A trace of these dataflows; a walk has so many actions besides those in which the first come and the last go."""
    if name == "seq":
        return sequence(list(flows))
    return random_walk(list(flows), walk, seed=int(name[2:]))


def counted(name: str, load: str, walk: str, flows: dict[str, Dataflow]) -> Iterator[Measure]:
    """Steps that run, in how many fragments, and how long the books take; that is the same with every back end."""
    actions = trace_of(walk, flows)
    saved: Saved = replay(actions, {flow.name: signatures(flow).values() for flow in flows.values()})
    manager = ReuseManager(NullBackend())
    took, parts, idle = [], [], []
    for action, steps in zip(actions, saved.shared, strict=True):
        begin = time.process_time()
        _act(manager, action, flows, None)
        took.append(1e3 * (time.process_time() - begin))
        stats = manager.stats()
        if stats["steps"] != steps:
            raise AssertionError(f"{stats['steps']} steps run, {steps} are distinct")
        if steps:
            parts.append(stats["fragments"] / stats["groups"])
            idle.append(stats["idle"] / (steps + stats["idle"]))
    what = f"steps that run, of {max(saved.alone)} apart"
    reach = round(PEAK[load], 3) if walk == "seq" else None
    paper = TASKS[load] if walk == "seq" else None
    yield Measure(f"{name}/tasks-peak-reduction", saved.peak, "share", what, reach, published=paper)
    yield Measure(f"{name}/tasks-sum-reduction", saved.total, "share", "the same, summed over the trace")
    p95 = sorted(took)[int(0.95 * len(took))]
    yield Measure(f"{name}/manager-p95-ms", p95, "ms", "CPU time of the books per action", 5, at_most=True)
    what = "fragments of dataflows that hang together, mean over the trace, where none is made anew"
    yield Measure(f"{name}/fragmentation", mean(parts), "fragments", what)
    what = "steps that nobody wants, of all in the fragments, mean over the trace"
    yield Measure(f"{name}/idle-share", mean(idle), "share", what)
    yield from _line(f"{name}/tasks/apart", saved.alone, "steps", "each dataflow by itself, after so many actions")
    yield from _line(f"{name}/tasks/together", saved.shared, "steps", "each distinct step once, after so many actions")
    for k, n in saved.uses.items():
        share = n / sum(saved.shared)
        yield Measure(f"{name}/used-by/{k}", share, "share", f"of all steps through the trace, used by {k} dataflows")


def _act(
    manager: ReuseManager, action: Action, flows: dict[str, Dataflow], sink: CallbackSink | None
) -> Submitted | None:
    if action.op == "remove":
        manager.remove(action.name)
        return None
    flow = flows[action.name]
    if sink is None:
        return manager.submit(flow)
    return manager.submit(flow, {node.id: source(node.id) for node in flow.kind("source")}, sink)


def source(name: str, messages: int | None = None) -> Source:
    """The stream that a source node of a workload names, of so many messages, or without end."""
    if not name.startswith("opmw"):
        return riot_source(name, messages)
    return MemorySource(_numbers(100_000 if messages is None else messages))


@functools.cache
def _numbers(rows: int) -> pa.Table:
    return pa.table({"value": np.arange(rows, dtype=np.float64), "pi": np.zeros(rows)})


def _nothing() -> CallbackSink:
    return CallbackSink(lambda stream, batch: None)


def run(
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


def equal(name: str, flows: dict[str, Dataflow], messages: int) -> Measure:
    """Whether each gets together what it gets by itself."""
    manager = ReuseManager(LocalBackend(max(1, messages // 3)))
    sinks = {}
    for flow in flows.values():
        sinks[flow.name] = MemorySink()
        sources = {node.id: source(node.id, messages) for node in flow.kind("source")}
        manager.submit(flow, sources, sinks[flow.name])
    assert isinstance(manager.backend, LocalBackend)
    manager.backend.run()
    return compared(name, flows, sinks, lambda stream: source(stream, messages))


def stayed(name: str, actions: Sequence[Action], flows: dict[str, Dataflow], each: int) -> Measure:
    """Whether each dataflow gets through a trace what it gets by itself, where none shares state that is not fresh."""
    manager = ReuseManager(LocalBackend(each, epoch_s=1e9), policy="stateless")
    stays = []
    there: dict[str, Stay] = {}
    for action in actions:
        if action.op == "submit":
            stays.append(Stay(flows[action.name], messages=0))
            there[action.name] = stays[-1]
            stays[-1].begun = _act(manager, action, flows, stays[-1].sink())
        else:
            _act(manager, action, flows, None)
            del there[action.name]
        _turn(manager)
        for stay in there.values():
            stay.messages = (stay.messages or 0) + each
    return alike(name, stays, source)
