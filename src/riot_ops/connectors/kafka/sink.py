"""A sink that writes streams to Kafka topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.connectors.kafka.connection import KafkaConnection, confluent_kafka
from riot_ops.connectors.kafka.producer import IdempotentProducer, OutgoingMessage, Transactions, open_producer
from riot_ops.connectors.template import template
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.ipc import decode, encode
from riot_ops.core.json_rows import json_lines, json_texts
from riot_ops.core.parameters import Names, as_names
from riot_ops.core.sink import Message, Sink, Writer, align_schemas

__all__ = ["KafkaSink"]

#: Kafka's numbers of partitions are whole numbers of 32 bits.
MAX_PARTITION = 2**31 - 1
#: Rows of a block that crosses to the process that commits.
BLOCK_ROWS = 65_536
#: Bytes of the blocks of one writer, which cross in one piece.
MAX_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class KafkaSink(KafkaConnection, Sink):
    """Writes the records of streams to Kafka topics, by default as JSON objects.

    An epoch or micro-batch is complete when the brokers have acknowledged all its messages. The producer is idempotent:
    a request that it repeats adds nothing. After a crash a batch is written again, so without ``transactional`` each
    record arrives at least once; consumers recognise repeated ones by ``seq`` and ordinals.

    With ``transactional=True`` each batch is one transaction, which also records the number of the batch. Each record
    then arrives exactly once for consumers that read committed messages: of ``flow.run`` with a checkpoint, which
    counts only if the transaction was committed, and of ``flow.start``, where a micro-batch that is repeated after its
    transaction is left out. On Spark the messages of a micro-batch then pass through the process that commits. The
    promise holds between the sources of the run and these topics, not for other sinks beside nor for effects of tasks.
    A transaction that must be aborted because a broker was lost is repeated, up to 64 MB of records in process; else
    the run ends with :class:`ConnectorError`, and continues from its checkpoint when it is started again. After a crash
    consumers of committed messages wait until the run is started again, or the broker aborts the open transaction:
    after five minutes, or ``timeout`` if that is longer (``transaction.timeout.ms`` in ``client_options``).

    A record that cannot be written, such as one that is too large, stops the run with :class:`ConnectorError`.

    Parameters
    ----------
    topic : str
        The topic, or a template with fields of the record in it, such as ``readings-{site}``; ``{stream}`` is the name
        of the stream.
    payload : str or None, default None
        Field with the message, bytes or text; null is a tombstone. None: a JSON object of the record.
    fields : tuple of str, default ()
        Fields of the JSON object; by default all.
    key_field : str or None, default None
        Field with the key. Messages with the same key go to the same partition.
    header_fields : tuple of str, default ()
        Fields to send as headers, as text; null sends none.
    time : str or None, default None
        Field with the time stamp, after 1970-01-01T00:00. By default, and for null, the time of writing.
    partition_field : str or None, default None
        Field with the number of the partition. By default the key decides, as in Kafka's own client.
    transactional : bool, default False
        Whether a batch is one transaction. ``topic`` must then have no field but ``{stream}``.
    servers, security_protocol, sasl_mechanism, username, password, ca_file, certificate, private_key
        As for :class:`~riot_ops.connectors.kafka.connection.KafkaConnection`.
    client_id, timeout, client_options
        As for :class:`~riot_ops.connectors.kafka.connection.KafkaConnection`.

    Examples
    --------
    >>> KafkaSink(servers="localhost:9092", topic="results-{stream}", key_field="sensor_id").required_fields
    ('sensor_id',)
    >>> KafkaSink(servers="localhost:9092", topic="of-{site}", transactional=True)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: KafkaSink: a transactional sink needs a topic without fields, got 'of-{site}'
    """

    topic: str
    payload: str | None = None
    fields: Names = ()
    key_field: str | None = None
    header_fields: Names = ()
    time: str | None = None
    partition_field: str | None = None
    transactional: bool = False

    own_options: ClassVar[Mapping[str, str]] = {
        "acks": "the sink",
        "request.required.acks": "the sink",
        "enable.idempotence": "the sink",
        "transactional.id": "transactional",
        "delivery.timeout.ms": "timeout",
        "message.timeout.ms": "timeout",
        "delivery.report.only.error": "the sink",
        "on_delivery": "the sink",
        "dr_cb": "the sink",
    }

    def validate(self) -> None:
        super().validate()
        found = template(self.topic).fields
        if self.transactional and set(found) - {"stream"}:
            raise ConfigError(f"KafkaSink: a transactional sink needs a topic without fields, got {self.topic!r}")
        if self.fields and self.payload is not None:
            raise ConfigError("KafkaSink: fields make a JSON message: give payload=None with them")

    def _try_client(self, module: Any, settings: Mapping[str, Any]) -> None:
        module.Producer({"enable.idempotence": True, "delivery.timeout.ms": 60_000, **settings}).purge()

    @property
    def required_fields(self) -> tuple[str, ...]:
        """The fields that it reads, except for a JSON message of all fields."""
        single = (self.payload, self.key_field, self.time, self.partition_field)
        named = [name for name in single if name is not None]
        found = [*as_names(self.fields), *template(self.topic).fields, *named, *as_names(self.header_fields)]
        return tuple(dict.fromkeys(name for name in found if name != "stream"))

    def bind(self, schemas: Mapping[str, pa.Schema]) -> Sink:
        for stream, schema in schemas.items():
            for name in self.required_fields:
                if name not in schema.names:
                    rejected = "; give rejected records a sink of their own, named 'errors'"
                    raise ConfigError(
                        f"KafkaSink reads the field {name!r}, which the stream {stream!r} lacks; it has "
                        f"{', '.join(schema.names)}{rejected if stream == 'errors' else ''}"
                    )
            for field, allowed, fits in (
                (self.time, "a timestamp", pa.types.is_timestamp),
                (self.partition_field, "a whole number", pa.types.is_integer),
            ):
                if field is not None and not fits(schema.field(field).type):
                    raise ConfigError(
                        f"KafkaSink: the field {field!r} of the stream {stream!r} must be {allowed}, "
                        f"got {schema.field(field).type}"
                    )
        if self.transactional and schemas:
            object.__setattr__(self, "_record_topic", self._topic_of(min(schemas)))
        return self

    def _topic_of(self, stream: str) -> str:
        (topic,) = template(self.topic).render(pa.RecordBatch.from_pydict({"stream": [stream]}))
        assert topic is not None
        return topic

    # -- batches -----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        # a copy in another process hands its records to the one that commits
        return {k: v for k, v in self.__dict__.items() if k != "_transactions"} | {"_relays": True}

    @property
    def _is_relay(self) -> bool:
        return bool(self.__dict__.get("_relays"))

    def identify(self, run: str) -> None:
        if run != self.__dict__.get("_run_id"):
            self.end({})
            object.__setattr__(self, "_run_id", run)

    def _open_transactions(self) -> Transactions:
        found: Transactions | None = self.__dict__.get("_transactions")
        if found is None:
            run = self.__dict__.get("_run_id") or "none"
            topic = self.__dict__.get("_record_topic") or self._topic_of("")
            found = Transactions(self, f"{self.client_id}-{run}-{topic}", topic)
            object.__setattr__(self, "_transactions", found)
        return found

    def writer(self, batch_id: int, partition: int) -> Writer:
        if not self.transactional:
            return _KafkaWriter(self, open_producer(self))
        return _RelayWriter() if self._is_relay else _KafkaWriter(self, self._open_transactions())

    def last_committed(self) -> int | None:
        return self._open_transactions().last_committed() if self.transactional else None

    def commit(self, batch_id: int, messages: Sequence[Message]) -> None:
        if not self.transactional:
            return
        transactions = self._open_transactions()
        last = transactions.last_committed()
        if last is not None and batch_id <= last:  # it is repeated, with the same records
            return
        try:
            for message in messages:
                for stream, payload in message.get("blocks", ()):
                    transactions.produce(partial(self._decoded, stream, payload))
            transactions.flush()
            transactions.commit(batch_id)
        except BaseException:
            transactions.abort()
            raise

    def _decoded(self, stream: str, payload: bytes) -> Iterator[OutgoingMessage]:
        return chain.from_iterable(self.messages(stream, batch) for batch in decode(payload))

    def abort(self, batch_id: int) -> None:
        if self.transactional:
            self._open_transactions().abort()

    def end(self, schemas: Mapping[str, pa.Schema]) -> None:
        transactions: Transactions | None = self.__dict__.get("_transactions")
        object.__setattr__(self, "_transactions", None)
        if transactions is not None:
            transactions.close()

    def messages(self, stream: str, batch: pa.RecordBatch) -> Iterator[OutgoingMessage]:
        """Return the message of each record."""
        missing = [name for name in self.required_fields if name not in batch.schema.names]
        if missing:
            raise ConfigError(f"KafkaSink reads the field {missing[0]!r}, which the stream {stream!r} lacks")
        n = batch.num_rows
        topics: Any = repeat(self._topic_of(stream), n) if self._is_fixed else self._topics(stream, batch)
        keys: Any = repeat(None, n) if self.key_field is None else _bytes(batch.column(self.key_field))
        partitions: Any = repeat(-1, n)
        if self.partition_field is not None:
            found = batch.column(self.partition_field).to_pylist()
            partitions = [-1 if number is None else number for number in found]
            if wrong := [number for number in partitions if not -1 <= number <= MAX_PARTITION]:
                raise ConnectorError(
                    f"KafkaSink: the field {self.partition_field!r} of a record of the stream {stream!r} must be the "
                    f"number of a partition, from 0 to {MAX_PARTITION}, got {wrong[0]}"
                )
        times: Any = repeat(0, n)
        if self.time is not None:
            column = batch.column(self.time)
            in_ms = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
            if (first := pc.min(in_ms).as_py()) is not None and first < 1:
                raise ConnectorError(
                    f"KafkaSink: the time {self.time!r} of a record of the stream {stream!r} must be after "
                    f"1970-01-01T00:00, where Kafka's times begin, got {first} ms from there; filter or mend such "
                    "records before the sink"
                )
            times = in_ms.fill_null(0).to_pylist()  # 0 is the time of writing
        headers: Any = repeat(None, n)
        if self.header_fields:
            names = as_names(self.header_fields)
            columns = [_bytes(batch.column(name)) for name in names]
            headers = [
                [(name, value) for name, value in zip(names, row, strict=True) if value is not None]
                for row in zip(*columns, strict=True)
            ]
        unused = repeat(None, n), repeat(None, n)
        rows = zip(topics, self._payloads(batch), keys, partitions, *unused, times, headers, strict=True)
        return map(OutgoingMessage._make, rows)

    @property
    def _is_fixed(self) -> bool:
        return not set(template(self.topic).fields) - {"stream"}

    def _topics(self, stream: str, batch: pa.RecordBatch) -> list[str]:
        if "stream" not in batch.schema.names:
            batch = batch.append_column("stream", pa.array([stream] * batch.num_rows, pa.string()))
        found: list[Any] = template(self.topic).render(batch)
        if None in found:
            raise ConnectorError(f"a field of the topic {self.topic!r} is null in a record of the stream {stream!r}")
        return found

    def _payloads(self, batch: pa.RecordBatch) -> list[bytes | None]:
        if self.payload is not None:
            return _bytes(batch.column(self.payload))
        names = as_names(self.fields)
        lines = json_lines(batch.select(list(names)) if names else batch)
        return lines.split(b"\n")[:-1]  # type: ignore[return-value]


def _bytes(column: pa.Array) -> list[bytes | None]:
    """Return values as bytes: bytes and text unchanged, others as JSON."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        column = json_texts(column)
    return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


class _KafkaWriter(Writer):
    """Produces at once; the batch is complete when all messages are acknowledged."""

    def __init__(self, sink: KafkaSink, producer: IdempotentProducer | Transactions) -> None:
        confluent_kafka()
        self._sink = sink
        self._producer = producer

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        if isinstance(self._producer, Transactions):
            self._producer.produce(lambda: self._sink.messages(stream, batch), batch.nbytes)
        else:
            self._producer.produce(self._sink.messages(stream, batch))

    def finish(self) -> Message:
        self._producer.flush()
        return {}

    def abort(self) -> None:
        if isinstance(self._producer, Transactions):
            self._producer.abort()
        else:
            self._producer.drop()


class _RelayWriter(Writer):
    """Hands the records over to the process that commits."""

    def __init__(self) -> None:
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._blocks: list[tuple[str, bytes]] = []
        self._size = 0

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        self._held.setdefault(stream, []).append(batch)
        self._rows[stream] = self._rows.get(stream, 0) + batch.num_rows
        if self._rows[stream] >= BLOCK_ROWS:
            self._pack(stream)

    def _pack(self, stream: str) -> None:
        self._rows[stream] = 0
        payload = encode(align_schemas(self._held.pop(stream)), Buffering())
        self._blocks.append((stream, payload))
        self._size += len(payload)
        if self._size > MAX_BYTES:
            raise ConnectorError(
                f"a micro-batch has more than {MAX_BYTES:,} bytes for one transaction: take fewer records at a time "
                "(max_records=), or write without transactions"
            )

    def finish(self) -> Message:
        for stream in list(self._held):
            self._pack(stream)
        return {"blocks": self._blocks}
