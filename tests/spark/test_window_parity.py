"""Windows on Spark give the records of a local run for any micro-batches, buckets and restarts."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops import windows as w
from riot_ops.testing import exact
from tests.random_flows import SCHEMA, assert_same, everything, random_input
from tests.recovery import job
from tests.simulated_query import SimulatedQuery
from tests.spark.test_frames import stream_of

SECONDS = {
    "value": ("value", "sum"),
    "n": "count",
    "middle": ("value", "quantile", 0.5),
    "top": ("obs_type", "top", 1),
}


def dataflow():
    """Windows over windows with fewer keys, sessions, and keys that age."""
    flow = ro.Dataflow("windows")
    rows = flow.source("in", schema=SCHEMA)
    short = rows.to(
        t.Window(by=("device", "obs_type"), frame=w.Hopping("4s", "2s"), allowed_lateness="3s", aggregates=SECONDS),
        id="short",
    )
    long = short.to(t.Window(by="obs_type", frame="20s", aggregates={"value": ("value", "mean")}), id="long")
    visits = rows.to(t.Window(by="device", frame=w.Session("3s"), max_ahead="60s", aggregates=SECONDS), id="visits")
    aging = rows.to(t.KalmanFilter(by="device", ttl="5s"), id="aging")
    flow.sink("out", short, long, long.to(t.KalmanFilter(), id="smooth"), visits, aging)
    return flow


@pytest.mark.long
@pytest.mark.parametrize("fuse", ["exact", "coarse"])
@pytest.mark.parametrize(("records", "partitions"), [(17, 3), (37, 2), (200, 1)])
def test_simulated_spark_equals_local_run(records, partitions, fuse):
    table = random_input(random.Random(11), 240)
    wanted = everything(dataflow().run(table), dataflow())
    found = SimulatedQuery(dataflow(), table, random.Random(1), max_records=records, partitions=partitions, fuse=fuse)
    assert_same(everything(found, dataflow()), wanted, dataflow())


@pytest.mark.spark
def test_restart_continues_stream_time(spark, tmp_path):
    table = random_input(random.Random(12), 160)
    wanted = everything(dataflow().run(table), dataflow())
    options = {"partitions": 2, "out": tmp_path / "out", "checkpoint": tmp_path / "c"}
    query = dataflow().start(spark, job.GatedSource(table, 60), max_records=40, **options)
    while query.poll().messages < 60:
        assert query.active
        time.sleep(0.05)
    query.stop()
    again = dataflow().start(spark, table, **options)
    again.wait(timeout="4min")
    assert again.summary.messages == 100
    assert_same(everything(again, dataflow()), wanted, dataflow())


class Silent(ro.MemorySource):
    """A source without further records that ends once a file exists."""

    ended = ""

    def finished(self, offset):
        return super().finished(offset) and Path(self.ended).exists()


@pytest.mark.spark
def test_window_of_a_silent_source_closes_by_the_wall_clock(spark, tmp_path):
    source = Silent([{"event_time": datetime.now(UTC) - timedelta(seconds=s), "device": "a"} for s in (70, 65)])
    source.ended = str(tmp_path / "ended")
    flow = ro.Dataflow("silent")
    window = t.Window(by="device", frame="1s")
    flow.sink("out", flow.source("in", schema={"event_time": "timestamp[us, tz=UTC]", "device": "string"}).to(window))
    closed = []

    def receive(stream, batch):
        closed.extend((time.time() < deadline, n) for n in batch.column("count").to_pylist())
        if len(closed) == 2:
            Path(source.ended).touch()

    deadline = time.time() + 60
    watch = threading.Timer(60, Path(source.ended).touch)
    watch.start()
    flow.start(spark, ro.HeartbeatSource(source, "500ms"), sinks=ro.CallbackSink(receive)).wait(timeout="2min")
    watch.cancel()
    assert closed == [(True, 1), (True, 1)]


def minutes(**parameters):
    return t.Window(by="device", frame="4s", aggregates={"value": ("value", "sum"), "n": "count"}, **parameters)


def plain(rows):
    """Count windows, without their order."""
    times = [(row["window_start"].timestamp(), row["window_end"].timestamp()) for row in rows]
    return Counter((row["device"], *span, exact(row["value"]), row["n"]) for row, span in zip(rows, times, strict=True))


@pytest.mark.spark
def test_batch_dataframe_has_all_windows(spark):
    table = random_input(random.Random(13), 120)
    frame = spark.createDataFrame(table.to_pandas())
    ordered = table.filter(pa.compute.is_valid(table["event_time"])).sort_by("event_time")
    session = minutes().session()
    wanted = session.push_batch(ordered.drop_columns(["seq"])).to_pylist() + session.flush()
    got = minutes().transform(frame.drop("seq"), on_error="drop")
    rows = [row.asDict() for row in got.collect()]
    assert plain(rows) == plain(wanted)


@pytest.mark.spark
def test_streaming_dataframe_has_closed_windows(spark, tmp_path):
    table = random_input(random.Random(14), 150)
    stream = stream_of(spark, tmp_path / "in", [table.slice(i * 50, 50) for i in range(3)])
    flow = ro.Dataflow("w")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(minutes(allowed_lateness=timedelta(seconds=2)), id="w"))
    frames = flow.frames(stream, partitions=2)
    found = []
    query = frames.write_each(
        lambda name, frame, _: found.extend(frame.toArrow().to_pylist() if name == "w" else []),
        checkpoint=tmp_path / "c",
        trigger="available now",
    )
    assert query.awaitTermination(120)
    state = minutes(allowed_lateness=timedelta(seconds=2)).session()
    wanted = state.push_batch(table).to_pylist()  # no end, so open windows stay open
    assert plain(found) == plain(wanted)
