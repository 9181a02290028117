"""What the options of ``transform`` and ``start`` do, and the numbers and times that records carry."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.streaming import DataStreamWriter

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.core.source import WrappedSource
from riot_ops.graph.plan import plan
from riot_ops.spark import dataframe_transform as adapters
from riot_ops.spark import dataframe_transform as transform
from riot_ops.spark import runner
from riot_ops.spark.blocks import Packer
from riot_ops.spark.checkpoint import SparkCheckpoint
from riot_ops.spark.session import (
    ARROW_BYTES,
    ARROW_RECORDS,
    NO_BOUND,
    OF_STATE,
    PARTITIONS,
    arrow_batches,
    block_batches,
    fitting,
    session,
    settings_of_query,
    usual_partitions,
    workers_apart,
)
from tests.reference.kalman_filter import Kalman

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = {"device": "string", "obs_type": "string", "value": "double"}


@pytest.mark.parametrize(
    ("order", "numbered", "by_time"),
    [("auto", True, False), ("arrival", True, False), ("event_time", True, True), ("auto", False, True)],
)
def test_order(spark, order, numbered, by_time):
    rows = [{"seq": i, "event_time": START + timedelta(seconds=i * 7 % 10), "value": float(i * i)} for i in range(10)]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows)).coalesce(1)
    out = transform(t.KalmanFilter(), frame if numbered else frame.drop("seq"), order=order, partitions=1)
    reference = Kalman()
    wanted = {
        r["event_time"]: reference.push("", r["value"])[0]
        for r in sorted(rows, key=lambda r: r["event_time" if by_time else "seq"])
    }
    got = {r["event_time"]: r["value"] for r in out.toArrow().to_pylist()}
    assert got == pytest.approx(wanted)


def test_partitions_and_compression(spark, monkeypatch):
    asked = []
    pack = adapters.pack_stage_zero
    monkeypatch.setattr(adapters, "pack_stage_zero", lambda *a: (asked.append((len(a[2][1]), a[4].codec)), pack(*a))[1])
    frame = spark.createDataFrame([("a", 1.0)], "device string, value double")
    transform(t.KalmanFilter(by=("device",)), frame, partitions=3, buffering=Buffering(codec="zstd"))
    transform(t.KalmanFilter(by=("device",)), frame)
    transform(t.KalmanFilter(), frame, partitions=3, buffering=Buffering(codec=None))
    assert asked == [(3, "zstd"), (int(spark.conf.get(PARTITIONS)), "lz4"), (1, None)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"errors": "raise"}, "errors must be 'column' or 'drop', got 'raise'"),
        ({"order": "seq"}, "order must be 'auto', 'arrival' or 'event_time', got 'seq'"),
        ({"partitions": 0}, "partitions must be >= 1, got 0"),
        ({"buffering": "late"}, "buffering must be a Buffering or one of throughput, latency, immediate, got 'late'"),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(ConfigError, match=text):
        transform(t.KalmanFilter(), None, **options)


def test_rows_without_a_number_get_one_that_no_other_partition_gives(spark):
    def numbers(batches):
        from riot_ops.spark.dataframe_transform import numbered

        yield from numbered(batches)

    rows = spark.range(0, 30, 1, 3).mapInArrow(numbers, "seq long, id long").collect()
    assert {r.id: r.seq for r in rows} == {i: (i // 10 << 40) + i % 10 for i in range(30)}


def two_keys():
    """Two tasks whose keys have a field in common."""
    flow = ro.Dataflow("fused")
    fine = flow.source("in", schema=SCHEMA).to(t.KalmanFilter(by=("device", "obs_type")), id="fine")
    flow.sink("out", fine.to(t.KalmanFilter(by=("obs_type",)), id="coarse"))
    return flow


@pytest.mark.parametrize(
    ("partitions", "fuse", "stages"), [(4, "auto", 2), (5, "auto", 3), (4, "exact", 3), (5, "coarse", 2)]
)
def test_few_partitions_share_a_shuffle(spark, tmp_path, partitions, fuse, stages):
    found, _ = SparkCheckpoint(spark, tmp_path).open(two_keys(), partitions, "arrival", fuse)
    assert len(found.stages) == stages
    again, kept = SparkCheckpoint(spark, tmp_path).open(two_keys(), None, "arrival", "auto")
    assert (len(again.stages), kept) == (stages, partitions), "a query that is continued keeps what it began with"


def test_partitions_reach_the_shuffles(spark):
    rows = pa.Table.from_pylist([{"device": f"d{i}", "obs_type": "t", "value": float(i)} for i in range(20)])
    mine = spark.newSession()
    mine.conf.set(PARTITIONS, "2")
    found = {}

    def run(name, **options):
        query = two_keys().start(mine, rows, **options)
        query.wait(180)
        found[name] = [s["numShufflePartitions"] for s in query.streaming.lastProgress["stateOperators"]]

    at_once = {"one": {"partitions": 1}, "five": {"partitions": 5}, "usual": {}}
    threads = [threading.Thread(target=run, args=(name,), kwargs=options) for name, options in at_once.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"one": [1], "five": [5, 5], "usual": [2]}, "few partitions share a shuffle"
    assert mine.conf.get(PARTITIONS) == "2"


@pytest.mark.parametrize("value", ["7", None])
def test_a_start_leaves_the_sessions_partitions_as_they_were(spark, value):
    mine = spark.newSession()
    mine.conf.unset(PARTITIONS) if value is None else mine.conf.set(PARTITIONS, value)
    usual = usual_partitions(mine)
    with contextlib.suppress(ValueError), settings_of_query(mine, {PARTITIONS: "3"}):
        assert mine.conf.get(PARTITIONS) == "3"
        raise ValueError
    assert mine.conf.get(PARTITIONS, None) == value
    assert usual_partitions(mine) == usual


def test_a_buffering_sets_arrow_batches_and_the_trigger_of_a_query(spark, monkeypatch):
    """Where a source waits; without one the session's own hold."""
    asked = []
    settings = runner.settings_of_query
    monkeypatch.setattr(runner, "settings_of_query", lambda s, given: (asked.append(given), settings(s, given))[1])
    trigger = DataStreamWriter.trigger
    monkeypatch.setattr(DataStreamWriter, "trigger", lambda self, **kw: (asked.append(kw), trigger(self, **kw))[1])
    flow = ro.Dataflow("buffered")
    flow.sink("out", flow.source("in", schema={"value": "double"}))
    rows = [{"value": float(i)} for i in range(50)]
    given = [
        ("throughput", {}),
        ("throughput", {"trigger": "0 seconds"}),
        (None, {}),
        ("latency", {}),
        ("immediate", {}),
    ]
    for buffering, options in given:
        paced = ro.streams.Paced(ro.MemorySource(rows), rate=1000)
        query = flow.start(spark, paced, partitions=1, buffering=buffering, **options)
        query.wait(60)
        assert query["in"]["value"].to_pylist() == [row["value"] for row in rows]
    arrow = {ARROW_RECORDS: "65536", ARROW_BYTES: str(1 << 20)}
    assert asked == [
        {"processingTime": "1 second"},
        {PARTITIONS: "1", **arrow},
        {"processingTime": "0 seconds"},
        {PARTITIONS: "1", **arrow},
        {PARTITIONS: "1", ARROW_BYTES: str(64 << 20)},  # of a session that bounds the records of a batch alone
        {PARTITIONS: "1", ARROW_RECORDS: "16384", ARROW_BYTES: "16384"},  # latency has no trigger
        {PARTITIONS: "1", ARROW_RECORDS: "1"},  # nor has immediate
    ]
    assert arrow_batches(Buffering(capacity=0)) == {ARROW_RECORDS: "1"}


def test_blocks_are_small_where_a_session_bounds_the_records_of_a_batch_alone(spark):
    """Else a batch of as many blocks as records would be larger than Arrow holds."""
    mine = session(settings={ARROW_RECORDS: "16384"})  # a 16,384th of 1 GiB is 64 KiB
    assert (mine.conf.get(ARROW_BYTES), fitting(Buffering(), mine).capacity) == (NO_BOUND, 1 << 16)
    assert block_batches(mine) == {ARROW_BYTES: str(64 << 20)}
    rows = mine.range(0, 20_000, 1, 1).selectExpr("id seq", "cast(id % 3 as string) device", "cast(id as double) value")
    flow = ro.Dataflow("blocks")
    flow.sink(
        "out",
        flow.source("in", schema={"seq": "int64", "device": "string", "value": "double"}).to(
            t.KalmanFilter(by="device"), id="kalman"
        ),
    )
    buffering = Buffering(codec=None)
    sizes = [row.n for row in flow.frames(rows, buffering=buffering).packed.selectExpr("length(payload) n").collect()]
    assert len(sizes) >= 4 and max(sizes) < 2 << 16
    mine.conf.set(ARROW_BYTES, "64MB")
    assert fitting(Buffering(), mine) == Buffering() and block_batches(mine) == {}
    whole = [row.n for row in flow.frames(rows, buffering=buffering).packed.selectExpr("length(payload) n").collect()]
    assert max(whole) > 2 << 16


def test_a_block_tells_when_its_first_and_its_last_record_came():
    flow = ro.Dataflow("stamped")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(t.NoOp(), id="same"))
    packer = Packer(plan(flow), 0, {}, Buffering(codec=None))
    for first, last in ((5.0, 6.0), (3.0, 4.0), (4.0, 9.0)):
        packer.stamp(first, last)
    batch = pa.RecordBatch.from_pydict({"seq": [0], "device": ["a"], "obs_type": ["b"], "value": [1.0]})
    (block,) = [*packer.add({"same": [batch]}), *packer.close()]
    assert (block.first_us, block.last_us, block.rows) == (3.0, 9.0, 1)


def due(source, now):
    """A source whose first split was due 100 to 90 seconds before now, the second 60 to 50."""

    class Due(WrappedSource):  # a class within a function travels to the workers as code
        def splits(self, start, end, n):
            found = self.source.splits(start, end, 2)
            ages = ((100, 90), (60, 50))
            return [{**s, "due": [1e6 * (now - a) for a in age]} for s, age in zip(found, ages, strict=True)]

    return Due(source)


def test_latency_counts_from_when_records_were_due(spark):
    flow = ro.Dataflow("late")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(t.KalmanFilter(by=("device",)), id="kalman"))
    rows = [{"device": "a", "obs_type": "t", "value": float(i)} for i in range(20)]
    began = time.time()
    source = due(ro.MemorySource(pa.Table.from_pylist(rows)), began)
    query = flow.start(spark, source, partitions=2)
    summary = query.wait(120)
    took = time.time() - began
    ((least, greatest, n),) = summary.latency.blocks()  # both splits meet in the bucket of the key
    assert n == 20
    assert 50 <= least / 1e6 <= 50 + took
    assert 100 <= greatest / 1e6 <= 100 + took


def test_stages_with_state_have_workers_of_their_own(spark):
    """So that they are few, and a bucket often finds its state where it is."""

    def place():
        return {"pid": os.getpid(), "apart": os.environ.get(OF_STATE)}

    fields = {"pid": "int64", "apart": "string"}
    flow = ro.Dataflow("apart")
    rows = flow.source("in", schema=SCHEMA)
    plain = rows.to(
        ro.map(lambda row: {**place(), "device": row["device"]}, schema={**fields, "device": "string"}), id="plain"
    )
    counted = rows.to(ro.keyed(lambda n, row: (n + 1, place()), initial=0, by="device", schema=fields), id="counted")
    flow.sink("out", plain, counted)
    table = pa.Table.from_pylist([{"device": f"d{i % 7}", "obs_type": "t", "value": 1.0} for i in range(60)])
    query = flow.start(spark, table, max_records=15, partitions=2)
    query.wait(timeout_s=120)
    assert {row["apart"] for row in query["plain"].to_pylist()} == {None}
    assert {row["apart"] for row in query["counted"].to_pylist()} == {"1"}
    pids = [set(query[name]["pid"].to_pylist()) for name in ("plain", "counted")]
    assert not pids[0] & pids[1]
    assert OF_STATE not in spark.sparkContext.environment


def test_dataflows_of_several_threads_leave_the_environment_whole():
    """Spark goes through it in one thread, while a stage is defined in another."""
    kept = {"A": "1", "B": "2"}
    spark = SimpleNamespace(_jsc=None, sparkContext=SimpleNamespace(environment=kept))
    seen = []

    def define():
        with workers_apart(spark):
            time.sleep(0.01)
            seen.append(spark.sparkContext.environment)

    threads = [threading.Thread(target=define) for _ in range(4)]
    for name in kept:  # which fails where it changes meanwhile
        for thread in threads if name == "A" else ():
            thread.start()
        time.sleep(0.005)
    for thread in threads:
        thread.join()
    assert seen == [{**kept, OF_STATE: "1"}] * 4
    assert spark.sparkContext.environment == kept == {"A": "1", "B": "2"}


def test_a_relative_checkpoint_is_below_the_folder_of_this_process(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flow = ro.Dataflow("relative")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(t.KalmanFilter(by="device"), id="kalman"))
    table = pa.Table.from_pylist([{"device": "a", "obs_type": "t", "value": 1.0}])
    flow.start(spark, table, checkpoint="kept", sinks=ro.MemorySink()).wait(timeout_s=120)
    assert (tmp_path / "kept" / "riot_ops.json").is_file()
    assert (tmp_path / "kept" / "commits").is_dir()
