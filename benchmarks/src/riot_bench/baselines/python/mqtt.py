"""Publishing and receiving with paho-mqtt alone."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

__all__ = ["publish", "receive", "subscribe"]


def publish(port: int, topic: str, payloads: Sequence[bytes], qos: int, window: int = 100) -> float:
    """Send messages, at most ``window`` unacknowledged; return the seconds until the last acknowledgement."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(window)
    room = threading.Semaphore(window)
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.on_publish = lambda *_: room.release()
    client.connect("127.0.0.1", port)
    client.loop_start()
    connected.wait(10)
    start = time.perf_counter()
    for payload in payloads:
        room.acquire()
        client.publish(topic, payload, qos)
    for _ in range(window):
        room.acquire()
    seconds = time.perf_counter() - start
    client.disconnect()
    client.loop_stop()
    return seconds


def subscribe(port: int, topic: str, qos: int) -> str:
    """Open a session for which the broker queues messages; return the client id."""
    client_id = uuid.uuid4().hex
    client = _client(client_id)
    subscribed = threading.Event()
    client.on_connect = lambda *_: client.subscribe(topic, qos) and None
    client.on_subscribe = lambda *_: subscribed.set()
    _connect(client, port)
    subscribed.wait(10)
    client.disconnect()
    client.loop_stop()
    return client_id


def receive(port: int, client_id: str, n: int) -> tuple[float, list[bytes]]:
    """Resume the session and receive ``n`` messages; return the elapsed seconds and the payloads."""
    client = _client(client_id)
    payloads: list[bytes] = []
    done = threading.Event()

    def on_message(_: Any, __: Any, message: mqtt.MQTTMessage) -> None:
        payloads.append(bytes(message.payload))
        if len(payloads) == n:
            done.set()

    client.on_message = on_message
    start = time.perf_counter()
    _connect(client, port)
    done.wait(120)
    seconds = time.perf_counter() - start
    client.disconnect()
    client.loop_stop()
    return seconds, payloads


def _client(client_id: str) -> mqtt.Client:
    return mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5)


def _connect(client: mqtt.Client, port: int) -> None:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 600
    client.connect("127.0.0.1", port, clean_start=False, properties=properties)
    client.loop_start()
