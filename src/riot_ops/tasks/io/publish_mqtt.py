"""Publishing to an MQTT broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.connectors.mqtt.publication import MQTTPublication
from riot_ops.connectors.template import template
from riot_ops.core.order import result_fields
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.task import Case, Requirement, StatelessTask, register

__all__ = ["PublishMQTT"]


@register
@dataclass(frozen=True, kw_only=True)
class PublishMQTT(MQTTPublication, StatelessTask):
    """Publish each record to an MQTT broker, and pass it on.

    A batch is finished once the broker has acknowledged all its messages (QoS 1 and 2), with up to
    ``max_in_flight`` messages sent ahead of their acknowledgements. After a lost connection, publishing resumes
    where it stopped. If the broker is unreachable for ``timeout``, the batch fails and is processed again, so
    a message may arrive twice but is not lost: at least once. QoS 2 avoids repeats as long as the broker keeps
    the publisher's session. QoS 0 is at most once.

    Parameters
    ----------
    topic : str
        Template of the topic, with fields of the record in braces: ``city/{sensor_id}/{obs_type}``.
    payload : str or None, default "payload"
        Field with the message: text and bytes are sent unchanged, other types as JSON. None: a JSON object.
    fields : tuple of str
        Fields of the JSON object; empty: all but ordinals, see :mod:`riot_ops.core.order`.
    qos : 0, 1 or 2, default 1
        Quality of service.
    retain : bool, default False
        Whether the broker keeps the message for later subscribers; an empty message removes it.
    expiry : timedelta or text such as "1h", whole seconds, or None
        Time after which the broker no longer delivers the message (MQTT 5).
    user_properties : tuple of str
        Fields to send as user properties of the message (MQTT 5), such as ``seq``, by which a subscriber
        can recognise repeated messages.
    url : str
        ``mqtt://host:port``, ``mqtts://`` (TLS), ``ws://`` or ``wss://`` (websockets), without user and
        password. ``memory://name`` is a broker inside the process, for tests.
    username : str or None, default the environment variable RIOT_OPS_MQTT_USERNAME
    password : Secret or None, default the environment variable RIOT_OPS_MQTT_PASSWORD
    ca_file : str or None, default the system's authorities
        File with the certificates of trusted authorities.
    certificate : str or None
        File with the client's certificate (PEM), for brokers that identify clients by certificates.
    private_key : str or None, default the file of the certificate
        File with its private key, without a passphrase.
    will_topic : str or None
        Topic of the message that the broker publishes once the connection ends without a disconnect.
    will_payload : str, default ""
    will_qos : 0, 1 or 2, default 1
    will_retain : bool, default False
    client_id : str or None
        Prefix of the client's identifier, to which each process adds a random part.
    protocol : "5" or "3.1.1", default "5"
    keepalive : timedelta or text such as "10s", whole seconds, default 1 minute
    max_in_flight : int, >= 1, default 100
        Most messages that wait for an acknowledgement.
    timeout : timedelta or text such as "10s", default 1 minute
        How long to try to reach the broker, and to wait for an acknowledgement.

    Shapes and rates
    ----------------
    record[n] -> record[n], 1:1; about 10,000 messages/s to a nearby broker.

    Missing values
    --------------
    A null in a field of the topic rejects the record as ``bad_topic``, a null message as ``no_payload``.
    A null user property is omitted.

    Errors
    ------
    ``bad_topic`` (also wildcards in a topic); ``too_large`` (larger than the broker or MQTT allows);
    ``refused`` (by the broker, for example because the user may not publish to the topic). If the broker
    refuses the login or cannot be reached, the task raises :class:`ConnectorError`.

    References
    ----------
    .. [1] OASIS, *MQTT Version 5.0*, 2019, section 4.3.

    Examples
    --------
    >>> from riot_ops.connectors.mqtt.memory import MemoryBroker
    >>> session = MemoryBroker.of("memory://publish").session("me", ["city/#"])
    >>> publish = PublishMQTT(url="memory://publish", topic="city/{sensor}", payload="value").session()
    >>> publish.push({"sensor": "a", "value": 21.5})
    [{'sensor': 'a', 'value': 21.5}]
    >>> session[0].topic, session[0].payload
    ('city/a', b'21.5')
    """

    code: ClassVar[str] = "MQP"
    category: ClassVar[str] = "IO"
    reentrant: ClassVar[bool] = False
    pattern: ClassVar[str] = "Sink"

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys(self.required_fields, "any")

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        template(self.topic).check(schema)
        return schema

    def _whole_record(self, names: Sequence[str]) -> Sequence[str]:
        return result_fields(names, frozenset())

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        keep = np.ones(batch.num_rows, np.bool_)

        def reject(rows: Sequence[int], reason: str, messages: Sequence[str]) -> None:
            index = np.asarray(rows, np.int64)
            keep[index] = False
            errors.reject(batch, index, reason, messages)

        self.send(batch, reject)
        return batch if keep.all() else batch.filter(pa.array(keep))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
                "sensor_id": ["a", "ü/1", None, "b+", "", "c"],
                "value": [1.5, float("nan"), 3.0, 4.0, float("inf"), None],
                "payload": [b"1", b"", b"\xff", b"4", b"5", None],
            }
        )
        url = "memory://cases"
        yield Case(cls(url=url, topic="city/{sensor_id}"), batch)
        yield Case(cls(url=url, topic="city/all", payload="value", qos=0), batch, "number")
        yield Case(
            cls(url=url, topic="city/{sensor_id}", payload=None, fields=("value",), user_properties=("seq",)),
            batch,
            "json",
        )
