"""The CONNECT packet of a connection, byte by byte: keep-alive and session; and what is logged."""

from __future__ import annotations

import logging
import re
import socket
import struct
import threading

import pytest

from riot_ops import ConnectorError, Secret
from riot_ops import tasks as t
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt.client import MQTTConnection, PahoLink
from tests.connectors.mqtt.tools import Wire, until

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
        link = PahoLink(MQTTConnection(url=url, timeout_s=0.2, **options), "ü-7", session_s)
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
        (3600, {"keepalive_s": 7, "in_flight": 9}, (0, 7, {0x11: 3600, 0x21: 9}, "ü-7")),
        (0, {"protocol": "3.1.1", "keepalive_s": 300}, (0b10, 300, {}, "ü-7")),
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
