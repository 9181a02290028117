"""Receiving from an MQTT broker: nothing is acknowledged before it is on disk."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from riot_ops.connectors.mqtt.client import FOLDER, MEMORY, Link, adjusted, paho_client
from riot_ops.connectors.mqtt.spool import Message, Spool
from riot_ops.connectors.mqtt.subscription import (
    MOST_HELD,
    FolderSubscriber,
    MemorySubscriber,
    Received,
    Subscriber,
    Subscription,
)
from riot_ops.core.errors import ConnectorError

__all__ = ["Receiver"]

_LOG = logging.getLogger(__name__)

#: How long the receiver waits for messages before it looks around.
LOOK_S = 0.05
#: Received, but not yet on disk: more than that, and than MOST_HELD messages, is left with the broker.
MOST_HELD_BYTES = 16 << 20
#: Written at once.
BLOCK_BYTES = 1 << 20


@functools.cache
def _client_type() -> Any:
    """Paho's client, which holds its acknowledgements back until ``due`` is worked off.

    Its own manual acknowledgement covers QoS 1 only: a message of QoS 2 would be the client's
    responsibility before it is handed out.
    """

    def holding(kind: str) -> Callable[[Any, int], int]:
        def hold(self: Any, packet: int) -> int:
            self.due.append((kind, packet))
            return 0

        return hold

    return adjusted(
        "HoldingClient", {kind: holding(kind) for kind in ("_send_puback", "_send_pubrec", "_send_pubcomp")}
    )


class _PahoSubscriber(Link):
    """A session at a broker. ``unreleased`` are the packets of QoS 2 that are on disk."""

    def __init__(self, subscription: Subscription, note: Path, unreleased: set[int], stop: threading.Event) -> None:
        connection = subscription.connection
        super().__init__(connection, connection.client_id or "", subscription.session_s, stop, _client_type())
        self.ready = False
        self.since = time.monotonic()
        self._subscription = subscription
        self._note = note
        self._unreleased = unreleased
        self._received = Received()
        self._lasting: list[bool] = []  # for each of the received messages: would it come again
        self._failure: ConnectorError | None = None
        self.client.due = []
        self._seen = 0  # of those due
        self.client.on_message = self._on_message
        self.client.on_subscribe = self._on_subscribe

    # -- subscribing -------------------------------------------------------------------------------

    def connected(self, session_present: bool) -> None:
        self._seen = 0
        self.client.due.clear()  # of another connection: the broker sends those messages again
        received = self._received
        received.messages = [m for m, again in zip(received.messages, self._lasting, strict=True) if not again]
        self._lasting = [False] * len(received.messages)
        received.released.clear()
        received.size = sum(len(m.payload) for m in received.messages)
        received.forget = received.forget or not session_present
        self.since = time.monotonic()
        before = self._noted()
        if before is not None and not session_present:
            _LOG.warning(
                "the MQTT broker %s has no session of %r any more: what was published meanwhile is missing",
                self.connection.url,
                self.connection.client_id,
            )
            before = None
        if before == self._wanted:
            self.ready = True
            return
        self.ready = False
        topics = self._subscription.topics
        old = [t for t in (before or {}).get("topics", []) if t not in topics]
        if old:
            self.client.unsubscribe(old)
        self.client.subscribe([(topic, self._options()) for topic in topics])

    @property
    def _wanted(self) -> dict[str, Any]:
        of = self._subscription
        return {"url": self.connection.url, "client_id": self.connection.client_id, "qos": of.qos} | {
            "topics": list(of.topics)
        }

    def _noted(self) -> dict[str, Any] | None:
        """The subscriptions that the session has, as far as is known."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._note.read_text(encoding="utf-8"))
            if isinstance(found, dict) and {k: found.get(k) for k in ("url", "client_id")} == {
                k: self._wanted[k] for k in ("url", "client_id")
            }:
                return found
        return None

    def _options(self) -> Any:
        if not self.five:
            return self._subscription.qos
        from paho.mqtt.subscribeoptions import SubscribeOptions

        # retained messages come with a new subscription, not with a renewed one
        return SubscribeOptions(qos=self._subscription.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)

    def _on_subscribe(self, client: Any, userdata: Any, packet: int, reasons: Any, properties: Any) -> None:
        for topic, reason in zip(self._subscription.topics, reasons, strict=False):
            if reason.is_failure:
                self._failure = ConnectorError(
                    f"the MQTT broker {self.connection.url} refuses the subscription of {topic!r}: {reason}"
                )
                return
        self._note.write_text(json.dumps(self._wanted), encoding="utf-8")
        self.ready = True

    # -- receiving ---------------------------------------------------------------------------------

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        if message.qos < 2:  # those were taken when they arrived; now the broker has released one
            self._take(message, message.qos == 1)

    def _take(self, message: Any, lasting: bool, packet: int = 0) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = None
        user = getattr(message.properties, "UserProperty", []) if message.properties is not None else []
        self._received.messages.append(self._subscription.message(topic, message.payload, user, packet))
        self._received.size += len(message.payload)
        self._lasting.append(lasting)

    def receive(self, seconds: float) -> Received:
        if not self.up:
            self.open()
        self.wait(seconds)
        new, self._seen = self.client.due[self._seen :], len(self.client.due)
        for kind, packet in new:
            if kind == "_send_pubrec" and (self._received.forget or packet not in self._unreleased):
                message = self.client._in_messages.get(packet)  # noqa: SLF001 (paho hands it out on release)
                if message is not None and not self._holds(packet):
                    self._take(message, lasting=True, packet=packet)
            elif kind == "_send_pubcomp":
                self._received.released.append(packet)
        if self._failure is not None:
            raise self._failure
        if not self.ready and time.monotonic() - self.since > self.connection.timeout_s:
            raise ConnectorError(
                f"the MQTT broker {self.connection.url} does not confirm the subscription", retryable=True
            )
        self._received.due = self._seen
        return self._received

    def enough(self) -> bool:
        return self._received.size >= BLOCK_BYTES

    def _holds(self, packet: int) -> bool:
        return any(m.packet == packet for m in self._received.messages)

    def answer(self) -> None:
        due, self.client.due, self._seen = self.client.due, [], 0
        self._received, self._lasting = Received(), []
        base = paho_client().Client
        for kind, packet in due:
            getattr(base, kind)(self.client, packet)


class Receiver:
    """Moves messages from a broker to a spool in a thread of its own.

    Attributes
    ----------
    duplicates : int
        Messages left out because their identity was known.
    spool : Spool
    """

    def __init__(self, subscription: Subscription, spool: Spool) -> None:
        self._subscription = subscription
        self.spool = spool
        self.duplicates = 0
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._last = self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"riot_ops-mqtt-{spool.folder.name}")
        self._thread.start()

    def wait_ready(self) -> None:
        """Return when messages are being received; raises what prevents it."""
        while not self._ready.wait(0.05) and self._thread.is_alive():
            pass
        self.check()

    def check(self) -> None:
        """Raise what the thread failed with."""
        if self._error is not None:
            raise self._error

    def idle_s(self) -> float:
        """Seconds without a message, while connected."""
        return max(0.0, self._looked - self._last)

    def close(self) -> None:
        """Stop receiving; may be called twice."""
        self._stop.set()
        self._thread.join()
        self.spool.close()

    def _subscriber(self) -> Subscriber:
        scheme = self._subscription.connection.place[0]
        if scheme in (MEMORY, FOLDER):
            return (MemorySubscriber if scheme == MEMORY else FolderSubscriber)(self._subscription)
        note = self.spool.folder / "subscription.json"
        return _PahoSubscriber(self._subscription, note, self.spool.unreleased, self._stop)

    def _run(self) -> None:
        subscriber: Subscriber | None = None
        try:
            while not self._stop.is_set():
                if subscriber is None:
                    subscriber = self._subscriber()
                received = subscriber.receive(LOOK_S)
                self._looked = time.monotonic()
                self._last = max(self._last, subscriber.since if subscriber.ready else self._looked)
                if subscriber.ready:
                    self._ready.set()
                if not received:
                    continue
                if not self.spool.full:
                    self._keep(received)
                    subscriber.answer()
                elif len(received.messages) > MOST_HELD or received.size > MOST_HELD_BYTES:
                    subscriber.close()  # what has no acknowledgement waits at the broker
                    subscriber = None
                    while self.spool.full and not self._stop.wait(LOOK_S):
                        pass
        except BaseException as error:  # shown by check() to who reads
            if not self._stop.is_set():
                self._error = error
        finally:
            if subscriber is not None:
                subscriber.close()
            self._ready.set()

    def _keep(self, received: Received) -> None:
        new: list[Message] = []
        seen: set[bytes] = set()
        for message in received.messages:
            if message.id and (message.id in seen or self.spool.knows(message.id)):
                self.duplicates += 1
                continue
            seen.add(message.id)
            new.append(message)
        if new or received.released or received.forget:
            self.spool.append(new, received.released, received.forget)
        self._last = time.monotonic()
