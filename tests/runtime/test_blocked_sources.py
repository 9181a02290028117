"""Ctrl-C while a source waits or blocks."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import signal
import socket
import threading

import pytest

import riot_ops as ro
from riot_ops import ConnectorError
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.mqtt.spool import Spool
from riot_ops.core.source import WrappedSource
from riot_ops.runtime import local

#: What a server appends to the key of a websocket (RFC 6455).
WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: After which a test gives up.
SECONDS = 30


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws"])
def test_interrupt_ends_the_wait_for_a_silent_broker(scheme, tmp_path, monkeypatch):
    """The handshakes of TLS and websockets wait within paho, for the timeout of a response."""
    monkeypatch.setattr("riot_ops.connectors.mqtt.client.RESPONSE_TIMEOUT_S", 3600.0)
    server, late, held = socket.create_server(("127.0.0.1", 0)), threading.Event(), []

    def interrupt():
        held.append(server.accept()[0])
        os.kill(os.getpid(), signal.SIGINT)

    def give_up():
        late.set()
        held[0].close()
        server.close()

    url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
    source = MQTTSource(url=url, topics=("a",), client_id="x", spool=str(tmp_path / "spool"), timeout="1h")
    flow = ro.Dataflow("f")
    flow.sink("out", flow.source("raw", schema=source.schema))
    threading.Thread(target=interrupt, daemon=True).start()
    timer = threading.Timer(SECONDS, give_up)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        flow.run(source, checkpoint=tmp_path / "checkpoint")
    timer.cancel()
    assert not late.is_set()
    assert held[0].recv(1), "it had connected"
    give_up()


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws"])
def test_closed_source_gives_up_a_silent_broker_and_leaves_no_connection(scheme, tmp_path, monkeypatch):
    monkeypatch.setattr("riot_ops.connectors.mqtt.client.RESPONSE_TIMEOUT_S", 3600.0)
    errors = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        source = MQTTSource(url=url, topics=("a",), client_id="x", spool=str(tmp_path / "spool"), timeout="1h")

        def ask():
            try:
                source.open()
            except ConnectorError as error:
                errors.append(error)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        peer, _ = server.accept()
        closing = threading.Thread(target=source.close, daemon=True)
        closing.start()
        closing.join(SECONDS)
        assert not closing.is_alive()
        asking.join(SECONDS)
        assert not asking.is_alive()
        peer.settimeout(SECONDS)
        if scheme == "ws":  # a broker that answers too late
            request = peer.recv(4096).decode()
            key = re.search(r"Sec-Websocket-Key: (\S+)", request, re.IGNORECASE)[1] + WEBSOCKET_GUID
            answer = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            peer.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                + f"Sec-WebSocket-Accept: {answer}\r\n\r\n".encode()
            )
        if scheme != "mqtts":  # there paho waits on, in a thread that ends with the process
            while peer.recv(4096):
                pass
        peer.close()


def test_wait_for_a_spool_in_use_can_be_cancelled(tmp_path, monkeypatch):
    monkeypatch.setattr("riot_ops.connectors.mqtt.spool.LOCK_TIMEOUT_S", 3600.0)
    errors, held = [], Spool(tmp_path / "spool", 4 << 20)
    source = MQTTSource(url="memory://waits", topics=("a",), client_id="x", spool=str(tmp_path / "spool"))

    def ask():
        with pytest.raises(ConnectorError, match="in use by another process"):
            source.latest({"seq": 0})
        errors.append("in use")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    for _ in range(100 * SECONDS):  # the thread may not wait yet
        source.cancel_waits()
        asking.join(0.01)
        if not asking.is_alive():
            break
    assert errors == ["in use"]
    held.close()
    source.open()  # a later call is not cancelled
    source.close()


class Blocked(WrappedSource):
    """Gives two of its records, and the third when it may."""

    def __init__(self, source, free):
        super().__init__(source)
        self.free = free

    def read(self, split):
        (whole,) = self.source.read(split)
        yield whole.slice(0, 1)
        yield whole.slice(1, 1)
        assert self.free.wait(SECONDS)
        yield whole.slice(2)


@pytest.mark.long
def test_interrupt_within_a_range_says_once_what_a_second_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "BLOCKED_SECONDS", 0.01)
    seen, free, warnings = threading.Event(), threading.Event(), []

    class Handler(logging.Handler):
        def emit(self, record):
            if "second signal" in record.getMessage():
                warnings.append(record.getMessage())
                threading.Timer(0.1, free.set).start()  # time for a second warning

    def look(row):
        seen.set()
        return row

    def interrupt():
        seen.wait(SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    flow = ro.Dataflow("f")
    flow.sink("out", flow.source("raw", schema={"i": "int64"}).to(ro.map(look), id="looked"))
    source, sink = Blocked(ro.MemorySource([{"i": i} for i in range(3)]), free), ro.MemorySink()
    handler = Handler()
    logging.getLogger("riot_ops").addHandler(handler)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            flow.run(source, sinks=sink, checkpoint=tmp_path / "checkpoint", buffering="immediate")
    finally:
        logging.getLogger("riot_ops").removeHandler(handler)
    (text,) = warnings
    assert "raw" in text and "since the last checkpoint" in text
    assert sink.table("looked")["i"].to_pylist() == [0, 1, 2], "the first signal waits for the range"
