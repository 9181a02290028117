"""What is left in a queue at a broker, or beside it, is read by one reader, whoever comes and goes."""

from __future__ import annotations

import dataclasses

import pyarrow.parquet as pq
import pytest
from paho.mqtt.publish import multiple

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli.reuse_endpoints import made_source
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.core.errors import ConfigError
from riot_ops.ingest.pace import paced
from riot_ops.reuse import ReuseManager, SparkBackend
from riot_ops.runtime.merging import merged
from riot_ops.streams.riotbench.city import CitySource
from tests.reuse.test_reuse_command import Serving, until


@pytest.mark.parametrize(
    "spelt",
    [
        {"url": "mqtt://Broker:1883", "topics": ["a/#", "b"]},
        {"topics": ["b", "a/#", "b"], "url": "mqtt://broker/"},
        {"url": "mqtt://broker", "topics": ["a/#", "b"], "qos": 1, "session_s": 604_800, "username": None},
    ],
    ids=["in full", "in another order", "with defaults"],
)
def test_a_subscription_is_what_it_means_however_it_is_spelt(tmp_path, spelt):
    plain = {"url": "mqtt://broker", "topics": ["a/#", "b"]}
    lines = CitySource(3).schema
    one, other = (made_source("s", {"mqtt": given}, lines, tmp_path) for given in (plain, spelt))
    assert (one.client_id, one.spool, one.description()) == (other.client_id, other.spool, other.description())
    chosen = [made_source("s", {"mqtt": {**given, "client_id": "me"}}, lines, tmp_path) for given in (plain, spelt)]
    assert chosen[0].description() == chosen[1].description() != one.description(), "its messages are another client's"
    assert {made.source.client_id for made in chosen} == {"me"} and len({made.source.spool for made in chosen}) == 1
    assert chosen[0].source.spool != one.spool


def test_a_subscription_goes_on_when_its_first_user_has_gone(tmp_path):
    url = "memory://outlives"
    spelt = {"ada": {"url": url, "topics": ["a/#"]}, "bob": {"qos": 1, "topics": ["a/#"], "url": url}}

    def one(name):
        made = ro.Dataflow(name)
        made.sink("out", made.source("in", schema=CitySource(3).schema))
        return {"dataflow": made.to_dict(), "sources": {"in": {"mqtt": spelt[name]}}, "sinks": {}}

    def publish(*numbers):
        for number in numbers:
            MemoryBroker.of(url).publish("a/b", str(number).encode())

    with Serving(tmp_path, epoch_s=0.05) as server:
        for name in spelt:
            server.answer({"do": "submit", "dataflows": [one(name)]})
        until(lambda: MemoryBroker.of(url)._sessions)
        publish(0, 1)
        until(lambda: server.manager.stats()["rows"] == {"ada": 2, "bob": 2})
        server.answer({"do": "remove", "name": "ada"})
    publish(2, 3)
    with Serving(tmp_path, epoch_s=0.05) as server:
        publish(4)
        until(lambda: server.manager.stats()["rows"] == {"bob": 5})
    got = pq.read_table(tmp_path / "out" / "bob" / "in")["payload"].to_pylist()
    assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(MemoryBroker.of(url)._sessions) == 1 and len([*(tmp_path / "control" / "spools").iterdir()]) == 1


def test_a_subscription_that_another_reads_as_another_log_is_refused(tmp_path):
    subscription = {"mqtt": {"url": "memory://two ways", "topics": ["a/#"]}}
    one, two = ro.Dataflow("ada"), ro.Dataflow("bob", merging="number")
    one.sink("out", one.source("in", schema=CitySource(3).schema))
    two.sink("out", ro.merge(two.source("in", schema=CitySource(3).schema), two.source("city")).to(t.NoOp(), id="all"))
    both = {"in": subscription, "city": {"stream": "city", "messages": 5}}
    with Serving(tmp_path) as server:
        ada = {"dataflow": one.to_dict(), "sources": {"in": subscription}, "sinks": {}}
        server.answer({"do": "submit", "dataflows": [ada]})
        before = server.manager.canonical()
        with pytest.raises(
            ConfigError, match="can be read by one reader alone, but the source 'in' of 'bob' would"
        ) as e:
            server.answer({"do": "submit", "dataflows": [{"dataflow": two.to_dict(), "sources": both, "sinks": {}}]})
        assert "apart from the source 'in' of 'ada'" in str(e.value) and server.manager.canonical() == before


@pytest.mark.spark
@pytest.mark.integration
def test_queries_on_spark_over_a_subscription_become_one(spark, mosquitto, tmp_path):
    """What reads it now has ended before what goes on with it begins: a spool has one owner."""
    source = MQTTSource(
        url=mosquitto.url, topics=("one/#",), client_id="become one", spool=str(tmp_path / "spool"), messages=60
    )
    source.open()  # the session begins; Spark's own process continues it
    source.close()
    source = dataclasses.replace(source)

    def publish(*numbers):
        host, _, port = mosquitto.url.removeprefix("mqtt://").partition(":")
        multiple([("one/a", str(n).encode(), 1, False) for n in numbers], host, int(port))

    manager = ReuseManager(SparkBackend(spark, tmp_path / "back", partitions=2, join=False, tries=0))
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
    assert manager.backend.wait(90)
    assert manager.stats()["failed"] == {} and manager.stats()["restarts"] == {}
    for name, stream in (("ada", "in"), ("bob", "in2")):
        got = sinks[name].table(stream)["payload"].to_pylist()
        assert sorted(map(int, got)) == list(range(60))
    manager.close()


def test_what_is_wrapped_or_merged_uses_up_what_is_in_it(tmp_path):
    lines = CitySource(3).schema
    given = {"url": "memory://wrapped", "topics": ["a"], "client_id": "me"}
    chosen = made_source("s", {"mqtt": given}, lines, tmp_path)
    spool = f"the spool {chosen.source.spool}"
    assert paced(chosen, None, 5).consumed() == chosen.consumed() == {spool, "the session of 'me' at memory://wrapped"}
    assert CitySource(3).consumed() == frozenset()
    for merging in ("number", "sequence"):
        [both] = merged(ro.Dataflow("d", merging=merging), {"a": chosen, "b": CitySource(3)}).values()
        assert both.consumed() == chosen.consumed()
