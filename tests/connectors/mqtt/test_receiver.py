"""The receiver's thread: it sleeps while nothing arrives, and is woken by messages, a commit and the end."""

from __future__ import annotations

import time
import uuid

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt import source as mqtt_source
from riot_ops.connectors.mqtt.client import PahoLink
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.mqtt.subscription import FolderSubscriber, MemorySubscriber
from tests.connectors.mqtt.tools import until


def counted(monkeypatch, owner, name):
    """Count the calls of a method from now on."""
    calls, method = [0], getattr(owner, name)

    def count(*args, **options):
        calls[0] += 1
        return method(*args, **options)

    monkeypatch.setattr(owner, name, count)
    return calls


def publish(url, topic, *texts):
    session = t.PublishMQTT(url=url, topic=topic).session()
    session.push_many([{"payload": text} for text in texts])


@pytest.fixture(params=["memory", "file", pytest.param("mqtt", marks=pytest.mark.integration)])
def url(request, tmp_path):
    if request.param == "mqtt":
        return request.getfixturevalue("mosquitto").url
    return f"memory://{uuid.uuid4().hex}" if request.param == "memory" else f"file://{tmp_path}/broker"


@pytest.fixture
def source(url, tmp_path):
    name = uuid.uuid4().hex
    one = MQTTSource(url=url, topics=(f"{name}/#",), client_id=name, spool=str(tmp_path / "spool"))
    one.open()
    yield one
    one.close()


@pytest.mark.long
def test_idle_receiver_sleeps(url, source, monkeypatch):
    looks = {
        "memory": (MemorySubscriber, "receive", 3),
        "file": (FolderBroker, "changed_ns", 45),
        "mqtt": (PahoLink, "wait", 3),
    }
    owner, name, most = looks[url.split(":")[0]]
    calls = counted(monkeypatch, owner, name)
    time.sleep(1.0)
    assert calls[0] <= most
    publish(url, f"{source.client_id}/a", "1")
    until(lambda: source.latest({"seq": 0}) == {"seq": 1})


def test_settled_folder_is_not_listed(tmp_path, monkeypatch):
    broker = FolderBroker(f"file://{tmp_path}/broker")
    session = broker.session("me", ["#"])
    publish(f"file://{tmp_path}/broker", "a", "1")
    assert len(session.next()) == 1
    session.done()
    now = [time.time() + 10]
    monkeypatch.setattr(time, "time", lambda: now[0])
    assert session.next() == []  # the last change is old now
    listings = counted(monkeypatch, FolderBroker, "names_of")
    for _ in range(9):
        now[0] += 0.1
        assert session.next() == []
    assert listings[0] == 0
    now[0] += 0.2
    assert session.next() == []
    assert listings[0] == 1
    publish(f"file://{tmp_path}/broker", "a", "2")  # in a new file, so the folder has changed
    assert [m.payload for m in session.next()] == [b"2"]


@pytest.mark.long
def test_run_is_woken_by_messages(url, source, tmp_path):
    flow = ro.Dataflow("wake")
    flow.sink("sink", flow.source("in", schema=source.schema).to(t.NoOp(), id="out"))
    texts = [str(i) for i in range(30)]
    publish(url, f"{source.client_id}/a", *texts[:10])

    def follow(stream, batch):
        for seq in batch["seq"].to_pylist():
            if 9 <= seq < 29:  # each message causes the next
                publish(url, f"{source.client_id}/a", texts[seq + 1])

    ended = MQTTSource(
        url=url, topics=source.topics, client_id=source.client_id, spool=source.spool, messages=30, idle="30s"
    )
    source.close()
    result = flow.run(ended, sinks=ro.CallbackSink(follow))
    assert result.summary.messages == 30


@pytest.mark.long
def test_idle_time_ends_a_run(url, source):
    flow = ro.Dataflow("idle")
    flow.sink("sink", flow.source("in", schema=source.schema).to(t.NoOp(), id="out"))
    publish(url, f"{source.client_id}/a", "1", "2")
    ended = MQTTSource(url=url, topics=source.topics, client_id=source.client_id, spool=source.spool, idle="300ms")
    source.close()
    assert flow.run(ended)["out"].num_rows == 2


@pytest.mark.long
@pytest.mark.parametrize("url", ["memory", "file"], indirect=True)
def test_error_of_the_broker_ends_a_waiting_run(source, url, monkeypatch):
    def fail(self, seconds):
        raise ro.ConnectorError("the broker has left")

    flow = ro.Dataflow("fail")
    flow.sink("sink", flow.source("in", schema=source.schema).to(t.NoOp(), id="out"))
    publish(url, f"{source.client_id}/a", "1")

    def break_broker(stream, batch):
        monkeypatch.setattr(MemorySubscriber if url.startswith("memory") else FolderSubscriber, "receive", fail)
        publish(url, f"{source.client_id}/a", "2")

    with pytest.raises(ro.ConnectorError, match="has left"):
        flow.run(source, sinks=ro.CallbackSink(break_broker))


@pytest.mark.long
@pytest.mark.parametrize("url", ["memory", pytest.param("mqtt", marks=pytest.mark.integration)], indirect=True)
def test_full_spool_waits_for_a_commit(url, tmp_path, monkeypatch):
    name, n = uuid.uuid4().hex, 150
    small = MQTTSource(
        url=url, topics=(f"{name}/#",), client_id=name, spool=str(tmp_path / "small"), max_spool_bytes=4 << 20
    )
    small.open()
    try:
        publish(url, f"{name}/a", *["x" * 200_000] * n)  # 30 MB, more than the receiver may hold beside the spool
        until(lambda: small.latest({"seq": 0})["seq"] >= 20)
        time.sleep(0.5)
        calls = counted(
            monkeypatch, *((MemorySubscriber, "receive") if url.startswith("memory") else (PahoLink, "wait"))
        )
        time.sleep(1.0)
        assert calls[0] <= 4
        held = small.latest({"seq": 0})["seq"]
        assert held < n
        while held < n:
            small.commit({"seq": held})
            until(lambda at=held: small.latest({"seq": at})["seq"] > at)
            held = small.latest({"seq": held})["seq"]
    finally:
        small.close()


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_run_reads_recent_messages_from_memory(source, url, monkeypatch):
    flow = ro.Dataflow("memory")
    flow.sink("sink", flow.source("in", schema=source.schema).to(t.NoOp(), id="out"))
    texts = [str(i) for i in range(20)]
    publish(url, f"{source.client_id}/a", *texts)
    until(lambda: source.latest({"seq": 0}) == {"seq": 20})
    reads = counted(monkeypatch, mqtt_source, "read_messages")
    split = {"start": 3, "end": 20}
    [batch] = source.read(split)
    assert reads[0] == 0
    assert batch["payload"].to_pylist() == [text.encode() for text in texts[3:]]
    source.close()
    assert [b.equals(batch) for b in source.read(split)] == [True]  # now from disk
    assert reads[0] == 1
