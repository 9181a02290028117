"""Random dataflows give the same records on Spark, cut into micro-batches, as in process."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.source import WrappedSource
from tests.random_flows import SCHEMA, assert_same, everything, random_flow, random_input

pytestmark = pytest.mark.spark


def _both(spark, flow, tables, **options):
    wanted = everything(flow.run(tables), flow)
    query = flow.start(spark, tables, **options)
    query.wait(timeout_s=120)
    assert not query.active, "it did not end"
    return everything(query, flow), wanted


@pytest.mark.parametrize("seed", range(8))
def test_same_records_as_in_process(spark, seed):
    choose = random.Random(seed)
    flow = random_flow(choose)
    got, wanted = _both(
        spark,
        flow,
        random_input(choose, 40),
        max_records=choose.choice([11, 17, 40, None]),
        partitions=choose.choice([1, 2, 3]),
        fuse=choose.choice(["exact", "coarse"]),
        compression=choose.choice([None, "lz4", "zstd"]),
    )
    assert_same(got, wanted, flow)


def test_sources_that_end_in_different_micro_batches(spark):
    choose = random.Random(100)
    flow = ro.Dataflow("ends")
    short, long, none = (flow.source(name, schema=SCHEMA) for name in ("short", "long", "none"))
    averages = [
        s.to(t.BlockAverage(window=4, partial=True, by=("device",)), id=f"avg_{s.id}") for s in (short, long, none)
    ]
    flow.sink("out", *averages)
    tables = {"short": random_input(choose, 7), "long": random_input(choose, 30), "none": random_input(choose, 0)}
    got, wanted = _both(spark, flow, tables, max_records=10)
    assert_same(got, wanted, flow)


@pytest.mark.parametrize("filtered_last", [False, True])
def test_records_of_one_place_keep_their_order_where_streams_of_two_stages_meet(spark, filtered_last):
    flow = ro.Dataflow("meet")
    source = flow.source("in", schema=SCHEMA)
    smooth = source.to(t.KalmanFilter(by=("device",)), id="smooth")
    both = ro.merge(source, smooth) if filtered_last else ro.merge(smooth, source)
    light = both.to(t.RangeFilter(bounds={"light": (-20, 30)}), id="light")
    flow.sink("out", light, light.to(t.KalmanFilter(by=("obs_type",)), id="kalman"))
    got, wanted = _both(spark, flow, random_input(random.Random(3), 60), max_records=60)
    assert_same(got, wanted, flow)


def test_windows_of_time_behind_which_a_task_has_another_key(spark):
    choose = random.Random(5)
    flow = ro.Dataflow("windows")
    means = {"value": ("mean", "value")}
    window = t.Window(
        size=timedelta(seconds=3), delay=timedelta(seconds=4), by=("device", "obs_type"), aggregates=means
    )
    average = flow.source("in", schema=SCHEMA).to(window, id="window")
    flow.sink("out", average, average.to(t.KalmanFilter(by=("obs_type",)), id="kalman"))
    got, wanted = _both(spark, flow, random_input(choose, 120), max_records=23, partitions=2, fuse="exact")
    assert_same(got, wanted, flow)
    assert sum(wanted["kalman"].values()) > 50


def test_what_is_left_at_the_end_comes_after_all_records(spark):
    choose = random.Random(7)
    flow = ro.Dataflow("left")
    average = flow.source("in", schema=SCHEMA).to(t.BlockAverage(window=4, partial=True, by=("device",)), id="avg")
    flow.sink("out", average.to(t.KalmanFilter(by=("obs_type",)), id="kalman"))
    got, wanted = _both(spark, flow, random_input(choose, 40), max_records=25)
    assert_same(got, wanted, flow)


def test_an_end_that_is_known_only_after_the_last_record(spark):
    class Undecided(WrappedSource):
        """Its end comes to light only a while after its last record, as that of a quiet broker."""

        def __init__(self, source):
            super().__init__(source)
            self.polls_at_end = 0

        def finished(self, offset):
            if self.source.finished(offset):
                self.polls_at_end += 1
            return self.polls_at_end > 3

        def waits(self):
            return True

    flow = ro.Dataflow("late-end")
    average = flow.source("in", schema=SCHEMA).to(t.BlockAverage(window=4, partial=True, by=("device",)), id="avg")
    flow.sink("out", average.to(t.KalmanFilter(by=("obs_type",)), id="kalman"))
    table = random_input(random.Random(8), 40)
    wanted = everything(flow.run(table), flow)
    query = flow.start(spark, Undecided(ro.MemorySource(table)), max_records=25, trigger="100 milliseconds")
    query.wait(timeout_s=120)
    assert not query.active, "it did not end"
    assert_same(everything(query, flow), wanted, flow)
