"""Supported and refused features of Spark Connect: ``connect_job.py <folder>``.

It runs in a separate process, as a process with Spark's JVM cannot have a session of Spark Connect.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pyarrow as pa

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError

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


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    from riot_ops.spark import configure, read_state, register, session
    from riot_ops.spark.session_check import PROVIDER

    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    frame = spark.createDataFrame(pa.Table.from_pylist(ROWS))
    frame.write.parquet(str(folder / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(folder / "in"))
    flow = dataflow()
    wanted = flow.run(ROWS)

    # calls that need the JVM are refused before they do anything
    refused(lambda: flow.start(spark, frame, checkpoint=folder / "none"), "flow.start needs Spark's JVM")
    refused(session, "session needs Spark's JVM")
    assert not (folder / "none").exists()

    # the settings of the session are checked
    spark.conf.set(PROVIDER, "org.apache.spark.HDFSBackedStateStoreProvider")
    refused(lambda: KALMAN.transform(stream), "keyed tasks keep their state in Spark's RocksDB store")
    configure(spark)

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
