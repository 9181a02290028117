"""The broker made of files: sessions, retained messages, restarts, source and publisher."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import ConfigError
from riot_ops import tasks as t
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.mqtt.memory import PublishedMessage
from riot_ops.connectors.mqtt.source import MQTTSource
from tests.connectors.mqtt.tools import until


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/brö ker".replace(" ", "%20")


def payloads(session):
    return [m.payload for m in session.next()]


def test_session_begins_with_retained_messages_and_persists(url):
    broker = FolderBroker(url)
    broker.publish(
        [PublishedMessage("a/x", b"old"), PublishedMessage("a/x", b"1", True), PublishedMessage("b", b"2", True)]
    )
    broker.publish([PublishedMessage("a/x", b"3", True), PublishedMessage("a/y", b"", True)])
    session = broker.session("ü/1", ["a/#"])
    assert payloads(session) == [b"3"] == payloads(session)  # again until done() is called
    broker.publish([PublishedMessage("a/z", b"4"), PublishedMessage("c", b"5")])
    session.done()
    assert payloads(broker.session("ü/1", ["a/#"])) == [b"4"]
    assert payloads(broker.session("other", ["c"])) == []


def test_source_receives_published_messages_over_a_restart(url, tmp_path):
    def source(messages):
        return MQTTSource(
            url=url, topics=("city/#",), client_id="reader", spool=str(tmp_path / "spool"), messages=messages
        )

    first = source(1)
    first.open()
    first.close()
    publish = t.PublishMQTT(url=url, topic="city/{sensor}", payload="value").session()
    publish.push_many([{"sensor": s, "value": v} for s, v in (("a", 1.5), ("ü", None), ("b", 2.5))])
    assert [e["reason"] for e in publish.errors] == ["no_payload"]
    again = source(2)
    flow = ro.Dataflow("read")
    flow.sink("out", flow.source("raw", schema=again.schema))
    found = flow.run(again)["raw"]
    assert found["payload"].to_pylist() == [b"1.5", b"2.5"]
    assert found["topic"].to_pylist() == ["city/a", "city/b"]


def test_damaged_file_is_named(url):
    broker = FolderBroker(url)
    broker.publish([PublishedMessage("a", b"1")])
    session = broker.session("me", ["#"])
    broker.publish([PublishedMessage("a", b"2")])
    (broker.folder / broker.names()[-1]).write_bytes(b"\xc1")
    with pytest.raises(ro.ConnectorError, match="cannot be read"):
        session.next()


@pytest.mark.parametrize("url", ["file://", "file:///", "file://host/folder", "file:///a?b"])
def test_invalid_urls_are_refused(url):
    with pytest.raises(ConfigError, match="url must be file:///"):
        t.PublishMQTT(url=url, topic="a")


@pytest.mark.parametrize("broker_url", ["memory", "folder"])
def test_shared_subscription_delivers_each_message_to_one_member(url, tmp_path, broker_url):
    url = url if broker_url == "folder" else f"memory://{tmp_path.name}"
    topics = {"a": ["$share/g/x/#"], "b": ["$share/g/x/#", "y"], "all": ["x/#", "$share/g2/x/#"]}
    sources = {
        name: MQTTSource(url=url, topics=topics[name], client_id=name, spool=str(tmp_path / name)) for name in topics
    }
    for source in sources.values():
        source.open()
    publish = t.PublishMQTT(url=url, topic="{k}", payload="p").session()
    for i in range(6):
        publish.push({"k": f"x/{i}", "p": "1"})
    publish.push({"k": "y", "p": "1"})

    def received(name):
        start = sources[name].initial()
        splits = sources[name].splits(start, sources[name].latest(start), 1)
        return [topic for split in splits for b in sources[name].read(split) for topic in b["topic"].to_pylist()]

    wanted = sorted([*(f"x/{i}" for i in range(6)), "y"])
    until(lambda: sorted(received("a") + received("b")) == wanted and len(received("all")) == 6, 10)
    assert "y" in received("b")
    for source in sources.values():
        source.close()
