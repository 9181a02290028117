"""Paho's client with fewer system calls: it receives many packets in one call."""

from __future__ import annotations

import functools
import socket
from typing import Any

from riot_ops.core.errors import ConnectorError, MissingExtraError

__all__ = ["client_subclass", "paho_client"]

#: Bytes that one call asks the socket for.
RECEIVE_BYTES = 16_384


def paho_client() -> Any:
    """Import the module ``paho.mqtt.client``."""
    try:
        from paho.mqtt import client
    except ImportError:
        raise MissingExtraError("MQTT", "mqtt") from None
    return client


def client_subclass(name: str, methods: dict[str, Any]) -> Any:
    """Create a subclass of the buffered client that overrides methods of paho's.

    Besides paho's methods it has ``unread()``, the number of received bytes that are not handled: ``poll`` does not see
    them.

    Raises :class:`ConnectorError` if paho has no such method.
    """
    base = paho_client().Client
    for method in methods:
        if not hasattr(base, method):
            raise ConnectorError(f"this version of paho-mqtt has no {method}; pip install 'riot-ops[mqtt]'")
    return type(name, (_buffered_client(),), methods)


@functools.cache
def _buffered_client() -> Any:
    base = paho_client().Client

    class BufferedClient(base):  # type: ignore[misc, valid-type]
        """Paho asks for one byte, then for another, then for the packet; a socket answers the first call with many."""

        _received: bytes = b""
        _position = 0  # in ``_received``
        _received_from: Any = None

        def unread(self) -> int:
            sock = self.socket()
            pending: int = getattr(sock, "pending", int)()  # of TLS: decrypted bytes
            return pending + (len(self._received) - self._position if self._received_from is sock else 0)

        def _sock_recv(self, bufsize: int) -> bytes:  # a paho without it does not call it
            sock = self.socket()
            if not isinstance(sock, socket.socket):  # websockets have a buffer of their own
                return super()._sock_recv(bufsize)  # type: ignore[no-any-return]
            if self._received_from is not sock:  # a new connection
                self._received, self._position, self._received_from = b"", 0, sock
            if self._position == len(self._received):
                self._received, self._position = super()._sock_recv(max(bufsize, RECEIVE_BYTES)), 0
            start = self._position
            found = self._received[start : start + bufsize]
            self._position = start + len(found)
            return found

    return BufferedClient
