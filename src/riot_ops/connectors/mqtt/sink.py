"""A sink that publishes streams to an MQTT broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from riot_ops.connectors.mqtt.publication import MQTTPublication
from riot_ops.connectors.template import template
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.sink import Message, Sink, Writer

__all__ = ["MQTTSink"]


@dataclass(frozen=True, kw_only=True)
class MQTTSink(MQTTPublication, Sink):
    """Publishes the records of streams as they arrive, by default as JSON objects.

    At least once with QoS 1 and 2: a batch is complete when the broker has acknowledged all its messages, and is
    published again after a crash. At most once with QoS 0. Subscribers recognise repeated records by ``seq`` (and
    ``ordinal``).

    A record that cannot be published stops the run with :class:`ConnectorError`, since a sink has no errors stream; to
    avoid that, end the dataflow with :class:`riot_ops.tasks.PublishMQTT`.

    Parameters
    ----------
    topic : str
        As for :class:`riot_ops.tasks.PublishMQTT`; ``{stream}`` is the name of the stream.
    payload : str or None, default None
        Field with the message; None: a JSON object of the record.
    fields, qos, retain, expiry, user_properties
        As for :class:`riot_ops.tasks.PublishMQTT`.
    url, username, password, ca_file, certificate, private_key, will_topic, will_payload, will_qos, will_retain
        As for :class:`~riot_ops.connectors.mqtt.client.MQTTConnection`.
    client_id, protocol, keepalive, max_in_flight, timeout
        As for :class:`~riot_ops.connectors.mqtt.client.MQTTConnection`.

    Examples
    --------
    >>> from riot_ops.connectors.mqtt.memory import MemoryBroker
    >>> session = MemoryBroker.of("memory://sink").session("me", ["#"])
    >>> sink = MQTTSink(url="memory://sink", topic="results/{stream}")
    >>> sink.writer(0, 0).write("out", pa.RecordBatch.from_pydict({"value": [1.5]}))
    >>> session[0].topic, session[0].payload
    ('results/out', b'{"value":1.5}')
    """

    payload: str | None = None

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _MQTTWriter(self)


class _MQTTWriter(Writer):
    def __init__(self, sink: MQTTSink) -> None:
        self._sink = sink

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        sink = self._sink
        missing = [n for n in sink.required_fields if n not in batch.schema.names and n != "stream"]
        if missing:
            raise ConfigError(f"MQTTSink reads the field {missing[0]!r}, which the stream {stream!r} lacks")

        def fail(rows: Sequence[int], reason: str, messages: Sequence[str]) -> None:
            raise ConnectorError(
                f"{len(rows)} records of the stream {stream!r} cannot be published ({reason}): {messages[0]}"
            )

        named = batch
        if "stream" not in batch.schema.names:
            named = batch.append_column("stream", pa.array([stream] * batch.num_rows, pa.string()))
        sink.send(batch, fail, template(sink.topic).render(named))

    def finish(self) -> Message:
        return {}
