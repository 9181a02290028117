"""Receiving from an MQTT broker; messages are acknowledged only after they are on disk."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from riot_ops.connectors.mqtt.buffered_client import client_subclass, paho_client
from riot_ops.connectors.mqtt.client import FOLDER, MEMORY, PahoLink
from riot_ops.connectors.mqtt.memory import is_shared, topic_matches
from riot_ops.connectors.mqtt.spool import Message, Spool
from riot_ops.connectors.mqtt.subscription import (
    MAX_HELD_MESSAGES,
    FolderSubscriber,
    MemorySubscriber,
    Received,
    Subscriber,
    Subscription,
)
from riot_ops.core.errors import ConnectorError

__all__ = ["Receiver"]

_LOG = logging.getLogger(__name__)

#: Maximum time that the receiver waits for messages before it checks its other conditions.
WAIT_S = 1.0
#: The same until the broker has confirmed the subscription.
START_WAIT_S = 0.05
#: Maximum bytes received but not yet on disk; beyond it, or MAX_HELD_MESSAGES, messages stay with the broker.
MAX_HELD_BYTES = 16 << 20
#: Bytes of messages that form one block of the spool.
BLOCK_BYTES = 1 << 20
#: Largest identifier of a subscription in MQTT 5.
MAX_IDENTIFIER = 268_435_455
#: Bits of the first byte of a message: sent before, quality of service, and that of 1, retained.
DUP, QOS_BITS, QOS_1, RETAIN = 0x08, 0x06, 0x02, 0x01


@functools.cache
def _client_type() -> Any:
    """Paho's client, adapted to collect acknowledgements in ``due`` instead of sending them.

    Its manual acknowledgement covers QoS 1 only: paho acknowledges a message of QoS 2 before it delivers it. Most
    messages have QoS 1 and no properties: these are read without building paho's objects for properties.
    """
    paho = paho_client()

    def holding(method: str) -> Callable[[Any, int], int]:
        def hold(self: Any, packet: int) -> int:
            self.due.append((method, packet))
            return 0

        return hold

    def handle_publish(self: Any) -> int:
        packet = self._in_packet["packet"]
        end = 2 + int.from_bytes(packet[:2], "big")
        start = end + 2
        is_plain = self._in_packet["command"] & QOS_BITS == QOS_1 and start <= len(packet)
        if is_plain and self._protocol == paho.MQTTv5:
            is_plain = packet[start : start + 1] == b"\0"  # the length of the properties
            start += 1
        if not is_plain:
            return paho.Client._handle_publish(self)  # type: ignore[no-any-return]  # noqa: SLF001
        message = paho.MQTTMessage(int.from_bytes(packet[end : end + 2], "big"), bytes(packet[2:end]))
        message.qos, message.payload = 1, bytes(memoryview(packet)[start:])
        message.dup, message.retain = bool(self._in_packet["command"] & DUP), bool(self._in_packet["command"] & RETAIN)
        self.on_message(self, None, message)
        return self._send_puback(message.mid)  # type: ignore[no-any-return]

    methods = {method: holding(method) for method in ("_send_puback", "_send_pubrec", "_send_pubcomp")}
    return client_subclass("HoldingClient", {**methods, "_handle_publish": handle_publish})


class _PahoSubscriber(PahoLink):
    """A session at a broker. ``unreleased`` contains the packets of QoS 2 that are on disk."""

    def __init__(self, subscription: Subscription, file: Path, unreleased: set[int], stop: threading.Event) -> None:
        connection = subscription.connection
        super().__init__(connection, connection.client_id or "", subscription.session_s, stop, _client_type())
        self.enable_wake()
        self.ready = False
        self.since = time.monotonic()
        self._subscription = subscription
        self._file = file  # of the subscription that the session has
        self._unreleased = unreleased
        self._received = Received()
        self._resent: list[bool] = []  # for each received message, whether the broker would send it again
        self._failure: ConnectorError | None = None
        self._unconfirmed: dict[int, str] = {}  # topic of each SUBSCRIBE packet without an answer
        self._identifiers = _subscription_identifiers(subscription.topics)
        self._warned_at: float | None = None
        self.client.due = []
        self._seen = 0  # number of handled acknowledgements in ``due``
        self.client.on_message = self._on_message
        self.client.on_subscribe = self._on_subscribe

    # -- subscribing -------------------------------------------------------------------------------

    def connected(self, session_present: bool) -> None:
        self._seen = 0
        self.client.due.clear()  # they belong to another connection: the broker sends the messages again
        received = self._received
        received.messages = [m for m, resent in zip(received.messages, self._resent, strict=True) if not resent]
        self._resent = [False] * len(received.messages)
        received.released.clear()
        received.size = sum(len(m.payload) for m in received.messages)
        received.forget = received.forget or not session_present
        self.since = time.monotonic()
        before = self._saved_subscription()
        if before is not None and not session_present:
            self._warn_of_lost_session()
            before = None
        if before == self._wanted:
            self.ready = True
            return
        self.ready = False
        topics = self._subscription.topics
        old = [t for t in (before or {}).get("topics", []) if t not in topics]
        if old:
            self.client.unsubscribe(old)
        self._unconfirmed = {}
        for topic in topics:  # in order: the first filter that matches a message must be active before the others
            _, packet = self.client.subscribe([(topic, self._options())], properties=self._properties(topic))
            self._unconfirmed[packet] = topic

    def _warn_of_lost_session(self) -> None:
        url, client_id = self.connection.url, self.connection.client_id
        if not self._short:
            _LOG.warning(
                "the MQTT broker %s has lost the session of %r: messages published since then are missing",
                url,
                client_id,
            )
        elif self._warned_at != self._first_short_at:  # once in a row of short connections
            self._warned_at = self._first_short_at
            _LOG.warning(
                "does another client use the client_id %r? The MQTT broker %s ended the connection soon after it "
                "began, and has lost the session of %r: messages published since then are missing",
                client_id,
                url,
                client_id,
            )

    def _properties(self, topic: str) -> Any:
        if not self._is_numbered:
            return None
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        properties.SubscriptionIdentifier = self._identifiers[topic]
        return properties

    @property
    def _is_numbered(self) -> bool:
        """Whether messages name their subscription; a single one needs no name."""
        return self.numbers_subscriptions and len(self._identifiers) > 1

    @property
    def _wanted(self) -> dict[str, Any]:
        return {
            "url": self.connection.url,
            "client_id": self.connection.client_id,
            "qos": self._subscription.qos,
            "topics": list(self._subscription.topics),
            "numbered": self._is_numbered,
        }

    def _saved_subscription(self) -> dict[str, Any] | None:
        """Read the subscriptions that the session has; None if unknown."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._file.read_text(encoding="utf-8"))
            if isinstance(found, dict) and {k: found.get(k) for k in ("url", "client_id")} == {
                k: self._wanted[k] for k in ("url", "client_id")
            }:
                return found
        return None

    def _options(self) -> Any:
        if not self.is_v5:
            return self._subscription.qos
        from paho.mqtt.subscribeoptions import SubscribeOptions

        # the broker sends retained messages for a new subscription, not for a renewed one
        return SubscribeOptions(qos=self._subscription.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)

    def _on_subscribe(self, client: Any, userdata: Any, packet: int, reasons: Any, properties: Any) -> None:
        topic = self._unconfirmed.pop(packet, None)
        if topic is None:
            return
        if reasons[0].is_failure:
            self._failure = ConnectorError(
                f"the MQTT broker {self.connection.url} refuses the subscription of {topic!r}: {reasons[0]}"
            )
        if self._unconfirmed or self._failure is not None:
            return
        self._file.write_text(json.dumps(self._wanted), encoding="utf-8")
        self.ready = True

    # -- receiving ---------------------------------------------------------------------------------

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        if message.qos < 2:  # paho delivers QoS 2 on release; receive() takes it when it arrives
            self._add(message, message.qos == 1)

    def _add(self, message: Any, resent: bool, packet: int = 0) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = None
        if topic is not None and self._is_repeated(topic, message.properties):
            return
        user = getattr(message.properties, "UserProperty", []) if message.properties is not None else []
        self._received.messages.append(self._subscription.message(topic, message.payload, user, packet))
        self._received.size += len(message.payload)
        self._resent.append(resent)

    def _is_repeated(self, topic: str, properties: Any) -> bool:
        """Whether the broker also sends this message for an earlier filter, as MQTT 5 lets it.

        A message with identifiers of an earlier subscription, whose filters may have been others, counts as new.
        """
        named = set(getattr(properties, "SubscriptionIdentifier", ()))
        if len(self._identifiers) < 2 or not named or not named.issubset(self._identifiers.values()):
            return False
        first = next((t for t in self._identifiers if not is_shared(t) and topic_matches(t, topic)), None)
        return first is not None and self._identifiers[first] not in named

    def receive(self, seconds: float) -> Received:
        if not self.is_connected:
            self.open()
        self.wait(seconds)
        new, self._seen = self.client.due[self._seen :], len(self.client.due)
        for method, packet in new:
            if method == "_send_pubrec" and (self._received.forget or packet not in self._unreleased):
                message = self.client._in_messages.get(packet)  # noqa: SLF001 (paho delivers it on release)
                if message is not None and not self._holds(packet):
                    self._add(message, resent=True, packet=packet)
            elif method == "_send_pubcomp":
                self._received.released.append(packet)
        if self._failure is not None:
            raise self._failure
        if not self.ready and time.monotonic() - self.since > self.connection.timeout_seconds:
            raise ConnectorError(
                f"the MQTT broker {self.connection.url} does not confirm the subscription", retryable=True
            )
        self._received.due = self._seen
        return self._received

    def is_full(self) -> bool:
        return self._received.size >= BLOCK_BYTES

    def _holds(self, packet: int) -> bool:
        return any(m.packet == packet for m in self._received.messages)

    def acknowledge(self) -> None:
        due, self.client.due, self._seen = self.client.due, [], 0
        self._received, self._resent = Received(), []
        base = paho_client().Client
        for method, packet in due:
            getattr(base, method)(self.client, packet)


def _subscription_identifiers(topics: tuple[str, ...]) -> dict[str, int]:
    """Number the topics, so that each set of topics has its own numbers.

    The broker may hold messages with the numbers of an earlier set.
    """
    digest = hashlib.blake2b(json.dumps(topics).encode(), digest_size=4).digest()
    first = int.from_bytes(digest, "big") % (MAX_IDENTIFIER - len(topics)) + 1
    return {topic: first + i for i, topic in enumerate(dict.fromkeys(topics))}


class Receiver:
    """Moves messages from a broker to a spool in its own thread.

    Attributes
    ----------
    duplicates : int
        Number of messages dropped because their identity was known.
    spool : Spool
    """

    def __init__(self, subscription: Subscription, spool: Spool) -> None:
        self._subscription = subscription
        self.spool = spool
        self.duplicates = 0
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._room = threading.Event()  # set when the spool may have room again
        self._subscriber: Subscriber | None = None
        self._listeners: frozenset[Callable[[], None]] = frozenset()
        self._last_message = self._last_poll = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"riot_ops-mqtt-{spool.folder.name}")
        self._thread.start()

    def wait_ready(self) -> None:
        """Wait until the subscription is confirmed; raise the error that prevents it."""
        self._ready.wait()  # which the thread also sets when it ends, and cancel_waits()
        self.check()

    def cancel_waits(self) -> None:
        """End calls of :meth:`wait_ready` in other threads."""
        self._ready.set()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call a function, in the receiver's thread, whenever messages have come or the thread has failed."""
        if listener not in self._listeners:
            self._listeners |= {listener}

    def commit(self, number: int) -> None:
        """Mark the messages before a number as processed."""
        self.spool.commit(number)
        self._room.set()

    def check(self) -> None:
        """Raise the error of the thread, if it failed."""
        if self._error is not None:
            raise self._error

    def idle_s(self) -> float:
        """Return the seconds without a message, while connected."""
        subscriber = self._subscriber
        waits = subscriber is not None and subscriber.ready and subscriber.is_connected
        return max(0.0, (time.monotonic() if waits else self._last_poll) - self._last_message)

    def close(self) -> None:
        """Stop receiving; may be called twice."""
        self._stop.set()
        self._room.set()
        subscriber = self._subscriber
        if subscriber is not None:
            subscriber.wake()
        self._thread.join()
        self.spool.close()

    def _connect(self) -> Subscriber:
        scheme = self._subscription.connection.address[0]
        if scheme in (MEMORY, FOLDER):
            return (MemorySubscriber if scheme == MEMORY else FolderSubscriber)(self._subscription)
        file = self.spool.folder / "subscription.json"
        return _PahoSubscriber(self._subscription, file, self.spool.unreleased, self._stop)

    def _run(self) -> None:
        subscriber: Subscriber | None = None
        try:
            while not self._stop.is_set():
                if subscriber is None:
                    subscriber = self._subscriber = self._connect()
                    continue  # close() may have come before it was there to be woken
                self._room.clear()
                received = subscriber.receive(0.0 if self.spool.full else WAIT_S if subscriber.ready else START_WAIT_S)
                self._last_poll = time.monotonic()
                self._last_message = max(self._last_message, subscriber.since if subscriber.ready else self._last_poll)
                if subscriber.ready:
                    self._ready.set()
                if self.spool.full and received.size <= MAX_HELD_BYTES and len(received.messages) <= MAX_HELD_MESSAGES:
                    self._room.wait(WAIT_S)
                elif not received:
                    pass
                elif not self.spool.full:
                    self._write(received)
                    subscriber.acknowledge()
                    self._notify()
                else:
                    subscriber.close()  # unacknowledged messages wait at the broker
                    subscriber = self._subscriber = None
                    while self.spool.full and not self._stop.is_set():
                        self._room.wait(WAIT_S)
                        self._room.clear()
        except BaseException as error:  # check() raises it in the reader
            if not self._stop.is_set():
                self._error = error
        finally:
            self._subscriber = None
            if subscriber is not None:
                subscriber.close()
            self._ready.set()
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _write(self, received: Received) -> None:
        new: list[Message] = []
        seen: set[bytes] = set()
        for message in received.messages:
            if message.id and (message.id in seen or self.spool.contains_id(message.id)):
                self.duplicates += 1
                continue
            seen.add(message.id)
            new.append(message)
        if new or received.released or received.forget:
            self.spool.append(new, received.released, received.forget)
        self._last_message = time.monotonic()
