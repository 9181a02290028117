"""Subscriptions, and subscribers of brokers in this process or in a folder."""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from riot_ops.connectors.mqtt.client import MQTTConnection
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.mqtt.memory import MemoryBroker, PublishedMessage
from riot_ops.connectors.mqtt.spool import ID_BYTES, Message

__all__ = ["MAX_HELD_MESSAGES", "FolderSubscriber", "MemorySubscriber", "Received", "Subscriber", "Subscription"]

#: Maximum number of messages received but not yet on disk; further ones stay with the broker.
MAX_HELD_MESSAGES = 1000


@dataclass(frozen=True)
class Subscription:
    """Topics, session and message properties of a source; see :class:`MQTTSource` for their meaning."""

    connection: MQTTConnection
    topics: tuple[str, ...]
    qos: int
    session_s: int
    time_property: str | None
    id_properties: tuple[str, ...]

    def message(self, topic: str | None, payload: bytes, user: list[tuple[str, str]], packet: int = 0) -> Message:
        """Create a received message with its time and identity."""
        time_us: int | None = time.time_ns() // 1000
        identity = b""
        if self.time_property is not None or self.id_properties:
            properties = dict(user)
            if self.time_property is not None:
                time_us = _micros(properties.get(self.time_property))
            values = [properties.get(name) for name in self.id_properties]
            if values and None not in values:
                identity = hashlib.blake2b(json.dumps(values).encode(), digest_size=ID_BYTES).digest()
        return Message(time_us, topic, payload, packet, identity)


def _micros(text: str | None) -> int | None:
    """Parse microseconds since 1970 or an ISO 8601 time (UTC if it has no zone); None if invalid."""
    if text is None:
        return None
    try:
        if text.lstrip("-").isdecimal():
            number = int(text)
            return number if abs(number) < 1 << 63 else None
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    seconds = int(moment.replace(microsecond=0).timestamp())
    return seconds * 1_000_000 + moment.microsecond


@dataclass
class Received:
    """The messages and changes since the last :meth:`Subscriber.acknowledge`."""

    messages: list[Message] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    forget: bool = False
    size: int = 0
    due: int = 0  # number of acknowledgements, including those of repeated messages

    def __bool__(self) -> bool:
        return bool(self.messages or self.due or self.forget)


class Subscriber(Protocol):
    """One session at a broker.

    ``ready``: whether the broker has confirmed the subscription; ``since``: when the connection began (monotonic time).
    """

    ready: bool
    since: float

    def receive(self, seconds: float) -> Received:
        """Wait for messages, at most ``seconds``; return all that are not acknowledged."""

    def acknowledge(self) -> None:
        """Acknowledge all received messages, which are on disk."""

    def close(self) -> None:
        """Close the connection, but keep the session."""


class MemorySubscriber:
    """A subscriber of a broker in this process."""

    ready = True

    def __init__(self, subscription: Subscription) -> None:
        self.since = time.monotonic()
        self._subscription = subscription
        broker = MemoryBroker.of(subscription.connection.url)
        self._queue: deque[PublishedMessage] = broker.session(
            subscription.connection.client_id or "", subscription.topics
        )
        self._received = Received()

    def receive(self, seconds: float) -> Received:
        if not self._queue:
            time.sleep(min(seconds, 0.005))
        held = self._received.messages
        for published in list(self._queue)[len(held) : MAX_HELD_MESSAGES]:
            held.append(self._subscription.message(published.topic, published.payload, list(published.user)))
        return self._received

    def acknowledge(self) -> None:
        for _ in self._received.messages:
            self._queue.popleft()
        self._received = Received()

    def close(self) -> None:
        pass


class FolderSubscriber:
    """A subscriber of a broker made of files."""

    ready = True

    def __init__(self, subscription: Subscription) -> None:
        self.since = time.monotonic()
        self._subscription = subscription
        broker = FolderBroker(subscription.connection.url)
        self._session = broker.session(subscription.connection.client_id or "", subscription.topics)

    def receive(self, seconds: float) -> Received:
        messages = self._session.next()
        if not messages:
            time.sleep(seconds)
        return Received([self._subscription.message(m.topic, m.payload, list(m.user)) for m in messages])

    def acknowledge(self) -> None:
        self._session.done()

    def close(self) -> None:
        pass
