"""Stateless steps that fan out run after the shuffle."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.graph.lowering import lower
from riot_ops.graph.plan import plan_steps
from tests.random_flows import SCHEMA, assert_same, everything, random_input
from tests.search import depth
from tests.simulated_query import SimulatedQuery

SEEDS = st.integers(0, 2**32).map(random.Random)


def at_most(limit):
    return t.RangeFilter(by=None, bounds={"value": (-100, limit)})


def fan(n, *, above=(), tasks=at_most, key=("device",)):
    """A dataflow in which n filters read one stream, each with a keyed task after it."""
    flow = ro.Dataflow("fan")
    stream = flow.source("in0", schema=SCHEMA)
    for i, task in enumerate(above):
        stream = stream.to(task, id=f"above{i}")
    for i in range(n):
        filtered = stream.to(tasks(i), id=f"f{i}")
        flow.sink(f"out{i}", filtered.to(t.KalmanFilter(by=key, process_noise=1.0 + i), id=f"k{i}"))
    return flow


def stages(plan):
    return [[step.id for step in stage.steps if "@" not in step.id] for stage in plan.stages]


def crossing(plan):
    return {stream: readers for stage in plan.stages[1:] for stream, readers in stage.entries.items()}


@pytest.mark.parametrize(("n", "streams"), [(3, {"f0", "f1", "f2"}), (4, {"in0"}), (9, {"in0"})])
def test_root_crosses_instead_of_four_or_more_streams(n, streams):
    plan = fan(n).plan()
    assert set(crossing(plan)) == streams
    assert plan.stages[0].outputs == streams
    later = [f"f{i}" for i in range(n)] if n > 3 else []
    assert (
        stages(plan)[1][: len(later)] == later
        and stages(plan)[0] == ["in0", *(f"f{i}" for i in range(n))][: n + 1 - len(later)]
    )


def test_whole_chains_move_but_their_common_root_stays():
    flow = fan(0, above=[at_most(50)])
    stream = flow.stream("above0")
    for i in range(5):
        chain = stream.to(at_most(i), id=f"f{i}").to(at_most(-i), id=f"g{i}")
        flow.sink(f"out{i}", chain.to(t.KalmanFilter(by=("device",)), id=f"k{i}"))
    plan = flow.plan()
    assert set(crossing(plan)) == {"above0"} and stages(plan)[0] == ["in0", "above0"]
    assert crossing(plan)["above0"] == {f"f{i}" for i in range(5)}


def test_steps_with_other_readers_or_writing_the_key_stay():
    flow = fan(5)
    flow.sink("more", flow.stream("f0").to(at_most(-5), id="g"))
    plan = flow.plan()
    assert set(crossing(plan)) == {"f0", "in0"} and {"f0", "g"} <= set(stages(plan)[0])
    keys = fan(
        5, tasks=lambda i: ro.map(lambda row: {"device": "x"}, adds={"device": "string"}, label="same", revision=i)
    )
    assert set(crossing(keys.plan())) == {f"f{i}" for i in range(5)}


def test_added_steps_follow_settled_streams():
    def plan(n, first):
        settled = [step.id for step in lower(fan(first))]
        steps = sorted(lower(fan(n)), key=lambda step: step.id not in settled)
        return plan_steps("x", steps, ["in0", "in0@beats"], {s.id for s in steps}, "exact", len(settled))

    assert set(crossing(plan(9, 2))) == {f"f{i}" for i in range(9)}, "only two steps decided it"
    assert set(crossing(plan(6, 5))) == {"in0"}
    assert stages(plan(5, 5))[0] == stages(plan(9, 5))[0] == ["in0"]


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=depth(4))
def test_results_are_unchanged(choose):
    flow = fan(
        choose.randint(4, 6), above=[at_most(20)] if choose.random() < 0.5 else (), tasks=lambda i: at_most(5 * i)
    )
    given = random_input(choose, 60)
    query = SimulatedQuery(flow, ro.MemorySource(given, SCHEMA), choose, max_records=choose.randint(5, 40))
    assert_same(everything(query, flow), everything(flow.run({"in0": given}), flow), flow)
