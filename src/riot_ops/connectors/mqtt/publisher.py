"""Publishers of batches of messages to an MQTT broker."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from riot_ops.connectors.mqtt.buffered_client import client_subclass, paho_client
from riot_ops.connectors.mqtt.client import (
    FOLDER,
    MEMORY,
    MQTTConnection,
    PahoLink,
    unique_client_id,
)
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.mqtt.memory import MemoryBroker, PublishedMessage
from riot_ops.connectors.retry import shared_client
from riot_ops.core.errors import ConnectorError

__all__ = ["OutgoingMessage", "Publisher", "open_publisher"]

#: Bytes of a packet besides topic and payload, at most.
PACKET_OVERHEAD = 64
#: Reason codes of transient refusals. All other failures concern the message.
TRANSIENT_CODES = {0x80, 0x83, 0x97}
FAILURE = 0x80
#: Reason code: the broker had already completed the last step of QoS 2, repeated after an interruption.
PACKET_ID_NOT_FOUND = 0x92


class OutgoingMessage(NamedTuple):
    """A message to publish; ``user`` holds its user properties."""

    topic: str
    payload: bytes
    user: tuple[tuple[str, str], ...] = ()


class Publisher(Protocol):
    """Publishes messages to one broker."""

    def publish(
        self, messages: Sequence[OutgoingMessage], *, qos: int, retain: bool, expiry_s: int | None
    ) -> dict[int, tuple[str, str]]:
        """Send messages; return when the broker has acknowledged all (QoS 0: when they are sent).

        Returns
        -------
        dict
            By position, the reason and the message for each message that the broker refuses.

        Raises
        ------
        ConnectorError
            If the broker cannot be reached, or does not acknowledge, within ``timeout``. Some of the messages may
            have been delivered.
        """

    def close(self) -> None:
        """Close the connection; the next use opens it again."""


def open_publisher(connection: MQTTConnection) -> Publisher:
    """Return the publisher of this process for a connection; it is closed at exit."""
    if connection.address[0] == MEMORY:
        return _LocalPublisher(MemoryBroker.of(connection.url).publish_all)
    if connection.address[0] == FOLDER:
        return _LocalPublisher(FolderBroker(connection.url).publish)
    return shared_client(_PahoPublisher, connection)


class _LocalPublisher:
    """Publishes by a function that stores messages, without a connection."""

    def __init__(self, store: Callable[[Iterable[PublishedMessage]], None]) -> None:
        self._store = store

    def publish(
        self, messages: Sequence[OutgoingMessage], *, qos: int, retain: bool, expiry_s: int | None
    ) -> dict[int, tuple[str, str]]:
        self._store(PublishedMessage(m.topic, m.payload, retain, m.user) for m in messages)
        return {}

    def close(self) -> None:
        pass


class _PahoPublisher:
    """Publishes in the thread of the caller, which waits for acknowledgements only if the window is full."""

    def __init__(self, connection: MQTTConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._link: _PublishingLink | None = None

    def publish(
        self, messages: Sequence[OutgoingMessage], *, qos: int, retain: bool, expiry_s: int | None
    ) -> dict[int, tuple[str, str]]:
        with self._lock:
            if self._link is None:
                self._link = _PublishingLink(self._connection)
            try:
                return self._link.publish(messages, qos, retain, expiry_s)
            except BaseException:
                link, self._link = self._link, None  # messages in flight must not be sent later
                link.drop()
                raise

    def close(self) -> None:
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.close()


@functools.cache
def _client_type() -> Any:
    """Paho's client, adapted to report a message of QoS 2 as published if the broker refuses it in PUBREC."""
    base = paho_client().Client
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.reasoncodes import ReasonCode

    def handle_pubrec(self: Any) -> Any:
        packet = self._in_packet["packet"]
        number = int.from_bytes(packet[:2], "big")
        if len(packet) > 2 and packet[2] >= FAILURE and number in self._out_messages:
            return self._do_on_publish(number, ReasonCode(PacketTypes.PUBREC, identifier=packet[2]), None)
        return base._handle_pubrec(self)  # noqa: SLF001 (paho offers no other way in)

    return client_subclass("PublishingClient", {"_handle_pubrec": handle_pubrec})


class _PublishingLink(PahoLink):
    def __init__(self, connection: MQTTConnection) -> None:
        # the session lets QoS 2 continue after an interruption; a broker would never remove a session of 3.1.1
        session_s = int(connection.timeout_seconds) + 1 if connection.protocol == "5" else 0
        super().__init__(connection, unique_client_id(connection.client_id), session_s, client_type=_client_type())
        self.client.on_publish = self._on_publish
        self._pending: dict[int, int] = {}  # by packet id, the position of each unacknowledged message
        self._resend: deque[int] = deque()  # positions to send again
        self._refused: dict[int, tuple[str, str]] = {}
        self._busy_reason = ""  # why the broker refuses all messages for now
        self._last_ack = 0.0
        self._full = paho_client().MQTT_ERR_QUEUE_SIZE

    def connected(self, session_present: bool) -> None:
        # with a session paho repeats unacknowledged messages; without one it would lose messages of QoS 2 whose first
        # half was acknowledged
        if not session_present:
            self.client.drop_out_messages()
            self._resend.extend(self._pending.values())
            self._pending.clear()

    def _on_publish(self, client: Any, userdata: Any, packet: int, reason: Any, properties: Any) -> None:
        position = self._pending.pop(packet, None)
        self._last_ack = time.monotonic()
        if position is None or not reason.is_failure or reason.value == PACKET_ID_NOT_FOUND:
            return
        if reason.value in TRANSIENT_CODES:
            self._busy_reason = str(reason)
        else:
            self._refused[position] = "refused", f"the broker refuses it: {reason}"

    def publish(
        self, messages: Sequence[OutgoingMessage], qos: int, retain: bool, expiry_s: int | None
    ) -> dict[int, tuple[str, str]]:
        self._refused, self._busy_reason, self._last_ack = {}, "", time.monotonic()
        self.wait(0)  # notices that the broker has closed an idle connection
        following, total, properties = 0, len(messages), self._properties(expiry_s, ())
        while True:
            if not self.is_connected:
                self._reopen(qos)
            while len(self._pending) < self.window and not self.client.want_write():
                if self._resend:
                    position = self._resend.popleft()
                elif following < total:
                    position, following = following, following + 1
                else:
                    break
                topic, payload, user = messages[position]
                if self.max_packet is not None and len(payload) + 3 * len(topic) + PACKET_OVERHEAD > self.max_packet:
                    self._refused[position] = (
                        "too_large",
                        f"the broker accepts packets of up to {self.max_packet} bytes",
                    )
                    continue
                info = self.client.publish(
                    topic, payload, qos, retain, self._properties(expiry_s, user) if user else properties
                )
                if info.rc and (qos == 0 or info.rc == self._full):  # paho has dropped it
                    self._resend.append(position)
                    break
                if qos or not info.is_published():
                    self._pending[info.mid] = position
            if not self._pending and not self._resend and following == total and not self.client.want_write():
                return self._refused
            self.wait(0.1)
            self._check()

    def _check(self) -> None:
        if self._busy_reason:
            raise ConnectorError(
                f"the MQTT broker {self.connection.url} refuses messages: {self._busy_reason}", retryable=True
            )
        if time.monotonic() - self._last_ack > self.connection.timeout_seconds:
            raise ConnectorError(
                f"the MQTT broker {self.connection.url} has acknowledged nothing for "
                f"{self.connection.timeout_seconds:g} s; {len(self._pending)} messages wait",
                retryable=True,
            )

    def _reopen(self, qos: int) -> None:
        if qos == 0:  # paho drops messages that it has not written
            self._resend.extend(self._pending.values())
            self._pending.clear()
        self.open()

    def _properties(self, expiry_s: int | None, user: tuple[tuple[str, str], ...]) -> Any:
        if expiry_s is None and not user:
            return None
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if expiry_s is not None:
            properties.MessageExpiryInterval = expiry_s
        if user:
            properties.UserProperty = list(user)
        return properties
