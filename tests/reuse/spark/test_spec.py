"""Steps that wanted streams depend on."""

from __future__ import annotations

import itertools

import riot_ops as ro
import riot_ops.tasks as t
from riot_ops.graph.lowering import lower
from riot_ops.reuse.spark.spec import required_steps


def test_required_steps_are_those_upstream_of_wanted_streams():
    flow = ro.Dataflow("flow")
    source = flow.source("in", schema={"value": "double", "event_time": "timestamp[us, tz=UTC]"})
    kept = source.to(t.RangeFilter(bounds={"value": (0, 1)}, by=None), id="kept")
    smooth = kept.to(t.KalmanFilter(), id="smooth")
    other = source.to(t.MovingAverage(window=2), id="other")
    flow.sink("out", smooth, other)
    steps = lower(flow)
    assert required_steps(steps, {"smooth"}) == {"in", "kept", "smooth"}
    assert required_steps(steps, {"other"}) == {"in", "other"}
    assert required_steps(steps, {"in@beats"}) == {"in"}
    assert required_steps(steps, set()) == set()
    everything = {step.id for step in steps}
    for some in itertools.combinations(("smooth", "kept", "other"), 2):
        assert required_steps(steps, set(some)) <= everything
