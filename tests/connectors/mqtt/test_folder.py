"""The broker made of files: sessions, retained messages, restarts, source and publisher."""

from __future__ import annotations

import os
import time

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


@pytest.mark.long
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


def test_poll_lists_only_parts_that_may_have_changed(url, monkeypatch):
    broker, hour = FolderBroker(url), 3600 * 10**9
    now = time.time_ns()
    for i in range(200):
        with monkeypatch.context() as at:
            at.setattr(time, "time_ns", lambda i=i: now - (i + 1) * hour)
            broker.publish([PublishedMessage("a", b"%d" % i)])
    for part in broker.parts():
        os.utime(broker.folder / part, ns=(now - hour, now - hour))
    session = broker.session("me", ["a"])
    assert payloads(session) == []  # lists everything once
    listed = []
    names_of = broker.names_of
    monkeypatch.setattr(broker, "names_of", lambda part: listed.append(part) or names_of(part))
    for i in range(5):
        broker.publish([PublishedMessage("a", b"new %d" % i)])
        assert payloads(session) == [b"new %d" % i]
        session.done()
    assert len(set(listed)) <= 2 and len(listed) <= 10  # the steps of 10 s in which the messages were published


def test_message_in_a_quiet_part_arrives_with_the_next_visit(url, monkeypatch):
    broker, now = FolderBroker(url), time.time_ns()
    old = now - 3600 * 10**9

    def publish_late(payload):
        with monkeypatch.context() as at:
            at.setattr(time, "time_ns", lambda: old)
            broker.publish([PublishedMessage("a", payload)])

    publish_late(b"1")
    (part,) = broker.parts()
    os.utime(broker.folder / part, ns=(old, old))
    session = broker.session("me", ["a"])
    assert payloads(session) == []
    publish_late(b"2")
    later = time.time() + 2
    monkeypatch.setattr(time, "time", lambda: later)
    assert payloads(session) == [b"2"]


def test_acknowledgement_appends_to_the_session_file(url, monkeypatch):
    broker = FolderBroker(url)
    for i in range(100):
        broker.publish([PublishedMessage("a", b"%d" % i)])
    session = broker.session("me", ["a"])
    (file,) = (broker.folder / "sessions").iterdir()
    begun, before = file.stat().st_ino, file.read_bytes()
    broker.publish([PublishedMessage("a", b"new")])
    assert payloads(session) == [b"new"]
    session.done()
    assert file.stat().st_ino == begun  # not replaced
    assert file.read_bytes() == before + f"{broker.names()[-1]}\n".encode()


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_partly_written_acknowledgement_is_delivered_again(url, kept):
    broker = FolderBroker(url)
    session = broker.session("me", ["a"])
    (file,) = (broker.folder / "sessions").iterdir()
    broker.publish([PublishedMessage("a", b"1")])
    assert payloads(session) == [b"1"]
    session.done()
    file.write_bytes(file.read_bytes()[:kept])
    again = broker.session("me", ["a"])
    assert payloads(again) == [b"1"]
    again.done()
    assert payloads(broker.session("me", ["a"])) == []


def test_session_outlives_the_deletion_of_its_folder(url):
    broker = FolderBroker(url)
    session = broker.session("me", ["a"])
    broker.publish([PublishedMessage("a", b"1")])
    assert payloads(session) == [b"1"]
    for file in [*broker.folder.glob("sessions/*"), *(broker.folder / name for name in broker.names())]:
        file.unlink()
    assert payloads(session) == []
    broker.publish([PublishedMessage("a", b"2")])
    assert payloads(session) == [b"2"]
    session.done()
    assert payloads(broker.session("me", ["a"])) == []


def test_files_without_messages_for_a_session_are_read_once(url, monkeypatch):
    broker = FolderBroker(url)
    session = broker.session("me", ["a"])
    read, files = broker.read, []
    monkeypatch.setattr(broker, "read", lambda name: files.append(name) or read(name))
    broker.publish([PublishedMessage("b", b"1")])
    assert payloads(session) == payloads(session) == []
    broker.publish([PublishedMessage("a", b"2")])
    assert payloads(session) == payloads(session) == [b"2"]  # again until done() is called
    session.done()
    first, second = broker.names()
    assert files == [first, second, second]
    assert payloads(broker.session("me", ["a"])) == []
    assert files == [first, second, second]
