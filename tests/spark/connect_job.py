"""Supported and refused features of Spark Connect: ``connect_job.py <folder>``.

It runs in a separate process, as a process with Spark's JVM cannot have a session of Spark Connect.
"""

from __future__ import annotations

import datetime as dt
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.spark import features
from riot_ops.spark.session_check import PROVIDER

SCHEMA = {"device": "string", "value": "double"}
ROWS = [{"seq": i, "device": "ab"[i % 2], "value": float(i * 7 % 5)} for i in range(40)]
ROWS[7]["value"] = float("inf")
KALMAN = t.KalmanFilter(by=("device",))


def dataflow() -> ro.Dataflow:
    flow = ro.Dataflow("connected")
    smooth = flow.source("in", schema=SCHEMA).to(KALMAN, id="smooth")
    flow.sink("out", smooth, smooth.to(t.MovingAverage(by=(), window=4), id="mean"))
    return flow


def refused(attempt, text):
    try:
        attempt()
    except ConfigError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"nothing said {text!r}")


def values(rows) -> list[tuple[int, float]]:
    return sorted((r["seq"], r["value"]) for r in rows)


def read(out: Path, stream: str) -> list[tuple[int, float]]:
    return values(pq.read_table(sorted((out / stream).glob("*.parquet"))).to_pylist())


@contextmanager
def restricted(spark, allowed=("spark.sql.shuffle.partitions",)):
    """A platform that refuses all settings but the ``allowed`` ones, and any trigger but "available now"."""
    conf, writer = type(spark.conf), DataStreamWriter
    put, trigger = conf.set, writer.trigger
    refused_names = []

    def refuse(self, name, value):
        if name not in allowed:
            refused_names.append(name)
            raise PySparkException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available")
        put(self, name, value)

    def only_available_now(self, **given):
        assert given == {"availableNow": True}, given
        return trigger(self, **given)

    conf.set, writer.trigger = refuse, only_available_now
    try:
        yield refused_names
    finally:
        conf.set, writer.trigger = put, trigger


def started(spark, stream, folder: Path) -> None:
    """``flow.start`` gives what a run in process gives, and continues."""
    from riot_ops.spark import configure

    flow, wanted = dataflow(), dataflow().run(ROWS)
    where = {"out": folder / "started", "checkpoint": folder / "started-kept"}
    first = flow.start(spark, ROWS[:24], max_records=10, **where)
    assert first.wait("2min").messages == 24 and not first.active
    assert [one["messages"] for one in first.micro_batches] == [10, 10, 4]
    query = flow.start(spark, ROWS, max_records=10, **where)
    assert query.wait("2min").messages == 16
    assert (first.summary.rows["errors"], query.summary.rows["errors"]) == (1, 0), first.summary
    written = first.summary.rows["written"] + query.summary.rows["written"]
    assert written == sum(len(wanted[name]) for name in ("smooth", "mean")), written
    for name in ("smooth", "mean"):
        assert read(where["out"], name) == values(wanted[name].to_pylist()), name
    try:
        flow.start(spark, ROWS, partitions=1, **where)
    except StateError as error:
        assert "partitions=2" in str(error), error
    else:
        raise AssertionError("another number of partitions continued")

    # a restricted platform: one trigger, few settings, a stream of the user's own
    configure(spark)
    with restricted(spark) as names:
        configure(spark)
        where = {"out": folder / "restricted", "checkpoint": f"{folder}/restricted-kept"}
        query = flow.start(spark, stream, trigger="available now", buffering="latency", **where)
        assert query.wait("2min").messages == len(ROWS)
    assert PROVIDER in names and len(set(names)) >= 3, names
    for name in ("smooth", "mean"):
        assert read(where["out"], name) == values(wanted[name].to_pylist()), name


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    from riot_ops.spark import configure, read_state, register, session

    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    frame = spark.createDataFrame(pa.Table.from_pylist(ROWS))
    frame.write.parquet(str(folder / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(folder / "in"))
    flow = dataflow()
    wanted = flow.run(ROWS)

    # what needs the JVM or the driver's process is refused before anything is done
    out = folder / "refused"
    refused(lambda: flow.start(spark, frame, out=out, checkpoint=out), "flow.start takes no batch DataFrame")
    refused(lambda: flow.start(spark, ROWS, out=out), "flow.start needs checkpoint")
    refused(lambda: flow.start(spark, ROWS, checkpoint=out), "'out' (MemorySink) is in this process")
    refused(lambda: flow.start(spark, ROWS, out=out, checkpoint=out, probe=ro.Probe()), "takes no probe")
    refused(lambda: flow.start(spark, ROWS, out=out, checkpoint=out, restart="compatible"), "restart='compatible'")
    if features.has(features.STATE_OVER_CONNECT):
        refused(
            lambda: flow.frames(stream).continue_from(str(out), restart="compatible"), "continue_from needs Spark's"
        )
        refused(lambda: flow.start(spark, ROWS, out=out, checkpoint="here"), "absolute path or a URI")
    assert not out.exists()
    refused(session, "session needs Spark's JVM")
    assert not (folder / "none").exists()

    # the settings of the session are checked
    spark.conf.set(PROVIDER, "org.apache.spark.HDFSBackedStateStoreProvider")
    refused(lambda: KALMAN.transform(stream), "keyed tasks keep their state in Spark's RocksDB store")
    configure(spark)

    if not features.has(features.STATE_OVER_CONNECT):
        text = "state over Spark Connect needs Spark 4.1 or later: this session has 4.0"
        refused(lambda: flow.start(spark, ROWS, out=out, checkpoint=out), text)
        refused(lambda: flow.frames(stream), text)
        spark.stop()
        return
    started(spark, stream, folder)

    # a batch
    smooth = KALMAN.transform(frame, on_error="drop").collect()
    assert values(smooth) == values(wanted["smooth"].to_pylist())
    frames = flow.frames(frame)
    for name in frames:
        assert frames[name].count() == len(wanted[name]) > 0, name
    seen = []
    assert frames.write_each(lambda name, df, number: seen.append((name, df.count(), number))) is None
    assert seen == [(name, len(wanted[name]), 0) for name in frames.names]

    # a stream, whose function runs on the server
    def store(name, df, number):
        df.write.mode("append").parquet(f"{folder}/out/{name}")

    query = flow.frames(stream).write_each(store, checkpoint=folder / "each", trigger="available now")
    assert query.awaitTermination(120) and query.exception() is None
    for name in ("smooth", "mean"):
        got = spark.read.parquet(f"{folder}/out/{name}").collect()
        assert values(got) == values(wanted[name].to_pylist()), name
    assert spark.read.parquet(f"{folder}/out/errors").count() == 1

    for state in (
        read_state(folder / "each", "smooth").to_pylist(),
        read_state(folder / "each", "smooth", spark).collect(),
    ):
        assert sorted(row["device"] for row in state) == ["a", "b"]

    # functions and processors
    double = ro.map(lambda row: {**row, "value": 2 * row["value"]})
    twice = [(r["seq"], 2 * r["value"]) for r in sorted(ROWS, key=lambda r: r["seq"])]
    assert values(frame.mapInArrow(double.map_in_arrow, frame.schema).collect()) == twice
    assert values(frame.mapInPandas(double.map_in_pandas, frame.schema).collect()) == twice
    processor = KALMAN.stateful_processor(frame.schema)
    keyed = stream.groupBy("device").transformWithStateInPandas(
        processor, outputStructType=processor.output_schema, outputMode="append", timeMode="None"
    )
    query = keyed.writeStream.format("memory").queryName("keyed").option("checkpointLocation", f"{folder}/keyed")
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(120) and query.exception() is None
    assert values(spark.table("keyed").collect()) == values(wanted["smooth"].to_pylist())
    now = dt.datetime.now(dt.UTC)
    timed = spark.createDataFrame([(now, 1.0)], "event_time timestamp, value double")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    refused(lambda: KALMAN.replace(by=()).stateful_processor(timed.schema), "which is America/New_York")

    # this library's streams as Spark sources
    register(spark)
    assert spark.read.format("riot_city").option("sensors", 5).option("messages", 30).load().count() == 30

    spark.stop()
    stopped = type("Frame", (), {"sparkSession": spark, "isStreaming": True})
    refused(lambda: KALMAN.transform(stopped), "the Spark session has been stopped")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
