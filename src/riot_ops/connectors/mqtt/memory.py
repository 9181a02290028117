"""A small message broker inside the process, for tests without a server."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

__all__ = ["MemoryBroker", "Published", "matches"]


class Published(NamedTuple):
    """A message that was published."""

    topic: str
    payload: bytes
    retain: bool = False
    user: tuple[tuple[str, str], ...] = ()


class MemoryBroker:
    """What stands behind a URL such as ``memory://name``, in each process its own.

    It keeps what is published for the sessions that have subscribed, and the last retained message
    of each topic.

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
        self._sessions: dict[str, tuple[list[str], deque[Published]]] = {}
        self._retained: dict[str, Published] = {}

    @classmethod
    def of(cls, url: str) -> MemoryBroker:
        """The broker of a URL."""
        with cls._all:
            return cls._brokers.setdefault(url, cls())

    def publish(
        self, topic: str, payload: bytes, *, retain: bool = False, user: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """Hand a message to all who have subscribed to its topic."""
        message = Published(topic, payload, False, user)
        with self._lock:
            if retain:
                self._retained.pop(topic, None)
                if payload:  # an empty one removes
                    self._retained[topic] = message._replace(retain=True)
            for filters, queue in self._sessions.values():
                if any(matches(one, topic) for one in filters):
                    queue.append(message)

    def session(self, client_id: str, filters: Iterable[str]) -> deque[Published]:
        """The queue of a client; it lasts, and goes on where the client left it."""
        with self._lock:
            wanted = list(filters)
            known, queue = self._sessions.get(client_id, ([], deque()))
            for message in self._retained.values():
                new = [one for one in wanted if one not in known]
                if any(matches(one, message.topic) for one in new):
                    queue.append(message)
            self._sessions[client_id] = wanted, queue
            return queue


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic filter with its wildcards ``+`` and ``#`` takes a topic.

    >>> matches("city/+/dust", "city/a/dust"), matches("city/#", "city"), matches("#", "$SYS/uptime")
    (True, True, False)
    """
    if topic.startswith("$") and not pattern.startswith("$"):
        return False
    wanted, levels = pattern.split("/"), topic.split("/")
    for i, level in enumerate(wanted):
        if level == "#":
            return True
        if i >= len(levels) or level not in ("+", levels[i]):
            return False
    return len(wanted) == len(levels)
