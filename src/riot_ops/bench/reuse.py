"""What sharing saves: the same dataflows come and go, each by itself and together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from riot_ops.bench import reuse_many
from riot_ops.bench.measure import Measure, one_core
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.sink import CallbackSink, MemorySink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.intake.memory_source import MemorySource
from riot_ops.reuse import LocalBackend, NullBackend, ReuseManager, signatures
from riot_ops.reuse.traces import Action, Saved, random_walk, replay, sequence
from riot_ops.reuse.workloads import opmw_like, riot21, riot_source
from riot_ops.testing import exact

__all__ = ["measures"]

TRACES = ("seq", "rw1", "rw2")
WORKLOADS = ("riot", "opmw")
BACKENDS = ("null", "local")

#: What the trace with all dataflows should save at its peak: with riot exactly, with opmw 38 % less 3.
PEAK = {"riot": 0.4531, "opmw": 0.35}
#: Messages that come of each source between two actions: with riot 10 per second for 5 seconds.
EACH = {"riot": 50, "opmw": 2}


def measures(
    quick: bool = False,
    trace: Sequence[str] = TRACES,
    workload: Sequence[str] = WORKLOADS[:1],
    backend: str = "local",
    many: int | None = None,
) -> Iterator[Measure]:
    """The suite.

    Parameters
    ----------
    trace : sequence of str, default all
        ``seq``: all come, then all go; ``rw1``, ``rw2``: walks.
    workload : sequence of str, default ("riot",)
        ``riot``: 21 dataflows of RIoTBench's tasks; ``opmw``: 35 synthetic ones, a millisecond per record and task.
    backend : "local" or "null", default "local"
        ``null`` counts steps alone.
    many : int, optional
        In place of the others: so many dataflows over one stream, in process.
    """
    if many is not None:
        if backend != "local":
            raise ConfigError(f"many dataflows are measured with the back end 'local', got {backend!r}")
        yield from reuse_many.many(many, quick)
        return
    for given, known in ((trace, TRACES), (workload, WORKLOADS), ((backend,), BACKENDS)):
        for one in given:
            if one not in known:
                raise ConfigError(f"{one!r} is none of {', '.join(known)}{did_you_mean(one, known)}")
    for load in workload:
        flows = {flow.name: flow for flow in (riot21() if load == "riot" else opmw_like())}
        if backend == "local":  # which also loads all code
            yield _equal(f"reuse/{load}/outputs-equal", flows, 100 if quick else 1000 if load == "riot" else 5)
        for walk in trace:
            yield from _counted(f"reuse/{load}/{walk}", load, walk, flows)
            if backend == "local":
                with one_core():
                    yield from _run(f"reuse/{load}/{walk}", _trace(walk, flows, quick), flows, EACH[load])


def _trace(name: str, flows: dict[str, Dataflow], quick: bool = False) -> list[Action]:
    if name == "seq":
        return sequence(list(flows))
    return random_walk(list(flows), 10 if quick else 100, seed=int(name[2:]))


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
    yield Measure(f"{name}/tasks-peak-reduction", saved.peak, "share", what, reach)
    yield Measure(f"{name}/tasks-sum-reduction", saved.total, "share", "the same, summed over the trace")
    p95 = sorted(took)[int(0.95 * len(took))]
    yield Measure(f"{name}/manager-p95-ms", p95, "ms", "CPU time of the books per action", 5, at_most=True)


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
    return MemorySource([{"value": float(i), "pi": 0.0} for i in range(100_000 if messages is None else messages)])


def _nothing() -> CallbackSink:
    return CallbackSink(lambda stream, batch: None)


def _run(name: str, actions: Sequence[Action], flows: dict[str, Dataflow], each: int) -> Iterator[Measure]:
    """CPU time through a trace in process, both sides by turns at each step."""
    together = ReuseManager(LocalBackend(each, epoch_s=1e9))
    apart: dict[str, ReuseManager] = {}
    shared = alone = 0.0
    held: list[float] = []
    for action in actions:
        begin, wall = time.process_time(), time.perf_counter()
        _act(together, action, flows, _nothing())
        held.append(1e3 * (time.perf_counter() - wall))
        _turn(together)
        middle = time.process_time()
        if action.op == "submit":
            apart[action.name] = ReuseManager(LocalBackend(each, epoch_s=1e9))
            _act(apart[action.name], action, flows, _nothing())
        else:
            apart.pop(action.name).close()
        for one in apart.values():
            _turn(one)
        end = time.process_time()
        shared, alone = shared + middle - begin, alone + end - middle
    yield Measure(
        f"{name}/cpu-reduction",
        1 - shared / alone,
        "share",
        f"CPU seconds together ({shared:.1f}) and each by itself ({alone:.1f}), {each} messages of a source per action",
    )
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
    equal, rows = True, 0
    for flow in flows.values():
        result = flow.run({node.id: _source(node.id, messages) for node in flow.kind("source")})
        for stream in {*(e.source for n in flow.kind("sink") for e in flow.inputs(n.id)), ERRORS_STREAM}:
            wanted = Counter(map(exact, result[stream].to_pylist()))
            equal &= wanted == Counter(map(exact, sinks[flow.name].table(stream).to_pylist()))
            rows += wanted.total()
    return Measure(name, int(equal), "truth", f"{rows:,} records of {len(flows)} dataflows", 1)
