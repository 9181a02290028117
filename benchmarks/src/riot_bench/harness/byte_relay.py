"""A relay in front of a server that counts the bytes of its clients."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

__all__ = ["ByteRelay"]

CHUNK = 1 << 16


class ByteRelay:
    """Passes the connections of clients on to a server of this machine, and counts their bytes; use it as a context.

    Parameters
    ----------
    target : int
        Port of the server.

    Attributes
    ----------
    port : int
        Port for the clients.
    sent, received : int
        Bytes that clients have sent and received, with the frames of their protocol, without those of TCP and IP.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.sent = self.received = 0
        self._lock = threading.Lock()
        self._open = set[socket.socket]()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._server)  # wakes the thread that accepts
        self._server.close()
        with self._lock:
            for one in self._open:
                _shut(one)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                with self._lock:
                    self._open |= {client, server}
                for pair in ((client, server, "sent"), (server, client, "received")):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, counter: str) -> None:
        with suppress(OSError):  # either end has gone
            target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := source.recv(CHUNK):
                with self._lock:
                    setattr(self, counter, getattr(self, counter) + len(data))
                target.sendall(data)
        _shut(target)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
