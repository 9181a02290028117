"""Publication parameters: how records become MQTT messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pyarrow as pa

from riot_ops.connectors.mqtt.client import MQTTConnection, whole_seconds
from riot_ops.connectors.mqtt.publisher import OutgoingMessage, open_publisher
from riot_ops.connectors.template import template
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration, Names

__all__ = ["MQTTPublication"]

MAX_TOPIC_BYTES = 65_535
MAX_PAYLOAD_BYTES = 268_435_455 - 2 * MAX_TOPIC_BYTES

#: Called with the positions of rejected records, a reason, and a message for each.
Reject = Callable[[Sequence[int], str, Sequence[str]], None]


@dataclass(frozen=True, kw_only=True)
class MQTTPublication(MQTTConnection):
    """Topic, payload and options of published records; see :class:`riot_ops.tasks.PublishMQTT`."""

    topic: str
    payload: str | None = "payload"
    fields: Names = ()
    qos: Literal[0, 1, 2] = 1
    retain: bool = False
    expiry: Duration | None = None
    user_properties: Names = ()

    def validate(self) -> None:
        super().validate()
        fixed = self.topic.replace("{{", "").replace("}}", "")
        if set(self.topic) & set("+#\0") or len(fixed.encode()) > MAX_TOPIC_BYTES:
            raise ConfigError(f"topic must not contain '+', '#' or NUL, nor be too long, got {self.topic!r}")
        template(self.topic)
        if self.expiry is not None:
            whole_seconds("expiry", self.expiry)
        if self.fields and self.payload is not None:
            raise ConfigError("fields make a JSON message: give payload=None with them")
        if self.protocol == "3.1.1" and (self.expiry is not None or self.user_properties):
            raise ConfigError("expiry and user_properties need protocol='5': MQTT 3.1.1 has neither")

    @property
    def required_fields(self) -> tuple[str, ...]:
        """The fields that it reads, except for a JSON message of all fields."""
        content = self.fields if self.payload is None else (self.payload,)
        return tuple(dict.fromkeys((*content, *template(self.topic).fields, *self.user_properties)))

    def send(self, batch: pa.RecordBatch, reject: Reject, topics: Sequence[str | None] | None = None) -> None:
        """Publish one message per record; return when all are acknowledged or rejected."""
        if topics is None:
            topics = template(self.topic).render(batch)
        payloads = self._payloads(batch)
        properties = [batch.column(name).cast(pa.string()).to_pylist() for name in self.user_properties]
        rows: list[int] = []
        outgoing: list[OutgoingMessage] = []
        rejected: dict[str, tuple[list[int], list[str]]] = {}

        def add_rejected(row: int, reason: str, message: str) -> None:
            known = rejected.setdefault(reason, ([], []))
            known[0].append(row)
            known[1].append(message)

        for row, (topic, payload) in enumerate(zip(topics, payloads, strict=True)):
            problem = "a field of the topic is null" if topic is None else _topic_problem(topic)
            if topic is None or problem:
                add_rejected(row, "bad_topic", problem)
            elif payload is None:
                add_rejected(row, "no_payload", f"{self.payload} is null")
            elif len(payload) > MAX_PAYLOAD_BYTES:
                add_rejected(row, "too_large", f"{len(payload)} bytes are more than MQTT allows")
            else:
                rows.append(row)
                outgoing.append(OutgoingMessage(topic, payload, self._user(properties, row) if properties else ()))
        if outgoing:
            expiry_s = None if self.expiry is None else whole_seconds("expiry", self.expiry)
            refused = open_publisher(self.connection).publish(
                outgoing, qos=self.qos, retain=self.retain, expiry_s=expiry_s
            )
            for position, (reason, message) in sorted(refused.items()):
                add_rejected(rows[position], reason, message)
        for reason, (index, messages) in rejected.items():
            reject(index, reason, messages)

    def _whole_record(self, names: Sequence[str]) -> Sequence[str]:
        """Return the fields of a JSON message without ``fields``."""
        return names

    def _user(self, columns: list[list[str | None]], row: int) -> tuple[tuple[str, str], ...]:
        found = ((name, column[row]) for name, column in zip(self.user_properties, columns, strict=True))
        return tuple((name, value) for name, value in found if value is not None)

    def _payloads(self, batch: pa.RecordBatch) -> list[bytes | None]:
        if self.payload is None:
            names = self.fields or self._whole_record(batch.schema.names)
            return [_encode(row) for row in batch.select(list(names)).to_pylist()]
        column = batch.column(self.payload)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = column.cast(pa.large_binary())  # also if they are not UTF-8
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            return column.to_pylist()  # type: ignore[no-any-return]
        return [None if value is None else _encode(value) for value in column.to_pylist()]


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def _topic_problem(topic: str) -> str:
    """Describe what is wrong with a topic; empty if it is valid."""
    if not topic:
        return "the topic is empty"
    for sign in "+#\0":
        if sign in topic:
            return f"the topic {topic[:100]!r} contains {sign!r}"
    try:
        return "the topic is too long" if len(topic.encode()) > MAX_TOPIC_BYTES else ""
    except UnicodeEncodeError:
        return "the topic is not text"
