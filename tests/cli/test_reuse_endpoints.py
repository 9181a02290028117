"""Sources and sinks of submitted dataflows; a subscription keeps one reader while dataflows change."""

from __future__ import annotations

import dataclasses
import os
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from paho.mqtt.publish import multiple

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli.reuse_endpoints import make_sink, make_source, parse_endpoint
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.core.errors import ConfigError
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.text_sinks import JSONLinesSink
from riot_ops.ingest.pace import paced
from riot_ops.reuse import ReuseManager, SparkBackend
from riot_ops.runtime.merged_source import merge_sources
from riot_ops.streams.riotbench.city import CitySource
from tests.reuse.serving import LINES, SCHEMA, Serving, until


@pytest.mark.parametrize(
    "spelt",
    [
        {"url": "mqtt://Broker:1883", "topics": ["a/#", "b"]},
        {"topics": ["b", "a/#", "b"], "url": "mqtt://broker/"},
        {"url": "mqtt://broker", "topics": ["a/#", "b"], "qos": 1, "session_expiry": "7d", "username": None},
    ],
    ids=["in full", "in another order", "with defaults"],
)
def test_subscription_is_independent_of_its_spelling(tmp_path, spelt):
    plain = {"url": "mqtt://broker", "topics": ["a/#", "b"]}
    lines = CitySource(3).schema
    one, other = (make_source("s", {"mqtt": given}, lines, tmp_path) for given in (plain, spelt))
    assert (one.client_id, one.spool, one.description()) == (other.client_id, other.spool, other.description())
    chosen = [make_source("s", {"mqtt": {**given, "client_id": "me"}}, lines, tmp_path) for given in (plain, spelt)]
    assert chosen[0].description() == chosen[1].description() != one.description(), "its messages are another client's"
    assert {made.source.client_id for made in chosen} == {"me"} and len({made.source.spool for made in chosen}) == 1
    assert chosen[0].source.spool != one.spool


def test_subscription_continues_after_its_first_user(tmp_path):
    url = "memory://outlives"
    spelt = {"ada": {"url": url, "topics": ["a/#"]}, "bob": {"qos": 1, "topics": ["a/#"], "url": url}}

    def one(name):
        made = ro.Dataflow(name)
        made.sink("out", made.source("in", schema=CitySource(3).schema))
        return {"dataflow": made.to_dict(), "sources": {"in": {"mqtt": spelt[name]}}, "sinks": {}}

    def publish(*numbers):
        for number in numbers:
            MemoryBroker.of(url).publish("a/b", str(number).encode())

    with Serving(tmp_path, epoch="50ms") as server:
        for name in spelt:
            server.handle({"do": "submit", "dataflows": [one(name)]})
        until(lambda: MemoryBroker.of(url)._sessions)
        publish(0, 1)
        until(lambda: server.manager.stats()["rows"] == {"ada": 2, "bob": 2})
        server.handle({"do": "remove", "name": "ada"})
    publish(2, 3)
    with Serving(tmp_path, epoch="50ms") as server:
        publish(4)
        until(lambda: server.manager.stats()["rows"] == {"bob": 5})
    got = pq.read_table(tmp_path / "out" / "bob" / "in")["payload"].to_pylist()
    assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(MemoryBroker.of(url)._sessions) == 1 and len([*(tmp_path / "control" / "spools").iterdir()]) == 1


def test_subscription_merged_differently_is_refused(tmp_path):
    subscription = {"mqtt": {"url": "memory://two ways", "topics": ["a/#"]}}
    one, two = ro.Dataflow("ada"), ro.Dataflow("bob", merging="number")
    one.sink("out", one.source("in", schema=CitySource(3).schema))
    two.sink("out", ro.merge(two.source("in", schema=CitySource(3).schema), two.source("city")).to(t.NoOp(), id="all"))
    both = {"in": subscription, "city": {"stream": "city", "messages": 5}}
    with Serving(tmp_path) as server:
        ada = {"dataflow": one.to_dict(), "sources": {"in": subscription}, "sinks": {}}
        server.handle({"do": "submit", "dataflows": [ada]})
        before = server.manager.canonical()
        with pytest.raises(
            ConfigError, match="can be read by one reader alone, but the source 'in' of 'bob' would"
        ) as e:
            server.handle({"do": "submit", "dataflows": [{"dataflow": two.to_dict(), "sources": both, "sinks": {}}]})
        assert "apart from the source 'in' of 'ada'" in str(e.value) and server.manager.canonical() == before


@pytest.mark.spark
@pytest.mark.integration
def test_queries_on_spark_over_one_subscription_are_merged(spark, mosquitto, tmp_path):
    """The old query ends before the new one begins: a spool has one owner."""
    source = MQTTSource(
        url=mosquitto.url, topics=("one/#",), client_id="become one", spool=str(tmp_path / "spool"), messages=60
    )
    source.open()  # the session begins; Spark's own process continues it
    source.close()
    source = dataclasses.replace(source)

    def publish(*numbers):
        host, _, port = mosquitto.url.removeprefix("mqtt://").partition(":")
        multiple([("one/a", str(n).encode(), 1, False) for n in numbers], host, int(port))

    manager = ReuseManager(SparkBackend(spark, tmp_path / "back", partitions=2, join=False, max_tries=0))
    sinks = {name: ro.MemorySink() for name in ("ada", "bob")}
    for name, sink in sinks.items():
        flow = ro.Dataflow(name)
        stream = flow.source("in", schema=source.schema)
        flow.sink("out", stream if name == "ada" else stream.to(t.NoOp(), id="in2"))
        manager.submit(flow, source, sink)
    assert manager.stats()["queries"] == 2
    publish(*range(30))
    until(lambda: manager.stats()["rows"] == {"ada": 30, "bob": 30}, 60)
    manager.defragment()
    assert manager.stats()["queries"] == 1
    publish(*range(30, 60))
    assert manager.backend.wait("90s")
    assert manager.stats()["failed"] == {} and manager.stats()["restarts"] == {}
    for name, stream in (("ada", "in"), ("bob", "in2")):
        got = sinks[name].table(stream)["payload"].to_pylist()
        assert sorted(map(int, got)) == list(range(60))
    manager.close()


def test_wrapped_and_merged_sources_consume_their_subscriptions(tmp_path):
    lines = CitySource(3).schema
    given = {"url": "memory://wrapped", "topics": ["a"], "client_id": "me"}
    chosen = make_source("s", {"mqtt": given}, lines, tmp_path)
    spool = f"the spool {chosen.source.spool}"
    assert (
        paced(chosen, None, 5).consumed_resources()
        == chosen.consumed_resources()
        == {spool, "the session of 'me' at memory://wrapped"}
    )
    assert CitySource(3).consumed_resources() == frozenset()
    for merging in ("number", "sequence"):
        [both] = merge_sources(ro.Dataflow("d", merging=merging), {"a": chosen, "b": CitySource(3)}).values()
        assert both.consumed_resources() == chosen.consumed_resources()


def test_sources_are_streams_files_and_brokers(tmp_path):
    readings = tmp_path / "readings.csv"
    readings.write_text("device,value\n" + LINES)
    raw, own = ro.Dataflow("a"), ro.Dataflow("b")
    raw.source("city")
    own.source("readings", schema=SCHEMA)
    lines, fields = raw.nodes["city"].schema, own.nodes["readings"].schema
    made = make_source(
        "s",
        parse_endpoint('{"stream": "city", "sensors": 7, "rate": 5, "messages": 3}', "s", "source"),
        lines,
        tmp_path,
    )
    assert made.rate == 5 and made.source.sensors == 7 and made.source.messages == 3
    assert type(make_source("s", {"file": str(readings)}, fields, tmp_path)).__name__ == "FileSource"
    assert (
        type(make_source("s", {"file": str(readings), "has_header": True}, lines, tmp_path)).__name__ == "ReplaySource"
    )
    mqtt = {"mqtt": {"url": "memory://ends", "topics": ["a/#"], "password": {"env": "PASS"}, "username": "u"}}
    one, other = (make_source("s", mqtt, lines, tmp_path) for _ in range(2))
    assert one == other and one.spool.startswith(str(tmp_path)) and one.password.variable == "PASS"
    assert make_source("s", {"mqtt": {**mqtt["mqtt"], "qos": 2}}, lines, tmp_path).spool != one.spool


def test_sinks_are_folders_brokers_and_nothing(tmp_path):
    assert parse_endpoint("out", "s", "sink") == {"folder": os.path.abspath("out")}
    assert make_sink("s", {"folder": str(tmp_path), "compression": "zstd"}).compression == "zstd"
    session = MemoryBroker.of("memory://sinks").session("me", ["#"])
    sink = make_sink("s", {"mqtt": {"url": "memory://sinks", "topic": "out/{stream}"}})
    batch = ro.MemorySource([{"value": 1.0}])
    [split] = batch.splits({"row": 0}, {"row": 1}, 1)
    for one in batch.read(split):
        sink.writer(0, 0).write("a", one)
        make_sink("s", parse_endpoint("discard", "s", "sink")).writer(0, 0).write("a", one)
    assert session[0].topic == "out/a"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "must have one of stream, file, mqtt, got nothing"),
        ({"strem": "city"}, 'did you mean "stream"'),
        ({"stream": "city", "file": "x"}, "must have one of"),
        ({"stream": "citty"}, "no generated stream 'citty'"),
        ({"stream": "city", "sensor": 3}, "sensor"),
        ({"file": "/dev/zero"}, "file must be a file or a folder, got '/dev/zero'"),
        ({"mqtt": "x"}, "mqtt must be an object, got str"),
        ({"mqtt": {"url": "memory://a", "topics": ["a"], "password": "hunter2"}}, '{"env": NAME}'),
        ({"mqtt": {"url": "mqtt://me:hunter2@host", "topics": ["a"]}}, "url must not hold user or password"),
    ],
)
def test_malformed_source_is_refused_without_its_secrets(tmp_path, given, text):
    flow = ro.Dataflow("a")
    flow.source("city")
    with pytest.raises(ConfigError) as caught:
        make_source("in", given, flow.nodes["city"].schema, tmp_path)
    assert text in str(caught.value) and "hunter2" not in str(caught.value) and "source in" in str(caught.value)


def test_malformed_json_is_refused_without_its_text():
    with pytest.raises(ConfigError, match="source in: not JSON") as caught:
        parse_endpoint('{"password": hunter2}', "in", "source")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="must be a text or an object, got int"):
        parse_endpoint(3, "in", "source")


def test_formats_of_folders(tmp_path):
    assert isinstance(make_sink("s", {"folder": str(tmp_path)}), ParquetSink)
    assert make_sink("s", {"folder": str(tmp_path), "format": "csv", "delimiter": ";"}).delimiter == ";"
    assert isinstance(make_sink("s", {"folder": str(tmp_path), "format": "jsonl"}), JSONLinesSink)
    assert make_sink("s", {"folder": str(tmp_path), "roll_interval": "1h"}).roll_interval == timedelta(hours=1)
    with pytest.raises(ConfigError, match=r"format must be parquet or csv or jsonl, got 'xlsx'"):
        make_sink("s", {"folder": str(tmp_path), "format": "xlsx"})
    with pytest.raises(ConfigError, match=r"sink s: .*delimiter"):
        make_sink("s", {"folder": str(tmp_path), "delimiter": ";"})
