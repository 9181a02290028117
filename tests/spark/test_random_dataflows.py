"""Random dataflows give the same records on Spark, in micro-batches, as in a local run.

Many run on simulated Spark, through all of this library's code for Spark; a few run on Spark itself, as branches of one query.
"""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.source import WrappedSource
from riot_ops.dataflow import Dataflow
from tests.random_flows import SCHEMA, assert_same, everything, ordered, random_flow, random_input
from tests.simulated_query import SimulatedQuery

AVERAGE = t.MovingAverage(window=4, partial=True, by=("device",))
BY_TYPE = t.KalmanFilter(by=("obs_type",))


def late(source):
    """Return the source with an end that becomes known only a while after its last record, like that of a quiet broker."""

    class Undecided(WrappedSource):  # nested, so that it is pickled by value
        def __init__(self, source):
            super().__init__(source)
            self.polls_at_end = 0

        def finished(self, offset):
            if self.source.finished(offset):
                self.polls_at_end += 1
            return self.polls_at_end > 3

        def waits(self):
            return True

    return Undecided(ro.MemorySource(source))


def flushed(source):
    """Records flushed at the end go through a task with another key."""
    average = source.to(AVERAGE, id="average")
    return average, average.to(BY_TYPE, id="of-average")


def windows(source):
    """Time windows before a task with another key."""
    pane = {"frame": timedelta(seconds=3), "allowed_lateness": timedelta(seconds=4)}
    window = t.Window(**pane, by=("device", "obs_type"), aggregates={"value": ("value", "mean")})
    means = source.to(window, id="means")
    return means, means.to(BY_TYPE, id="of-means")


def meeting(source, *, filtered_last):
    """Records of one message keep their order where streams of two stages meet."""
    name = "last" if filtered_last else "first"
    smooth = source.to(t.KalmanFilter(by=("device",)), id=f"smooth-{name}")
    both = ro.merge(source, smooth) if filtered_last else ro.merge(smooth, source)
    light = both.to(t.RangeFilter(bounds={"light": (-20, 30)}), id=f"light-{name}")
    return light, light.to(BY_TYPE, id=f"of-light-{name}")


def ending(flow):
    """Sources that end in different micro-batches, each with records to flush."""
    streams = [flow.source(name, schema=SCHEMA).to(AVERAGE, id=f"avg_{name}") for name in ("short", "long", "none")]
    return flow.sink("out", *streams)


def ending_tables(choose):
    return {"short": random_input(choose, 7), "long": random_input(choose, 30), "none": random_input(choose, 0)}


def corner_cases(*dataflows):
    """Combine what random dataflows rarely have with some random ones, as branches of one dataflow."""
    flow = ro.Dataflow("corner_cases")
    source = flow.source("in0", schema=SCHEMA)
    flow.sink("out", *flushed(source), *windows(source))
    flow.sink("meet", *meeting(source, filtered_last=False), *meeting(source, filtered_last=True))
    nodes, edges = flow.to_dict()["nodes"], flow.to_dict()["edges"]
    for i, other in enumerate(dataflows):
        names = {n["id"]: n["id"] if n["id"] == "in0" else f"{i}.{n['id']}" for n in other.to_dict()["nodes"]}
        nodes += [{**n, "id": names[n["id"]]} for n in other.to_dict()["nodes"] if n["id"] != "in0"]
        edges += [{**e, "from": names[e["from"]], "to": names[e["to"]]} for e in other.to_dict()["edges"]]
    return Dataflow.from_dict({**flow.to_dict(), "nodes": nodes, "edges": edges})


@pytest.mark.long
@given(st.integers(0, 1 << 32))
def test_same_records_on_simulated_spark(seed):
    choose = random.Random(seed)
    flow = random_flow(choose, sources=choose.choice([1, 1, 2]))
    tables = {source.id: random_input(choose, choose.choice([0, 7, 40])) for source in flow.nodes_of_kind("source")}
    found = SimulatedQuery(
        flow,
        tables,
        choose,
        max_records=choose.choice([5, 11, 17, 40, None]),
        partitions=choose.choice([1, 2, 3]),
        fuse=choose.choice(["exact", "coarse"]),
        buffering=Buffering(codec=choose.choice([None, "lz4", "zstd"]), capacity=choose.choice([0, 200, 8 << 20])),
    )
    nodes = ordered(flow)
    assert_same(everything(found, flow, nodes), everything(flow.run(tables), flow, nodes), flow)


@pytest.mark.long
@pytest.mark.parametrize("fuse", ["exact", "coarse"])
@pytest.mark.parametrize("seed", range(4))
def test_corner_cases_on_simulated_spark(seed, fuse):
    choose = random.Random(seed)
    flow, table = corner_cases(), random_input(choose, 120)
    found = SimulatedQuery(flow, late(table), choose, max_records=23 + 20 * seed, partitions=1 + seed % 3, fuse=fuse)
    assert found.batches > 2 and found.repeated
    wanted = everything(flow.run(table), flow)
    assert_same(everything(found, flow), wanted, flow)
    assert all(wanted.values()) and sum(wanted["of-means"].values()) > 50

    ends, tables = ending(ro.Dataflow("ends")), ending_tables(choose)
    assert_same(
        everything(SimulatedQuery(ends, tables, choose, max_records=10), ends), everything(ends.run(tables), ends), ends
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    ("seeds", "options"),
    [
        ((2, 4), {"partitions": 3, "fuse": "exact", "buffering": Buffering(codec="zstd"), "max_records": 35}),
        (
            (3, 7),
            {
                "partitions": 1,
                "fuse": "coarse",
                "buffering": Buffering(codec="lz4", ratio=0.3, capacity=2000),
                "max_records": 45,
            },
        ),
    ],
    ids=["spread", "whole"],
)
def test_same_records_on_spark(spark, seeds, options):
    flow = corner_cases(*(random_flow(random.Random(seed), functions=False) for seed in seeds))
    table = random_input(random.Random(8), 60)
    wanted = everything(flow.run(table), flow)
    query = flow.start(spark, late(table), trigger="100 milliseconds", **options)
    query.wait(timeout="3min")
    assert not query.active, "the query did not end"
    assert_same(everything(query, flow), wanted, flow)


@pytest.mark.spark
def test_sources_end_in_different_micro_batches(spark):
    flow, tables = ending(ro.Dataflow("ends")), ending_tables(random.Random(100))
    query = flow.start(spark, tables, max_records=20)
    query.wait(timeout="2min")
    assert not query.active, "the query did not end"
    assert_same(everything(query, flow), everything(flow.run(tables), flow), flow)
