"""The ledger: which steps of dataflows over several sources run once."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.reuse import ReuseManager
from riot_ops.reuse.ledger import connected_parts
from tests.random_flows import SCHEMA
from tests.reuse.merging_dataflows import apart, merged, prefix
from tests.reuse.sharing import check
from tests.search import depth

SEEDS = st.integers(0, 2**32).map(random.Random)


def submitted(*flows):
    manager = ReuseManager()
    return manager, [manager.submit(flow) for flow in flows]


def test_steps_before_a_merge_are_shared_with_dataflows_of_one_source():
    manager, reports = submitted(apart("ada", "north"), apart("bob", "south"), merged("cyd", ("north", "south")))
    assert len(reports[-1].reused) == 6 and {*reports[-1].new} == {"both", "counted", "out"}
    assert len(manager.ledger.groups) == 1
    manager.remove("cyd")
    assert len(manager.ledger.groups) == 2, "nothing connects the sources any more"


def test_dataflow_of_one_source_shares_the_steps_before_a_merge():
    _, reports = submitted(merged("cyd", ("north", "south")), apart("bob", "south"))
    assert {*reports[-1].new} == {"south_out"}


@pytest.mark.parametrize("declared", [("north", "south"), ("south", "north")])
def test_order_of_merged_streams_does_not_matter(declared):
    flows = merged("ada", ("north", "south")), merged("bob", ("south", "north"), declared=declared)
    _, (_, report) = submitted(*flows)
    assert not report.new and len(report.reused) == 9


def test_order_of_merged_branches_of_one_source_does_not_matter():
    def flow(name, *order):
        flow = ro.Dataflow(name)
        source = flow.source("in", schema=SCHEMA)
        ends = [source.to(t.KalmanFilter(process_noise=q), id=f"k{q}") for q in (0.5, 0.25)]
        return flow.sink("out", ro.merge(*(ends[place] for place in order)).to(t.Variance(), id="v"))

    _, (_, report) = submitted(flow("ada", 0, 1), flow("bob", 1, 0))
    assert not report.new


def test_merge_of_a_merge_shares_it():
    flow = merged("ada", ("west", "south"))
    wide = merged("bob", ("south", "west"))
    north = prefix(wide, "north")
    wide.sink("wide_out", ro.merge(north, wide.stream("both")).to(t.RunningCount(by=("device",)), id="all"))
    _, (_, report) = submitted(flow, wide)
    assert {*report.new} == {"north", "north_low", "north_sum", "all", "wide_out"}


def test_merges_of_other_streams_are_not_shared():
    _, reports = submitted(merged("ada", ("north", "south")), merged("bob", ("north", "west")))
    assert len(reports[-1].reused) == 3
    _, reports = submitted(merged("ada", ("north", "south")), merged("bob", ("north", "south", "west")))
    assert len(reports[-1].reused) == 6


def test_source_nodes_with_the_same_input_are_separate():
    def flow(name, *names):
        flow = ro.Dataflow(name)
        streams = [flow.source(one, schema={"value": "double"}) for one in names]
        return flow.sink("out", ro.merge(*streams).to(t.NoOp(), id="n"))

    manager, same = ReuseManager(), ro.MemorySource([{"value": 1.0}])
    first = manager.submit(flow("ada", "x", "y"), {"x": same, "y": same})
    assert len({*first.new.values()}) == 4
    assert not manager.submit(flow("bob", "y", "x"), {"x": same, "y": same}).new


def random_merge(choose, name):
    """A dataflow that merges some of three sources, perhaps twice, in any order."""
    names = choose.sample(["north", "south", "west"], choose.randint(1, 3))
    if len(names) == 1:
        return apart(name, names[0])
    flow = merged(name, names, declared=choose.sample(names, len(names)), high=choose.choice([20.0, 25.0]))
    if choose.random() < 0.5:
        some = choose.sample(["both", f"{name}_{names[0]}_sum", f"{name}_{names[1]}_low"], 2)
        stream = ro.merge(*(flow.stream(one) for one in some))
        flow.sink("more", stream.to(t.RangeFilter(bounds={"value": (0, 9)}, by=None), id="again"))
    return flow


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=depth(30))
def test_sharing_does_not_depend_on_the_order_of_submission(choose):
    flows = [random_merge(choose, f"d{i}") for i in range(choose.randint(2, 5))]
    manager, _ = submitted(*flows)
    check(manager, {flow.name: flow for flow in flows})
    other, _ = submitted(*choose.sample(flows, len(flows)))
    assert other.canonical() == manager.canonical()
    gone = choose.choice(flows)
    for one in (manager, other):
        one.remove(gone.name)
    rest, _ = submitted(*(flow for flow in flows if flow is not gone))
    assert manager.canonical() == other.canonical() == rest.canonical()


@given(st.lists(st.sets(st.integers(0, 12), min_size=1, max_size=3), max_size=12))
def test_connected_parts_are_those_of_a_search_along_the_ties(ties):
    def reached(one):
        found, waiting = {one}, [one]
        while waiting:
            now = waiting.pop()
            more = set().union(*(tie for tie in ties if now in tie)) - found
            found |= more
            waiting += more
        return found

    parts = connected_parts(ties)
    members = list(dict.fromkeys(one for part in parts for one in part))
    assert sorted(members) == sorted(set().union(*ties)) and sum(map(len, parts)) == len(members)
    assert all(part == reached(one) for part in parts for one in part)
