"""Publishing to an MQTT broker, many messages at once."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from riot_ops.connectors.mqtt.client import FOLDER, MEMORY, Link, MqttConnection, adjusted, paho_client, unique
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.mqtt.memory import MemoryBroker, Published
from riot_ops.connectors.retry import shared
from riot_ops.core.errors import ConnectorError

__all__ = ["Outgoing", "Publisher", "publisher"]

#: Room for the rest of a packet besides topic and payload.
PACKET_OVERHEAD = 64
#: Acknowledgements that say: not now. All other failures concern the message.
NOT_NOW = {0x80, 0x83, 0x97}
FAILURE = 0x80
#: The last step of QoS 2, repeated after an interruption, had already been taken.
DONE_BEFORE = 0x92


class Outgoing(NamedTuple):
    """A message to publish; ``user`` are its user properties."""

    topic: str
    payload: bytes
    user: tuple[tuple[str, str], ...] = ()


class Publisher(Protocol):
    """What sends messages."""

    def publish(
        self, messages: Sequence[Outgoing], *, qos: int, retain: bool, expiry_s: int | None
    ) -> dict[int, tuple[str, str]]:
        """Send messages; returns when the broker has acknowledged all (QoS 0: when they are sent).

        Returns
        -------
        dict
            Reason and message for each of those, by position, that the broker does not take.

        Raises
        ------
        ConnectorError
            Where the broker cannot be reached, or does not acknowledge, for too long. Some of the
            messages may have been delivered.
        """

    def close(self) -> None:
        """End the connection; the next use opens it again."""


def publisher(connection: MqttConnection) -> Publisher:
    """The publisher of this process for a connection; it is closed at exit."""
    if connection.place[0] == MEMORY:
        return _MemoryPublisher(MemoryBroker.of(connection.url))
    if connection.place[0] == FOLDER:
        return _FolderPublisher(FolderBroker(connection.url))
    return shared(_PahoPublisher, connection)


class _MemoryPublisher:
    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def publish(
        self, messages: Sequence[Outgoing], *, qos: int, retain: bool, expiry_s: int | None
    ) -> dict[int, tuple[str, str]]:
        for message in messages:
            self._broker.publish(message.topic, message.payload, retain=retain, user=message.user)
        return {}

    def close(self) -> None:
        pass


class _FolderPublisher:
    def __init__(self, broker: FolderBroker) -> None:
        self._broker = broker

    def publish(
        self, messages: Sequence[Outgoing], *, qos: int, retain: bool, expiry_s: int | None
    ) -> dict[int, tuple[str, str]]:
        self._broker.publish(Published(m.topic, m.payload, retain, m.user) for m in messages)
        return {}

    def close(self) -> None:
        pass


class _PahoPublisher:
    """Sends from the caller's thread, which waits for acknowledgements only when the window is full."""

    def __init__(self, connection: MqttConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._link: _PublishingLink | None = None

    def publish(
        self, messages: Sequence[Outgoing], *, qos: int, retain: bool, expiry_s: int | None
    ) -> dict[int, tuple[str, str]]:
        with self._lock:
            if self._link is None:
                self._link = _PublishingLink(self._connection)
            try:
                return self._link.publish(messages, qos, retain, expiry_s)
            except BaseException:
                link, self._link = self._link, None  # what is still on its way must not be sent later
                link.drop()
                raise

    def close(self) -> None:
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.close()


@functools.cache
def _client_type() -> Any:
    """Paho's client, which goes on with a message of QoS 2 even where the broker refuses it at once."""
    base = paho_client().Client
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.reasoncodes import ReasonCode

    def handle_pubrec(self: Any) -> Any:
        packet = self._in_packet["packet"]
        number = int.from_bytes(packet[:2], "big")
        if len(packet) > 2 and packet[2] >= FAILURE and number in self._out_messages:
            return self._do_on_publish(number, ReasonCode(PacketTypes.PUBREC, identifier=packet[2]), None)
        return base._handle_pubrec(self)  # noqa: SLF001 (paho offers no other way in)

    return adjusted("PublishingClient", {"_handle_pubrec": handle_pubrec})


class _PublishingLink(Link):
    def __init__(self, connection: MqttConnection) -> None:
        # the session lets QoS 2 go on after an interruption; a lasting one of 3.1.1 would never be removed
        session_s = int(connection.timeout_s) + 1 if connection.protocol == "5" else 0
        super().__init__(connection, unique(connection.client_id), session_s, client_type=_client_type())
        self.client.on_publish = self._on_publish
        self._pending: dict[int, int] = {}  # position of the messages without acknowledgement, by packet
        self._again: deque[int] = deque()  # positions to be sent anew
        self._refused: dict[int, tuple[str, str]] = {}
        self._later = ""  # why the broker takes nothing at the moment
        self._heard = 0.0
        self._full = paho_client().MQTT_ERR_QUEUE_SIZE

    def connected(self, session_present: bool) -> None:
        # with a session paho repeats what has no acknowledgement; without one that would lose messages
        # of QoS 2 whose first half had been acknowledged
        if not session_present:
            self.client.drop_out_messages()
            self._again.extend(self._pending.values())
            self._pending.clear()

    def _on_publish(self, client: Any, userdata: Any, packet: int, reason: Any, properties: Any) -> None:
        position = self._pending.pop(packet, None)
        self._heard = time.monotonic()
        if position is None or not reason.is_failure or reason.value == DONE_BEFORE:
            return
        if reason.value in NOT_NOW:
            self._later = str(reason)
        else:
            self._refused[position] = "refused", f"the broker refuses it: {reason}"

    def publish(
        self, messages: Sequence[Outgoing], qos: int, retain: bool, expiry_s: int | None
    ) -> dict[int, tuple[str, str]]:
        self._refused, self._later, self._heard = {}, "", time.monotonic()
        self.wait(0)  # learns that the broker has closed an idle connection
        new, total, properties = 0, len(messages), self._properties(expiry_s, ())
        while True:
            if not self.up:
                self._reopen(qos)
            while len(self._pending) < self.window and not self.client.want_write():
                if self._again:
                    position = self._again.popleft()
                elif new < total:
                    position, new = new, new + 1
                else:
                    break
                topic, payload, user = messages[position]
                if self.largest is not None and len(payload) + 3 * len(topic) + PACKET_OVERHEAD > self.largest:
                    self._refused[position] = "too_large", f"the broker takes packets of up to {self.largest} bytes"
                    continue
                info = self.client.publish(
                    topic, payload, qos, retain, self._properties(expiry_s, user) if user else properties
                )
                if info.rc and (qos == 0 or info.rc == self._full):  # paho does not keep it
                    self._again.append(position)
                    break
                if qos or not info.is_published():
                    self._pending[info.mid] = position
            if not self._pending and not self._again and new == total and not self.client.want_write():
                return self._refused
            self.wait(0.1)
            self._check()

    def _check(self) -> None:
        if self._later:
            raise ConnectorError(
                f"the MQTT broker {self.connection.url} refuses messages: {self._later}", retryable=True
            )
        if time.monotonic() - self._heard > self.connection.timeout_s:
            raise ConnectorError(
                f"the MQTT broker {self.connection.url} has acknowledged nothing for "
                f"{self.connection.timeout_s:g} s; {len(self._pending)} messages wait",
                retryable=True,
            )

    def _reopen(self, qos: int) -> None:
        if qos == 0:  # paho forgets what it has not written
            self._again.extend(self._pending.values())
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
