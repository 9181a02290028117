"""Laws of the engine and the local runner, over random dataflows."""

from __future__ import annotations

import itertools
import random

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.order import ordinals
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
def test_records_are_independent_of_batch_size(choose, batch_size, sources):
    flow = random_flow(choose, sources=sources)
    given_ = {n.id: random_input(choose, 30) for n in flow.nodes_of_kind("source")}
    nodes = ordered(flow)
    whole = everything(flow.run(given_), flow, nodes)
    assert_same(everything(flow.run(given_, batch_size=batch_size), flow, nodes), whole, flow)


def test_most_streams_of_two_sources_are_compared():
    streams, compared = 0, 0
    for seed in range(100):
        flow = random_flow(random.Random(seed), sources=2)
        ends = {e.source for n in flow.nodes_of_kind("sink") for e in flow.inputs(n.id)}
        streams, compared = streams + len(ends), compared + len(ends & ordered(flow))
    assert 0.6 * streams < compared < streams


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
def test_time_window_results_have_a_total_order(choose, batch_size, by):
    """A downstream task with another key sees their results in the same order, however batches are cut."""
    flow = ro.Dataflow("windows", ordinals=True)
    window = flow.source("in", schema=SCHEMA).to(random_time_window(choose, by=("device", "obs_type")), id="window")
    kalman = window.to(t.KalmanFilter(by=(by,)), id="kalman")
    longer = t.Window(frame="20s", by="obs_type", aggregates={"value": ("value", "sum")})
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


def test_expansions_can_be_nested_deeply():
    """The records of a message stay in order at any depth, in any number of buckets and batches."""
    flow = ro.Dataflow("deep", ordinals=True)
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


def test_count_windows_can_be_chained():
    averages = ro.Dataflow("averages")  # windows of a number of records have a number of their own
    stream = averages.source("in", schema=SCHEMA)
    for i in range(7):
        stream = stream.to(t.MovingAverage(window=2), id=f"average{i}")
    averages.sink("out", stream).validate()
