"""Steps that fan out before a shuffle run behind it."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.graph.lowering import lower
from riot_ops.graph.plan import planned
from riot_ops.spark.stage import _pieces
from tests.random_flows import SCHEMA, assert_same, everything, random_input
from tests.search import depth
from tests.staged import Staged

SEEDS = st.integers(0, 2**32).map(random.Random)


def at_most(limit):
    return t.RangeFilter(by=None, bounds={"value": (-100, limit)})


def fan(n, *, above=(), tasks=at_most, key=("device",)):
    """A stream of which n filters are made, each of which goes to a state by device."""
    flow = ro.Dataflow("fan")
    stream = flow.source("in0", schema=SCHEMA)
    for i, task in enumerate(above):
        stream = stream.to(task, id=f"above{i}")
    for i in range(n):
        kept = stream.to(tasks(i), id=f"f{i}")
        flow.sink(f"out{i}", kept.to(t.KalmanFilter(by=key, process_noise=1.0 + i), id=f"k{i}"))
    return flow


def stages(plan):
    return [[step.id for step in stage.steps if "@" not in step.id] for stage in plan.stages]


def crossing(plan):
    return {stream: readers for stage in plan.stages[1:] for stream, readers in stage.entries.items()}


@pytest.mark.parametrize(("n", "streams"), [(3, {"f0", "f1", "f2"}), (4, {"in0"}), (9, {"in0"})])
def test_from_four_streams_on_the_one_that_they_are_made_of_crosses(n, streams):
    plan = fan(n).plan()
    assert set(crossing(plan)) == streams
    assert plan.stages[0].outputs == streams
    behind = [f"f{i}" for i in range(n)] if n > 3 else []
    assert (
        stages(plan)[1][: len(behind)] == behind
        and stages(plan)[0] == ["in0", *(f"f{i}" for i in range(n))][: n + 1 - len(behind)]
    )


def test_a_chain_moves_as_a_whole_and_what_all_read_stays():
    flow = fan(0, above=[at_most(50)])
    stream = flow.stream("above0")
    for i in range(5):
        chain = stream.to(at_most(i), id=f"f{i}").to(at_most(-i), id=f"g{i}")
        flow.sink(f"out{i}", chain.to(t.KalmanFilter(by=("device",)), id=f"k{i}"))
    plan = flow.plan()
    assert set(crossing(plan)) == {"above0"} and stages(plan)[0] == ["in0", "above0"]
    assert crossing(plan)["above0"] == {f"f{i}" for i in range(5)}


def test_what_others_read_or_what_gives_the_key_stays():
    flow = fan(5)
    flow.sink("more", flow.stream("f0").to(at_most(-5), id="g"))
    plan = flow.plan()
    assert set(crossing(plan)) == {"f0", "in0"} and {"f0", "g"} <= set(stages(plan)[0])
    keys = fan(
        5, tasks=lambda i: ro.map(lambda row: {"device": "x"}, adds={"device": "string"}, name="same", version=i)
    )
    assert set(crossing(keys.plan())) == {f"f{i}" for i in range(5)}


def test_those_that_join_go_where_their_stream_crosses_already():
    def plan(n, first):
        settled = [step.id for step in lower(fan(first))]
        steps = sorted(lower(fan(n)), key=lambda step: step.id not in settled)
        return planned("x", steps, ["in0", "in0@beats"], {s.id for s in steps}, "exact", len(settled))

    assert set(crossing(plan(9, 2))) == {f"f{i}" for i in range(9)}, "those that settled it were two"
    assert set(crossing(plan(6, 5))) == {"in0"}
    assert stages(plan(5, 5))[0] == stages(plan(9, 5))[0] == ["in0"]


@given(SEEDS)
@settings(max_examples=depth(4))
def test_what_comes_out_is_the_same(choose):
    flow = fan(
        choose.randint(4, 6), above=[at_most(20)] if choose.random() < 0.5 else (), tasks=lambda i: at_most(5 * i)
    )
    given = random_input(choose, 60)
    staged = Staged(flow, ro.MemorySource(given, SCHEMA), choose, max_records=choose.randint(5, 40))
    assert_same(everything(staged, flow), everything(flow.run({"in0": given}), flow), flow)


def test_small_batches_are_handed_over_in_one_piece():
    def batch(first, n):
        return pa.record_batch({"seq": pa.array(range(first, first + n), pa.int64())}), first

    sizes = (30_000, 2_768, 200, 40_000, 10)
    given = [batch(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
    found = [(piece.num_rows, first) for piece, first in _pieces(given)]
    assert found == [(32_768, 0), (200, 32_768), (40_000, 32_968), (10, 72_968)]
    assert _pieces([]) == []
