"""Random dataflows that overlap, and random actions over them."""

from __future__ import annotations

import random
from typing import Any

import riot_ops as ro
from riot_ops import tasks as t
from tests.random_flows import SCHEMA

TASKS = [
    *(lambda q=q: t.KalmanFilter(by=("device",), process_noise=q) for q in (0.5, 0.25)),
    lambda: t.RangeFilter(bounds={"light": (-20, 30)}),
    lambda: t.RangeFilter(bounds={"light": (-20, 30)}, on_fail="null"),
    lambda: t.CheckBloomFilter(field="device", members=("a", "b")),
]


def overlapping_flow(choose: random.Random, name: str, *, stateful: bool = True) -> ro.Dataflow:
    """A connected dataflow without twins, of few kinds of steps, so that many have beginnings in common."""
    flow = ro.Dataflow(name)
    known: dict[Any, ro.Stream] = {}
    tasks = TASKS if stateful else TASKS[2:]
    together = choose.random() < 0.3
    names = choose.sample(["north", "south", "west"], 2) if together else [choose.choice(["north", "south"])]
    streams = [flow.source(one, schema=SCHEMA) for one in names]

    def put(stream: ro.Stream) -> None:
        task = choose.choice(tasks)()
        key = (stream.nodes, repr(task))
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
    """Submissions (with the dataflow) and removals (with its name), all of which are valid; some submit one again."""
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
