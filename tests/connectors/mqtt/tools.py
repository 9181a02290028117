"""An independent subscriber, and a proxy whose connections a test can cut."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
import pyarrow as pa
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from riot_ops.core.rejected_records import RejectedRecords


class Listener:
    """Collects messages of a broker through paho alone; its session survives a restart of the broker."""

    def __init__(self, url: str, topic: str = "#", qos: int = 1, client_id: str | None = None) -> None:
        self.messages: list[mqtt.MQTTMessage] = []
        self._subscribed = threading.Event()
        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=client_id or uuid.uuid4().hex, protocol=mqtt.MQTTv5
        )
        self.client.reconnect_delay_set(0.1, 0.1)
        self.client.on_message = lambda c, u, message: self.messages.append(message)
        self.client.on_connect = lambda c, *_: c.subscribe(topic, qos)
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 600
        parts = urlsplit(url)
        self.client.connect(parts.hostname, parts.port, clean_start=False, properties=properties)
        self.client.loop_start()
        assert self._subscribed.wait(10)

    def wait(self, n: int, seconds: float = 30.0) -> list[mqtt.MQTTMessage]:
        until(lambda: len(self.messages) >= n, seconds)
        return self.messages

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.disconnect()
        self.client.loop_stop()


def until(condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


class Wire:
    """A TCP proxy to a port whose connections a test can cut, and slow down by ``delay`` seconds per chunk."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"mqtt://127.0.0.1:{self._server.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self.bytes = 0
        self.cuts = 0
        self.delay = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
                self._open += [near, far]
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(a, b), daemon=True).start()

    def _pump(self, a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(2048):
                self.bytes += len(data)
                time.sleep(self.delay)
                b.sendall(data)
        for end in (a, b):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self.cuts += 1
        found, self._open = self._open, []
        for end in found:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._server.close()
        self.cut()


def records(n: int, prefix: str = "m") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"seq": pa.array(range(n), pa.int64()), "payload": [f"{prefix}{i}".encode() for i in range(n)]}
    )


def apply(task, batch):
    """Run a task on a batch; return its output, and its rejected records as dicts."""
    rejects = RejectedRecords("test")
    out = task.apply(batch, rejects)
    return out, [row for b in rejects.take() for row in b.to_pylist()]
