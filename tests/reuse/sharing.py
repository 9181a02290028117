"""Random dataflows that overlap, random actions over them, and a check of the manager's ledger."""

from __future__ import annotations

import random
from typing import Any

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import signatures
from tests.random_flows import SCHEMA

TASKS = [
    *(lambda q=q: t.KalmanFilter(by=("device",), process_noise=q) for q in (0.5, 0.25)),
    lambda: t.RangeFilter(bounds={"light": (-20, 30)}),
    lambda: t.RangeFilter(bounds={"light": (-20, 30)}, on_error="null"),
    lambda: t.CheckBloomFilter(models={"device": ("a", "b")}),
]


def overlapping_flow(choose: random.Random, name: str, *, stateful: bool = True) -> ro.Dataflow:
    """A connected dataflow without equal steps, of few tasks, so that many dataflows share their first steps."""
    flow = ro.Dataflow(name, ordinals=True)
    known: dict[Any, ro.Stream] = {}
    tasks = TASKS if stateful else TASKS[2:]
    together = choose.random() < 0.3
    names = choose.sample(["north", "south", "west"], 2) if together else [choose.choice(["north", "south"])]
    streams = [flow.source(one, schema=SCHEMA) for one in names]

    def put(stream: ro.Stream) -> None:
        task = choose.choice(tasks)()
        key = (frozenset(stream.nodes), repr(task))
        if key not in known:
            known[key] = stream.to(task, id=f"t{len(known)}")
            streams.append(known[key])

    if together:
        put(ro.merge(*streams))
    for _ in range(choose.randint(1, 5)):
        some = choose.choice(streams)
        other = choose.choice(streams)
        put(ro.merge(some, other) if choose.random() < 0.2 and some.id != other.id else some)
    read = {e.source for e in flow.edges}
    ends = [s for s in streams if s.id not in read] or [streams[-1]]
    for i, end in enumerate(ends):
        flow.sink(choose.choice(["alert", "keep"]) + str(i), end)
    if choose.random() < 0.3:
        flow.sink("all", *choose.sample(streams, choose.randint(1, len(streams))))
    return flow


def random_actions(choose: random.Random, n: int, *, stateful: bool = True) -> list[tuple[str, Any]]:
    """Valid submissions (with the dataflow) and removals (with its name); some submit an equal dataflow again."""
    actions: list[tuple[str, Any]] = []
    alive: dict[str, ro.Dataflow] = {}
    for i in range(n):
        if alive and choose.random() < 0.4:
            name = choose.choice(sorted(alive))
            del alive[name]
            actions.append(("remove", name))
        else:
            again = choose.choice(sorted(alive)) if alive and choose.random() < 0.2 else None
            if again is None:
                flow = overlapping_flow(choose, f"d{i}", stateful=stateful)
            else:
                data = alive[again].to_dict()
                flow = ro.Dataflow.from_dict({**data, "name": f"d{i}"})
            alive[f"d{i}"] = flow
            actions.append(("submit", flow))
    return actions


def books(manager):
    return manager.ledger


def check(manager, flows):
    """P1 to P6, P12 and P19, of the manager alone."""
    shared = books(manager)
    marks = {name: signatures(flow) for name, flow in flows.items()}
    distinct = {mark for found in marks.values() for mark in found.values()}
    running = {s.identity.signature: s for s in shared.steps.values()}
    assert len(running) == len(shared.steps) and set(running) == distinct  # P1, P2, P3, P4
    edges = {(marks[n][e.source], marks[n][e.target]) for n, flow in flows.items() for e in flow.edges}
    between = {
        (shared.steps[i].identity.signature, s.identity.signature) for s in shared.steps.values() for i in s.inputs
    }
    assert between == edges and sum(len(s.inputs) for s in shared.steps.values()) == len(edges)
    assert {m for g in shared.groups.values() for m in g.members} == set(flows)  # P5
    assert sum(len(g.members) for g in shared.groups.values()) == len(flows)
    assert sorted(s for g in shared.groups.values() for s in g.steps) == sorted(shared.steps)
    for id, group in shared.groups.items():
        assert all(shared.group_of[s] == id for s in group.steps)
        seen, waiting = set(), [next(iter(group.steps))]
        while waiting:
            step = waiting.pop()
            if step not in seen:
                seen.add(step)
                waiting += [*shared.steps[step].inputs, *shared.readers[step]]
        assert seen == group.steps
    for name, flow in flows.items():  # P6
        placed = shared.placed[name]
        assert {n: shared.steps[s].identity.signature for n, s in placed.items()} == marks[name]
        for node in flow.nodes:
            above = [placed[e.source] for e in flow.inputs(node)]
            assert sorted(above) == sorted(shared.steps[placed[node]].inputs)
        assert set(manager.sink_map(name)) == {n.id for n in flow.nodes_of_kind("sink")}
        assert set(placed.values()) <= shared.groups[shared.group_id(name)].steps
    assert sum(map(len, shared.users.values())) == sum(len(f.nodes) for f in flows.values())  # P12
    assert all(shared.users.values())
    found = manager.stats()  # P19
    assert found["steps"] <= found["steps_alone"]
    disjoint = sum(len(set(m.values())) for m in marks.values()) == len(distinct)
    assert (found["steps"] == found["steps_alone"]) == disjoint
    assert manager.backend.running_steps() == set(shared.steps)


def chain(*tasks, name="f", source="north", sink="out"):
    flow = ro.Dataflow(name, ordinals=True)
    stream = flow.source(source, schema=SCHEMA)
    for i, task in enumerate(tasks):
        stream = stream.to(task, id=f"{name}{i}")
    return flow.sink(sink, stream)


A, B = t.KalmanFilter(process_noise=0.5), t.RangeFilter(bounds={"light": (0, 1)})
