"""The books of shared dataflows alone: what an action takes where many steps run, and what is left behind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from riot_bench.harness.measure import Measure
from riot_bench.suites.reuse.traces import Action
from riot_ops.dataflow import Dataflow
from riot_ops.reuse import NullBackend, ReuseManager
from riot_ops.tasks import KalmanFilter

__all__ = ["drained", "submitting"]

#: Steps that run, steps that come with a dataflow, and how often one comes and goes.
RUNNING, NEW, SUBMITS = 1000, 20, 300


def submitting(submits: int = SUBMITS) -> Measure:
    """How long the books take for a dataflow of new steps, while many others run."""
    manager = ReuseManager(NullBackend())
    begun = 0
    while (missing := RUNNING - begun) > 0:
        begun += len(manager.submit(_chain(f"running{begun}", begun, min(NEW, missing))).new)
    took = []
    for number in range(submits):
        flow = _chain(f"new{number}", RUNNING + number, NEW)
        begin = time.process_time()
        came = manager.submit(flow)
        took.append(1e3 * (time.process_time() - begin))
        if len(came.new) != NEW:
            raise AssertionError(f"{len(came.new)} of {NEW} steps were new")
        manager.remove(flow.name)
    p95 = sorted(took)[int(0.95 * len(took))]
    what = f"CPU time of the books for {NEW} new steps over one stream, {RUNNING:,} running, {submits} times"
    return Measure("reuse/submit/p95-ms", p95, "ms", what, 5, at_most=True)


def _chain(name: str, number: int, steps: int) -> Dataflow:
    """A dataflow of so many steps, none of which another has, over a stream that all of them read."""
    flow = Dataflow(name)
    stream = flow.source("city", schema={"value": "double"})
    for place in range(steps - 1):
        stream = stream.to(KalmanFilter(process_noise=1.0 + number), id=f"step{place}")
    return flow.sink("out", stream)


def drained(name: str, actions: Sequence[Action], flows: Mapping[str, Dataflow]) -> Measure:
    """Steps and queries in the books when all dataflows of a trace have gone."""
    manager = ReuseManager(NullBackend())
    for action in actions:
        if action.op == "submit":
            manager.submit(flows[action.name])
        else:
            manager.remove(action.name)
    for left in manager.names:
        manager.remove(left)
    stats = manager.stats()
    rest = stats["steps"] + stats["fragments"] + stats["idle"]
    return Measure(name, rest, "steps", "steps and queries left when all are gone", 0, at_most=True)
