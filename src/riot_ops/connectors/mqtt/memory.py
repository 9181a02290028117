"""An MQTT broker inside the process, for tests without a server."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

__all__ = ["MemoryBroker", "PublishedMessage", "is_shared", "subscribes", "topic_matches"]


class PublishedMessage(NamedTuple):
    """A published message; ``user`` holds its user properties."""

    topic: str
    payload: bytes
    retain: bool = False
    user: tuple[tuple[str, str], ...] = ()


class MemoryBroker:
    """The broker of a URL such as ``memory://name``; each process has its own.

    It queues messages for the sessions that have subscribed, and keeps the last retained message of each topic.

    Examples
    --------
    >>> broker = MemoryBroker.of("memory://example")
    >>> session = broker.session("me", ["city/#"])
    >>> broker.publish("city/a/temperature", b"21.5")
    >>> session.popleft().payload
    b'21.5'
    """

    _brokers: ClassVar[dict[str, MemoryBroker]] = {}
    _all: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._published = threading.Condition(self._lock)
        self._sessions: dict[str, tuple[list[str], deque[PublishedMessage]]] = {}
        self._retained: dict[str, PublishedMessage] = {}
        self._turns: dict[str, int] = {}  # of the members of each shared subscription

    @classmethod
    def of(cls, url: str) -> MemoryBroker:
        """Return the broker of a URL."""
        with cls._all:
            return cls._brokers.setdefault(url, cls())

    def publish(
        self, topic: str, payload: bytes, *, retain: bool = False, user: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """Queue a message for all sessions that have subscribed to its topic."""
        message = PublishedMessage(topic, payload, False, user)
        with self._lock:
            if retain:
                self._retained.pop(topic, None)
                if payload:  # an empty one only removes
                    self._retained[topic] = message._replace(retain=True)
            receivers = {client for client, (filters, _) in self._sessions.items() if subscribes(filters, topic)}
            shared = {one for filters, _ in self._sessions.values() for one in filters if is_shared(one)}
            for one in sorted(shared):
                if topic_matches(one, topic):
                    members = [client for client, (filters, _) in self._sessions.items() if one in filters]
                    turn = self._turns[one] = self._turns.get(one, -1) + 1
                    receivers.add(members[turn % len(members)])
            for client in receivers:
                self._sessions[client][1].append(message)
            self._published.notify_all()

    def publish_all(self, messages: Iterable[PublishedMessage]) -> None:
        """Publish messages one after the other."""
        for topic, payload, retain, user in messages:
            self.publish(topic, payload, retain=retain, user=user)

    def session(self, client_id: str, filters: Iterable[str]) -> deque[PublishedMessage]:
        """Return the queue of a client; it persists between connections."""
        with self._lock:
            wanted = list(filters)
            known, queue = self._sessions.get(client_id, ([], deque()))
            for message in self._retained.values():
                new = [one for one in wanted if one not in known]
                if subscribes(new, message.topic):
                    queue.append(message)
            self._sessions[client_id] = wanted, queue
            return queue

    def wait(
        self, queue: deque[PublishedMessage], start: int, stop: int, seconds: float, woken: Callable[[], bool]
    ) -> list[PublishedMessage]:
        """Return the messages of a session's queue from a position on; wait for the first until ``woken`` holds."""
        with self._published:
            self._published.wait_for(lambda: len(queue) > start or woken(), seconds)
            return list(itertools.islice(queue, start, stop))

    def wake(self) -> None:
        """Make all calls of :meth:`wait` check ``woken`` again."""
        with self._published:
            self._published.notify_all()


def is_shared(topic_filter: str) -> bool:
    """Whether a topic filter is a shared subscription: each message goes to one client of the group."""
    return topic_filter.startswith("$share/")


def subscribes(filters: Iterable[str], topic: str) -> bool:
    """Whether a filter that is not shared matches a topic."""
    return any(not is_shared(one) and topic_matches(one, topic) for one in filters)


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic filter with the wildcards ``+`` and ``#`` matches a topic; ``$share/group/`` is left out.

    >>> topic_matches("city/+/dust", "city/a/dust"), topic_matches("city/#", "city"), topic_matches("#", "$SYS/uptime")
    (True, True, False)
    """
    if is_shared(topic_filter):
        topic_filter = topic_filter.split("/", 2)[2]
    if topic.startswith("$") and not topic_filter.startswith("$"):
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for i, level in enumerate(wanted):
        if level == "#":
            return True
        if i >= len(levels) or level not in ("+", levels[i]):
            return False
    return len(wanted) == len(levels)
