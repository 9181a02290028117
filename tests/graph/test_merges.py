"""Merges: by which sources messages are numbered, and the order of inputs."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.graph.lowering import lower
from riot_ops.graph.merges import Merges
from riot_ops.testing import exact
from tests.random_flows import SCHEMA, random_flow, random_input
from tests.search import depth
from tests.simulated_query import SimulatedQuery

SEEDS = st.integers(0, 2**32).map(random.Random)


def nested(declared="abc"):
    flow = ro.Dataflow("f")
    streams = {name: flow.source(name, schema=SCHEMA) for name in declared}
    a, b, c = (streams[name] for name in "abc")
    two = ro.merge(b, a).to(t.NoOp(), id="two")
    flow.sink("out", a, two, ro.merge(c, two).to(t.NoOp(), id="all"))
    return flow


def numbers(result, stream):
    return sorted(result[stream]["seq"].to_pylist())


def test_streams_are_numbered_by_their_own_sources():
    merges = Merges(nested())
    assert merges.sources == {"a": (0,), "b": (1,), "c": (2,), "two": (0, 1), "all": (0, 1, 2), "out": (0, 1, 2)}
    assert [merges.count(node) for node in ("a", "two", "all")] == [1, 2, 3]
    assert Merges(nested("cba")).sources["two"] == (1, 2)
    assert Merges(nested(), {"a": 5, "b": 3, "c": 5}).sources["all"] == (3, 5), "the same source"


@pytest.mark.parametrize("simulated", [False, True])
def test_message_n_of_the_ith_of_k_sources_has_number_k_n_plus_i(simulated):
    log = {name: random_input(random.Random(1), size) for name, size in (("a", 3), ("b", 5), ("c", 2))}
    found = SimulatedQuery(nested(), log, random.Random(2), max_records=2) if simulated else nested().run(log)
    assert numbers(found, "a") == [0, 1, 2]
    assert numbers(found, "two") == sorted([0, 2, 4, *(1, 3, 5, 7, 9)])
    assert numbers(found, "all") == sorted([0, 3, 6, *(1, 4, 7, 10, 13), *(2, 5)])


def test_sources_are_in_the_order_of_declaration():
    log = {name: random_input(random.Random(1), 2) for name in "abc"}
    result = nested("cba").run(log)
    by_value = sorted(result["all"].to_pylist(), key=lambda row: row["seq"])
    assert [exact(row) for row in by_value[:3]] == [
        exact({**log[n].to_pylist()[0], "seq": i}) for i, n in enumerate("cba")
    ]


def test_sources_merged_as_one_log_are_numbered_at_once():
    flow = ro.Dataflow("f", merging="number")
    a, b = (flow.source(name, schema=SCHEMA) for name in "ab")
    flow.sink("out", a, ro.merge(a, b).to(t.NoOp(), id="two"))
    result = flow.run({name: random_input(random.Random(1), 2) for name in "ab"})
    assert numbers(result, "a") == [0, 2] and numbers(result, "two") == [0, 1, 2, 3]
    assert [step.id for step in lower(flow)] == ["a", "b", "two"]


def test_shuffle_after_a_merge_deals_messages_of_each_source():
    flow = ro.Dataflow("f")
    a, b = (flow.source(name, schema=SCHEMA) for name in "ab")
    flow.sink("out", ro.merge(a, b).shuffle(2).to(t.RunningCount(), id="n"))
    counts = [row["count"] for row in flow.run({n: random_input(random.Random(1), 6) for n in "ab"})["n"].to_pylist()]
    assert sorted(counts) == sorted([*range(1, 7)] * 2), "each instance gets half of each source"


def branches(choose, order=None):
    """A dataflow that merges several ways from one source, where the order of records of a message matters."""
    flow = ro.Dataflow("f")
    source = flow.source("in", schema=SCHEMA)
    tasks = [
        *(t.KalmanFilter(by=("device",), process_noise=q) for q in (0.5, 0.25)),
        t.RangeFilter(bounds={"light": (-20, 30)}),
        ro.map(lambda row: {"value": 1.0}, adds={"value": "double"}, label="one"),
    ]
    ways = [source.to(task, id=f"w{place}") for place, task in enumerate(choose.sample(tasks, 3))]
    ways = [source, *ways] if choose.random() < 0.3 else ways
    places = [*range(len(ways))] if order is None else order(len(ways))
    both = ro.merge(*(ways[place] for place in places)).to(t.KalmanFilter(by=("device",), prior="first"), id="k")
    return flow.sink("out", both)


@pytest.mark.long
@given(SEEDS, st.integers(0, 2**32))
@settings(max_examples=depth(25))
def test_order_of_merged_streams_changes_no_result(choose, seed):
    def shuffled(n):
        return choose.sample(range(n), n)

    one, other = branches(random.Random(seed)), branches(random.Random(seed), shuffled)
    log = random_input(choose, 30)
    wanted = [*map(exact, one.run(log)["k"].to_pylist())]
    assert [
        *map(exact, other.run(log, batch_size=choose.randint(1, 9), cores=choose.choice([1, 2]))["k"].to_pylist())
    ] == wanted
    query = SimulatedQuery(other, log, choose, max_records=choose.choice([3, 40]), partitions=2)
    assert sorted(map(exact, query["k"].to_pylist())) == sorted(wanted)


@pytest.mark.long
@given(SEEDS, st.sampled_from([2, 3]))
@settings(max_examples=depth(25))
def test_one_micro_batch_of_sources_merged_by_arrival_is_merged_by_number(choose, sources):
    flow = random_flow(choose, sources=sources, functions=False)
    log = {f"in{i}": random_input(choose, choose.choice([0, 5, 30])) for i in range(sources)}
    query = SimulatedQuery(flow, log, choose, partitions=choose.choice([1, 3]), fuse=choose.choice(["exact", "coarse"]))
    one = ro.Dataflow.from_dict({**flow.to_dict(), "merging": "number"}).run(log)
    ends = {edge.source for node in flow.nodes_of_kind("sink") for edge in flow.inputs(node.id)}
    for stream in (*sorted(ends), "errors"):
        found, wanted = (
            sorted(
                exact({name: v for name, v in row.items() if name not in ("seq", "raw")})
                for row in of[stream].to_pylist()
            )
            for of in (query, one)
        )
        assert found == wanted, stream


def test_functions_of_one_name_are_merged_in_the_given_order():
    flow = ro.Dataflow("f")
    source = flow.source("in", schema=SCHEMA)
    ways = [
        source.to(ro.map(f, adds={"value": "double"}, label="same"), id=id)
        for id, f in (("y", lambda row: {"value": 1.0}), ("x", lambda row: {"value": 2.0}))
    ]
    for order in (ways, ways[::-1]):
        flow.add(t.NoOp(), ro.merge(*order), id=f"n{order[0].id}")
    merges = Merges(flow)
    for first, second in (("x", "y"), ("y", "x")):
        assert [e.source for e in merges.inputs(f"n{first}")] == [first, second]
        assert [e.source for e in merges.indistinct(f"n{first}")] == [first, second]


def test_plan_shows_streams_before_they_are_renumbered():
    assert "two <- a, b  [stateless]" in str(nested().plan())
    assert "@" not in str(nested().plan())
