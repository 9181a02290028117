"""Subscriptions, and subscribers of brokers in this process or in a folder."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from riot_ops.connectors.mqtt.client import MQTTConnection
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.mqtt.memory import MemoryBroker, PublishedMessage
from riot_ops.connectors.mqtt.spool import ID_BYTES, Message
from riot_ops.core.backoff import Backoff
from riot_ops.core.castable import TIME

__all__ = ["MAX_HELD_MESSAGES", "FolderSubscriber", "MemorySubscriber", "Received", "Subscriber", "Subscription"]

#: The forms of ISO 8601 that all readers of times take; Python reads more.
_ISO = re.compile(TIME, re.ASCII)
#: Maximum number of messages received but not yet on disk; further ones stay with the broker.
MAX_HELD_MESSAGES = 1000
#: Longest pause between two looks at a folder.
MAX_FOLDER_WAIT_S = 0.04


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
        if text.isascii() and text.lstrip("-").isdecimal():
            number = int(text)
            return number if abs(number) < 1 << 63 else None
        if not _ISO.fullmatch(text):
            return None
        moment = datetime.fromisoformat(text.upper())
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

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now; may be asked from any thread."""

    def receive(self, seconds: float) -> Received:
        """Wait for messages, at most ``seconds`` or until :meth:`wake`; return all that are not acknowledged."""

    def wake(self) -> None:
        """End the wait in :meth:`receive`, or the next one; may be called from any thread."""

    def acknowledge(self) -> None:
        """Acknowledge all received messages, which are on disk."""

    def close(self) -> None:
        """Close the connection, but keep the session."""


class MemorySubscriber:
    """A subscriber of a broker in this process."""

    ready = is_connected = True

    def __init__(self, subscription: Subscription) -> None:
        self.since = time.monotonic()
        self._subscription = subscription
        self._broker = MemoryBroker.of(subscription.connection.url)
        self._queue: deque[PublishedMessage] = self._broker.session(
            subscription.connection.client_id or "", subscription.topics
        )
        self._received = Received()
        self._woken = threading.Event()

    def receive(self, seconds: float) -> Received:
        held = self._received.messages
        for published in self._broker.wait(self._queue, len(held), MAX_HELD_MESSAGES, seconds, self._woken.is_set):
            held.append(self._subscription.message(published.topic, published.payload, list(published.user)))
        self._woken.clear()
        return self._received

    def wake(self) -> None:
        self._woken.set()
        self._broker.wake()

    def acknowledge(self) -> None:
        for _ in self._received.messages:
            self._queue.popleft()
        self._received = Received()

    def close(self) -> None:
        pass


class FolderSubscriber:
    """A subscriber of a broker made of files."""

    ready = is_connected = True

    def __init__(self, subscription: Subscription) -> None:
        self.since = time.monotonic()
        self._subscription = subscription
        broker = FolderBroker(subscription.connection.url)
        self._session = broker.session(subscription.connection.client_id or "", subscription.topics)
        self._woken = threading.Event()
        self._backoff = Backoff(max_s=MAX_FOLDER_WAIT_S)

    def receive(self, seconds: float) -> Received:
        until = time.monotonic() + seconds
        while True:
            begun = time.thread_time()
            if messages := self._session.next():
                self._backoff.found()
                break
            left = until - time.monotonic()
            if left <= 0 or self._woken.wait(min(left, self._backoff.pause(time.thread_time() - begun))):
                break
        self._woken.clear()
        return Received([self._subscription.message(m.topic, m.payload, list(m.user)) for m in messages])

    def wake(self) -> None:
        self._woken.set()

    def acknowledge(self) -> None:
        self._session.done()

    def close(self) -> None:
        pass
