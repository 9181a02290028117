"""The relay that counts bytes."""

from __future__ import annotations

import socket
import threading

from riot_bench.harness.byte_relay import ByteRelay


def test_relay_passes_bytes_on_and_counts_both_ways() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):
                other, _ = server.accept()
                with other:
                    while data := other.recv(100_000):
                        other.sendall(data + b"!")
                        if data.endswith(b"."):
                            break

        threading.Thread(target=answer, daemon=True).start()
        with ByteRelay(server.getsockname()[1]) as relay:
            for text in (b"abc.", b"x."):
                with socket.create_connection(("127.0.0.1", relay.port), timeout=10) as client:
                    client.sendall(text)
                    found = b""
                    while part := client.recv(100):
                        found += part
                    assert found == text + b"!"
            assert (relay.sent, relay.received) == (6, 8)


def test_closed_relay_ends_its_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with ByteRelay(server.getsockname()[1]) as relay:
            client = socket.create_connection(("127.0.0.1", relay.port), timeout=10)
            other, _ = server.accept()
            client.sendall(b"a")
            assert other.recv(1) == b"a"
        with client, other:
            assert client.recv(1) == b""
            assert other.recv(1) == b""
