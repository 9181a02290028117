"""The streams of this library as Spark data sources."""

from __future__ import annotations

import time

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from riot_ops import spark as on_spark
from riot_ops import streams
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench import word_count
from riot_ops.spark import data_sources, features
from riot_ops.testing.services import Postgres

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark):
    on_spark.register(spark)
    on_spark.register(spark)  # is idempotent
    return spark


def _local(source):
    batches = [b for s in source.splits(source.initial(), source.latest(source.initial()), 1) for b in source.read(s)]
    return pa.Table.from_batches(batches).sort_by("seq").to_pylist()


def test_batch_read_equals_stream(session):
    frame = session.read.format("riot_city").option("sensors", "7").option("MESSAGES", "500").option("partitions", "3")
    rows = frame.load().orderBy("seq").toArrow()
    wanted = _local(streams.city(sensors=7, messages=500))
    assert rows.num_rows == 500
    assert [bytes(r["payload"]) for r in rows.to_pylist()] == [bytes(r["payload"]) for r in wanted]
    assert rows["event_time"].to_pylist() == [r["event_time"] for r in wanted]


@pytest.mark.parametrize(("name", "make"), [("riot_fit", streams.fit), ("riot_grid", streams.grid)])
def test_every_stream_has_a_name(session, name, make):
    rows = session.read.format(name).option("messages", "50").load().orderBy("seq").toArrow().to_pylist()
    assert [bytes(r["payload"]) for r in rows] == [bytes(r["payload"]) for r in _local(make(messages=50))]


def test_durations_are_texts(session):
    source = session.read.format("riot_grid").option("meters", "5").option("duration", "1d").option("burst", "1min")
    wanted = _local(streams.grid(meters=5, duration="1d", burst="1min"))
    found = source.load().orderBy("seq").toArrow().to_pylist()
    assert [bytes(r["payload"]) for r in found] == [bytes(r["payload"]) for r in wanted] and len(found) == 240


def test_streaming_read_feeds_a_task(session, tmp_path):
    reader = session.readStream.format("riot_taxi").option("messages", "300")
    raw = (reader.option("maxRows", "100") if features.READ_LIMITS else reader).load()
    parsed = on_spark.transform(t.ParseSenML(schema="taxi"), raw)
    query = (
        parsed.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "c"))
        .option("path", str(tmp_path / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len([p for p in query.recentProgress if p["numInputRows"]]) == (3 if features.READ_LIMITS else 1)
    got = session.read.parquet(str(tmp_path / "out"))
    parse = t.ParseSenML(schema="taxi").session()
    wanted = parse.push_many([{"payload": r["payload"], "seq": r["seq"]} for r in _local(streams.taxi(messages=300))])
    assert got.where("_error is null").count() == len(wanted)


def test_place_and_limits_before_spark_4_2(monkeypatch):
    """Spark then names neither the start nor a limit of a micro-batch, but calls ``partitions`` as a query continues."""
    monkeypatch.setattr(features, "_has_name", lambda _: False)
    make = data_sources._format("riot_city")
    with pytest.raises(
        ConfigError, match=r"limits of streaming sources need Spark 4\.2 or later: the installed PySpark"
    ):
        make({"messages": "40", "maxRows": "10"}).streamReader(None)
    reader = make({"messages": "40"}).streamReader(None)
    end = reader.latestOffset()
    assert end == reader.latestOffset() and reader.latestOffset(reader.initialOffset()) == end
    continued = make({"messages": "50"}).streamReader(None)
    assert continued.partitions(end, end) == []
    assert sum(b.num_rows for p in continued.partitions(end, continued.latestOffset()) for b in continued.read(p)) == 10


def test_replay_from_a_file(session, tmp_path):
    streams.write(streams.city(sensors=3, messages=40), tmp_path / "city.csv")
    rows = session.read.format("riot_replay").option("path", str(tmp_path / "city.csv")).load().orderBy("seq").toArrow()
    wanted = _local(streams.replay(tmp_path / "city.csv"))
    assert [bytes(r) for r in rows["payload"].to_pylist()] == [bytes(r["payload"]) for r in wanted]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sensor": "3"}, "no option 'sensor'.*sensors"),
        ({"sensors": "many"}, "'sensors'.*'many'"),
        ({"sensors": "0", "messages": "3"}, "sensors must be a whole number >= 1"),
        ({"messages": "3", "partitions": "0"}, "'partitions' must be a whole number"),
        ({}, "does not end by itself"),
    ],
)
def test_wrong_options(session, options, message):
    frame = session.read.format("riot_city").options(**options)
    with pytest.raises(Exception, match=f"(?s){message}"):
        frame.load().count()


def test_lazy_names():
    from riot_ops.spark import dataframe_transform, runner

    assert on_spark.transform is dataframe_transform.transform
    assert on_spark.start is runner.start
    with pytest.raises(AttributeError, match="nothing"):
        _ = on_spark.nothing


def test_lines_of_another_encoding_are_read(session, tmp_path):
    (tmp_path / "lines").write_bytes("é\ntea\n\x81\n".encode("latin-1"))
    frame = session.read.format("riot_replay").option("path", str(tmp_path / "lines")).option("encoding", "cp1252")
    rows = frame.load().orderBy("seq").toArrow().to_pylist()
    assert [row["payload"] for row in rows] == ["é\n".encode(), b"tea\n", None]


def test_lines_in_another_encoding_are_rejected_on_spark(session, tmp_path):
    (tmp_path / "lines").write_bytes("é\ntea\n\x81\n".encode("latin-1"))
    source = streams.replay(tmp_path / "lines", encoding="cp1252")
    flow = word_count(unicode=True)
    local = flow.run(source)
    query = flow.start(session, source=source)
    query.wait()
    assert query["counts"].sort_by("seq")["word"].to_pylist() == ["é", "tea"]
    columns = ["seq", "task", "reason", "message"]
    assert query["errors"].select(columns).to_pylist() == local["errors"].select(columns).to_pylist()
    assert query["errors"]["reason"].to_pylist() == ["invalid_encoding"]


def test_mqtt_is_read_and_written_without_a_dataflow(session, tmp_path, mosquitto):
    """Messages that one query publishes are what another reads."""
    topic = f"ends/{tmp_path.name}"
    options = {"url": mosquitto.url, "topics": f"{topic}/#", "clientId": "ends", "spool": str(tmp_path / "spool")}
    source = MQTTSource(url=mosquitto.url, topics=(f"{topic}/#",), client_id="ends", spool=str(tmp_path / "spool"))
    source.latest(source.initial())  # subscribes
    source.close()
    sent = session.createDataFrame([(1, 1.5), (2, None)], "n int, value double").coalesce(1)
    sent.write.format("riot_mqtt").options(url=mosquitto.url, TOPIC=f"{topic}/{{stream}}", stream="air").mode(
        "append"
    ).save()
    raw = session.readStream.format("riot_mqtt").options(**options, messages="2").load()
    query = (
        raw.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "out"))
    )
    try:  # the broker sends them after the first question for the latest offset, which is the only one before Spark 4.2
        until = time.monotonic() + 120
        while sum(one["numInputRows"] for one in query.recentProgress) < 2 and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        query.stop()
    assert query.exception() is None
    rows = session.read.parquet(str(tmp_path / "out")).orderBy("seq").toArrow().to_pylist()
    assert [(row["topic"], bytes(row["payload"])) for row in rows] == [
        (f"{topic}/air", b'{"n":1,"value":1.5}'),
        (f"{topic}/air", b'{"n":2,"value":null}'),
    ]


@pytest.mark.integration
def test_streams_into_tables_with_an_identity_appear_once(session, tmp_path):
    with Postgres(password="never-shown", options=("fsync=off",)) as server:
        options = {"url": server.url, "credential": "never-shown", "tableName": "air"}
        limit = {"maxRows": "20"} if features.READ_LIMITS else {}
        for again in range(2):  # the second query has another checkpoint, so that Spark writes all batches again
            raw = session.readStream.format("riot_city").options(sensors="5", messages="40", **limit).load()
            query = raw.select("seq", "event_time").writeStream.format("riot_postgres").options(runId="a", **options)
            query.option("checkpointLocation", str(tmp_path / f"c{again}")).trigger(
                availableNow=True
            ).start().awaitTermination()
        batch = session.createDataFrame([(-1,)], "seq long")
        batch.write.format("riot_postgres").options(**options).mode("append").save()
        with psycopg.connect(server.url, password="never-shown") as connection:
            found = connection.execute("SELECT seq, event_time FROM air ORDER BY seq").fetchall()
    wanted = _local(streams.city(sensors=5, messages=40))
    assert found == [(-1, None), *((row["seq"], row["event_time"]) for row in wanted)]


def test_delta_tables_are_written_by_path(session, tmp_path):
    frame = session.createDataFrame([("a", 1), ("b", 2)], "room string, n int")
    for _ in range(2):
        frame.write.format("riot_delta").option("partitionBy", "room").mode("append").save(str(tmp_path / "t"))
    table = DeltaTable(str(tmp_path / "t"))
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == [1, 1, 2, 2]
    assert table.metadata().partition_columns == ["room"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("riot_http", {"url": "http://x", "colour": "red"}, "riot_http has no option 'colour'.*batch_size"),
        ("riot_http", {"url": "http://x", "format": "xml"}, "'xml'"),
        ("riot_city", {}, "riot_city can be read only"),
    ],
)
def test_wrong_options_of_writers(session, name, options, message):
    frame = session.createDataFrame([(1,)], "n int")
    with pytest.raises(Exception, match=f"(?s){message}"):
        frame.write.format(name).options(**options).mode("append").save()


def test_formats_without_a_source_cannot_be_read(session):
    with pytest.raises(Exception, match="riot_http can be written only"):
        session.read.format("riot_http").load()
