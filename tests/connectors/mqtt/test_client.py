"""The CONNECT packet of a connection, byte by byte: keep-alive and session; certificates, wills, and what is logged."""

from __future__ import annotations

import logging
import re
import socket
import struct
import threading
import time

import pytest
from cryptography.hazmat.primitives import serialization

from riot_ops import ConfigError, ConnectorError, Secret
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt.client import MQTTConnection, PahoLink
from riot_ops.testing.services import Mosquitto
from tests.connectors.conftest import write_certificates
from tests.connectors.mqtt.tools import Listener, Wire, until

pytest.importorskip("paho.mqtt.client")


def first_packet(session_s, **options):
    """Read the CONNECT packet at a server that then closes: ``(flags, keepalive, properties, client id)``."""
    received = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen():
            peer, _ = server.accept()
            with peer:
                peer.settimeout(5)
                received.append(peer.recv(4096))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        url = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        link = PahoLink(MQTTConnection(url=url, timeout="200ms", **options), "ü-7", session_s)
        with pytest.raises(ConnectorError):
            link.open()
        link.drop()
        thread.join(5)
    packet = received[0]
    assert packet[0] == 0x10 and packet[1] == len(packet) - 2 < 128
    assert packet[2:8] == b"\x00\x04MQTT"
    assert packet[8] == int(options.get("protocol", "5")[0].replace("3", "4"))
    flags, keepalive = struct.unpack(">BH", packet[9:12])
    rest, properties = packet[12:], {}
    if packet[8] == 5:
        encoded, rest = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
        sizes = {0x11: ">I", 0x21: ">H"}
        while encoded:
            size = struct.calcsize(sizes[encoded[0]])
            properties[encoded[0]] = struct.unpack(sizes[encoded[0]], encoded[1 : 1 + size])[0]
            encoded = encoded[1 + size :]
    return flags, keepalive, properties, rest[2 : 2 + rest[1]].decode()


@pytest.mark.long
@pytest.mark.parametrize(
    ("session_s", "options", "wanted"),
    [
        (0, {}, (0b10, 60, {0x11: 0, 0x21: 100}, "ü-7")),
        (3600, {"keepalive": "7s", "max_in_flight": 9}, (0, 7, {0x11: 3600, 0x21: 9}, "ü-7")),
        (0, {"protocol": "3.1.1", "keepalive": "5min"}, (0b10, 300, {}, "ü-7")),
        (3600, {"protocol": "3.1.1"}, (0, 60, {}, "ü-7")),
    ],
)
def test_connect_packet(session_s, options, wanted):
    """Bit 1 of the flags is clean start; property 0x11 is the session expiry, 0x21 the receive maximum."""
    assert first_packet(session_s, **options) == wanted


@pytest.mark.integration
def test_connections_are_logged_without_secrets(mosquitto, tmp_path, caplog):
    caplog.set_level(logging.INFO, "riot_ops")
    wire = Wire(mosquitto.url)
    source = MQTTSource(
        url=wire.url, topics=("logged/#",), client_id="lögged", spool=str(tmp_path / "spool"), username="riot-user",
        password=Secret("riot-secret"),
    )  # fmt: skip
    source.open()
    try:
        for cuts in range(3):
            wire.cut()
            t.PublishMQTT(url=mosquitto.url, topic=f"logged/{cuts}").session().push({"payload": "1"})
            until(lambda n=cuts + 1: source.latest({"seq": 0})["seq"] >= n)
    finally:
        source.close()
        wire.close()
    lines = [r.getMessage() for r in caplog.records if "lögged" in r.getMessage() and r.levelno == logging.INFO]
    assert lines[0] == f"connected to the MQTT broker {wire.url} as 'lögged'"
    assert re.fullmatch(
        f"connected again to the MQTT broker {wire.url} as 'lögged', [0-9.]+ s after the connection was lost",
        lines[1],
    )
    assert len(lines) == 2  # at most one in 10 s
    assert "riot-secret" not in caplog.text and "riot-user" not in caplog.text


# -- certificates of clients ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def certified(certificates):
    """A broker that takes clients with a certificate of its authority only."""
    with Mosquitto(certificates=certificates, client_certificates=True) as broker:
        yield broker


def connect(url, **options):
    """Publish a message; return the error."""
    try:
        t.PublishMQTT(url=url, topic="certified", timeout="3s", **options).session().push({"payload": "1"})
    except ConnectorError as error:
        return str(error)
    return None


@pytest.mark.integration
@pytest.mark.parametrize("transport", ["tls", "wss"])
def test_client_certificate_opens_the_connection(certified, certificates, tmp_path, transport):
    url, ca = getattr(certified, transport), str(certificates / "ca.crt")
    pair = {"certificate": str(certificates / "server.crt"), "private_key": str(certificates / "server.key")}
    assert connect(url, ca_file=ca, **pair) is None
    both = tmp_path / "both.pem"
    both.write_bytes((certificates / "server.crt").read_bytes() + (certificates / "server.key").read_bytes())
    with_certificate = {"ca_file": ca, "certificate": str(both)}
    assert connect(url, **with_certificate) is None
    source = MQTTSource(
        url=url, topics=("certified",), client_id=f"certified-{transport}", spool=str(tmp_path / "spool"),
        **with_certificate,
    )  # fmt: skip
    source.open()
    try:
        assert connect(url, **with_certificate) is None
        until(lambda: source.latest({"seq": 0}) == {"seq": 1})
    finally:
        source.close()


@pytest.mark.integration
def test_client_without_an_accepted_certificate_is_refused(certified, certificates, tmp_path):
    ca = str(certificates / "ca.crt")
    assert "want a certificate" in connect(certified.tls, ca_file=ca)
    other = write_certificates(tmp_path / "other")
    pair = {"certificate": str(other / "server.crt"), "private_key": str(other / "server.key")}
    assert "accept the certificate" in connect(certified.tls, ca_file=ca, **pair)


def test_unusable_certificate_and_key_are_named(certificates, tmp_path):
    key = serialization.load_pem_private_key((certificates / "server.key").read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"pass-never-shown"),
        )
    )
    (tmp_path / "empty").touch()
    other = write_certificates(tmp_path / "other") / "server.key"
    good = certificates / "server.crt"
    for certificate, file in (
        (tmp_path / "none", None),
        (tmp_path / "empty", None),
        (good, None),  # which has no key
        (good, tmp_path / "none"),
        (good, tmp_path / "empty"),
        (good, other),
        (good, locked),  # without asking for the passphrase on the terminal
    ):
        error = connect(
            "mqtts://localhost:1", certificate=str(certificate), private_key=None if file is None else str(file)
        )
        assert f"the certificate and key in {certificate}{f' and {file}' if file else ''} cannot be used: " in error
        assert "pass-never-shown" not in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "mqtt://h", "certificate": "a"}, "certificate is for mqtts:// and wss://"),
        ({"url": "memory://h", "certificate": "a"}, "certificate is for mqtts:// and wss://"),
        ({"url": "mqtt://h", "certificate": "a", "private_key": "b"}, "certificate is for"),
        ({"url": "mqtts://h", "private_key": "b"}, "private_key = 'b' needs certificate"),
        ({"url": "mqtt://h", "will_payload": "x"}, "will_payload = 'x' needs will_topic"),
        ({"url": "mqtt://h", "will_qos": 2}, "will_qos = 2 needs will_topic"),
        ({"url": "mqtt://h", "will_retain": True}, "will_retain = True needs will_topic"),
        ({"url": "memory://h", "will_topic": "a"}, "will_topic is for brokers with connections"),
        ({"url": "mqtt://h", "will_topic": ""}, "will_topic must be the name of a topic"),
        ({"url": "mqtt://h", "will_topic": "a/+"}, "will_topic must be the name of a topic"),
        ({"url": "mqtt://h", "will_topic": "a" * 65_536}, "will_topic must be the name of a topic"),
        ({"url": "mqtt://h", "will_topic": "a", "will_payload": "ä" * 32_768}, "will_payload must have at most"),
        ({"url": "mqtt://h", "will_topic": "a", "will_qos": 3}, "will_qos"),
    ],
)
def test_wrong_certificate_and_will_are_refused_by_name(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        MQTTConnection(**options)


# -- wills ---------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_will_is_published_for_a_lost_connection_only(mosquitto, tmp_path, protocol):
    topic = f"will/{protocol}"
    options = {"will_topic": topic, "will_payload": "gön", "will_qos": 2, "will_retain": True, "protocol": protocol}
    with Listener(mosquitto.url, "will/#", qos=2) as listener:
        wire = Wire(mosquitto.url)
        source = MQTTSource(
            url=mosquitto.url, topics=("none",), client_id=f"will-{protocol}", spool=str(tmp_path / "a"), **options
        )
        source.open()
        source.close()  # in order
        lost = MQTTSource(
            url=wire.url, topics=("none",), client_id=f"lost-{protocol}", spool=str(tmp_path / "b"), **options
        )
        lost.open()
        assert not listener.messages
        wire.cut()
        [will] = listener.wait(1)
        assert (will.topic, will.payload, will.qos) == (topic, "gön".encode(), 2)
        lost.close()
        wire.close()
    with Listener(mosquitto.url, topic) as later:
        assert later.wait(1)[0].retain
    t.PublishMQTT(url=mosquitto.url, topic=topic, retain=True).session().push({"payload": ""})  # removes it


# -- retained messages ---------------------------------------------------------------------------


@pytest.mark.integration
def test_retained_message_is_a_record_of_the_first_subscription(mosquitto, tmp_path):
    publish = t.PublishMQTT(url=mosquitto.url, topic="{k}", retain=True).session()
    publish.push_many([{"k": f"kept/{i % 2}", "payload": f"{i}"} for i in range(4)])

    def opened(*topics):
        source = MQTTSource(url=mosquitto.url, topics=topics, client_id="kept", spool=str(tmp_path / "spool"))
        source.open()
        return source

    def received(source, n):
        until(lambda: source.latest({"seq": 0})["seq"] >= n)
        time.sleep(0.2)
        end = source.latest({"seq": 0})
        return [
            (row["topic"], row["payload"])
            for split in source.splits({"seq": 0}, end, 1) for batch in source.read(split) for row in batch.to_pylist()
        ]  # fmt: skip

    source = opened("kept/0")
    assert received(source, 1) == [("kept/0", b"2")]  # the last one of each topic
    source.close()
    source = opened("kept/0", "kept/1")  # a new filter
    assert received(source, 2) == [("kept/0", b"2"), ("kept/1", b"3")]
    source.close()
    source = opened("kept/0", "kept/1")
    publish.push({"k": "kept/0", "payload": "4"})
    assert received(source, 3)[2:] == [("kept/0", b"4")]
    source.close()
    publish.push_many([{"k": f"kept/{i}", "payload": ""} for i in range(2)])
