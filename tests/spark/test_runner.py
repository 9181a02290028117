"""Options of ``transform`` and ``start``, and the numbers and times of records."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming import DataStreamWriter

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.source import WrappedSource
from riot_ops.spark import runner
from riot_ops.spark.blocks import METRICS
from riot_ops.spark.session import (
    ARROW_BYTES,
    ARROW_RECORDS,
    NO_BOUND,
    PARTITIONS,
    arrow_batch_settings,
    block_batch_settings,
    fit_buffering,
    session,
)

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = {"device": "string", "obs_type": "string", "value": "double"}


def two_keys():
    """Return a dataflow of two tasks whose keys have a field in common."""
    flow = ro.Dataflow("fused")
    fine = flow.source("in", schema=SCHEMA).to(t.KalmanFilter(by=("device", "obs_type")), id="fine")
    flow.sink("out", fine.to(t.KalmanFilter(by=("obs_type",)), id="coarse"))
    return flow


def test_partitions_reach_the_shuffles(spark):
    rows = pa.Table.from_pylist([{"device": f"d{i}", "obs_type": "t", "value": float(i)} for i in range(20)])
    mine = spark.newSession()
    mine.conf.set(PARTITIONS, "2")
    found = {}

    def run(name, **options):
        query = two_keys().start(mine, rows, **options)
        query.wait("3min")
        found[name] = [s["numShufflePartitions"] for s in query.streaming.lastProgress["stateOperators"]]

    at_once = {"one": {"partitions": 1}, "five": {"partitions": 5}, "usual": {}}
    threads = [threading.Thread(target=run, args=(name,), kwargs=options) for name, options in at_once.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"one": [1], "five": [5, 5], "usual": [2]}, "few partitions share a shuffle"
    assert mine.conf.get(PARTITIONS) == "2"


def test_buffering_sets_arrow_batches_and_trigger(spark, monkeypatch):
    """For a source that waits; without a buffering the session's settings apply."""
    seen_settings = []
    settings = runner.query_settings
    monkeypatch.setattr(runner, "query_settings", lambda s, given: (seen_settings.append(given), settings(s, given))[1])
    trigger = DataStreamWriter.trigger
    monkeypatch.setattr(
        DataStreamWriter, "trigger", lambda self, **kw: (seen_settings.append(kw), trigger(self, **kw))[1]
    )
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
        paced = ro.streams.PacedSource(ro.MemorySource(rows), rate=1000)
        query = flow.start(spark, paced, partitions=1, buffering=buffering, **options)
        query.wait("1min")
        assert query["in"]["value"].to_pylist() == [row["value"] for row in rows]
    arrow = {ARROW_RECORDS: "65536", ARROW_BYTES: str(1 << 20)}
    assert seen_settings == [
        {"processingTime": "1000 milliseconds"},
        {PARTITIONS: "1", **arrow},
        {"processingTime": "0 milliseconds"},
        {PARTITIONS: "1", **arrow},
        {PARTITIONS: "1", ARROW_BYTES: str(64 << 20)},  # the session limits batches by records only
        {PARTITIONS: "1", ARROW_RECORDS: "16384", ARROW_BYTES: "16384"},  # latency has no trigger
        {PARTITIONS: "1", ARROW_RECORDS: "1"},  # neither has immediate
    ]
    assert arrow_batch_settings(Buffering(capacity=0)) == {ARROW_RECORDS: "1"}


def test_blocks_are_small_if_session_limits_records_only(spark):
    """Otherwise a batch with as many blocks as records would exceed Arrow's limit."""
    mine = session(settings={ARROW_RECORDS: "16384"})  # a 16,384th of 1 GiB is 64 KiB
    assert (mine.conf.get(ARROW_BYTES), fit_buffering(Buffering(), mine).capacity) == (NO_BOUND, 1 << 16)
    assert block_batch_settings(mine) == {ARROW_BYTES: str(64 << 20)}
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
    assert fit_buffering(Buffering(), mine) == Buffering() and block_batch_settings(mine) == {}
    whole = [row.n for row in flow.frames(rows, buffering=buffering).packed.selectExpr("length(payload) n").collect()]
    assert max(whole) > 2 << 16


def due(source, now):
    """Return a source whose first split was due 100 to 90 seconds before now, the second 60 to 50."""

    class Due(WrappedSource):  # nested, so that it is pickled by value
        def splits(self, start, end, n):
            found = self.source.splits(start, end, 2)
            ages = ((100, 90), (60, 50))
            return [{**s, "due": [1e6 * (now - a) for a in age]} for s, age in zip(found, ages, strict=True)]

    return Due(source)


def test_latency_counts_from_due_times(spark):
    flow = ro.Dataflow("late")
    flow.sink("out", flow.source("in", schema=SCHEMA).to(t.KalmanFilter(by=("device",)), id="kalman"))
    rows = [{"device": "a", "obs_type": "t", "value": float(i)} for i in range(20)]
    began = time.time()
    source = due(ro.MemorySource(pa.Table.from_pylist(rows)), began)
    query = flow.start(spark, source, partitions=2)
    summary = query.wait("2min")
    took = time.time() - began
    ((least, greatest, n),) = summary.latency.blocks()  # both splits meet in the bucket of the key
    assert n == 20
    assert 50 <= least / 1e6 <= 50 + took
    assert 100 <= greatest / 1e6 <= 100 + took


def test_progress_of_spark_has_the_counters_of_the_dataflow(spark):
    """Spark itself counts packed blocks and buckets."""
    times = [*range(40), 100, *range(9)]  # the last nine are late
    rows = [
        {"device": f"d{i % 7}", "value": None if i == 3 else float(i), "event_time": s * 1_000_000}
        for i, s in enumerate(times)
    ]
    flow = ro.Dataflow("counted")
    stream = flow.source("in", schema={"device": "string", "value": "double", "event_time": "timestamp[us, tz=UTC]"})
    present = stream.to(ro.filter(lambda row: row["device"] != "d6", label="six"), id="present")
    means = present.to(t.Window(by="device", frame="10s", aggregates={"n": "count"}), id="windows")
    flow.sink("out", means)
    table = pa.Table.from_pylist(rows).cast(
        pa.schema([("device", pa.string()), ("value", pa.float64()), ("event_time", pa.timestamp("us", "UTC"))])
    )
    alone = flow.run(table)
    query = flow.start(spark, table)
    query.wait("2min")
    progress = [p["observedMetrics"]["riot_ops"] for p in query.streaming.recentProgress if p["numInputRows"]]
    found = {name: sum(one[name] or 0 for one in progress) for name in METRICS}
    errors = alone["errors"]["reason"].to_pylist()
    assert errors.count("late") == 7, "two of the nine have the device d6"
    assert found == {
        "records": 50,
        "rejected": len(errors),
        "late": 7,
        "written": alone["windows"].num_rows,
        "state_keys": 6,
    }


@pytest.mark.parametrize("form", ["csv", pytest.param("log", marks=pytest.mark.slow)])
def test_query_over_a_folder_finds_new_files_in_any_order(spark, tmp_path, form):
    """Also in the range of a micro-batch that was planned but not committed."""
    folder, where = tmp_path / "in", {"out": tmp_path / "out", "checkpoint": tmp_path / "kept"}
    folder.mkdir()
    flow = ro.Dataflow("folder")
    if form == "csv":
        records = flow.source("in", schema={"device": "string", "value": "double"})
    else:
        fields = {"event_time": (0, "ms"), "device": (1, "string"), "value": (2, "double")}
        records = flow.source("in").to(t.ParseLines(schema=fields), id="records")
    flow.sink("all", records)

    def write(name, n):
        lines = [f"{name},{i}" for i in range(n)] if form == "csv" else [f"{i},{name},{i}" for i in range(n)]
        (folder / f"{name}.{form}").write_text("\n".join([*(["device,value"] if form == "csv" else []), *lines, ""]))

    def run(**options):
        source = ro.read(folder) if form == "csv" else ro.streams.replay(folder)
        flow.start(spark, source, **where, **options).wait("2min")
        table = pq.read_table(sorted((tmp_path / "out" / records.id).glob("*.parquet")))
        return sorted(zip(table["device"].to_pylist(), table["value"].to_pylist(), strict=True))

    write("m", 40)
    wanted = [("m", float(i)) for i in range(40)]
    assert run(max_records=15) == wanted
    newest = max((tmp_path / "kept" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (newest, newest.with_name(f".{newest.name}.crc")):  # the last micro-batch is repeated
        path.unlink(missing_ok=True)
    write("b", 3)
    write("z", 2)
    wanted = sorted([*wanted, *(("b", float(i)) for i in range(3)), *(("z", float(i)) for i in range(2))])
    assert run() == wanted
    write("m", 41)
    assert run() == sorted([*wanted, ("m", 40.0)])
