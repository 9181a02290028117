"""Laws of the engine and the local runner, over random dataflows."""

from __future__ import annotations

import itertools
import random

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import ordinals
from riot_ops.task import Task
from tests.random_flows import (
    SCHEMA,
    assert_same,
    everything,
    ordered,
    random_flow,
    random_input,
    random_time_window,
)
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)


@given(SEEDS, st.integers(1, 40), st.integers(1, 2))
@settings(max_examples=depth(80))
def test_any_batch_size_gives_the_same_records(choose, batch_size, sources):
    flow = random_flow(choose, sources=sources)
    given_ = {n.id: random_input(choose, 30) for n in flow.kind("source")}
    nodes = ordered(flow)
    whole = everything(flow.run(given_), flow, nodes)
    assert_same(everything(flow.run(given_, batch_size=batch_size), flow, nodes), whole, flow)


def test_flows_of_two_sources_have_streams_to_compare():
    streams, compared = 0, 0
    for seed in range(100):
        flow = random_flow(random.Random(seed), sources=2)
        ends = {e.source for n in flow.kind("sink") for e in flow.inputs(n.id)}
        streams, compared = streams + len(ends), compared + len(ends & ordered(flow))
    assert 0.6 * streams < compared < streams


@given(SEEDS)
@settings(max_examples=depth(40))
def test_a_dataflow_read_back_from_json_gives_the_same_records(choose):
    flow = random_flow(choose, functions=False)
    again = ro.Dataflow.from_json(flow.to_json())
    assert again.to_json() == flow.to_json()
    assert str(again.plan()) == str(flow.plan())
    table = random_input(choose, 30)
    assert_same(everything(again.run(table), again), everything(flow.run(table), flow), flow)


@given(SEEDS, st.sampled_from(["exact", "coarse"]))
@settings(max_examples=depth(80))
def test_every_plan_runs_each_step_where_its_inputs_are(choose, fuse):
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
            assert any(s.outputs & stage.entries.keys() for s in before), "it could have come earlier"
            assert not any(s.outputs & stage.entries.keys() for s in stages), "it needs what comes beside it"
    keyed = [n.id for n in flow.kind("task") if n.task.stateful]
    placed = [s.id for stage in plan.stages for s in stage.steps if s.keyed]
    assert sorted(placed) == sorted(keyed)


@pytest.mark.parametrize(
    ("code", "fuse", "shuffles"), [("mo", "exact", 3), ("mo", "coarse", 1), ("equipment", "exact", 2)]
)
def test_what_is_in_one_bucket_stays_there(code, fuse, shuffles):
    plan = ro.dataflows.BUILDERS[code]().plan(fuse=fuse)
    assert len(plan.stages) - 1 == len(plan.shuffles) == shuffles


def test_stages_that_need_nothing_of_each_other_have_one_shuffle():
    plan = ro.dataflows.log_processing().plan()
    assert [[stage.partition for stage in together] for together in plan.shuffles] == [
        [("response",), (), ("country",)]
    ]
    visits = ro.dataflows.click_analytics().plan()
    assert [[stage.index for stage in together] for together in visits.shuffles] == [[1, 2], [3]]


@given(SEEDS, st.integers(1, 40))
@settings(max_examples=depth(30))
def test_order_by_event_time_sorts_within_a_batch(choose, rows):
    flow = ro.Dataflow("late")
    source = flow.source("in", schema=SCHEMA)
    flow.sink("out", source.to(t.KalmanFilter(by=("device",)), id="kalman"))
    table = random_input(choose, rows)
    times = list(range(rows))
    choose.shuffle(times)
    table = table.set_column(1, "event_time", pa.array(times, pa.timestamp("us", tz="UTC")))
    sorted_ = table.sort_by("event_time")
    sorted_ = sorted_.set_column(0, table.schema.field("seq"), pa.array(range(rows), pa.int64()))
    late = flow.run(table, order="event_time")["kalman"].drop_columns(["seq"])
    assert (
        late.sort_by("event_time").to_pylist().__repr__()
        == flow.run(sorted_)["kalman"].drop_columns(["seq"]).sort_by("event_time").to_pylist().__repr__()
    )


@given(SEEDS, st.integers(1, 60), st.sampled_from(["obs_type", "device"]))
@settings(max_examples=depth(60))
def test_what_windows_of_time_give_has_an_order_of_its_own(choose, batch_size, by):
    """A task with another key behind them sees their results in the same order however batches are cut."""
    flow = ro.Dataflow("windows")
    window = flow.source("in", schema=SCHEMA).to(random_time_window(choose, by=("device", "obs_type")), id="window")
    kalman = window.to(t.KalmanFilter(by=(by,)), id="kalman")
    longer = t.Window(size="20s", by="obs_type", aggregates={"value": ("sum", "value")})
    flow.sink("out", window, kalman, kalman.to(longer, id="longer").to(t.KalmanFilter(output="smooth"), id="last"))
    table = random_input(choose, 60)
    result = flow.run(table, batch_size=batch_size)
    assert_same(everything(result, flow), everything(flow.run(table), flow), flow)
    numbers = [tuple(row[name] for name in ("seq", *ordinals(row))) for row in result["window"].to_pylist()]
    assert len(set(numbers)) == len(numbers)


def test_tasks_without_key_count_their_own_records():
    flow = ro.Dataflow("unkeyed")
    average = flow.source("in", schema=SCHEMA).to(t.MovingAverage(window=3), id="avg")
    flow.sink("out", average.to(t.KalmanFilter(), id="kalman"))
    result = flow.run([{"device": "a", "obs_type": None, "value": float(i)} for i in range(30)])
    assert result["kalman"].num_rows == 10


# -- validation ------------------------------------------------------------------------------------


def test_validation_lists_all_problems():
    flow = ro.Dataflow("wrong")
    source = flow.source("in", schema=SCHEMA)
    kalman = source.to(t.KalmanFilter(by=("devise",)), id="kalman")
    text = source.to(t.KalmanFilter(value="device"), id="text")
    source.to(t.KalmanFilter(), id="loose")
    flow.add(t.KalmanFilter(), id="alone")
    merged = ro.merge(source, source.to(t.KalmanFilter(output="smooth"), id="wider"))
    flow.sink("out", kalman, text, merged.to(t.KalmanFilter(), id="merged"))
    flow.connect("kalman", "oout")
    flow.sink("empty")
    with pytest.raises(ConfigError) as caught:
        flow.validate()
    message = str(caught.value)
    for part in (
        "kalman: kalman_filter reads the field 'devise'",
        'did you mean "device"?',
        "text: kalman_filter needs a number in the field 'device', its input has string",
        "loose: not connected: its output goes nowhere",
        "alone: not connected: it has no input",
        "merged: its inputs do not agree: only one has the field 'smooth'",
        "edge kalman -> oout: no node 'oout'; did you mean \"out\"?",
        "empty: not connected: it has no input",
    ):
        assert part in message, part
    for use in (lambda: flow.run([]), flow.plan, flow.schemas):
        with pytest.raises(ConfigError, match="devise"):
            use()


def test_records_may_be_derived_from_records_as_often_as_one_likes():
    """What a message gives stays in order, however deep, and however many buckets and batches work on it."""
    flow = ro.Dataflow("deep")
    stream = flow.source("in", schema={"path": "string"})
    for i in range(12):
        stream = stream.to(
            ro.flat_map(
                lambda row: [{"path": row["path"] + c, "last": c} for c in "ab"],
                schema={"path": "string", "last": "string"},
            ),
            id=f"twice{i}",
        )
        stream = stream.to(t.Deduplicate(by=("path",)), id=f"keyed{i}")
    flow.sink("out", stream)
    flow.sink("gathered", stream.to(t.Collect(size=1 << 20, groups=(), partial=True), id="all"))
    out = flow.run([{"path": ""}, {"path": "x"}], batch_size=1)
    wanted = ["".join(path) for path in itertools.product("ab", repeat=12)]
    assert out["all"]["path"].to_pylist() == [wanted + ["x" + path for path in wanted]]
    assert out["keyed11"].num_rows == 2 * 2**12
    assert [name for name in out["keyed11"].schema.names if name.startswith("ordinal")][-1] == "ordinal_12"


def test_windows_of_a_number_of_records_have_a_number_of_their_own():
    averages = ro.Dataflow("averages")  # windows of a number of records have a number of their own
    stream = averages.source("in", schema=SCHEMA)
    for i in range(7):
        stream = stream.to(t.MovingAverage(window=2), id=f"average{i}")
    averages.sink("out", stream).validate()


def test_a_cycle_is_named():
    flow = ro.Dataflow("round")
    a = flow.source("in", schema=SCHEMA).to(t.KalmanFilter(), id="a")
    b = a.to(t.KalmanFilter(), id="b")
    flow.connect("b", "a")
    flow.sink("out", b)
    with pytest.raises(ConfigError, match="cycle through a, b"):
        flow.validate()


def test_an_edge_that_stands_twice_is_named():
    flow = ro.Dataflow("twice")
    source = flow.source("in", schema=SCHEMA)
    flow.sink("out", source.to(t.KalmanFilter(), id="a"))
    flow.connect("in", "a")
    with pytest.raises(ConfigError, match="in -> a stands twice"):
        flow.validate()


@pytest.mark.parametrize("name", ["in", "a", "out", "errors"])
def test_a_name_can_be_used_once(name):
    flow = ro.Dataflow("names")
    source = flow.source("in", schema=SCHEMA)
    flow.sink("out", source.to(t.KalmanFilter(), id="a"))
    with pytest.raises(ConfigError, match=f"duplicate name '{name}'"):
        source.to(t.KalmanFilter(), id=name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["nodes"][1]["task"].update(proces_noise=1.0), 'did you mean "process_noise"'),
        (lambda d: d["nodes"][1]["task"].update(task="kalman_filer"), 'did you mean "kalman_filter"'),
        (lambda d: d["nodes"][1].update(knd="task"), 'did you mean "kind"'),
        (lambda d: d.update(format="x"), "format must be"),
        (lambda d: d["edges"][0].pop("to"), "not well formed"),
        (lambda d: d["nodes"][0].update(schema=[{"name": "value", "type": "dubble"}]), "unknown type 'dubble'"),
    ],
)
def test_a_wrong_descriptor_is_refused_with_a_hint(change, message):
    flow = ro.Dataflow("described")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(t.KalmanFilter(), id="a"))
    data = flow.to_dict()
    change(data)
    with pytest.raises(ConfigError, match=message):
        ro.Dataflow.from_dict(data)


def test_streams_of_two_dataflows_do_not_mix():
    one, two = ro.Dataflow("one").source("in", schema=SCHEMA), ro.Dataflow("two").source("in", schema=SCHEMA)
    with pytest.raises(ConfigError, match="one dataflow"):
        ro.merge(one, two)
    with pytest.raises(ConfigError, match="belongs to the dataflow 'two'"):
        one.flow.add(t.KalmanFilter(), two)


def test_what_is_no_task_is_refused():
    flow = ro.Dataflow("f")
    with pytest.raises(ConfigError, match=r"riot_ops\.map"):
        flow.source("in", schema=SCHEMA) >> (lambda row: row)
    assert issubclass(t.KalmanFilter, Task)
