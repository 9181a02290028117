"""How records become messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pyarrow as pa

from riot_ops.connectors.mqtt.client import MqttConnection
from riot_ops.connectors.mqtt.publisher import Outgoing, publisher
from riot_ops.connectors.template import template
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count

__all__ = ["MqttPublication"]

LONGEST_TOPIC = 65_535
LONGEST_PAYLOAD = 268_435_455 - 2 * LONGEST_TOPIC

#: Called with the positions of records, a reason and a message for each.
Reject = Callable[[Sequence[int], str, Sequence[str]], None]


@dataclass(frozen=True, kw_only=True)
class MqttPublication(MqttConnection):
    """What to publish of a record, where, and how; see :class:`riot_ops.tasks.PublishMQTT`."""

    topic: str
    payload: str | None = "payload"
    columns: tuple[str, ...] = ()
    qos: Literal[0, 1, 2] = 1
    retain: bool = False
    expiry_s: Count | None = None
    user_properties: tuple[str, ...] = ()

    def validate(self) -> None:
        super().validate()
        fixed = self.topic.replace("{{", "").replace("}}", "")
        if set(self.topic) & set("+#\0") or len(fixed.encode()) > LONGEST_TOPIC:
            raise ConfigError(f"topic must not have '+', '#' or NUL in it, nor be too long, got {self.topic!r}")
        template(self.topic)
        if self.columns and self.payload is not None:
            raise ConfigError("columns make a JSON message: give payload=None with them")
        if self.protocol == "3.1.1" and (self.expiry_s is not None or self.user_properties):
            raise ConfigError("expiry_s and user_properties need protocol='5': MQTT 3.1.1 has neither")

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it reads, but for those of a JSON message of all."""
        content = self.columns if self.payload is None else (self.payload,)
        return tuple(dict.fromkeys((*content, *template(self.topic).fields, *self.user_properties)))

    def send(self, batch: pa.RecordBatch, reject: Reject, topics: Sequence[str | None] | None = None) -> None:
        """Publish a record each; returns when all are acknowledged or rejected."""
        if topics is None:
            topics = template(self.topic).render(batch)
        payloads = self._payloads(batch)
        properties = [batch.column(name).cast(pa.string()).to_pylist() for name in self.user_properties]
        rows: list[int] = []
        outgoing: list[Outgoing] = []
        bad: dict[str, tuple[list[int], list[str]]] = {}

        def no(row: int, reason: str, message: str) -> None:
            known = bad.setdefault(reason, ([], []))
            known[0].append(row)
            known[1].append(message)

        for row, (topic, payload) in enumerate(zip(topics, payloads, strict=True)):
            problem = "a field of the topic is null" if topic is None else _topic_problem(topic)
            if topic is None or problem:
                no(row, "bad_topic", problem)
            elif payload is None:
                no(row, "no_payload", f"{self.payload} is null")
            elif len(payload) > LONGEST_PAYLOAD:
                no(row, "too_large", f"{len(payload)} bytes are more than MQTT allows")
            else:
                rows.append(row)
                outgoing.append(Outgoing(topic, payload, self._user(properties, row) if properties else ()))
        if outgoing:
            refused = publisher(self.connection).publish(
                outgoing, qos=self.qos, retain=self.retain, expiry_s=self.expiry_s
            )
            for position, (reason, message) in sorted(refused.items()):
                no(rows[position], reason, message)
        for reason, (index, messages) in bad.items():
            reject(index, reason, messages)

    def _user(self, columns: list[list[str | None]], row: int) -> tuple[tuple[str, str], ...]:
        found = ((name, column[row]) for name, column in zip(self.user_properties, columns, strict=True))
        return tuple((name, value) for name, value in found if value is not None)

    def _payloads(self, batch: pa.RecordBatch) -> list[bytes | None]:
        if self.payload is None:
            rows = batch.select(list(self.columns)).to_pylist() if self.columns else batch.to_pylist()
            return [_encode(row) for row in rows]
        column = batch.column(self.payload)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = column.cast(pa.large_binary())  # its bytes, whatever they are
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            return column.to_pylist()  # type: ignore[no-any-return]
        return [None if value is None else _encode(value) for value in column.to_pylist()]


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def _topic_problem(topic: str) -> str:
    """What is wrong with a topic, or nothing."""
    if not topic:
        return "the topic is empty"
    for sign in "+#\0":
        if sign in topic:
            return f"the topic {topic[:100]!r} has {sign!r} in it"
    try:
        return "the topic is too long" if len(topic.encode()) > LONGEST_TOPIC else ""
    except UnicodeEncodeError:
        return "the topic is not text"
