"""The JVM's own ends beside ours: Spark's connectors of Kafka, Delta and S3, from the jars of ``RIOT_OPS_SPARK_JARS``."""

from __future__ import annotations

import json
import os
import time
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import DeltaSink, DeltaSource, KafkaSource
from riot_ops.spark import session
from riot_ops.testing.services import Moto
from tests.connectors.kafka.tools import Cluster

pytestmark = pytest.mark.spark

N = 300
COLUMNS = ("seq", "event_time", "payload", "key")
#: What the own source gives under other names.
FROM_SPARK = ("value AS payload", "timestamp AS event_time", "offset * 65536 + partition AS seq", "key")


@pytest.fixture(scope="module")
def cluster():
    return Cluster(os.environ["RIOT_OPS_TEST_KAFKA"])


@pytest.fixture(scope="module")
def store():
    with Moto() as one:
        one.create_bucket("lake")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in one.settings().items():
                patch.setenv(name, value)
            yield one


@pytest.fixture(scope="module")
def jvm(store):
    """A session with the jars."""
    spark = session(
        cores=2,
        memory="2g",
        settings={
            "spark.driver.extraClassPath": os.environ["RIOT_OPS_SPARK_JARS"],
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.hadoop.fs.s3a.endpoint": store.endpoint,
            "spark.hadoop.fs.s3a.access.key": store.access_key,
            "spark.hadoop.fs.s3a.secret.key": store.secret_key,
            "spark.hadoop.fs.s3a.endpoint.region": store.region,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            # moto's server answers "100 Continue", which the asynchronous client of hadoop-aws takes for the result
            "spark.hadoop.fs.s3a.connection.expect.continue": "false",
            "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
        },
    )
    yield spark
    spark.stop()


def filled(cluster: Cluster) -> str:
    """A topic with two partitions, of messages with keys, a tombstone and a message that is no number."""
    name = cluster.create(f"ends-{time.monotonic_ns()}", 2)
    cluster.produce(name, [*range(N - 2), b"none", None], batched=True, key=key, partition=lambda v: place(v) % 2)
    return name


def place(value) -> int:
    return value % 7 if isinstance(value, int) else 0


def key(value) -> str:
    return f"k{place(value)}"


def counted() -> ro.Dataflow:
    """Running counts by key: each record's count shows whether state was lost, or a record came twice."""
    flow = ro.Dataflow("counted")
    fields = pa.schema([field for field in KafkaSource(servers="h:1", topics="t").schema if field.name in COLUMNS])
    raw = flow.source("raw", schema=fields)
    numbers = raw.to(ro.map(lambda row: {"n": int(row["payload"])}, adds={"n": "int64"}), id="numbers")
    flow.sink("out", numbers.to(t.RunningCount(by="key"), id="counts"))
    return flow


def in_process(cluster: Cluster, topic: str) -> list[dict]:
    """The results of our own source, in process."""
    source = KafkaSource(servers=cluster.servers, topics=topic, ending_offsets="latest")
    return counted().run(source)["counts"].select(["seq", "key", "n", "count"]).to_pylist()


def by_seq(rows):
    return sorted((row["seq"], row["key"], row["n"], row["count"]) for row in rows)


def read_kafka(spark, cluster: Cluster, topic: str, *, streaming: bool = True):
    reader = spark.readStream if streaming else spark.read
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", ",".join(cluster.servers))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr(*FROM_SPARK)
    )


def test_connector_to_frames_to_delta_once(jvm, cluster, tmp_path):
    """A micro-batch whose commit is lost is written again, and its number keeps it out of the table."""
    topic, table, state = filled(cluster), str(tmp_path / "table"), tmp_path / "state"
    written = Counter()

    def append(frame, batch_id):
        written[batch_id] += 1
        frame.persist()
        frame.write.format("noop").mode("append").save()  # the state of a micro-batch that Delta passes over
        writer = frame.write.format("delta").mode("append")
        writer.option("txnAppId", "counted/counts").option("txnVersion", batch_id).save(table)
        frame.unpersist()

    def run():
        lines = read_kafka(jvm, cluster, topic)
        streams = counted().frames(lines)
        query = (
            streams["counts"].writeStream.foreachBatch(append).option("checkpointLocation", str(state))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        assert query.exception() is None

    run()
    first = DeltaTable(table).to_pyarrow_table().num_rows
    last = max((state / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    for crc in (state / "commits").glob(f".{last.name}.*"):
        crc.unlink()
    cluster.produce(topic, range(N, N + 50), batched=True, key=key, partition=lambda v: place(v) % 2)
    run()
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert written[int(last.name)] == 2
    assert first == N - 2 and len(rows) == N + 48
    assert by_seq(rows) == by_seq(in_process(cluster, topic))
    # our own source reads what Delta's own writer has written
    own = DeltaSource(table, version=DeltaTable(table).version())
    end = own.latest(own.initial())
    seen = [row["n"] for split in own.splits(own.initial(), end, 1) for b in own.read(split) for row in b.to_pylist()]
    assert sorted(seen) == sorted(row["n"] for row in rows)


def test_connector_through_transform_and_back(jvm, cluster, tmp_path):
    """Spark's connector writes what ``transform`` gives; the own source reads it with keys, values and times."""
    topic, target = filled(cluster), cluster.create(f"back-{time.monotonic_ns()}", 1)
    results = counted().transform(read_kafka(jvm, cluster, topic), on_error="column")
    rejected = functions.col("_error").isNotNull()
    query = (
        results.where(~rejected).selectExpr("key", "CAST(to_json(struct(seq, n, count)) AS BINARY) AS value")
        .writeStream.format("kafka").option("kafka.bootstrap.servers", ",".join(cluster.servers))
        .option("topic", target).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    source = KafkaSource(servers=cluster.servers, topics=target, ending_offsets="latest")
    flow = ro.Dataflow("back")
    flow.sink("out", flow.source("raw", schema=source.schema))
    found = [json.loads(row["payload"]) | {"key": row["key"]} for row in flow.run(source)["raw"].to_pylist()]
    assert by_seq(found) == by_seq(in_process(cluster, topic))


def test_batch_of_the_connector_equals_our_source(jvm, cluster):
    """Offsets, keys, tombstones, headers and times are the same in both."""
    topic = cluster.create(f"both-{time.monotonic_ns()}", 1)
    at = 1_700_000_000_000
    cluster.produce(topic, [1, None, 3], key=lambda v: None if v == 1 else "k", timestamp=at,
                    headers=[("a", b"1"), ("a", None), ("b", b"")])  # fmt: skip
    theirs = (
        jvm.read.format("kafka").option("kafka.bootstrap.servers", ",".join(cluster.servers))
        .option("subscribe", topic).option("includeHeaders", "true").load().orderBy("offset").toArrow().to_pylist()
    )  # fmt: skip
    source = KafkaSource(servers=cluster.servers, topics=topic, ending_offsets="latest")
    flow = ro.Dataflow("ours")
    flow.sink("out", flow.source("raw", schema=source.schema))
    ours = flow.run(source)["raw"].to_pylist()
    kinds = {0: "create", 1: "log_append"}
    same = ("key", "topic", "partition", "offset", "headers")
    assert [[row[name] for name in same] for row in theirs] == [[row[name] for name in same] for row in ours]
    assert [(r["value"], r["timestamp"]) for r in theirs] == [(r["payload"], r["event_time"]) for r in ours]
    assert [kinds[r["timestampType"]] for r in theirs] == [r["timestamp_type"] for r in ours]


def test_s3a_reads_our_parquet_and_keeps_the_checkpoint(jvm, cluster, store):
    """Spark on s3a: its checkpoint and Delta's table there, our files in process and from Spark's workers."""
    topic, name = filled(cluster), f"run-{time.monotonic_ns()}"
    expected = by_seq(in_process(cluster, topic))
    source = KafkaSource(servers=cluster.servers, topics=topic, ending_offsets="latest")
    counted().run(source, sinks={"out": ro.ParquetSink(f"s3://lake/{name}/local"), "errors": ro.MemorySink()})
    assert by_seq(spark_rows(jvm.read.parquet(f"s3a://lake/{name}/local/counts"))) == expected
    query = counted().start(
        jvm, source, checkpoint=f"s3a://lake/{name}/state",
        sinks={"out": ro.ParquetSink(f"s3://lake/{name}/spark"), "errors": ro.MemorySink()},
    )  # fmt: skip
    query.wait("4min")
    assert by_seq(spark_rows(jvm.read.parquet(f"s3a://lake/{name}/spark/counts"))) == expected
    # a second query continues from the checkpoint in the store
    cluster.produce(topic, range(N, N + 20), batched=True, key=key, partition=lambda v: place(v) % 2)
    query = counted().start(
        jvm, source, checkpoint=f"s3a://lake/{name}/state",
        sinks={"out": ro.ParquetSink(f"s3://lake/{name}/spark"), "errors": ro.MemorySink()},
    )  # fmt: skip
    query.wait("4min")
    expected = by_seq(in_process(cluster, topic))
    assert by_seq(spark_rows(jvm.read.parquet(f"s3a://lake/{name}/spark/counts"))) == expected
    # the JVM reads what DeltaSink has written to the store
    counted().run(source, sinks={"out": DeltaSink(f"s3://lake/{name}/delta"), "errors": ro.MemorySink()})
    assert by_seq(spark_rows(jvm.read.format("delta").load(f"s3a://lake/{name}/delta/counts"))) == expected


def spark_rows(frame):
    return frame.toArrow().to_pylist()
