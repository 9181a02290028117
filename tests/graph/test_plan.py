"""Plans: the stages of dataflows and their shuffles."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.dataflows.dspbench.operators import BagOfWords
from riot_ops.graph.lowering import lower
from riot_ops.graph.plan import plan, plan_steps
from tests.random_flows import (
    SCHEMA,
    assert_same,
    everything,
    random_flow,
    random_input,
)
from tests.search import depth
from tests.simulated_query import SimulatedQuery

SEEDS = st.integers(0, 2**32).map(random.Random)


@given(SEEDS, st.sampled_from(["exact", "coarse"]))
@settings(max_examples=depth(80))
def test_plan_places_each_step_after_its_inputs(choose, fuse):
    flow = random_flow(choose)
    plan = flow.plan(fuse=fuse)
    for stage in plan.stages:
        for step in stage.steps:
            if step.keyed:
                assert set(stage.partition) <= set(step.key), "records of one key must meet in one bucket"
        for stream in stage.outputs:
            assert plan.parts.get(stream, stream) in plan.sinks or plan.readers(stream, stage.index)
    together = plan.shuffles
    assert sorted(s.index for stages in together for s in stages) == list(range(1, len(plan.stages)))
    for before, stages in zip([plan.stages[:1], *together], together, strict=False):
        for stage in stages:
            assert any(s.outputs & stage.entries.keys() for s in before), "it fits an earlier shuffle"
            assert not any(s.outputs & stage.entries.keys() for s in stages), (
                "it reads the output of a stage of the same shuffle"
            )
    keyed = [n.id for n in flow.nodes_of_kind("task") if n.task.stateful]
    placed = [s.id for stage in plan.stages for s in stage.steps if s.keyed]
    assert sorted(placed) == sorted(keyed)


@pytest.mark.parametrize(
    ("code", "fuse", "shuffles"), [("mo", "exact", 3), ("mo", "coarse", 1), ("equipment", "exact", 2)]
)
def test_single_bucket_is_not_shuffled_again(code, fuse, shuffles):
    plan = ro.dataflows.BUILDERS[code]().plan(fuse=fuse)
    assert len(plan.stages) - 1 == len(plan.shuffles) == shuffles


def test_independent_stages_share_a_shuffle():
    plan = ro.dataflows.log_processing().plan()
    assert [[stage.partition for stage in together] for together in plan.shuffles] == [
        [("response",), (), ("country",)]
    ]
    visits = ro.dataflows.click_analytics().plan()
    assert [[stage.index for stage in together] for together in visits.shuffles] == [[1, 2], [3]]


def _count(by):
    return t.Window(frame=1_000_000, emit="each", by=(by,), aggregates={"n": "count"})


def test_changed_field_needs_another_shuffle():
    flow = ro.Dataflow("changing")
    counted = flow.source("in", schema=SCHEMA).to(_count("device"), id="n")
    renamed = counted.to(ro.map(lambda row: {**row, "device": row["device"][:1]}, label="short"), id="short")
    flow.sink("out", renamed.to(_count("device"), id="again"), counted.to(_count("device"), id="same"))
    stages_of = [[step.id for step in stage.steps if step.keyed] for stage in plan(flow).stages]
    assert stages_of == [[], ["n", "same"], ["again"]]
    assert [stage.partition for stage in plan(flow).stages[1:]] == [("device",)] * 2


@pytest.mark.parametrize(
    ("task", "key", "stays"),
    [
        (t.Unpivot(fields=("value", "other"), keep=("device",)), "device", True),
        (t.Unpivot(fields=("value", "other"), labels=("a", "b"), variable_name="device"), "device", False),
        (BagOfWords(field="text", keep=("device",)), "device", True),
        (BagOfWords(field="text", whole=("device",)), "device", False),  # words have no device
        (t.ParseSenML(field="text"), "sensor_id", False),
        (t.ChangeDetector(fields=("value",), by="device"), "device", True),
    ],
    ids=lambda one: one.name() if hasattr(one, "name") else None,
)
def test_step_that_keeps_the_key_needs_no_other_shuffle(task, key, stays):
    fields = {
        "event_time": "timestamp[us, tz=UTC]",
        key: "string",
        "text": "string",
        "value": "double",
        "other": "double",
    }
    flow = ro.Dataflow("kept")
    counted = flow.source("in", schema=fields).to(t.RunningCount(by=(key,), output="n"), id="n")
    flow.sink("out", counted.to(task, id="between").to(t.RunningCount(by=(key,), output="again"), id="again"))
    stages = [[step.id for step in stage.steps] for stage in plan(flow).stages[1:]]
    assert stages == ([["n", "between", "again"]] if stays else [["n", "between"], ["again"]])


def test_assembled_messages_keep_their_stage():
    assert len(ro.dataflows.voip_stream().plan().shuffles) == 4
    assert len(ro.dataflows.voip_stream().plan(fuse="coarse").shuffles) == 3


# -- stateless steps that fan out run after the shuffle ------------------------------------------------


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
