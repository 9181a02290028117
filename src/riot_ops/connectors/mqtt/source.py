"""A replayable source of MQTT messages."""

from __future__ import annotations

import atexit
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import pyarrow as pa

from riot_ops.connectors.mqtt.carried import CarriedMessages
from riot_ops.connectors.mqtt.client import MQTTConnection, whole_seconds
from riot_ops.connectors.mqtt.receiver import Receiver
from riot_ops.connectors.mqtt.spool import Message, Spool, first_number, read_messages
from riot_ops.connectors.mqtt.subscription import Subscription
from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.parameters import Count, Duration, Names, as_names, as_timedelta, parameters_to_json
from riot_ops.core.paths import local_path
from riot_ops.core.schema import RAW, TIMESTAMP
from riot_ops.core.secret import literal_secrets
from riot_ops.core.source import Offset, Source, Split, register_source, row_splits

__all__ = ["MESSAGES", "MQTTSource"]

BATCH_ROWS = 8192
BATCH_BYTES = 64 << 20
MAX_TOPIC_BYTES = 65_535
SHARED = "$share/"

SpoolBytes = Annotated[int, msgspec.Meta(ge=4 << 20)]

#: The schema of the messages.
MESSAGES = pa.schema([*RAW, pa.field("topic", pa.string())])


@register_source
@dataclass(frozen=True, kw_only=True)
class MQTTSource(MQTTConnection, Source):
    """Receive messages from an MQTT broker through a durable spool (MQS).

    MQTT has no offsets: the broker drops acknowledged messages. A thread therefore writes messages to a spool on disk,
    and then acknowledges them; offsets are positions in the spool. From the broker to the spool, delivery is exactly
    once with QoS 2 (as the protocol defines it), at least once with QoS 1 and at most once with QoS 0; from the spool
    on, a range of offsets always has the same messages. After a crash in between, the broker sends unacknowledged
    messages again: with QoS 1 a message may then arrive twice, unless ``id_properties`` identify it.

    While no run reads, the broker must keep the session: give it a long ``session_expiry``, and let the broker
    queue enough (Mosquitto: ``max_queued_messages 0``, ``max_inflight_messages``, ``persistence true``). Messages
    published before the first subscription are not received. A source without a checkpoint continues after the last
    commit.

    Parameters
    ----------
    topics : tuple of str
        Topic filters, with ``+`` and ``#``. A message that several match arrives once (MQTT 3.1.1: as often as the
        broker sends it). Of ``$share/GROUP/FILTER`` each message goes to one client of the group.
    spool : str
        Folder for the spool: persistent, on a local disk, used by this source alone. On Spark the driver writes and
        reads it: on a cluster the records travel with the tasks, so that workers need not see it.
    client_id : str
        Stable name at the broker, used by this source alone: it identifies the session.
    qos : 0, 1 or 2, default 1
        Maximum quality of service; that of the publisher is not raised.
    session_expiry : timedelta or text such as "1h", whole seconds, default 7 days
        How long the broker keeps the session without a connection (MQTT 5).
    max_spool_bytes : int, >= 4 MiB, default 1 GiB
        When the spool reaches this size, the source acknowledges no more messages until some have been processed.
    time_property : str or None, default None
        User property with the event time: microseconds since 1970, or ISO 8601; null if a message lacks it. By default
        the event time is the time of arrival.
    id_properties : tuple of str, default ()
        User properties that together identify a message: a message with the same values as one of the last 10,000 is
        dropped.
    messages : int or None, default None
        End after this many messages of the spool.
    idle : timedelta or text such as "10s", or None, default None
        End when no message has arrived for this long.
    url, username, password, ca_file, certificate, private_key, will_topic, will_payload, will_qos, will_retain
        As for :class:`~riot_ops.connectors.mqtt.client.MQTTConnection`.
    protocol, keepalive, max_in_flight, timeout
        As for :class:`~riot_ops.connectors.mqtt.client.MQTTConnection`.

    Shapes and rates
    ----------------
    ``seq``, ``event_time``, ``payload`` (binary) and ``topic``; one record per message.

    Errors
    ------
    A broker that cannot be reached for ``timeout``, a refused login or subscription, an untrusted
    certificate, and a spool that is damaged, missing or in use raise :class:`ConnectorError` in
    :meth:`latest`.

    Examples
    --------
    >>> import tempfile
    >>> from riot_ops.connectors.mqtt.memory import MemoryBroker
    >>> source = MQTTSource(
    ...     url="memory://docs", topics=["city/#"], client_id="me", spool=tempfile.mkdtemp(), messages=2
    ... )
    >>> source.open()
    >>> for text in (b"1", b"2"):
    ...     MemoryBroker.of("memory://docs").publish("city/a", text)
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("keep")
    >>> raw = flow.source("raw", schema=source.schema)
    >>> _ = flow.sink("out", raw)
    >>> flow.run(source)["raw"].select(["seq", "payload", "topic"]).to_pylist()[1]
    {'seq': 1, 'payload': b'2', 'topic': 'city/a'}
    """

    code: ClassVar[str] = "MQS"
    category: ClassVar[str] = "IO"

    topics: Names
    spool: str
    qos: Literal[0, 1, 2] = 1
    max_in_flight: Count = 500
    session_expiry: Duration = timedelta(weeks=1)
    max_spool_bytes: SpoolBytes = 1 << 30
    time_property: str | None = None
    id_properties: Names = ()
    messages: Count | None = None
    idle: Duration | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spool", str(local_path(self.spool, "spool").absolute()))
        super().__post_init__()

    def description(self) -> dict[str, Any] | None:
        """Describe the subscription without client id and spool; None if a secret is a literal value."""
        if literal_secrets(self):
            return None
        parameters = parameters_to_json(self, self.name())
        parameters |= {"url": self.broker, "topics": sorted({*self.topics})}
        return {"source": self.name(), **{n: v for n, v in parameters.items() if n not in ("client_id", "spool")}}

    def consumed_resources(self) -> frozenset[str]:
        return frozenset({f"the spool {self.spool}", f"the session of {self.client_id!r} at {self.broker}"})

    def local_files(self) -> list[str]:
        return [self.spool]

    def carried(self) -> Source:
        return CarriedMessages(self, Path(self.spool))

    def validate(self) -> None:
        super().validate()
        if self.client_id is None:
            raise ConfigError("MQTTSource needs a client_id: the broker keeps the session under this name")
        whole_seconds("session_expiry", self.session_expiry)
        if self.idle is not None:
            duration_seconds("idle", self.idle)
        if not self.topics:
            raise ConfigError("topics must not be empty")
        for topic in self.topics:
            _check_filter(topic)
        if self.protocol == "3.1.1" and (self.time_property or self.id_properties):
            raise ConfigError("time_property and id_properties need protocol='5': MQTT 3.1.1 has no user properties")

    @property
    def latest_blocks(self) -> bool:  # type: ignore[override]
        return True

    # -- receiving ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Subscribe and wait until the broker confirms it; without this call the first read subscribes."""
        self._ready_receiver()

    @property
    def duplicates(self) -> int:
        """Number of messages dropped in this process because their ``id_properties`` were known."""
        receiver = _RECEIVERS.get(self.spool)
        return 0 if receiver is None else receiver[1].duplicates

    def _receiver(self) -> Receiver:
        with _LOCK:
            known = _RECEIVERS.get(self.spool)
            if known is None:
                receiver = Receiver(
                    Subscription(
                        self.connection,
                        as_names(self.topics),
                        self.qos,
                        whole_seconds("session_expiry", self.session_expiry),
                        self.time_property,
                        as_names(self.id_properties),
                    ),
                    Spool(Path(self.spool), self.max_spool_bytes, _CANCELLED.setdefault(self.spool, threading.Event())),
                )
                known = _RECEIVERS[self.spool] = self, receiver
            if known[0] != self:
                raise ConfigError(f"the spool {self.spool} is in use by another source of this process")
            _HOLDERS.setdefault(self.spool, {})[id(self)] = weakref.ref(self)
            return known[1]

    def _ready_receiver(self) -> Receiver:
        receiver = self._receiver()
        try:
            receiver.wait_ready()
        except ConnectorError:
            _close_receiver(self.spool)  # the next call connects again, and another source may use the spool
            raise
        return receiver

    def cancel_waits(self) -> None:
        cancelled = _CANCELLED.setdefault(self.spool, threading.Event())
        cancelled.set()  # the thread that opens the spool holds the lock
        try:
            with _LOCK:
                known, holders = _RECEIVERS.get(self.spool), _HOLDERS.get(self.spool, {})
                others = any(key != id(self) and holder() is not None for key, holder in holders.items())
            if known is not None and known[0] == self and not others:
                known[1].cancel_waits()
        finally:
            cancelled.clear()

    def close(self) -> None:
        """Stop receiving, unless another source object with the same parameters still uses the receiver."""
        with _LOCK:
            holders = _HOLDERS.get(self.spool, {})
            holders.pop(id(self), None)
            used = any(holder() is not None for holder in holders.values())
            known = _RECEIVERS.get(self.spool)
        if known is not None and not used and known[0] == self:
            _close_receiver(self.spool)

    # -- source ------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        return MESSAGES

    def initial(self) -> Offset:
        return {"seq": first_number(Path(self.spool))}

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        at = int(start["seq"])
        if self.messages is not None and at >= self.messages:
            return start
        receiver = self._ready_receiver()
        end = receiver.spool.end
        if at > end:
            raise ConnectorError(
                f"the spool {self.spool} has {end} messages, but the run continues after {at}: "
                "it is not the spool with which the run was started"
            )
        return {
            "seq": min(end, *(n for n in (self.messages, None if limit is None else at + limit) if n is not None), end)
        }

    def finished(self, offset: Offset) -> bool:
        if self.messages is not None and offset["seq"] >= self.messages:
            return True
        known = _RECEIVERS.get(self.spool)
        if self.idle is None or known is None or offset["seq"] < known[1].spool.end:
            return False
        return known[1].idle_s() >= as_timedelta(self.idle).total_seconds()

    def waits(self) -> bool:
        return True

    def wait_time(self, offset: Offset, wake: Callable[[], None]) -> float | None:
        known = _RECEIVERS.get(self.spool)
        if known is None:
            return None
        receiver = known[1]
        receiver.add_listener(wake)
        if offset["seq"] < receiver.spool.end:  # messages may have come before the listener
            return 0.0
        return math.inf if self.idle is None else max(as_timedelta(self.idle).total_seconds() - receiver.idle_s(), 0.0)

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return row_splits(start, end, n, "seq")

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        held: list[Message] = []
        first, size = int(split["start"]), 0
        known = _RECEIVERS.get(self.spool)
        recent = None if known is None else known[1].spool.recent(first, int(split["end"]))
        blocks: Iterable[Sequence[Message]] = (
            (messages for _, messages in read_messages(Path(self.spool), first, int(split["end"])))
            if recent is None
            else recent
        )
        for messages in blocks:
            for message in messages:
                held.append(message)
                size += len(message.payload)
                if len(held) >= BATCH_ROWS or size >= BATCH_BYTES:
                    yield _batch(first, held)
                    first, size, held = first + len(held), 0, []
        if held:
            yield _batch(first, held)

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["seq"] - start["seq"])

    def seq_at(self, offset: Offset) -> int:
        return int(offset["seq"])

    def commit(self, end: Offset) -> None:
        known = _RECEIVERS.get(self.spool)
        if known is not None:
            known[1].commit(int(end["seq"]))


#: By spool: the receiver with the first source that used it, and the sources that use it by ``id()``.
_RECEIVERS: dict[str, tuple[MQTTSource, Receiver]] = {}
_HOLDERS: dict[str, dict[int, weakref.ref[MQTTSource]]] = {}
_LOCK = threading.Lock()
#: By spool: set while calls that wait for the lock of the spool shall end.
_CANCELLED: dict[str, threading.Event] = {}


def _close_receiver(spool: str) -> None:
    with _LOCK:
        _HOLDERS.pop(spool, None)
        known = _RECEIVERS.pop(spool, None)
    if known is not None:
        known[1].close()


@atexit.register
def _close_all() -> None:
    for spool in list(_RECEIVERS):
        _close_receiver(spool)


def _check_filter(topic: str) -> None:
    if f"{topic}/".startswith(SHARED):
        _, group, plain = [*topic.split("/", 2), "", ""][:3]
        if not group or not plain or "+" in group or "#" in group:
            raise ConfigError(f"topics: {topic!r} must be $share/GROUP/FILTER, with a group without '+' and '#'")
    levels = topic.split("/")
    wrong = (
        not topic
        or len(topic.encode()) > MAX_TOPIC_BYTES
        or "\0" in topic
        or any("#" in level and level != "#" for level in levels)
        or any("+" in level and level != "+" for level in levels)
        or "#" in levels[:-1]
    )
    if wrong:
        raise ConfigError(f"topics: {topic!r} is not a topic filter: '+' must be a whole level, '#' the last one")


def _batch(first: int, messages: list[Message]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(first, first + len(messages))),
            pa.array([m.time_us for m in messages], pa.int64()).cast(TIMESTAMP),
            pa.array([m.payload for m in messages], pa.binary()),
            pa.array([m.topic for m in messages], pa.string()),
        ],
        schema=MESSAGES,
    )
