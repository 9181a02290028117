"""The manager of shared dataflows without a back end: time of an action among many steps."""

from __future__ import annotations

import time

from riot_bench.harness.measure import Measure
from riot_ops.dataflow import Dataflow
from riot_ops.reuse import NullBackend, ReuseManager
from riot_ops.tasks import KalmanFilter

__all__ = ["submit_measure"]

#: Running steps, new steps of a submitted dataflow, and number of submissions.
RUNNING, NEW, SUBMITS = 1000, 20, 300


def submit_measure(submits: int = SUBMITS) -> Measure:
    """Measure the manager's time to submit a dataflow of new steps while many others run."""
    manager = ReuseManager(NullBackend())
    begun = 0
    while (missing := RUNNING - begun) > 0:
        begun += len(manager.submit(_chain_flow(f"running{begun}", begun, min(NEW, missing))).new)
    took = []
    for number in range(submits):
        flow = _chain_flow(f"new{number}", RUNNING + number, NEW)
        begin = time.process_time()
        report = manager.submit(flow)
        took.append(1e3 * (time.process_time() - begin))
        if len(report.new) != NEW:
            raise AssertionError(f"{len(report.new)} of {NEW} steps were new")
        manager.remove(flow.name)
    p95 = sorted(took)[int(0.95 * len(took))]
    what = f"CPU time of the manager for {NEW} new steps over one stream, {RUNNING:,} running, {submits} times"
    return Measure("reuse/submit/p95-ms", p95, "ms", what, 5, at_most=True)


def _chain_flow(name: str, number: int, steps: int) -> Dataflow:
    """Create a dataflow of ``steps`` steps that no other dataflow has, over a stream that all read."""
    flow = Dataflow(name)
    stream = flow.source("city", schema={"value": "double"})
    for place in range(steps - 1):
        stream = stream.to(KalmanFilter(process_noise=1.0 + number), id=f"step{place}")
    return flow.sink("out", stream)
