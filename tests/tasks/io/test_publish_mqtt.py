"""Publishing to a Mosquitto broker."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import pickle
import random
import subprocess
import sys
import threading
import time
import uuid
from datetime import timedelta

import pyarrow as pa
import pytest

from riot_ops import ConfigError, ConnectorError, Dataflow, Secret
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSink
from riot_ops.connectors.mqtt.client import PASSWORD as PASSWORD_VARIABLE
from riot_ops.connectors.mqtt.client import USERNAME as USERNAME_VARIABLE
from riot_ops.connectors.mqtt.client import MQTTConnection, PahoLink
from riot_ops.connectors.mqtt.memory import MemoryBroker
from riot_ops.connectors.mqtt.publisher import open_publisher
from riot_ops.task import Task
from riot_ops.testing.services import Mosquitto, free_port
from tests.connectors.conftest import PASSWORD, write_certificates
from tests.connectors.mqtt.tools import Listener, Wire, apply, records, until

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _no_login(monkeypatch):
    monkeypatch.delenv(USERNAME_VARIABLE, raising=False)
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)


# -- delivery --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_messages_are_delivered_in_order(mosquitto, qos, protocol):
    topic = f"order/{qos}/{protocol}"
    with Listener(mosquitto.url, topic, qos=2) as listener:
        task = t.PublishMQTT(url=mosquitto.url, topic=topic, qos=qos, protocol=protocol, max_in_flight=7)
        batch = records(500)
        out, rejects = apply(task, batch)
        assert out.equals(batch) and rejects == []
        assert [m.payload for m in listener.wait(500)] == batch["payload"].to_pylist()
        assert {m.qos for m in listener.messages} == {qos}


def test_empty_batch_opens_no_connection():
    task = t.PublishMQTT(url=f"mqtt://127.0.0.1:{free_port()}", topic="a", timeout="500ms")
    out, rejects = apply(task, records(0))
    assert out.num_rows == 0 and rejects == []


def test_topics_are_rendered_from_fields(mosquitto):
    batch = pa.RecordBatch.from_pydict(
        {"sensor": ["zürich/🌡", "b", "c+", "#", "", None, "x\0"], "n": [1, 2, 3, 4, 5, 6, 7], "payload": ["grün"] * 7}
    )
    with Listener(mosquitto.url, "uni/#") as listener:
        out, rejects = apply(t.PublishMQTT(url=mosquitto.url, topic="uni/{sensor}/{n}"), batch)
        assert [(m.topic, m.payload.decode()) for m in listener.wait(3)] == [
            ("uni/zürich/🌡/1", "grün"),
            ("uni/b/2", "grün"),
            ("uni//5", "grün"),
        ]
    assert out["n"].to_pylist() == [1, 2, 5]
    assert [d["reason"] for d in rejects] == ["bad_topic"] * 4


def test_payloads_are_text_bytes_or_json(mosquitto):
    when = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
    batch = pa.RecordBatch.from_pydict(
        {"id": ["ü", None], "value": [1.5, float("nan")], "when": [when, None], "raw": [b"\x00\xff", None]}
    )
    base = t.PublishMQTT(url=mosquitto.url, topic="payloads", payload=None)
    with Listener(mosquitto.url, "payloads") as listener:
        apply(base.replace(fields=("id", "value", "when")), batch)
        apply(base.replace(payload="raw"), batch)
        out, rejects = apply(base.replace(payload="value"), batch)
        found = [m.payload for m in listener.wait(5)]
    assert json.loads(found[0]) == {"id": "ü", "value": 1.5, "when": "2024-05-06T07:08:09.123456Z"}
    assert json.loads(found[1]) == {"id": None, "value": None, "when": None}
    assert found[2:] == [b"\x00\xff", b"1.5", b"null"]
    assert out.num_rows == 2 and rejects == []
    _, rejects = apply(base.replace(payload="id"), batch)
    assert [d["reason"] for d in rejects] == ["no_payload"]


@pytest.mark.parametrize(
    ("columns", "sent"),
    [
        ((), [{"word": "a"}, {"word": "b"}]),
        (("word", "ordinal"), [{"word": w, "ordinal": i} for i, w in enumerate("ab")]),
    ],
)
def test_ordinals_are_sent_if_asked_for(columns, sent):
    url = f"memory://{uuid.uuid4().hex}"
    session = MemoryBroker.of(url).session("me", ["#"])
    flow = Dataflow("f")
    words = flow.source("lines", schema={"payload": "string"}).to(t.Tokenize(), id="words")
    publish = t.PublishMQTT(url=url, topic="w", payload=None, fields=columns)
    flow.sink("out", words.to(t.Project(fields=("word",)), id="bare").to(publish, id="sent"))
    flow.run([{"payload": "a b"}])
    found = [json.loads(message.payload) for message in session]
    assert [{k: v for k, v in one.items() if k not in ("seq", "event_time")} for one in found] == sent


def test_messages_may_have_a_megabyte(mosquitto):
    data = os.urandom(1 << 20)
    with Listener(mosquitto.url, "large") as listener:
        apply(t.PublishMQTT(url=mosquitto.url, topic="large"), pa.RecordBatch.from_pydict({"payload": [data] * 3}))
        assert [m.payload for m in listener.wait(3)] == [data] * 3


def test_messages_can_be_retained_and_expire(mosquitto):
    publish = t.PublishMQTT(url=mosquitto.url, topic="kept/{k}", retain=True)
    batch = pa.RecordBatch.from_pydict({"k": ["a", "b"], "payload": ["1", "2"]})
    apply(publish, batch)
    apply(publish.replace(retain=False, topic="gone/{k}"), batch)
    with Listener(mosquitto.url, "kept/#") as listener:
        assert sorted((m.payload, m.retain) for m in listener.wait(2)) == [(b"1", True), (b"2", True)]
    apply(
        publish, pa.RecordBatch.from_pydict({"k": ["a", "b"], "payload": ["", ""]})
    )  # an empty message removes a retained one
    apply(publish.replace(expiry="1s"), pa.RecordBatch.from_pydict({"k": ["c"], "payload": ["3"]}))
    apply(publish.replace(expiry="1h"), pa.RecordBatch.from_pydict({"k": ["d"], "payload": ["4"]}))
    time.sleep(2.1)
    with Listener(mosquitto.url, "kept/#") as listener:
        [message] = listener.wait(1)
        assert message.payload == b"4" and message.properties.MessageExpiryInterval < 3600
    apply(publish, pa.RecordBatch.from_pydict({"k": ["d"], "payload": [""]}))


def test_user_properties_are_sent(mosquitto):
    batch = pa.RecordBatch.from_pydict({"seq": [7, 8], "name": ["ä", None], "payload": ["x", "y"]})
    with Listener(mosquitto.url, "user") as listener:
        apply(t.PublishMQTT(url=mosquitto.url, topic="user", user_properties=("seq", "name")), batch)
        found = [m.properties.UserProperty for m in listener.wait(2)]
    assert found == [[("seq", "7"), ("name", "ä")], [("seq", "8")]]


# -- connections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["url", "ws", "tls", "wss"])
def test_all_transports_work(secured, certificates, transport):
    login = {"username": secured.user, "password": Secret(PASSWORD)}
    ca = {"ca_file": str(certificates / "ca.crt")} if transport in ("tls", "wss") else {}
    task = t.PublishMQTT(url=getattr(secured, transport), topic="transports", **login, **ca)
    batch = pa.RecordBatch.from_pydict({"payload": [b"s", b"x" * 300_000]})
    out, rejects = apply(task, batch)
    assert out.num_rows == 2 and rejects == []
    apply(task, records(300))  # more than max_in_flight


def test_login_is_read_from_the_environment(secured, monkeypatch):
    task = t.PublishMQTT(url=secured.url, topic="env", timeout="5s")
    monkeypatch.setenv(USERNAME_VARIABLE, secured.user)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    apply(task, records(1))
    open_publisher(task.connection).close()
    monkeypatch.setenv("OTHER_NAME", PASSWORD)
    monkeypatch.delenv(PASSWORD_VARIABLE)
    apply(task.replace(password=Secret.env("OTHER_NAME")), records(1))
    with pytest.raises(ConfigError, match="NOT_SET_AT_ALL"):
        apply(task.replace(password=Secret.env("NOT_SET_AT_ALL")), records(1))


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize("password", [None, "wrong-one"])
def test_wrong_password_fails_at_once(secured, protocol, password):
    given = {"username": secured.user, "password": Secret(password)} if password else {}
    task = t.PublishMQTT(url=secured.url, topic="a", protocol=protocol, **given)
    start = time.monotonic()
    with pytest.raises(ConnectorError, match="refuses the login") as caught:
        apply(task, records(1))
    assert time.monotonic() - start < 5 and not caught.value.retryable
    assert "wrong-one" not in str(caught.value) and "127.0.0.1" in str(caught.value)


def test_wrong_certificates_are_refused(secured, certificates, tmp_path):
    def attempt(url, timeout="5s", **more):
        with pytest.raises(ConnectorError) as caught:
            apply(t.PublishMQTT(url=url, topic="a", timeout=timeout, username="u", **more), records(1))
        return caught.value

    assert "ca_file" in str(attempt(secured.tls)) and "certificate" in str(attempt(secured.tls))
    other = write_certificates(tmp_path / "other")
    assert "not accepted" in str(attempt(secured.tls, ca_file=str(other / "ca.crt")))
    assert "cannot be used" in str(attempt(secured.tls, ca_file=str(tmp_path / "none.crt")))
    (tmp_path / "empty.crt").write_text("no certificate")
    assert "cannot be used" in str(attempt(secured.tls, ca_file=str(tmp_path / "empty.crt")))
    expired = write_certificates(tmp_path / "expired", days=-1)
    with Mosquitto(certificates=expired) as broker:
        for url in (broker.tls, broker.wss):
            error = attempt(url, ca_file=str(expired / "ca.crt"))
            assert "expired" in str(error) and not error.retryable
    error = attempt(secured.url.replace("mqtt:", "mqtts:").replace("127.0.0.1", "localhost"), timeout="500ms")
    assert "TLS" in str(error) or "cannot be reached" in str(error)


def test_unreachable_broker_fails_after_the_timeout():
    for url, text, seconds in (
        (f"mqtt://127.0.0.1:{free_port()}", "refuses connections", 1.0),
        ("mqtt://no.such.host.invalid", "unknown", 30.0),
    ):
        start = time.monotonic()
        with pytest.raises(ConnectorError, match=text):
            apply(t.PublishMQTT(url=url, topic="a", timeout=timedelta(seconds=seconds)), records(1))
        assert time.monotonic() - start < 15


def test_silent_server_fails_after_the_timeout():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectorError, match="does not answer"):
            apply(t.PublishMQTT(url=url, topic="a", timeout="1s"), records(1))


# -- failures --------------------------------------------------------------------------------------


def test_no_message_is_lost_when_the_broker_restarts(own_mosquitto):
    """The broker is restarted during a batch, and between batches."""
    broker, n = own_mosquitto, 3000
    with Listener(broker.url, "trouble", qos=2) as listener:
        task = t.PublishMQTT(url=broker.url, topic="trouble", qos=1, timeout="30s")
        outcome = {}

        def work():
            outcome["result"] = apply(task, records(n))

        worker = threading.Thread(target=work)
        worker.start()
        until(lambda: len(listener.messages) > n // 5)
        broker.stop()
        time.sleep(0.3)
        broker.start()
        worker.join(60)
        out, rejects = outcome["result"]
        assert out.num_rows == n and rejects == []
        until(lambda: len({m.payload for m in listener.messages}) == n)
        repeated = len(listener.messages) - n
        # messages without an acknowledgement are sent again, to the broker and by the broker
        assert repeated <= 4 * task.max_in_flight, f"{repeated} duplicates"
        broker.stop()
        broker.start()
        apply(task, records(10, "after"))  # the lost connection is detected before the batch
        until(lambda: len({m.payload for m in listener.messages}) == n + 10)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [1, 2])
def test_no_message_is_lost_when_connections_break(mosquitto, short_pauses, qos, protocol):
    """With QoS 2 and a session, each message is delivered exactly once."""
    n, topic = 1500, f"cuts/{qos}/{protocol}"
    wire, rng = Wire(mosquitto.url), random.Random(qos)
    with Listener(mosquitto.url, topic, qos=2) as listener:
        task = t.PublishMQTT(url=wire.url, topic=topic, qos=qos, protocol=protocol, max_in_flight=50, timeout="30s")
        outcome = {}

        def work():
            outcome["result"] = apply(task, records(n))

        worker = threading.Thread(target=work)
        worker.start()
        while worker.is_alive() and wire.cuts < 8:
            before = wire.bytes
            until(lambda: wire.bytes > before + rng.randrange(2000, 9000) or not worker.is_alive())  # noqa: B023
            wire.cut()
        worker.join(60)
        assert outcome["result"][0].num_rows == n and wire.cuts >= 3
        until(lambda: len({m.payload for m in listener.messages}) == n)
        time.sleep(0.2)
        repeated = len(listener.messages) - n
        assert repeated == 0 if (qos, protocol) == (2, "5") else repeated <= wire.cuts * task.max_in_flight
    wire.close()


def test_stopped_broker_fails_the_batch(own_mosquitto):
    task = t.PublishMQTT(url=own_mosquitto.url, topic="a", timeout="1.5s")
    apply(task, records(10))
    own_mosquitto.kill()
    start = time.monotonic()
    with pytest.raises(ConnectorError) as caught:
        apply(task, records(10))
    assert caught.value.retryable and time.monotonic() - start < 10
    own_mosquitto.start()
    with Listener(own_mosquitto.url, "a") as listener:
        apply(task, records(3, "again"))  # none of the failed batch's messages is left
        assert [m.payload for m in listener.wait(3)] == [b"again0", b"again1", b"again2"]


def test_missing_acknowledgement_fails_the_batch(mosquitto):
    """The timeout counts from the last acknowledgement."""
    task = t.PublishMQTT(url=mosquitto.url, topic="a", timeout="700ms")
    apply(task, records(1))
    link = open_publisher(task.connection)._link
    link.client.on_publish = lambda *_: None
    start = time.monotonic()
    with pytest.raises(ConnectorError, match=r"acknowledged nothing for 0.7 s; 3 messages wait"):
        apply(task, records(3))
    assert 0.5 < time.monotonic() - start < 5
    apply(task, records(3))


def test_refused_messages_are_rejected_alone(tmp_path):
    """A record for a topic that the user may not publish to, or of a size above the limit, is rejected."""
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite open/#\n")
    batch = pa.RecordBatch.from_pydict({"k": ["open/a", "closed/b", "open/c"], "payload": ["1", "2", "x" * 6000]})
    with Mosquitto(options=(f"acl_file {rules}", "max_packet_size 5000")) as broker:
        for qos in (1, 2):
            with Listener(broker.url, "open/#") as listener:
                out, rejects = apply(t.PublishMQTT(url=broker.url, topic="{k}", qos=qos), batch)
                assert out["k"].to_pylist() == ["open/a"]
                assert sorted((d["reason"], "Not authorized" in d["message"]) for d in rejects) == [
                    ("refused", True),
                    ("too_large", False),
                ]
                assert len(listener.wait(1)) == 1


def test_threads_share_a_connection(mosquitto):
    task = t.PublishMQTT(url=mosquitto.url, topic="threads", max_in_flight=10)
    with Listener(mosquitto.url, "threads") as listener:
        threads = [threading.Thread(target=apply, args=(task, records(200, f"{i}-"))) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({m.payload for m in listener.wait(800)}) == 800
    assert open_publisher(task.connection) is open_publisher(task.replace(topic="other").connection)


def test_interrupted_batch_leaves_no_messages(mosquitto):
    """After an interruption in the middle of a batch, the next batch is published in full."""
    task = t.PublishMQTT(url=mosquitto.url, topic="interrupted")
    apply(task, records(1))
    link = open_publisher(task.connection)._link

    def interrupt(*_):
        raise KeyboardInterrupt

    link.client.on_publish = interrupt
    with pytest.raises(KeyboardInterrupt):
        apply(task, records(100))
    with Listener(mosquitto.url, "interrupted") as listener:
        apply(task, records(5, "new"))
        assert [m.payload for m in listener.wait(5)][-5:] == records(5, "new")["payload"].to_pylist()


# -- secrets and parameters ------------------------------------------------------------------------


def test_password_appears_in_no_text(secured, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    task = t.PublishMQTT(url=secured.url, topic="a", username=secured.user, password=Secret(PASSWORD))
    apply(task, records(2))
    texts = [
        repr(task),
        json.dumps(task.to_dict()),
        repr(task.connection),
        repr(vars(task)),
        caplog.text,
        *capfd.readouterr(),
    ]
    texts.append(repr(vars(open_publisher(task.connection))))
    assert all(PASSWORD not in text for text in texts)
    assert "password" not in task.to_dict()
    named = task.replace(password=Secret.env("BROKER_PASSWORD"))
    assert named.to_dict()["password"] == {"env": "BROKER_PASSWORD"} and Task.from_dict(named.to_dict()) == named
    assert PASSWORD.encode() not in pickle.dumps(named)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"url": "mqtt://me:hunter2@host"}, "must not hold user or password"),
        ({"url": "mqtt://me:hunter2@host:99999999"}, "url"),
        ({"url": "http://host"}, "url must be mqtt://"),
        ({"url": "mqtt://"}, "url must be"),
        ({"url": "mqtt://host/path"}, "url"),
        ({"url": "mqtt://host?x=hunter2"}, "url"),
        ({"ca_file": "ca.crt"}, "ca_file"),
        ({"topic": "a/#"}, "topic"),
        ({"topic": "a/+/b"}, "topic"),
        ({"topic": ""}, "empty"),
        ({"topic": "a/{b"}, "template"),
        ({"qos": 3}, "qos"),
        ({"expiry": "0s"}, "expiry must be a whole number of seconds"),
        ({"expiry": 5}, "expiry = 5: must be a timedelta or a text such as"),
        ({"expiry": "5s", "protocol": "3.1.1"}, "protocol"),
        ({"user_properties": ("a",), "protocol": "3.1.1"}, "protocol"),
        ({"protocol": "4"}, "protocol"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_in_flight": 70_000}, "max_in_flight"),
        ({"timeout": "0s"}, "timeout must be > 0"),
        ({"timeout": 5}, "timeout = 5: must be a timedelta or a text such as"),
        ({"keepalive": "500ms"}, "keepalive must be a whole number of seconds"),
        ({"keepalive": "1d"}, "keepalive must be a whole number of seconds from .1s. to .65535s., got .86400s."),
        ({"client_id": ""}, "client_id"),
        ({"fields": ("a",)}, "payload=None"),
        ({"password": "hunter2"}, "password must be a Secret"),
    ],
)
def test_wrong_parameters_are_refused(parameters, text):
    with pytest.raises(ConfigError, match=text) as caught:
        t.PublishMQTT(**{"url": "mqtt://host", "topic": "a", **parameters})
    assert "hunter2" not in str(caught.value) or "?x" in str(parameters)


def test_missing_paho_names_the_extra():
    code = (
        "import sys\n"
        "sys.modules['paho'] = sys.modules['paho.mqtt'] = None\n"
        "import pyarrow as pa, riot_ops as ro\n"
        "task = ro.tasks.PublishMQTT(url='mqtt://127.0.0.1', topic='a')\n"
        "try:\n"
        "    task.session().push({'payload': 'x'})\n"
        "except ro.MissingExtraError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "MQTT needs an optional dependency: pip install 'riot-ops[mqtt]'", done.stderr


def test_incompatible_paho_is_refused(monkeypatch):
    """The connector overrides methods of paho, which must exist."""
    from riot_ops.connectors.mqtt import buffered_client as mqtt

    with pytest.raises(ConnectorError, match="_no_such_method"):
        mqtt.client_subclass("X", {"_no_such_method": None})
    assert PahoLink(MQTTConnection(url="mqtt://host"), "a", 0).client is not None


# -- sink ------------------------------------------------------------------------------------------


def test_sink_publishes_records_of_all_streams(mosquitto):
    flow = Dataflow("f")
    raw = flow.source("in", schema={"value": "double"})
    flow.sink("out", raw.to(t.KalmanFilter(), id="smooth"), raw)
    with Listener(mosquitto.url, "sink/#") as listener:
        flow.run([{"value": 1.0}, {"value": 2.0}], sinks=MQTTSink(url=mosquitto.url, topic="sink/{stream}/{seq}"))
        found = {m.topic: json.loads(m.payload) for m in listener.wait(4)}
    assert set(found) == {"sink/smooth/0", "sink/smooth/1", "sink/in/0", "sink/in/1"}
    assert found["sink/in/1"] == {"seq": 1, "value": 2.0}
    assert pickle.loads(pickle.dumps(MQTTSink(url=mosquitto.url, topic="a"))) == MQTTSink(url=mosquitto.url, topic="a")


def test_sink_fails_for_records_it_cannot_publish(mosquitto):
    sink = MQTTSink(url=mosquitto.url, topic="sink/{name}")
    batch = pa.RecordBatch.from_pydict({"name": ["a", "b#"]})
    with pytest.raises(ConnectorError, match="1 records of the stream 'x' cannot be published"):
        sink.writer(0, 0).write("x", batch)
    with pytest.raises(ConfigError, match="'name'"):
        sink.writer(0, 0).write("x", batch.rename_columns(["other"]))
