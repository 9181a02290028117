"""What to receive, and from brokers in this process or in a folder."""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from riot_ops.connectors.mqtt.client import MqttConnection
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.mqtt.memory import MemoryBroker, Published
from riot_ops.connectors.mqtt.spool import ID_BYTES, Message

__all__ = ["MOST_HELD", "FolderSubscriber", "MemorySubscriber", "Received", "Subscriber", "Subscription"]

#: Messages received, but not yet on disk: more than that is left with the broker.
MOST_HELD = 1000


@dataclass(frozen=True)
class Subscription:
    """What to receive, and how to understand it; see :class:`MQTTSource` for the meaning."""

    connection: MqttConnection
    topics: tuple[str, ...]
    qos: int
    session_s: int
    time_property: str | None
    id_properties: tuple[str, ...]

    def message(self, topic: str | None, payload: bytes, user: list[tuple[str, str]], packet: int = 0) -> Message:
        """A received message with its time and identity."""
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
    """Microseconds since 1970 from their number, or from a time in ISO 8601 (UTC where it names no zone)."""
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
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + moment.microsecond


@dataclass
class Received:
    """What has come since the last :meth:`Subscriber.answer`."""

    messages: list[Message] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    forget: bool = False
    size: int = 0
    due: int = 0  # acknowledgements, also of what was received before and came again

    def __bool__(self) -> bool:
        return bool(self.messages or self.due or self.forget)


class Subscriber(Protocol):
    """One session at a broker.

    ``ready`` tells whether the broker has confirmed the subscription, ``since`` when (monotonic) the
    connection began.
    """

    ready: bool
    since: float

    def receive(self, seconds: float) -> Received:
        """Wait for messages at most so long; returns all that has not been answered."""

    def answer(self) -> None:
        """Acknowledge all that was received; it is on disk."""

    def close(self) -> None:
        """End the connection, not the session."""


class MemorySubscriber:
    """Of a broker in this process."""

    ready = True

    def __init__(self, subscription: Subscription) -> None:
        self.since = time.monotonic()
        self._subscription = subscription
        broker = MemoryBroker.of(subscription.connection.url)
        self._queue: deque[Published] = broker.session(subscription.connection.client_id or "", subscription.topics)
        self._received = Received()

    def receive(self, seconds: float) -> Received:
        if not self._queue:
            time.sleep(min(seconds, 0.005))
        held = self._received.messages
        for published in list(self._queue)[len(held) : MOST_HELD]:
            held.append(self._subscription.message(published.topic, published.payload, list(published.user)))
        return self._received

    def answer(self) -> None:
        for _ in self._received.messages:
            self._queue.popleft()
        self._received = Received()

    def close(self) -> None:
        pass


class FolderSubscriber:
    """Of a broker made of files."""

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

    def answer(self) -> None:
        self._session.done()

    def close(self) -> None:
        pass
